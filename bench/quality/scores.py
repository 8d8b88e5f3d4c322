"""Rows become figures: each with its 95 % interval and the number of cases. Pure functions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from .intervals import bootstrap, exact_rate, exact_share, quantile_interval
from .row import HEALTHY, Row

LABELS = (HEALTHY, "gradient_explosion", "nan", "silent_drift")
PER_POINTS = 100_000
"""False alarms are counted per so many healthy logged iterations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured number."""

    value: float
    low: float
    high: float
    cases: int

    def to_plain(self) -> dict[str, float | int | str]:
        """As strict JSON: what is not finite is text."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        plain: dict[str, float | int | str] = {
            name: float(f"{number:.6g}") if math.isfinite(number) else str(number)
            for name, number in numbers.items()
        }
        return {**plain, "cases": self.cases}


def share(hits: int, cases: int) -> Figure:
    """A share, with its exact interval; not a number of no cases."""
    low, high = exact_share(hits, cases)
    return Figure(value=hits / cases if cases else math.nan, low=low, high=high, cases=cases)


def share_of(rows: Sequence[Row], is_hit: Callable[[Row], bool]) -> Figure:
    """The share of rows for which something holds."""
    return share(sum(is_hit(row) for row in rows), len(rows))


def quantile(values: Sequence[float], part: float) -> Figure:
    """A quantile, by the ordered values alone."""
    low, high = quantile_interval(values, part)
    ordered = sorted(values)
    value = ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else math.nan
    return Figure(value=value, low=low, high=high, cases=len(ordered))


def scored(rows: Sequence[Row]) -> list[Row]:
    """Rows whose label can be asked for: healthy runs, and faults that mattered and show as a fault.

    What nothing of the tier shows, or what shows as healthy runs do too (a spike that passes), is left out.
    """
    return [
        row
        for row in rows
        if row.truth.injected_at is None or (row.is_faulty and row.truth.is_observable and row.truth.mattered)
    ]


def confusion(rows: Sequence[Row]) -> Counter[tuple[str, str]]:
    """How often each label was given where each was right: (true, said)."""
    return Counter((row.truth.label, row.judgement.label) for row in rows)


def precision(rows: Sequence[Row], label: str) -> Figure:
    """Of the rows that were given ``label``, the share that deserve it."""
    return share_of([row for row in rows if row.judgement.label == label], lambda row: row.is_right)


def recall(rows: Sequence[Row], label: str) -> Figure:
    """Of the rows that deserve ``label``, the share that were given it."""
    return share_of([row for row in rows if row.truth.label == label], lambda row: row.is_right)


def f1(pairs: Sequence[tuple[str, str]], label: str) -> float:
    """Harmonic mean of precision and recall over (true, said); not a number of a label that never occurs.

    >>> f1([("nan", "nan"), ("nan", "healthy")], "nan")
    0.6666666666666666
    """
    return _f1(Counter(pairs), label)


def label_f1(rows: Sequence[Row], label: str) -> Figure:
    """F1 of one label, its interval by drawing the cases again."""
    pairs = _pairs(rows)
    low, high = bootstrap(_by_case(rows), lambda drawn: f1(list(chain(*drawn)), label))
    return Figure(value=f1(pairs, label), low=low, high=high, cases=sum(true == label for true, _ in pairs))


def macro_f1(rows: Sequence[Row]) -> Figure:
    """Mean F1 over the labels that occur as truth."""
    pairs = _pairs(rows)
    labels = sorted({true for true, _ in pairs})

    def mean(drawn: Sequence[Sequence[tuple[str, str]]]) -> float:
        counts = Counter(chain(*drawn))
        each = [value for label in labels if not math.isnan(value := _f1(counts, label))]
        return sum(each) / len(each) if each else math.nan

    low, high = bootstrap(_by_case(rows), mean)
    return Figure(value=mean([pairs]), low=low, high=high, cases=len(pairs))


