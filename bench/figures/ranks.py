"""Pictures of the detectors that hold a rank against its peers: `peer_outlier`, `slowdown`, `joint`.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from detectors import peer_levels as at
from detectors.joint import Joint
from detectors.peer_metric import PeerMetric
from detectors.peer_outlier import PeerOutlier
from detectors.peer_tests import KEPT_SHARE
from detectors.slowdown import Slowdown
from firstfault.telemetry import EventKind
from ingest.blocks import Floats, IterationBlock
from tests.block_builders import block, event

from .drawing import Drawn, drawn
from .svg import Line, Panel
from .trace import Trace, only, sample, watch

RANKS = 8


def peer_outlier_fires() -> Drawn:
    """The sample log ``drift_gradient``: one rank's gradient is a few percent too large, for good."""
    return _peer(
        "peer_outlier fires: the local gradient norm of rank 7 is off",
        PeerOutlier(),
        only(sample("drift_gradient"), "local_grad_norm"),
        "local_grad_norm",
        rank=7,
        onset=469,
    )


def peer_outlier_quiet() -> Drawn:
    """A change of the data mix, of which an event tells: every rank's level moves, by another amount."""
    rng = np.random.default_rng(3)
    norm_TR = np.exp(rng.normal(0.0, 0.12, (600, RANKS)))
    norm_TR[300:] *= np.exp(rng.normal(0.25, 0.08, RANKS))
    whole = block(local_grad_norm=norm_TR, events=[event(EventKind.DATA_CHANGE, 300)])
    return _peer(
        "peer_outlier stays quiet: another data mix from 300 on",
        PeerOutlier(),
        [whole],
        "local_grad_norm",
        rank=2,
    )


def slowdown_fires() -> Drawn:
    """The sample log ``slow_rank``."""
    return _peer(
        "slowdown fires: rank 6 takes longer for its steps",
        Slowdown(),
        only(sample("slow_rank"), "step_time_s", "tokens"),
        "step_time_s",
        rank=6,
        onset=210,
    )


def slowdown_quiet() -> Drawn:
    """Everybody waits for a checkpoint each 50 steps; rank 2 evaluates by itself for 30 steps."""
    time_TR = 0.5 * np.exp(np.random.default_rng(23).normal(0.0, 0.03, (600, RANKS)))
    time_TR[::50] *= 20.0
    time_TR[300:330, 2] *= 1.5
    whole = block(step_time_s=time_TR)
    title = "slowdown confirms nothing: checkpoints of all, and 30 slow steps of rank 2"
    return _peer(title, Slowdown(), [whole], "step_time_s", rank=2)


def joint_fires() -> Drawn:
    """The sample log ``drift_stale``: one bucket of rank 4's gradient is that of the step before."""
    blocks = only(sample("drift_stale"), "loss", "local_grad_norm", "local_grad_norm/bucket0")
    return _joint("joint fires: a bucket of rank 4 is stale", blocks, rank=4, onset=1243)


def joint_quiet() -> Drawn:
    """Two norms that go together come apart on every rank at once: another data mix."""
    rng = np.random.default_rng(29)
    whole_TR, own_TR = rng.normal(size=(2, 1600, RANKS))
    together_T1 = np.where(np.arange(1600) < 1300, 0.95, 0.6)[:, None]
    part_TR = together_T1 * whole_TR + np.sqrt(1 - together_T1**2) * own_TR
    metrics = {"local_grad_norm": np.exp(0.1 * whole_TR), "local_grad_norm/bucket0": np.exp(0.1 * part_TR)}
    return _joint(
        "joint stays quiet: metrics come apart on all ranks at once, at 1300", [block(metrics)], rank=4
    )


def _peer(
    title: str,
    detector: PeerOutlier | Slowdown,
    blocks: Sequence[IterationBlock],
    metric: str,
    *,
    rank: int,
    onset: int | None = None,
) -> Drawn:
    def held() -> PeerMetric | None:
        return detector._ranks if isinstance(detector, Slowdown) else detector._metrics.get(metric)

    trace = watch(detector, blocks, lambda _: {**_scores(held()), **_sums(held(), rank)})
    panels = _judged(trace, rank)
    if isinstance(detector, PeerOutlier):
        panels.insert(0, _scored("score of the local gradient norm among peers, σ", trace, rank))
    if onset is None or isinstance(detector, Slowdown):
        units = {"step_time_s": "step time, s", "local_grad_norm": "local gradient norm"}
        panels.insert(0, _values(units[metric], blocks, metric, rank))
    return drawn(title, trace, panels, onset)


