"""Pictures of the detectors of values that must be equal: how many ranks are at odds, against none.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import numpy as np

from detectors.agreement import Agreement
from detectors.checksum_vote import ChecksumVote
from detectors.linear_checksum import LinearChecksum
from detectors.linear_fit import Fit, Sums
from detectors.rank_table import UNKNOWN
from detectors.repeat import Repeat
from detectors.vote import EqualityVote
from ingest.blocks import Floats, Ints, IterationBlock
from tests.block_builders import block, data_parallel, masked

from .drawing import Drawn, drawn
from .svg import Line, Panel
from .trace import Trace, only, sample, watch

RANKS = 8


def checksum_vote_fires() -> Drawn:
    """The sample log ``drift_param``: a bit of a parameter flips on one replica between two checks."""
    detector = ChecksumVote()
    blocks = only(sample("drift_param"), "param_checksum")

    def read(piece: IterationBlock) -> dict[str, float]:
        watched = detector._watches.get("param_checksum")
        is_check = "param_checksum" in piece.checksums
        return {"odd": _odd(watched.vote if watched else None) if is_check else np.nan}

    trace = watch(detector, blocks, read)
    panel = _count(
        "replicas that differ from their group's majority", trace, "odd", "at each check of param_checksum"
    )
    return drawn("checksum_vote fires: rank 3 holds other parameters", trace, [panel], 383)


def checksum_vote_quiet() -> Drawn:
    """ZeRO-1: each rank owns a shard of the optimizer, so all its checksums differ, as they should."""
    T = 400
    own_TR = np.arange(T)[:, None] * 7919 + np.arange(RANKS) * 104729 + 3
    same_TR = np.arange(T)[:, None] * 31 + np.zeros((1, RANKS), np.int64)
    seldom_TR = np.broadcast_to(np.arange(T)[:, None] % 10 != 0, (T, RANKS))
    whole = block(
        {"optim_checksum": masked(own_TR, seldom_TR), "param_checksum": masked(same_TR, seldom_TR)},
        layout=data_parallel(RANKS, sharding="zero1"),
    )
    detector = ChecksumVote()

    def read(piece: IterationBlock) -> dict[str, float]:
        found = {}
        for metric in ("optim_checksum", "param_checksum"):
            watched = detector._watches.get(metric)
            words = piece.checksums.get(metric)
            found[metric] = _odd(watched.vote if watched else None) if words is not None else np.nan
            found[f"different/{metric}"] = (
                float(len(np.unique(words.low_TR))) if words is not None else np.nan
            )
        return found

    trace = watch(detector, [whole], read)
    values = Panel(
        label="different values among 8 ranks",
        floor=0.0,
        top=8.0,
        lines=[
            Line(
                x_K=trace.iterations, y_K=trace.columns[f"different/{name}"], role=role, name=name, dots=True
            )
            for name, role in (("param_checksum", "peer"), ("optim_checksum", "stat"))
        ],
    )
    odd = _count("ranks that differ from their group's majority", trace, "optim_checksum", "optim_checksum")
    return drawn("checksum_vote stays quiet: optimizer shards of ZeRO-1", trace, [values, odd])


def agreement_fires() -> Drawn:
    """Eight ranks report one reduced norm; from 157 on rank 5 has got a result of its own, 1 % larger."""
    norm_T1 = np.exp(np.random.default_rng(17).normal(0.0, 0.1, (300, 1)))
    norm_TR = np.repeat(norm_T1, RANKS, axis=1)
    norm_TR[157:, 5] *= 1.01
    return _agreement("agreement fires: rank 5 has another reduced norm", norm_TR, 157)


def agreement_quiet() -> Drawn:
    """Each rank sums in an order of its own: the norms differ in their last bits at every iteration."""
    rng = np.random.default_rng(17)
    norm_TR = np.exp(rng.normal(0.0, 0.1, (300, 1))) * (1.0 + rng.normal(0.0, 2e-7, (300, RANKS)))
    return _agreement("agreement stays quiet: ranks that round each in its own way", norm_TR)


def repeat_fires() -> Drawn:
    """From 210 on rank 7 gets another result now and then; each 20 iterations the canary runs twice."""
    first_TR, rng = _canary()
    again_TR = first_TR.copy()
    again_TR[210:, 7] += rng.integers(0, 2, len(first_TR) - 210)
    return _repeat(
        "repeat fires: rank 7 computes the canary twice, with two results", first_TR, again_TR, 210
    )


def repeat_quiet() -> Drawn:
    """A job that is not deterministic: every rank disagrees with itself half of the time."""
    first_TR, rng = _canary()
    again_TR = first_TR + rng.integers(0, 2, first_TR.shape)
    return _repeat("repeat stays quiet: a job that is not deterministic", first_TR, again_TR)


def linear_checksum_fires() -> Drawn:
    """The sample log ``reduce_dropped``: one rank's contribution is missing from a reduction."""
    return _linear("linear_checksum fires: the contribution of rank 4 is missing", "reduce_dropped", 355)


def linear_checksum_quiet() -> Drawn:
    """The sample log ``reduce_clean``: a healthy fp16 run, whose skipped steps are void."""
    return _linear("linear_checksum stays quiet: rounding, and skipped steps that are void", "reduce_clean")


