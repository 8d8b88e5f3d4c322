"""Two logs of one computation, bit for bit: the first iteration, rank and metric at which they differ.

Axes: T common positions, R common ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from firstfault.telemetry import Kind, MetricContract, is_checksum
from ingest.blocks import ChecksumBlock, Flags, Floats, Ints, IterationBlock, NumberBlock, Words

from .printed import FULL, Precision, is_same_as_printed, precision_of

PROVING_CHECKS = 8
"""Positions at which checksums agreed on all ranks before a difference counts in a job that does not say
that it is deterministic. One check may agree because nothing was computed yet; of eight no two runs of a
job that is not deterministic get past the first."""
PROVING_POSITIONS = 30
"""The same for positions at which a curve was equal on all ranks and not what it was before. Two losses
within noise that are printed with three digits agree at one position in two: 30 in a row once in 1e9."""
MAX_RANKS = 1000
_CURVES = (Kind.CURVE, Kind.AGREED)
_NOT_COMPARED = frozenset({"step_time_s", "probe_dropped", "probe_errors"})
"""Metrics with a contract that no two runs have in common."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a metric is not the same in both logs for the first time."""

    metric: str
    iteration: int
    microbatch: int
    phase: int
    ranks: tuple[int, ...]
    """Ranks that differ there, ascending; at most `MAX_RANKS`."""
    compared_ranks: int
    last_equal: int | None
    """The last iteration before it at which the metric was the same on all compared ranks."""
    first: str
    second: str
    """Both values on the first of the ranks, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactComparison:
    """What became of every common value."""

    positions: int = 0
    """(iteration, microbatch) positions that both logs have."""
    first_iteration: int | None = None
    last_iteration: int | None = None
    ranks: int = 0
    metrics: tuple[str, ...] = ()
    """Metrics that were compared."""
    passed_over: tuple[str, ...] = ()
    """Common metrics without a contract, and times: nobody says that they must be the same."""
    values: int = 0
    equal_values: int = 0
    equal_checks: int = 0
    """Positions at which some checksum was the same on all ranks, before the first difference."""
    equal_moves: int = 0
    """Positions before it at which a curve was the same on all ranks and not what it had been."""
    equal_positions: int = 0
    """Positions before the first difference at which anything was compared."""
    difference: Difference | None = None
    """The first one by cause: iteration, microbatch, phase, then checksums before numbers."""
    by_metric: tuple[Difference, ...] = field(default=())
    """The first difference of every metric that has one, in the same order."""
    printed: tuple[tuple[str, str, str], ...] = ()
    """Curves that a log does not have in full, with the precision of each: these are compared as printed."""
    is_printed: bool = False
    """Whether all there is are curves that are not there in full."""


@dataclass(frozen=True, slots=True)
class Common:
    """What two logs have in common: rows and columns of each."""

    iteration_T: Ints
    microbatch_T: Ints
    at_T: tuple[Ints, Ints]
    ranks_R: Ints
    at_R: tuple[Ints, Ints]

    @classmethod
    def of(cls, first: IterationBlock, second: IterationBlock) -> Common:
        """The positions and ranks that both have; a log that names no rank has one, and meets its like."""
        keys = [
            np.stack([one.iteration_T, one.microbatch_T.astype(np.int64)], axis=1) for one in (first, second)
        ]
        codes = np.unique(np.concatenate(keys), axis=0, return_inverse=True)[1].reshape(-1)
        _, one_T, two_T = np.intersect1d(codes[: len(first)], codes[len(first) :], return_indices=True)
        ranks_R, one_R, two_R = np.intersect1d(first.ranks_R, second.ranks_R, return_indices=True)
        return cls(
            iteration_T=first.iteration_T[one_T],
            microbatch_T=first.microbatch_T[one_T].astype(np.int64),
            at_T=(one_T, two_T),
            ranks_R=ranks_R.astype(np.int64),
            at_R=(one_R, two_R),
        )

    def numbers(self, block: NumberBlock, side: int) -> tuple[Floats, Flags]:
        """(values, present) of one metric of one side, at what is common."""
        where = np.ix_(self.at_T[side], self.at_R[side])
        return block.values_TR[where], block.present_TR[where]

    def words(self, block: ChecksumBlock, side: int) -> tuple[Words, Words, Flags]:
        """(high, low, present) of one checksum of one side, at what is common."""
        where = np.ix_(self.at_T[side], self.at_R[side])
        return block.high_TR[where], block.low_TR[where], block.present_TR[where]


def compare_exactly(first: IterationBlock, second: IterationBlock) -> ExactComparison:
    """Every value of a metric with a contract against that of the other log."""
    common = Common.of(first, second)
    shared = sorted({*first.numbers, *first.checksums} & {*second.numbers, *second.checksums})
    judged = [metric for metric in shared if _is_judged(first.contracts.of(metric))]
    compared, found = [], []
    printed: list[tuple[str, str, str]] = []
    tally = np.zeros((len(common.iteration_T), 2), np.int64)  # compared, different
    checks_T, moves_T = (np.zeros(len(common.iteration_T), np.bool_) for _ in range(2))
    for metric, both_TR, equal_TR in _comparable(first, second, judged, common):
        compared.append(metric)
        printed += list(_printed(first, second, metric))
        tally += np.stack([both_TR.sum(axis=1), (both_TR & ~equal_TR).sum(axis=1)], axis=1)
        all_equal_T = both_TR.any(axis=1) & ~(both_TR & ~equal_TR).any(axis=1)
        if metric in first.checksums:
            checks_T |= all_equal_T
        elif first.contracts.of(metric).kind in _CURVES:
            moves_T |= all_equal_T & _moves(common.numbers(first.numbers[metric], 0)[0])
        found += list(_first_difference(first, second, metric, common, (both_TR, equal_TR)))
    found.sort(key=_position)
    used_T = tally[:, 0] > 0
    stop = int(np.argmax(tally[:, 1] > 0)) if (tally[:, 1] > 0).any() else len(used_T)
    return ExactComparison(
        positions=int(used_T.sum()),
        first_iteration=int(common.iteration_T[used_T][0]) if used_T.any() else None,
        last_iteration=int(common.iteration_T[used_T][-1]) if used_T.any() else None,
        ranks=len(common.ranks_R),
        metrics=tuple(compared),
        passed_over=tuple(metric for metric in shared if metric not in judged),
        values=int(tally[:, 0].sum()),
        equal_values=int((tally[:, 0] - tally[:, 1]).sum()),
        equal_checks=int(checks_T[:stop].sum()),
        equal_moves=int(moves_T[:stop].sum()),
        equal_positions=int(used_T[:stop].sum()),
        difference=found[0] if found else None,
        by_metric=tuple(found),
        printed=tuple(printed),
        is_printed=_are_printed(compared, printed, first),
    )


def _position(one: Difference) -> tuple[int, int, int, bool, str]:
    """The order of causes; of one phase checksums come first, since they see every bit."""
    return one.iteration, one.microbatch, one.phase, not is_checksum(one.metric), one.metric


def _moves(values_TR: Floats) -> Flags:
    """Where any rank reports another finite value than at the position before."""
    moves_T = np.zeros(len(values_TR), np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):  # infinity minus infinity, and the like
        moves_T[1:] = (np.abs(np.diff(values_TR, axis=0)) > 0).any(axis=1)
    return moves_T


def _is_judged(contract: MetricContract) -> bool:
    return contract.kind is not Kind.SUPPORTING and contract.name not in _NOT_COMPARED


def _comparable(
    first: IterationBlock, second: IterationBlock, metrics: Sequence[str], common: Common
) -> Iterator[tuple[str, Flags, Flags]]:
    """Metrics that both report somewhere at once: (metric, reported by both, the same)."""
    for metric in metrics:
        both_TR, equal_TR = _equality(first, second, metric, common)
        if both_TR.any():
            yield metric, both_TR, equal_TR


def _equality(
    first: IterationBlock, second: IterationBlock, metric: str, common: Common
) -> tuple[Flags, Flags]:
    """(reported by both, the same), T × R."""
    if metric in first.numbers and metric in second.numbers:
        (one_TR, has_one_TR), (two_TR, has_two_TR) = (
            common.numbers(block.numbers[metric], side) for side, block in enumerate((first, second))
        )
        precisions = _precisions(first, second, metric)
        return has_one_TR & has_two_TR, is_same_as_printed(one_TR, two_TR, precisions)
    if metric in first.checksums and metric in second.checksums:
        one, two = (common.words(block.checksums[metric], side) for side, block in enumerate((first, second)))
        return one[2] & two[2], (one[0] == two[0]) & (one[1] == two[1])
    nothing = np.zeros((len(common.iteration_T), len(common.ranks_R)), np.bool_)
    return nothing, nothing


def _are_printed(
    compared: Sequence[str], printed: Sequence[tuple[str, str, str]], first: IterationBlock
) -> bool:
    curves = [metric for metric in compared if first.contracts.of(metric).kind in _CURVES]
    checksums = any(map(is_checksum, compared))
    return bool(curves) and not checksums and {*curves} == {metric for metric, _, _ in printed}


def _precisions(first: IterationBlock, second: IterationBlock, metric: str) -> tuple[Precision, Precision]:
    one, two = first.numbers[metric], second.numbers[metric]
    return precision_of(one.values_TR, one.present_TR), precision_of(two.values_TR, two.present_TR)


def _printed(first: IterationBlock, second: IterationBlock, metric: str) -> Iterator[tuple[str, str, str]]:
    """The precision of a curve in both logs, where one does not have it in full."""
    if metric in first.numbers and first.contracts.of(metric).kind in _CURVES:
        precisions = _precisions(first, second, metric)
        if any(one != FULL for one in precisions):
            yield metric, precisions[0].words, precisions[1].words


def _first_difference(
    first: IterationBlock,
    second: IterationBlock,
    metric: str,
    common: Common,
    seen: tuple[Flags, Flags],
) -> Iterator[Difference]:
    both_TR, equal_TR = seen
    bad_T = (both_TR & ~equal_TR).any(axis=1)
    if not bad_T.any():
        return
    t = int(np.argmax(bad_T))
    odd = np.flatnonzero(both_TR[t] & ~equal_TR[t])
    clean = np.flatnonzero(both_TR[:t].any(axis=1))
    iteration = int(common.iteration_T[t])
    one, two = (
        _text(block, metric, int(common.at_T[side][t]), int(common.at_R[side][odd[0]]))
        for side, block in enumerate((first, second))
    )
    yield Difference(
        metric=metric,
        iteration=iteration,
        microbatch=int(common.microbatch_T[t]),
        phase=int(first.contracts.of(metric).phase),
        ranks=tuple(common.ranks_R[odd[:MAX_RANKS]].tolist()),
        compared_ranks=int(both_TR[t].sum()),
        last_equal=min(int(common.iteration_T[clean[-1]]), iteration - 1) if len(clean) else None,
        first=one,
        second=two,
    )


def _text(block: IterationBlock, metric: str, t: int, column: int) -> str:
    if metric in block.numbers:
        return repr(float(block.numbers[metric].values_TR[t, column]))
    checksum = block.checksums[metric]
    return f"{int(checksum.high_TR[t, column]) << 64 | int(checksum.low_TR[t, column]):016x}"