def _joint(title: str, blocks: Sequence[IterationBlock], *, rank: int, onset: int | None = None) -> Drawn:
    detector = Joint()

    def read(_: IterationBlock) -> Mapping[str, float]:
        return {**_scores(detector._distance), **_sums(detector._distance, rank)}

    trace = watch(detector, blocks, read)
    panel = _scored("score of the joint distance among peers, σ", trace, rank)
    judged = (1024.0, float(trace.iterations[-1]))
    return drawn(title, trace, [panel, *_judged(trace, rank)], onset, x_range=judged)


def _scores(metric: PeerMetric | None) -> dict[str, float]:
    """The score of every rank at this row, as the fold has it; NaN before it judges."""
    scores = dict.fromkeys((f"score{rank}" for rank in range(RANKS)), np.nan)
    if metric is not None and metric.has_judged:
        scores |= {f"score{rank}": float(metric.stream(rank)[at.SCORE]) for rank in metric.ranks_C.tolist()}
    return scores


def _scored(label: str, trace: Trace, rank: int) -> Panel:
    score_TR = np.array([trace.columns[f"score{one}"] for one in range(RANKS)]).T
    return Panel(label=label, lines=_of_ranks(trace.iterations, score_TR, rank))


def _sums(metric: PeerMetric | None, rank: int) -> dict[str, float]:
    """What the fold holds of one rank: its greatest sum over its gate, and how much of the shift is left."""
    nothing = {"over": np.nan, "kept": np.nan, "late": np.nan}
    if metric is None or rank not in metric.ranks_C or not metric.has_judged:
        return nothing
    stream = metric.stream(rank)
    phase = int(stream[at.PHASE])
    if phase == at.HELD:
        if stream[at.HOLD_COUNT] == 0:  # this row has passed the gate
            return {**nothing, "over": float(stream[at.OVER])}
        kept = stream[at.HOLD_SUM] / stream[at.HOLD_COUNT] / stream[at.SHIFT]
        return {**nothing, "kept": float(kept)}
    return {**nothing, "over": float(stream[at.OVER])} if phase == at.QUIET else nothing


def _judged(trace: Trace, rank: int) -> list[Panel]:
    """The sums against their gate; where a suspicion was held, how much of the shift repeated itself."""
    x_K = trace.iterations
    over = Panel(
        label="greatest of its four sums over its gate",
        floor=0.0,
        top=max(1.2, float(np.nanmax(trace.columns["over"], initial=0.0))),
        lines=[
            Line(x_K=x_K, y_K=[1.0] * len(x_K), role="limit", name="suspected above"),
            Line(x_K=x_K, y_K=trace.columns["over"], name=f"rank {rank}"),
        ],
    )
    if np.isnan(trace.columns["kept"]).all():
        return [over]
    kept = Panel(
        label="share of the shift that is still there",
        floor=0.0,
        top=1.6,
        lines=[
            Line(x_K=x_K, y_K=[KEPT_SHARE] * len(x_K), role="limit", name="confirmed above, at the end"),
            Line(x_K=x_K, y_K=trace.columns["kept"], name=f"rank {rank}, while suspected"),
        ],
    )
    return [over, kept]


def _values(label: str, blocks: Sequence[IterationBlock], metric: str, rank: int) -> Panel:
    """What every rank reported; a log axis, since ranks are compared by ratios."""
    values_TR = np.concatenate(
        [np.where(one.numbers[metric].present_TR, one.numbers[metric].values_TR, np.nan) for one in blocks]
    )
    iteration_T = np.concatenate([one.iteration_T for one in blocks])
    return Panel(label=label, lines=_of_ranks(iteration_T.tolist(), values_TR, rank), is_log=True)


def _of_ranks(x_T: Sequence[float], values_TR: Floats, rank: int) -> list[Line]:
    """The range of the peers, and the rank itself on top."""
    peers_TR = np.delete(values_TR, rank, axis=1)
    with np.errstate(invalid="ignore"):
        known_T = ~np.isnan(peers_TR).all(axis=1)
        middle_T, low_T, high_T = (np.full(len(x_T), np.nan) for _ in range(3))
        middle_T[known_T] = np.nanmedian(peers_TR[known_T], axis=1)
        low_T[known_T], high_T[known_T] = (
            np.nanmin(peers_TR[known_T], axis=1),
            np.nanmax(peers_TR[known_T], axis=1),
        )
    return [
        Line(x_K=x_T, y_K=low_T.tolist(), role="peer"),
        Line(x_K=x_T, y_K=high_T.tolist(), role="peer", name="least and greatest of its peers"),
        Line(x_K=x_T, y_K=values_TR[:, rank].tolist(), name=f"rank {rank}"),
    ]
