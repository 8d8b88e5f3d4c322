"""What the steps of separately logged scalars say: restarts, and series that count something else.

Axes: P points in the order in which they were logged.
"""

from __future__ import annotations

import numpy as np

from .blocks import Floats, Ints

MAX_FALL_SHARE = 0.1
"""Share of a series' points that go back beyond which it is in no order, and tells no restart."""
_OTHER_COUNTER = 0.2
"""How far the steps of a series lie from the main ones at the same times, as a share of the main span,
to be of another counter: epochs against iterations differ by nearly all of it."""
_MIN_POINTS = 2
_CONCURRENT_SHARE = 0.5
"""How much of the shorter of two files must lie inside the other to be written at the same time: one that
is begun while the last values of the one before are still written overlaps by little."""


def attempts_of(name_P: Ints, step_P: Ints, part_P: Ints) -> Ints:
    """The attempt of each point, from 0: a new one begins where series go back.

    The longest series in order decides. Between its last point before and its first one after, the
    restart is at the first point at which any series goes back.
    """
    attempt_P = np.zeros(len(step_P), np.int64)
    falls = _falls_by_name(name_P, step_P)
    if not falls:
        return attempt_P
    reference = _reference(name_P, falls)
    if reference is None:
        return attempt_P
    mine = np.flatnonzero(name_P == reference)
    every_fall = np.unique(np.concatenate(list(falls.values())))
    for at in falls[reference].tolist():
        before = int(mine[np.searchsorted(mine, at) - 1])
        between = every_fall[(every_fall > before) & (every_fall <= at)]
        start = int(between[0]) if len(between) else at
        if part_P[at] != part_P[before]:  # a file of its own begins with its process
            start = int(np.flatnonzero(part_P[before : at + 1] == part_P[at])[0]) + before
        attempt_P[start:] += 1
    return attempt_P


def lanes_of(name_P: Ints, part_P: Ints, time_P: Floats) -> list[list[int]]:
    """Files in groups of which none was written at the same time as another with the same series.

    A process that starts again writes a file after the other; files side by side are of other processes.
    """
    spans = {}
    for part in np.unique(part_P).tolist():
        mine = part_P == part
        times = time_P[mine]
        spans[part] = (float(times.min()), float(times.max()), set(np.unique(name_P[mine]).tolist()))
    lanes: list[list[int]] = []
    for part in sorted(spans, key=lambda part: (spans[part][0], part)):
        for lane in lanes:
            if not any(_are_concurrent(spans[part], spans[other]) for other in lane):
                lane.append(part)
                break
        else:
            lanes.append([part])
    return lanes


def _are_concurrent(one: tuple[float, float, set[int]], other: tuple[float, float, set[int]]) -> bool:
    shared = min(one[1], other[1]) - max(one[0], other[0])
    shorter = min(one[1] - one[0], other[1] - other[0])
    return bool(one[2] & other[2]) and shorter > 0 and shared > _CONCURRENT_SHARE * shorter


def _falls_by_name(name_P: Ints, step_P: Ints) -> dict[int, Ints]:
    """Per series with such, the points whose step is below the one before."""
    order = np.argsort(name_P, kind="stable")
    same = np.diff(name_P[order]) == 0
    fell = np.flatnonzero(same & (np.diff(step_P[order]) < 0)) + 1
    found: dict[int, list[int]] = {}
    for at in fell.tolist():
        found.setdefault(int(name_P[order[at]]), []).append(int(order[at]))
    return {name: np.array(places, np.int64) for name, places in found.items()}


def _reference(name_P: Ints, falls: dict[int, Ints]) -> int | None:
    """The longest series that is in order but for restarts; None if there is none with a restart."""
    counts = np.bincount(name_P)
    for name in np.argsort(-counts, kind="stable").tolist():
        own = len(falls.get(name, ()))
        if own <= max(1, MAX_FALL_SHARE * counts[name]):
            return int(name) if own else None
    return None


def place_by_time(name_P: Ints, step_P: Ints, time_P: Floats) -> tuple[Ints, list[int]]:
    """The steps in one counter, and the series that counted something else.

    The series with most points has the main counter. One whose steps are far from it at the same times
    is put at the main step that was reached at each of its times.
    """
    if not len(step_P) or not np.isfinite(time_P).all():
        return step_P, []
    counts = np.bincount(name_P)
    main = name_P == int(np.argmax(counts))
    main_step_M, main_time_M = step_P[main], time_P[main]
    span = int(main_step_M.max() - main_step_M.min())
    # A main series that goes back cannot tell by a time where the job was.
    if span == 0 or (np.diff(main_step_M) < 0).any() or (np.diff(main_time_M) < 0).any():
        return step_P, []
    placed_P, moved = step_P.copy(), []
    for name in np.flatnonzero(counts >= _MIN_POINTS).tolist():
        mine = np.flatnonzero(name_P == name)
        at = np.clip(np.searchsorted(main_time_M, time_P[mine], side="right") - 1, 0, None)
        there = main_step_M[at]
        if np.median(np.abs(there - step_P[mine])) > _OTHER_COUNTER * span and _moves(there):
            placed_P[mine] = there
            moved.append(name)
    return placed_P, moved


def _moves(step_M: Ints) -> bool:
    """Whether the places differ: values written all at once (a summary at the end) have no place."""
    return bool(len(np.unique(step_M)) * 2 > len(step_M))
