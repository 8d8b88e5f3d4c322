"""The rules that people write first, on the same averaged curve: what they find and what they cry over.

Each is one-sided and looks at the loss alone, with the window before the point. A non-finite loss is an alarm
of every rule, and named NaN: whoever plots a curve sees that. Of what else fires no rule says what it is, so
that any label counts as right. Axes: T logged points.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Series = NDArray[np.float64]
Flags = NDArray[np.bool_]

ANY = frozenset({"nan", "gradient_explosion", "silent_drift"})
MERGE_POINTS = 50
"""Alarms of one rule closer than this are one: a person is told once."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One alarm: where (None where the tool does not say), the labels it would be right for, the rank."""

    iteration: int | None
    labels: frozenset[str]
    rank: int | None = None


def mean_and_sigmas(loss_T: Series, window: int, sigmas: float) -> Flags:
    """Over the mean of the window by so many standard deviations.

    >>> mean_and_sigmas(np.array([1.0, 1.1] * 20 + [2.0]), 30, 3.0).nonzero()[0].tolist()
    [40]
    """
    before_TW = sliding_window_view(loss_T, window)[:-1]
    flags_T = np.zeros(len(loss_T), np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):
        flags_T[window:] = loss_T[window:] > before_TW.mean(axis=1) + sigmas * before_TW.std(axis=1)
    return flags_T


def twice_the_mean(loss_T: Series) -> Flags:
    """Over twice the mean of the ten points before."""
    before_TW = sliding_window_view(loss_T, 10)[:-1]
    flags_T = np.zeros(len(loss_T), np.bool_)
    with np.errstate(invalid="ignore", over="ignore"):
        flags_T[10:] = loss_T[10:] > 2 * before_TW.mean(axis=1)
    return flags_T


def ten_times_the_first(loss_T: Series) -> Flags:
    """Over ten times the maximum of the first hundred points."""
    flags_T = np.zeros(len(loss_T), np.bool_)
    flags_T[100:] = loss_T[100:] > 10 * np.nanmax(loss_T[:100])
    return flags_T


RULES: Mapping[str, Callable[[Series], Flags]] = {
    "z > 3 over 30": lambda loss_T: mean_and_sigmas(loss_T, 30, 3.0),
    "mean + 6 sigma over 128": lambda loss_T: mean_and_sigmas(loss_T, 128, 6.0),
    "2 x mean of 10": twice_the_mean,
    "10 x maximum of the first 100": ten_times_the_first,
}


def alarms_of_rules(columns: Mapping[str, Sequence[float]]) -> dict[str, list[Alarm]]:
    """What each rule fires on, of a curve with the columns ``iteration`` and ``loss``."""
    iteration_T = np.asarray(columns["iteration"], np.int64)
    loss_T = np.asarray(columns["loss"], np.float64)
    lost_T = ~np.isfinite(loss_T)
    found: dict[str, list[Alarm]] = {}
    for name, rule in RULES.items():
        fired_T = rule(loss_T) & ~lost_T if len(loss_T) > 200 else np.zeros(len(loss_T), np.bool_)
        marks = [(int(at), ANY) for at in np.flatnonzero(fired_T)]
        marks += [(int(at), frozenset({"nan"})) for at in np.flatnonzero(lost_T)]
        found[name] = [Alarm(int(iteration_T[at]), labels) for at, labels in sorted(marks, key=_place)]
    return found


def merged(alarms: Sequence[Alarm], distance: int) -> list[Alarm]:
    """Alarms of the same labels that follow each other within ``distance`` iterations as the first of them.

    >>> [one.iteration for one in merged([Alarm(5, ANY), Alarm(20, ANY), Alarm(99, ANY)], 50)]
    [5, 99]
    """
    kept: list[Alarm] = []
    newest: dict[tuple[frozenset[str], int | None], int] = {}
    for one in alarms:
        kind = one.labels, one.rank
        if one.iteration is None or one.iteration - newest.get(kind, -2 * distance) > distance:
            kept.append(one)
        if one.iteration is not None:
            newest[kind] = one.iteration
    return kept


def _place(mark: tuple[int, frozenset[str]]) -> int:
    return mark[0]
