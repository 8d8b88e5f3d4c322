"""What shows without the twin: relations among ranks that a fault broke.

A checksum that differs from the twin's on all ranks alike tells a detector nothing; one that differs
between ranks that must agree does. The twin says which relations held without the fault.
Axes: T positions, R ranks, G ranks of one group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...telemetry import Kind, Relation, contract_of
from .effects import departure_of, first_true, noise_of_residuals, scaled
from .recording import Flags, Floats, Ints, Recording, align

_SCATTERED = ("zero2", "zero3")
"""Shardings under which a rank gets its own shard of the reduced gradient alone."""
_SKETCH_IN, _SKETCH_OUT = "grad_sketch_in", "grad_sketch_out"
_REPEAT = "repeat_checksum/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A relation that the fault broke: where first, on which ranks, and how sharply that is known."""

    metric: str
    position: int
    iteration: int
    last_clean: int | None
    """Last iteration before it at which the relation was seen to hold."""
    ranks: tuple[int, ...]
    """The ranks that the relation points at: one, or a tie set."""
    is_exact: bool
    """Bits against bits; otherwise against noise, so the iteration is uncertain."""


def broken_relations(faulty: Recording, twin: Recording) -> list[Broken]:
    """Every relation among ranks that the twin keeps and the faulty run does not, by first position.

    Attempt by attempt: a restart may have other ranks, and levels of its own.
    """
    found = []
    for (first, seen), (_, expected) in zip(faulty.attempts(), twin.attempts(), strict=True):
        for kind in (_equalities, _repeats, _peers, _sums):
            found += [replace(one, position=first + one.position) for one in kind(*align(seen, expected))]
    return sorted(found, key=lambda one: (one.position, one.metric))


def _equalities(faulty: Recording, twin: Recording) -> Iterator[Broken]:
    """Values that must be equal, or distinct, among the ranks of a group."""
    for metric in sorted(twin.present.keys() & faulty.present.keys()):
        kind = contract_of(metric).kind
        if kind not in (Kind.CHECKSUM, Kind.AGREED) and metric != "canary_loss":
            continue
        relation = Relation.DISTINCT if metric.startswith("data_checksum") else Relation.EQUAL
        for group_G in twin.groups(metric, relation):
            both_T = _all_report((faulty, twin), (metric,), group_G)
            seen_TG, was_TG = (_classes(_bits(run, metric)[:, group_G]) for run in (faulty, twin))
            differs_T = both_T & (seen_TG != was_TG).any(axis=1)
            if relation is Relation.EQUAL:
                # shards are equal nowhere: what never held cannot break
                differs_T &= (was_TG == was_TG[:, :1]).all(axis=1)
            at = first_true(differs_T)
            if at is not None:
                odd_G = _odd(seen_TG[at], is_distinct=relation is Relation.DISTINCT)
                yield _broken(twin, metric, at, both_T, group_G[odd_G], is_exact=True)


def _repeats(faulty: Recording, twin: Recording) -> Iterator[Broken]:
    """A computation done twice on one rank, with two results."""
    for metric in sorted(twin.checksums.keys() & faulty.checksums.keys()):
        base, slash, rest = metric.removeprefix(_REPEAT).partition("/")
        first = f"{base}_checksum{slash}{rest}"
        if not metric.startswith(_REPEAT) or first not in twin.checksums:
            continue
        both_TR = faulty.present[metric] & faulty.present.get(first, faulty.present[metric])
        differs_TR, did_TR = (run.checksums[metric] != run.checksums[first] for run in (faulty, twin))
        bad_TR = both_TR & differs_TR & ~did_TR
        at = first_true(bad_TR)
        if at is not None:
            ranks_R = np.flatnonzero(bad_TR[at])
            checked_T = np.asarray(both_TR[:, ranks_R].any(axis=1))
            yield _broken(twin, metric, at, checked_T, ranks_R, is_exact=True)


def _peers(faulty: Recording, twin: Recording) -> Iterator[Broken]:
    """A rank that parts from the others of its group, by the noise pooled over ranks and time.

    Once the parameters went another way than the twin's, all ranks move a little: that is noise too.
    """
    for metric in sorted(twin.numbers.keys() & faulty.numbers.keys()):
        if contract_of(metric).kind is not Kind.CURVE:
            continue
        for group_G in twin.groups(metric, Relation.NOISE):
            both_T = _all_report((faulty, twin), (metric,), group_G)
            rows = np.flatnonzero(both_T)
            if not len(rows):
                continue
            seen_TG, was_TG = (
                scaled(metric, run.numbers[metric][rows][:, group_G]) for run in (faulty, twin)
            )
            residual_TG = _residuals(was_TG)
            sigma_T = noise_of_residuals(residual_TG, np.nanmedian(was_TG, axis=1))
            moved_TG = _residuals(seen_TG) - residual_TG
            if len(group_G) > 2:  # of two, one that moves moves both
                sigma_T = np.maximum(sigma_T, noise_of_residuals(moved_TG, sigma_T))
            places = {int(g): departure_of(moved_TG[:, g], sigma_T).first for g in range(len(group_G))}
            left = {g: at for g, at in places.items() if at is not None}
            if left:
                at = min(left.values())
                odd_G = group_G[[g for g, other in left.items() if other == at]]
                yield _broken(twin, metric, int(rows[at]), both_T, odd_G, is_exact=False)


