"""What can be drilled: each scenario, the fault it injects, and the truth a verdict is held against.

Standard library only, so that listing loads no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from .training import Cadence, Training


class FaultKind(StrEnum):
    """What goes wrong; `faults.py` does it."""

    NONE = "none"
    HIGH_LR = "high_lr"
    """The learning rate is multiplied, for ever or for a few iterations."""
    ACTIVATION_FLIP = "activation_flip"
    """The top exponent bit of one activation flips, once, in one rank's forward pass."""
    BAD_SAMPLE = "bad_sample"
    """One sample of one rank's batch holds non-finite features."""
    PARAM_FLIP = "param_flip"
    """One exponent bit of one parameter of one replica flips after the update."""
    OPTIMIZER_FLIP = "optimizer_flip"
    """One exponent bit of one first moment of one replica flips just before the update."""
    SCALED_MATMUL = "scaled_matmul"
    """One rank's matmul gives results that are a few percent off, from one iteration on."""
    REDUCED_FLIP = "reduced_flip"
    """One exponent bit of one rank's copy of the reduced gradient flips."""
    DROPPED_GRADIENT = "dropped_gradient"
    """What one rank computed does not enter the reduction, for some iterations."""
    SCALED_GRADIENT = "scaled_gradient"
    """One rank's gradient is a few percent too large, from one iteration on."""
    STALE_GRADIENT = "stale_gradient"
    """One rank sends the gradient of the iteration before, from one iteration on: it is read too early."""
    SLOW_RANK = "slow_rank"
    """One rank takes longer for its steps, from one iteration on."""
    OVERFLOWING = "overflowing"
    """One value of one rank's gradient overflows, again and again."""
    STUCK_AVERAGE = "stuck_average"
    """Bits of the averaged parameters are stuck, which evaluation alone reads."""
    HANG = "hang"
    """One rank does not come to the reduction, and the others wait for it."""
    CRASH = "crash"
    """The job dies and is launched again from its last checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of run. ``label`` is the verdict it deserves; ``phase`` where its first bad value is."""

    name: str
    summary: str
    label: str
    seed: int
    """Seed of the sample log: chosen so that samples differ in rank and iteration."""
    iterations: int = 700
    fault: FaultKind = FaultKind.NONE
    is_of_one_rank: bool = False
    phase: str | None = None
    strikes_between: tuple[float, float] = (0.45, 0.75)
    """Range of the fault's iteration, as shares of the run: late enough for a baseline before it."""
    lasts_iterations: int | None = None
    """Length of a fault that passes; None is for ever (or once, for a flip)."""
    magnitude: float = 1.0
    """Factor on the learning rate or on the matmul, by kind of fault."""
    runs_on_iterations: int | None = None  # after the fault, when the job is stopped; None: to the end
    annotation: str | None = None
    """Kind of annotation a healthy verdict should carry."""
    training: Training = field(default_factory=Training)
    cadence: Cadence = field(default_factory=Cadence)


