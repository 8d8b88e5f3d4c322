"""The same curves through us, naive rules and other tools: one table, and where we do not win.

A fault is found by an alarm of the right label at its onset or later that the same run without the fault
does not have near there (others may date it `EARLY_POINTS` too early, and an alarm that names no step is
believed); on healthy curves every alarm is false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .case import Tier
from .judging import Found
from .naive import MERGE_POINTS, Alarm, merged
from .row import Row
from .scores import Figure, false_rate, scored, share, share_of

OURS = "firstfault"
EARLY_POINTS = MERGE_POINTS
NEAR_POINTS = 5
FOUND = ("nan", "gradient_explosion", "silent_drift")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One method on the curves that all were asked about."""

    name: str
    found: Mapping[str, Figure]
    near: Figure
    """Of the found faults whose alarm names a step, those named within `NEAR_POINTS` of the onset."""
    near_ours: Figure | None
    """Ours of the very same faults, since whoever finds only what is sharp dates only that; None of us."""
    alarmed: Figure
    """Healthy curves with an alarm."""
    rate: Figure
    """False alarms per `PER_POINTS` healthy points, those before a fault too."""


def compare(rows: Sequence[Row]) -> list[Contender]:
    """Every method on the curves about which all of them were asked, ours first."""
    curves = [row for row in scored(rows) if row.tier is Tier.CURVE]
    most = max((len(row.others) for row in curves), default=0)
    shared = [row for row in curves if len(row.others) == most]
    names = list(shared[0].others) if shared else []
    ours = _dated(shared, _our_hit)
    return [_ours(shared), *(_other(name, shared, ours) for name in names)]


def lost_columns(contenders: Sequence[Contender]) -> list[str]:
    """In words, each column in which another method has a better figure than ours."""
    ours, *others = contenders
    columns: list[tuple[str, Callable[[Contender], float], int]] = [
        *((f"{label} found", _found_share(label), 1) for label in FOUND),
        ("healthy curves alarmed", lambda one: one.alarmed.value, -1),
        ("false alarms per 100 000 points", lambda one: one.rate.value, -1),
    ]
    lost = []
    for column, value, sign in columns:
        better = [one for one in others if sign * value(one) > sign * value(ours)]
        if better:
            best = max(better, key=lambda one: sign * value(one))
            lost.append(f"{column}: {best.name} {value(best):.3g}, ours {value(ours):.3g}")
    lost += [
        f"onset within {NEAR_POINTS} points, of the {one.near.cases} that {one.name} dates: "
        f"{one.near.value:.3g}, ours of the same {one.near_ours.value:.3g}"
        for one in others
        if one.near_ours is not None and one.near.value > one.near_ours.value
    ]
    return lost


def _found_share(label: str) -> Callable[[Contender], float]:
    return lambda one: one.found[label].value


def _ours(rows: Sequence[Row]) -> Contender:
    return _contender(OURS, rows, _our_hit, lambda row: row.false_alarms)


def _other(name: str, rows: Sequence[Row], ours: Mapping[int, float]) -> Contender:
    def hit(row: Row) -> Alarm | None:
        return _hit(row, name)

    same = [ours.get(at, math.inf) for at in _dated(rows, hit)]
    near_ours = share(sum(error <= NEAR_POINTS for error in same), len(same))
    return _contender(name, rows, hit, lambda row: len(_false(row, name)), near_ours)


def _dated(rows: Sequence[Row], hit: Callable[[Row], Found | Alarm | None]) -> dict[int, float]:
    """By place in ``rows``, how many logged points the named step of each found fault is off."""
    faulty = ((at, row) for at, row in enumerate(rows) if row.is_faulty)
    hits = [(at, row, right) for at, row in faulty if (right := hit(row)) is not None]
    return {
        at: abs(right.iteration - (row.truth.onset or 0)) / row.log_interval
        for at, row, right in hits
        if right.iteration is not None
    }


def _contender(
    name: str,
    rows: Sequence[Row],
    hit: Callable[[Row], Found | Alarm | None],
    false: Callable[[Row], int],
    near_ours: Figure | None = None,
) -> Contender:
    """A method by what it has right of each fault, and how many false alarms it gives on each curve."""
    found, errors = {}, list(_dated(rows, hit).values())
    for label in FOUND:
        asked = [row for row in rows if row.truth.label == label]
        found[label] = share_of(asked, lambda row: hit(row) is not None)
    healthy = [row for row in rows if not row.is_faulty]
    return Contender(
        name=name,
        found=found,
        near=share(sum(error <= NEAR_POINTS for error in errors), len(errors)),
        near_ours=near_ours,
        alarmed=share_of(healthy, lambda row: false(row) > 0),
        rate=false_rate(sum(false(row) for row in rows), rows),
    )


def _our_hit(row: Row) -> Found | None:
    """The root of a right verdict that was confirmed at the onset or later."""
    return row.root if row.is_right and row.points_to_sure is not None else None


def _hit(row: Row, name: str) -> Alarm | None:
    """The first alarm that is right about the fault; one with a step before one without."""
    onset = row.truth.onset
    if onset is None:
        return None
    near = NEAR_POINTS * row.log_interval
    anyway = [one.iteration for one in row.of_twin.get(name) or () if row.truth.label in one.labels]
    right = [
        one
        for one in row.others[name] or ()
        if row.truth.label in one.labels and not any(_is_near(one.iteration, at, near) for at in anyway)
    ]
    first = onset - EARLY_POINTS * row.log_interval
    late = [one for one in right if one.iteration is not None and one.iteration >= first]
    unnamed = [one for one in right if one.iteration is None]
    return min(late, key=_iteration) if late else next(iter(unnamed), None)


def _false(row: Row, name: str) -> list[Alarm]:
    """Alarms on what is healthy: all of a healthy curve, of a faulty one those well before the fault."""
    alarms = list(row.others[name] or ())
    if row.is_faulty and row.truth.onset is not None:
        first = row.truth.onset - EARLY_POINTS * row.log_interval
        alarms = [one for one in alarms if one.iteration is not None and one.iteration < first]
    return merged(alarms, MERGE_POINTS * row.log_interval)


def _is_near(one: int | None, other: int | None, distance: int) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= distance


def _iteration(alarm: Alarm) -> float:
    return math.inf if alarm.iteration is None else alarm.iteration