def _sums(faulty: Recording, twin: Recording) -> Iterator[Broken]:
    """A reduction that gave another sum than that of what went in."""
    for out in sorted(name for name in twin.numbers if name.partition("/")[0] == _SKETCH_OUT):
        inward = _SKETCH_IN + out.removeprefix(_SKETCH_OUT)
        if inward not in twin.numbers or out not in faulty.numbers or inward not in faulty.numbers:
            continue
        for group_G in twin.groups(out, Relation.SUM):
            rows = np.flatnonzero(_all_report((faulty, twin), (inward, out), group_G))
            if not len(rows):
                continue
            into_TG, out_TG = twin.numbers[inward][rows][:, group_G], _results(twin, out, rows, group_G)
            factor = _factor(into_TG, out_TG)
            rest_TG = out_TG - factor * into_TG.sum(axis=1, keepdims=True)
            sigma_T = noise_of_residuals(rest_TG, factor * np.abs(into_TG).sum(axis=1))
            seen_TG = _results(faulty, out, rows, group_G)
            given_TG = faulty.numbers[inward][rows][:, group_G]
            with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
                # what is a thousand times as large is rounded a thousand times as coarsely
                sigma_T *= np.fmax(1.0, np.abs(given_TG).sum(axis=1) / np.abs(into_TG).sum(axis=1))
                moved_TG = np.abs(seen_TG - factor * given_TG.sum(axis=1)[:, None] - rest_TG)
                moved_TG /= sigma_T[:, None]
            bad_TG = np.isfinite(moved_TG) & (moved_TG > 8.0)
            at = first_true(bad_TG)
            if at is not None:
                checked_T = np.isin(np.arange(len(twin)), rows)
                into_G = factor * faulty.numbers[inward][rows[at], group_G]
                lost_G = _missing(seen_TG[at] - into_G.sum(), into_G, 8.0 * sigma_T[at])
                odd_G = bad_TG[at] if lost_G is None else lost_G
                yield _broken(twin, out, int(rows[at]), checked_T, group_G[odd_G], is_exact=True)


def _results(run: Recording, out: str, rows: Ints, group_G: Ints) -> Floats:
    """What the reduction gave each rank; where it scatters, all their shards together."""
    out_TG = run.numbers[out][rows][:, group_G]
    if run.layout is None or run.layout.sharding not in _SCATTERED:
        return out_TG
    return np.repeat(out_TG.sum(axis=1, keepdims=True), len(group_G), axis=1)


def _broken(
    twin: Recording, metric: str, at: int, checked_T: Flags, columns: Ints, *, is_exact: bool
) -> Broken:
    before = np.flatnonzero(checked_T[:at])
    return Broken(
        metric=metric,
        position=at,
        iteration=int(twin.iterations_T[at]),
        last_clean=int(twin.iterations_T[before[-1]]) if len(before) else None,
        ranks=tuple(sorted(int(rank) for rank in twin.ranks_R[columns])),
        is_exact=is_exact,
    )


def _all_report(runs: tuple[Recording, ...], metrics: tuple[str, ...], columns: Ints) -> Flags:
    """Positions at which all ranks of a group report all of these, in both runs."""
    flags = [run.present[metric][:, columns] for run in runs for metric in metrics]
    return np.asarray(np.all(flags, axis=(0, 2)))


def _bits(run: Recording, metric: str) -> NDArray[np.uint64]:
    """Values by their bits; all NaN are one, since their sign and payload mean nothing."""
    if metric in run.checksums:
        return run.checksums[metric]
    values_TR = run.numbers[metric]
    return np.where(np.isnan(values_TR), np.nan, values_TR).view(np.uint64)


def _classes(values_TG: NDArray[np.uint64]) -> Ints:
    """Per rank the first rank of the group with an equal value: the same pattern has the same relations."""
    return np.asarray((values_TG[:, :, None] == values_TG[:, None, :]).argmax(axis=2))


def _odd(classes_G: Ints, *, is_distinct: bool) -> Flags:
    """The ranks outside the largest class, all of them at a tie; of what must be distinct, the equal ones."""
    sizes = np.bincount(classes_G, minlength=len(classes_G))
    size_G = sizes[classes_G]
    if is_distinct:
        return np.asarray(size_G > 1)
    is_tie = int((sizes == sizes.max()).sum()) > 1
    return np.asarray(size_G < sizes.max()) if not is_tie else np.ones(len(classes_G), dtype=np.bool_)


def _residuals(values_TG: Floats) -> Floats:
    """Each rank against the median of the others."""
    rest = [np.delete(values_TG, g, axis=1) for g in range(values_TG.shape[1])]
    with np.errstate(invalid="ignore"):
        others_TG = np.stack([np.median(part, axis=1) for part in rest], axis=1)
        return np.asarray(values_TG - others_TG)


def _missing(rest_G: Floats, into_G: Floats, tolerance: float) -> Flags | None:
    """The one rank whose contribution all results lack; None where that does not explain them."""
    explains_G = np.abs(rest_G[:, None] + into_G[None, :]).max(axis=0) < tolerance
    return explains_G if explains_G.sum() == 1 else None


def _factor(into_TG: Floats, out_TG: Floats) -> float:
    """What the reduction multiplies the sum with (1, or one over the ranks), from the healthy twin."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio_T = np.median(out_TG, axis=1) / into_TG.sum(axis=1)
    finite = ratio_T[np.isfinite(ratio_T)]
    return float(np.median(finite)) if len(finite) else 1.0
