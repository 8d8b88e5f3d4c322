"""Every detector once: a healthy job that it must be quiet on, a faulty one, and when the fault begins.

`test_detector_contract.py` runs them all. A new detector is one line here and one in
``detectors/registry.py``. Axes: T iterations, R ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.agreement import Agreement
from detectors.base import Detector
from detectors.checksum_vote import ChecksumVote
from detectors.curve_drift import CurveDrift
from detectors.evaluation import Evaluation
from detectors.explosion import Explosion
from detectors.joint import Joint
from detectors.linear_checksum import LinearChecksum
from detectors.nonfinite import Nonfinite
from detectors.peer_outlier import PeerOutlier
from detectors.repeat import Repeat
from detectors.slowdown import Slowdown
from detectors.stall import Stall
from firstfault.telemetry import UNNAMED_RANK
from ingest.blocks import IterationBlock

from .block_builders import block, masked
from .curve_builders import make_scenario

RANKS = 8
BAD_RANK = 5
DRIFT_ONSET = 600
APART_FROM = 1300


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A detector with what it must pass. ``ranks`` are those that its evidence must name."""

    make: Callable[[], Detector]
    healthy: IterationBlock
    faulty: IterationBlock
    onset: int
    ranks: tuple[int, ...] = ()
    is_of_silence: bool = False
    """Whether a rank that falls silent for good is what the detector is for, and no wear."""

    @property
    def name(self) -> str:
        """The name of the detector."""
        return self.make().name


def healthy_job(iterations: int = 300) -> dict[str, NDArray[np.float64]]:
    """All metrics of eight data-parallel ranks with loss scaling; checks every tenth iteration."""
    rng = np.random.default_rng(17)
    shape = (iterations, RANKS)
    agreed_T1 = np.exp(rng.normal(0.0, 0.1, (iterations, 1)))
    steps_T1 = np.arange(iterations)[:, None] * np.ones(RANKS)
    off_cadence = steps_T1 % 10 != 0
    seldom = steps_T1 % 20 != 0
    skipped = np.zeros(shape)
    skipped[:4] = 1.0
    skipped[200] = 1.0
    scale = np.where(np.arange(iterations) < 4, 65536.0 / 2.0 ** np.arange(iterations).clip(max=4), 4096.0)
    scale[200:] = 2048.0
    norm = np.where(skipped > 0, np.inf, agreed_T1)
    return {
        "loss": (2.0 + 4.0 * np.exp(-steps_T1 / 90)) * np.exp(rng.normal(0.0, 0.02, shape)),
        "local_grad_norm": agreed_T1 * np.exp(rng.normal(0.0, 0.15, shape)),
        "grad_norm": norm,
        "lr": 3e-4 * np.minimum(1.0, (steps_T1 + 1) / 50),
        "loss_scale": scale[:, None] * np.ones(RANKS),
        "skipped": skipped,
        "tokens": np.full(shape, 4096.0),
        "nonfinite_grad": np.zeros(shape),
        "nonfinite_param": masked(np.zeros(shape), off_cadence),
        "param_checksum": masked(steps_T1.astype(np.int64) * 7919 + 11, off_cadence),
        "canary_checksum": masked(steps_T1.astype(np.int64) * 104729 + 3, seldom),
        "repeat_checksum/canary": masked(steps_T1.astype(np.int64) * 104729 + 3, seldom),
    }


def _job(
    metric: str = "",
    onset: int = 0,
    fault: Callable[[NDArray[np.float64]], NDArray[np.float64]] | None = None,
) -> IterationBlock:
    """The healthy job; from ``onset`` on ``fault`` gives the values of ``metric`` on the bad rank."""
    metrics = healthy_job()
    if fault is not None:
        changed = metrics[metric].copy()
        changed[onset:, BAD_RANK] = fault(changed[onset:, BAD_RANK])
        metrics[metric] = changed
    return block(metrics)


def _reducing(*, healthy: bool, iterations: int = 300) -> IterationBlock:
    """Sketches of eight ranks and of their mean; from the onset on one rank gets another result."""
    rng = np.random.default_rng(23)
    in_TR = rng.normal(0.0, 1.0, (iterations, RANKS))
    out_TR = np.repeat(in_TR.mean(axis=1, keepdims=True), RANKS, axis=1)
    out_TR *= 1 + rng.normal(0.0, 1e-7, (iterations, 1))
    if not healthy:
        out_TR[157:, BAD_RANK] *= 1.01
    return block(
        {"grad_sketch_in": in_TR.round(9), "grad_sketch_out": out_TR, "skipped": np.zeros(in_TR.shape)}
    )


def _exploding(*, healthy: bool) -> IterationBlock:
    scenario = make_scenario("e_fast", 0)
    return block(dict(scenario.twin if healthy else scenario.columns), ranks=[UNNAMED_RANK])


def _exploding_from() -> int:
    onset = make_scenario("e_fast", 0).onset
    assert onset is not None
    return onset