def _agreement(title: str, norm_TR: Floats, onset: int | None = None) -> Drawn:
    detector = Agreement()

    def read(piece: IterationBlock) -> dict[str, float]:
        agreed = detector._metrics.get("grad_norm")
        decided = agreed is not None and agreed.is_decided
        value_R = piece.numbers["grad_norm"].values_TR[0]
        middle = float(np.sort(value_R)[(len(value_R) - 1) // 2])
        return {
            "odd": _odd(agreed.watch.vote) if agreed is not None and decided else np.nan,
            "off": float(np.abs(value_R - middle).max() / middle),
            "tolerance": agreed.tolerance if agreed is not None and decided else np.nan,
        }

    trace = watch(detector, [block(grad_norm=norm_TR)], read)
    x_K = trace.iterations
    panels = [_count("ranks whose number is not the others'", trace, "odd", "grad_norm")]
    if max(trace.columns["off"]) < 1e-3:
        far = Panel(
            label="greatest relative distance from the median",
            is_log=True,
            lines=[
                Line(x_K=x_K, y_K=trace.columns["tolerance"], role="limit", name="tolerance, learned"),
                Line(x_K=x_K, y_K=trace.columns["off"], name="of all ranks"),
            ],
        )
        panels.insert(0, far)
    return drawn(title, trace, panels, onset)


def _canary() -> tuple[Ints, np.random.Generator]:
    """Checksums of a canary of eight ranks over 400 iterations, and what to draw further from."""
    rng = np.random.default_rng(5)
    return np.repeat(rng.integers(1, 1 << 40, (400, 1)), RANKS, axis=1), rng


def _repeat(title: str, first_TR: Ints, again_TR: Ints, onset: int | None = None) -> Drawn:
    seldom_TR = np.broadcast_to(np.arange(len(first_TR))[:, None] % 20 != 0, first_TR.shape)
    whole = block(
        {
            "canary_checksum": masked(first_TR, seldom_TR),
            "repeat_checksum/canary": masked(again_TR, seldom_TR),
        }
    )
    detector = Repeat()

    def read(piece: IterationBlock) -> dict[str, float]:
        site = detector._sites.get("repeat_checksum/canary")
        if site is None or "repeat_checksum/canary" not in piece.checksums:
            return {"departed": np.nan, "half": np.nan}
        compared = int((site.table.column("compared") != UNKNOWN).sum())
        return {"departed": float(site.departed), "half": compared / 2}

    trace = watch(detector, [whole], read)
    at_K, limit_K, departed_K = _known(trace, "half", "departed")
    panel = Panel(
        label="ranks that have ever disagreed with themselves",
        floor=0.0,
        top=8.0,
        lines=[
            Line(x_K=at_K, y_K=limit_K, role="limit", name="not deterministic above"),
            Line(x_K=at_K, y_K=[0.0] * len(at_K), role="limit", name="a fault above"),
            Line(x_K=at_K, y_K=departed_K, name="ranks", dots=True),
        ],
    )
    return drawn(title, trace, [panel], onset)


def _linear(title: str, log: str, onset: int | None = None) -> Drawn:
    detector = LinearChecksum()

    def read(piece: IterationBlock) -> dict[str, float]:
        bucket = detector._buckets.get("grad_sketch_out")
        streams = [] if bucket is None else list(bucket.streams.values())
        fit: Fit | None = streams[0].fit if streams else None
        into, out = piece.numbers.get("grad_sketch_in"), piece.numbers.get("grad_sketch_out")
        skipped = piece.numbers.get("skipped")
        is_void = skipped is not None and bool((skipped.values_TR > 0).any())
        if fit is None or into is None or out is None or is_void or not np.isfinite(into.values_TR).all():
            return {"off": np.nan, "tolerance": np.nan if fit is None else fit.tolerance}
        sums = Sums.of(int(piece.iteration_T[0]), into.values_TR[0].tolist(), out.values_TR[0].tolist())
        scale = max(fit.scale(sums), streams[0].level)
        return {"off": max(abs(fit.residual(sums)) / scale, 1e-12), "tolerance": fit.tolerance}

    trace = watch(detector, only(sample(log), "grad_sketch_in", "grad_sketch_out", "skipped"), read)
    x_K = trace.iterations
    panel = Panel(
        label="|result − factor × sum of what went in| / scale",
        is_log=True,
        floor=1e-10,
        lines=[
            Line(x_K=x_K, y_K=trace.columns["tolerance"], role="limit", name="tolerance, learned"),
            Line(x_K=x_K, y_K=trace.columns["off"], name="grad_sketch_out", dots=True),
        ],
    )
    return drawn(title, trace, [panel], onset)


def _odd(vote: EqualityVote | None) -> float:
    """How many ranks are at odds with their group now, as the vote holds it; none before there is one."""
    return 0.0 if vote is None else float((vote._table.column("split") != UNKNOWN).sum())


def _count(label: str, trace: Trace, column: str, name: str) -> Panel:
    at_K, odd_K = _known(trace, column)
    return Panel(
        label=label,
        floor=0.0,
        top=max(2.0, *odd_K),
        lines=[
            Line(x_K=at_K, y_K=[0.0] * len(at_K), role="limit", name="a fault above"),
            Line(x_K=at_K, y_K=odd_K, name=name, dots=True),
        ],
    )


def _known(trace: Trace, *columns: str) -> list[list[float]]:
    """The iterations at which the first of the columns is known, and the columns there."""
    kept = np.flatnonzero(~np.isnan(trace.columns[columns[0]])).tolist()
    return [
        [trace.iterations[k] for k in kept],
        *([trace.columns[column][k] for k in kept] for column in columns),
    ]
