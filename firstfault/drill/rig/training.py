"""How a job of the rig trains and how often it looks at itself. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from ..plans import DrillError

OPTIMIZERS = ("sgd", "adamw")
SCHEDULES = ("constant", "cosine", "linear", "wsd", "step")
PRECISIONS = ("fp32", "bf16", "fp16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The job dies before ``iteration`` and goes on from its last checkpoint as a new attempt."""

    iteration: int
    """First iteration that the dying attempt does not execute."""
    ranks: int | None = None
    """World size afterwards, where it changes (elastic training); None keeps it."""
    is_spiking: bool = False
    """The optimizer state is lost on purpose, as in jobs that save weights alone: the loss spikes for a
    short while and comes back. Healthy, if unlovely."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RigTraining:
    """How the job trains. The defaults are those of an ordinary healthy run."""

    optimizer: str = "adamw"
    """``sgd`` (with momentum) or ``adamw``."""
    peak_lr: float = 4e-3
    """Learning rate after the warm-up; AdamW on a model this small is stable up to about 2e-2, and SGD
    wants about fifty times as much."""
    schedule: str = "cosine"
    """constant, cosine, linear, wsd (flat, then down in the last fifth) or step (a tenth at two thirds)."""
    warmup_iterations: int = 40
    final_lr_share: float = 0.1
    """Cosine, linear and wsd end at this share of the peak."""
    weight_decay: float = 0.1
    beta1: float = 0.9
    """First-moment decay of AdamW, momentum of SGD."""
    beta2: float = 0.95
    clip_norm: float | None = 1.0
    """The global gradient norm is clipped to this; None trains unclipped."""
    precision: str = "fp32"
    """bf16 rounds what the forward pass reads and the gradients, fp16 the gradients under a loss scale."""
    initial_scale: float = 2.0**24
    """Of fp16: too high on purpose, as scalers start, so the first iterations are skipped."""
    scale_growth_iterations: int = 150
    """Finite iterations after which the loss scale doubles; real trainers use 1000 to 2000."""
    batch_ramp: tuple[tuple[int, int], ...] = ()
    """(iteration, microbatches) from which on more are accumulated; overrides ``accumulation`` from there."""
    accumulation: int = 1
    """Microbatches that one iteration adds up."""
    data_switch: int | None = None
    """Iteration from which on a share of the text is of another language."""
    data_switch_share: float = 0.5
    epoch_iterations: int | None = None
    """Data repeat after so many iterations; None never repeats them."""
    rank_spread: float = 0.0
    """How unevenly ranks are served, as with mixtures of experts: rank r reads up to this share of noise."""
    restarts: tuple[Restart, ...] = ()
    bad_batch: int | None = None
    """Iteration with a batch of noise on all ranks, from which a healthy run recovers."""
    log_every: int = 1
    """Iterations between records."""
    evaluation_every: int = 0
    """Iterations between evaluations on held-out text, which rank 0 reports; 0 never evaluates."""
    is_evaluation_slow: bool = True
    """An evaluation makes its iteration three times as long."""

    def __post_init__(self) -> None:
        _choose("optimizer", self.optimizer, OPTIMIZERS)
        _choose("schedule", self.schedule, SCHEDULES)
        _choose("precision", self.precision, PRECISIONS)
        for name in ("peak_lr", "initial_scale"):
            _require(getattr(self, name) > 0, f"training.{name} must be > 0", getattr(self, name))
        for name in ("accumulation", "log_every", "scale_growth_iterations"):
            _require(getattr(self, name) >= 1, f"training.{name} must be >= 1", getattr(self, name))
        for name in ("data_switch_share", "rank_spread", "final_lr_share"):
            value = getattr(self, name)
            _require(0 <= value <= 1, f"training.{name} must be from 0 to 1", value)
        starts = [restart.iteration for restart in self.restarts]
        _require(starts == sorted(set(starts)), "training.restarts must ascend", starts)

    def microbatches(self, iteration: int) -> int:
        """Microbatches that one iteration adds up.

        >>> RigTraining(batch_ramp=((10, 2), (20, 4))).microbatches(15)
        2
        """
        started = [count for first, count in self.batch_ramp if iteration >= first]
        return started[-1] if started else self.accumulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """How often, in iterations, the job looks at itself; 0 leaves the value out.

    Loss, norms, counts of non-finite values, learning rate, tokens and step time come with every record.
    """

    param_checksum: int = 1
    optim_checksum: int = 10
    grad_checksum: int = 1
    data_checksum: int = 1
    act_grad_norm: int = 1
    canary: int = 25
    """Forward and backward of a fixed batch, twice."""
    recompute: int = 5
    """One block's output, computed a second time from its input."""
    grad_sketch: int = 1
    gathered_checksum: int = 0
    """Full shard alone: a hash of the parameters as each rank gathered them. Few jobs take it."""
    checkpoint: int = 100

    def __post_init__(self) -> None:
        for name in self.__slots__:
            _require(getattr(self, name) >= 0, f"watch.{name} must be >= 0", getattr(self, name))
        _require(self.checkpoint >= 1, "watch.checkpoint must be >= 1", self.checkpoint)

    def is_due(self, what: str, iteration: int) -> bool:
        """Whether a value is looked at in this iteration.

        >>> Watch(canary=25).is_due("canary", 50), Watch(canary=0).is_due("canary", 50)
        (True, False)
        """
        every: int = getattr(self, what)
        return every > 0 and iteration % every == 0


def _choose(name: str, value: str, known: tuple[str, ...]) -> None:
    _require(value in known, f"training.{name} must be one of {', '.join(known)}", value)


def _require(is_met: bool, rule: str, value: object) -> None:
    if not is_met:
        raise DrillError(f"{rule}, got {value!r}")