def _drifting(*, healthy: bool, iterations: int = 900) -> IterationBlock:
    """One rank whose loss rises by 4 % at two thirds, and stays there."""
    level_T = 2.0 + 2.0 * np.exp(-np.arange(iterations) / 100)
    loss_T = level_T * np.exp(np.random.default_rng(0).normal(0.0, 0.01, iterations))
    if not healthy:
        loss_T[DRIFT_ONSET:] *= 1.04
    return block(loss=loss_T, ranks=[UNNAMED_RANK])


def _evaluated(*, healthy: bool, iterations: int = 900) -> IterationBlock:
    """One rank that learns on, and an evaluation each tenth iteration that falls at two thirds."""
    rng = np.random.default_rng(3)
    progress_T = 1 - np.exp(-np.arange(iterations) / 100)
    accuracy_T = (0.2 + 0.5 * progress_T) * np.exp(rng.normal(0.0, 0.01, iterations))
    if not healthy:
        accuracy_T[DRIFT_ONSET:] *= 0.8
    seldom = np.arange(iterations) % 10 != 0
    return block(
        loss=(4.0 - 2.0 * progress_T) * np.exp(rng.normal(0.0, 0.02, iterations)),
        eval_accuracy=masked(accuracy_T, seldom),
        ranks=[UNNAMED_RANK],
    )


def _falling_silent() -> IterationBlock:
    """The healthy job, but that the bad rank reports nothing from iteration 120 on."""
    whole = healthy_job()
    away = np.zeros((len(whole["loss"]), RANKS), np.bool_)
    away[120:, BAD_RANK] = True
    return block(
        {
            name: masked(np.ma.getdata(values), np.ma.getmaskarray(values) | away)
            for name, values in whole.items()
        }
    )


def _together(*, healthy: bool) -> IterationBlock:
    """Two norms that go together; on one rank no more from an iteration on, though each looks as ever."""
    rng = np.random.default_rng(29)
    whole_TR, own_TR = rng.normal(size=(2, 1600, RANKS))
    if not healthy:
        shared_TR = whole_TR.copy()
        shared_TR[APART_FROM:, BAD_RANK] = rng.normal(size=1600 - APART_FROM)
    part_TR = 0.95 * (whole_TR if healthy else shared_TR) + 0.31 * own_TR
    return block(
        {"local_grad_norm": np.exp(0.1 * whole_TR), "local_grad_norm/bucket0": np.exp(0.1 * part_TR)}
    )


def _timed(*, healthy: bool) -> IterationBlock:
    """Step times of eight ranks with checkpoints; from iteration 157 on one rank is 40 % slower."""
    time_TR = 0.5 * np.exp(np.random.default_rng(23).normal(0.0, 0.03, (400, RANKS)))
    time_TR[::50] *= 20.0
    if not healthy:
        time_TR[157:, BAD_RANK] *= 1.4
    return block(step_time_s=time_TR)


CASES: tuple[Case, ...] = (
    Case(
        make=Nonfinite,
        healthy=_job(),
        faulty=_job("loss", 157, lambda loss_T: np.full_like(loss_T, np.nan)),
        onset=157,
        ranks=(BAD_RANK,),
    ),
    Case(
        make=Explosion,
        healthy=_exploding(healthy=True),
        faulty=_exploding(healthy=False),
        onset=_exploding_from(),
    ),
    Case(
        make=ChecksumVote,
        healthy=_job(),
        faulty=_job("param_checksum", 157, lambda sums_T: sums_T + 1),
        onset=157,
        ranks=(BAD_RANK,),
    ),
    Case(
        make=Agreement,
        healthy=_job(),
        faulty=_job("grad_norm", 157, lambda norm_T: norm_T * 1.01),
        onset=157,
        ranks=(BAD_RANK,),
    ),
    Case(
        make=Repeat,
        healthy=_job(),
        faulty=_job("repeat_checksum/canary", 157, lambda sums_T: sums_T + 1),
        onset=157,
        ranks=(BAD_RANK,),
    ),
    Case(
        make=LinearChecksum,
        healthy=_reducing(healthy=True),
        faulty=_reducing(healthy=False),
        onset=157,
        ranks=(BAD_RANK,),
    ),
    Case(
        make=CurveDrift,
        healthy=_drifting(healthy=True),
        faulty=_drifting(healthy=False),
        onset=DRIFT_ONSET,
    ),
    Case(
        make=Evaluation,
        healthy=_evaluated(healthy=True),
        faulty=_evaluated(healthy=False),
        onset=DRIFT_ONSET,
    ),
    Case(
        make=Stall,
        healthy=_job(),
        faulty=_falling_silent(),
        onset=120,
        ranks=(BAD_RANK,),
        is_of_silence=True,
    ),
    Case(
        make=PeerOutlier,
        healthy=_job(),
        faulty=_job("local_grad_norm", 157, lambda norm_T: norm_T * 1.6),
        onset=157,
        ranks=(BAD_RANK,),
    ),
    Case(
        make=Joint,
        healthy=_together(healthy=True),
        faulty=_together(healthy=False),
        onset=APART_FROM,
        ranks=(BAD_RANK,),
    ),
    Case(
        make=Slowdown,
        healthy=_timed(healthy=True),
        faulty=_timed(healthy=False),
        onset=157,
        ranks=(BAD_RANK,),
    ),
)