def _by_case(rows: Sequence[Row]) -> list[list[tuple[str, str]]]:
    """(true, said) of each run in all its tiers: they are drawn together, since they err together."""
    cases: dict[str, list[tuple[str, str]]] = {}
    for row, pair in zip(rows, _pairs(rows), strict=True):
        cases.setdefault(row.spec.key, []).append(pair)
    return list(cases.values())


def _f1(counts: Counter[tuple[str, str]], label: str) -> float:
    said = sum(count for (_, one), count in counts.items() if one == label)
    true = sum(count for (one, _), count in counts.items() if one == label)
    return 2 * counts[label, label] / (said + true) if said + true else math.nan


def _pairs(rows: Sequence[Row]) -> list[tuple[str, str]]:
    return [(row.truth.label, row.judgement.label) for row in rows]


def rank_class(row: Row) -> str:
    """How right the named ranks are: ``exact``, ``tie`` (a tie set that holds it), ``none`` or ``wrong``.

    Where only several ranks together can be meant (two replicas that differ), their tie is exact.
    """
    root = row.root
    if root is not None and root.is_tie and not root.ranks and row.truth.suspects:
        # a tie of all ranks lists none of them, since it is all
        return "tie" if root.rank_count == len(row.truth.suspects) else "none"
    if root is None or not root.ranks:
        return "none"
    wanted = set(row.truth.ranks)
    if set(root.ranks) == wanted and not (root.is_tie and len(wanted) == 1 and len(root.ranks) > 1):
        return "exact"
    if wanted <= set(root.ranks):
        return "tie"
    return "wrong"


def found(rows: Sequence[Row]) -> list[Row]:
    """Faulty rows with the right label."""
    return [row for row in rows if row.is_faulty and row.is_right]


def onset_errors(rows: Sequence[Row]) -> list[int]:
    """Distance of the named iteration from the onset, in logged points, of each row that was found."""
    pairs = [(row, row.root, row.truth.onset) for row in found(rows)]
    return [
        abs(root.iteration - onset) // row.log_interval
        for row, root, onset in pairs
        if root is not None and onset is not None
    ]


def covers(row: Row) -> bool:
    """Whether the interval of the root holds the onset."""
    return row.root is not None and row.truth.onset is not None and row.root.holds(row.truth.onset)


def delays(rows: Sequence[Row], *, is_sure: bool) -> list[int]:
    """Logged points from onset to suspicion, or to confirmation, of the rows in which it came."""
    every = [row.points_to_sure if is_sure else row.points_late for row in rows]
    return [late for late in every if late is not None]


def false_alarms(rows: Sequence[Row]) -> Figure:
    """Confirmed incidents per `PER_POINTS` healthy logged iterations; ``cases`` are these iterations."""
    return false_rate(sum(row.false_alarms for row in rows), rows)


def false_rate(count: int, rows: Sequence[Row]) -> Figure:
    """``count`` false alarms of any method on these rows, per `PER_POINTS` healthy logged iterations."""
    points = sum(row.healthy_points for row in rows)
    low, high = exact_rate(count, points / PER_POINTS)
    return Figure(value=count * PER_POINTS / points if points else math.nan, low=low, high=high, cases=points)


def cause_confusion(rows: Sequence[Row]) -> Counter[tuple[str, str]]:
    """(true, said) kind of cause of the faults that were found; an accepted kind counts as the true one."""
    counts: Counter[tuple[str, str]] = Counter()
    for row in found(rows):
        if row.truth.causes and row.root is not None:
            true, said = row.truth.causes[0], row.root.cause
            counts[true, true if said in row.truth.causes else said] += 1
    return counts


def stage_share(rows: Sequence[Row]) -> Figure:
    """Of the found faults with a stage, how many were placed in it."""
    asked = [row for row in found(rows) if row.truth.stage is not None]
    return share_of(asked, lambda row: row.root is not None and row.root.stage == row.truth.stage)