_UNBOUNDED = Training(clip_norm=None, is_normalised=False, weight_decay=0.0)
_UNBOUNDED_FROM_START = replace(_UNBOUNDED, warmup_iterations=20, final_lr_share=1.0)
_SKETCHED = Cadence(param_checksum=20, optim_checksum=20, canary=50, grad_sketch=1)
_CURVES_ALONE = Cadence(param_checksum=0, optim_checksum=0, canary=0)
_ALL = (
    Scenario(
        name="healthy",
        summary="nothing goes wrong",
        label="healthy",
        seed=11,
    ),
    Scenario(
        name="explosion",
        summary="the learning rate is far too high from the start",
        label="gradient_explosion",
        seed=23,
        iterations=500,
        fault=FaultKind.HIGH_LR,
        strikes_between=(0.0, 0.0),
        magnitude=150.0,
        runs_on_iterations=300,
        training=_UNBOUNDED_FROM_START,
    ),
    Scenario(
        name="explosion_late",
        summary="a schedule change multiplies the learning rate in the middle of the run",
        label="gradient_explosion",
        seed=37,
        iterations=800,
        fault=FaultKind.HIGH_LR,
        magnitude=400.0,
        runs_on_iterations=120,
        training=_UNBOUNDED,
    ),
    Scenario(
        name="nan_activation",
        summary="a bit flips in an activation on one rank: NaN before the reduction, then everywhere",
        label="nan",
        seed=41,
        iterations=800,
        fault=FaultKind.ACTIVATION_FLIP,
        is_of_one_rank=True,
        phase="forward",
        runs_on_iterations=30,
    ),
    Scenario(
        name="nan_input",
        summary="a sample with NaN and infinite features is read by one rank",
        label="nan",
        seed=59,
        iterations=750,
        fault=FaultKind.BAD_SAMPLE,
        is_of_one_rank=True,
        phase="data",
        runs_on_iterations=24,
    ),
    Scenario(
        name="drift_param",
        summary="a bit flips in one replica's parameters: its checksum differs from then on",
        label="silent_drift",
        seed=67,
        iterations=700,
        fault=FaultKind.PARAM_FLIP,
        is_of_one_rank=True,
        phase="state",
        cadence=Cadence(param_checksum=10, optim_checksum=10),
    ),
    Scenario(
        name="drift_optimizer",
        summary="a bit flips in one replica's optimizer state: first its moments, then its parameters differ",
        label="silent_drift",
        seed=77,
        iterations=650,
        fault=FaultKind.OPTIMIZER_FLIP,
        is_of_one_rank=True,
        phase="state",
        cadence=Cadence(param_checksum=20, optim_checksum=5),
    ),
    Scenario(
        name="drift_compute",
        summary="one rank multiplies matrices a few percent wrong: only its canary shows it",
        label="silent_drift",
        seed=83,
        iterations=900,
        fault=FaultKind.SCALED_MATMUL,
        is_of_one_rank=True,
        phase="backward",
        magnitude=1.04,
    ),
    Scenario(
        name="overflow_skips",
        summary="half precision with dynamic loss scaling: skipped iterations that are no fault",
        label="healthy",
        seed=97,
        iterations=800,
        annotation="loss_scale_skip",
        training=Training(is_fp16=True),
    ),
    Scenario(
        name="spike_recovered",
        summary="the learning rate is too high for two iterations: the loss jumps and comes back",
        label="healthy",
        seed=101,
        iterations=750,
        fault=FaultKind.HIGH_LR,
        strikes_between=(0.3, 0.5),
        lasts_iterations=2,
        magnitude=30.0,
        annotation="spike_recovered",
    ),
    Scenario(
        name="restart",
        summary="the job dies, resumes from a checkpoint and repeats iterations",
        label="healthy",
        seed=115,
        iterations=700,
        fault=FaultKind.CRASH,
    ),
    Scenario(
        name="reduce_clean",
        summary="linear checksums of the gradients in half precision: skipped iterations are no fault",
        label="healthy",
        seed=127,
        iterations=600,
        annotation="loss_scale_skip",
        training=Training(is_fp16=True),
        cadence=_SKETCHED,
    ),
    Scenario(
        name="reduce_wrong",
        summary="a bit flips in the reduced gradient that one rank gets: its replica differs from then on",
        label="silent_drift",
        seed=131,
        iterations=600,
        fault=FaultKind.REDUCED_FLIP,
        is_of_one_rank=True,
        phase="reduce_out",
        cadence=_SKETCHED,
    ),
    Scenario(
        name="reduce_dropped",
        summary="the reduction loses the gradient of one rank: all replicas stay equal and are wrong alike",
        label="silent_drift",
        seed=139,
        iterations=600,
        fault=FaultKind.DROPPED_GRADIENT,
        is_of_one_rank=True,
        phase="reduce_out",
        lasts_iterations=60,
        cadence=_SKETCHED,
    ),
    Scenario(
        name="drift_gradient",
        summary="one rank's gradient is 8 % too large, and no checksum and no canary is reported",
        label="silent_drift",
        seed=151,
        iterations=800,
        fault=FaultKind.SCALED_GRADIENT,
        is_of_one_rank=True,
        phase="reduce_in",
        strikes_between=(0.45, 0.6),
        magnitude=1.08,
        cadence=_CURVES_ALONE,
    ),
    Scenario(
        name="drift_stale",
        summary="one rank sends the gradient of the iteration before: each of its curves looks as ever",
        label="silent_drift",
        seed=163,
        iterations=1600,
        fault=FaultKind.STALE_GRADIENT,
        is_of_one_rank=True,
        phase="reduce_in",
        strikes_between=(0.75, 0.8),
        cadence=replace(_CURVES_ALONE, bucket_norm=1),
    ),
    Scenario(
        name="slow_rank",
        summary="one rank takes 1.4 times as long for its steps",
        label="stall",
        seed=173,
        iterations=600,
        fault=FaultKind.SLOW_RANK,
        is_of_one_rank=True,
        phase="state",
        strikes_between=(0.3, 0.5),
        magnitude=1.4,
    ),
    Scenario(
        name="hang",
        summary="one rank never comes to the reduction: the others wait, and heartbeats say where",
        label="stall",
        seed=151,
        fault=FaultKind.HANG,
        is_of_one_rank=True,
        phase="backward",
        strikes_between=(0.75, 0.9),
        runs_on_iterations=0,
        cadence=Cadence(heartbeat=25),
    ),
    Scenario(
        name="eval_falls",
        summary="bits stick in the averaged parameters: evaluation falls, training knows nothing of it",
        label="silent_drift",
        seed=163,
        fault=FaultKind.STUCK_AVERAGE,
        phase="state",
        strikes_between=(0.55, 0.7),
        cadence=Cadence(evaluation=10),
    ),
    Scenario(
        name="skips_one_rank",
        summary="half precision, and the gradient of one rank alone overflows every fifteen iterations",
        label="nan",
        seed=173,
        fault=FaultKind.OVERFLOWING,
        is_of_one_rank=True,
        phase="reduce_in",
        training=Training(is_fp16=True),
    ),
)
SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
"""Every scenario by name, in the order in which they are listed."""
