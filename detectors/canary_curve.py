"""The loss of a fixed batch over iterations: it stops falling as it did, or rises.

`canary_loss` has no sampling noise, only the wander of the parameters. That makes a break in its decline
visible, which one noisy loss hides. The points are held as up to `CELLS` means of equally many, twice as
many each time they are full. Whenever one closes, the last of them are fitted as
a + b log t + c t + d t^2 (in logarithms of the loss), beside a *bend* or a *step* upwards at every place:

    z = k / sqrt(var(k)),    var from the rest, times (1 + phi) / (1 - phi) for its AR(1).

A healthy decline is never quite as fitted, so that z is no Student t: its null is measured
(`gate_of`). A new baseline begins where rate, batch, data or state changed.

Source: two-phase regression, Quandt, JASA 53 (1958), with the decline projected out first: Frisch and Waugh,
Econometrica 1 (1933).

Axes: N cells in the window, C places of a bend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.blocks import Floats, Ints

CELLS = 128
LEAST_CELLS = 24
"""Cells below which no test is made: ten for the decline before, and what its four numbers take."""
BEFORE, AFTER = 10, 5
"""Least cells before and after a bend."""
WINDOW = 72
"""Cells of one fit: a longer decline bends more than four numbers can follow."""
SIDE = 12
"""Cells on either side whose straight lines say how fast the loss falls there."""
SLOWER = 0.7
"""A bend is one where the loss falls at this share of its speed before, or less."""
LEAST_GAP = 0.003
"""Least distance, relative, from the decline carried on: below it no bend is worth a word."""
ONE_IN_TEN, TAIL_SCALE = 11.8, 1.8
"""Greatest z of a healthy curve: one in ten passes the first, and for each second beyond one in e of those.
Measured on 1500 smooth, noisy and wandering declines of four shapes: one in a hundred reached 16.1, one in a
thousand 19.0, so that this tail is a little too heavy."""
SURE = 3.0
"""Drop of the log likelihood up to which a place stays possible, as in `onset_ramp`."""


def gate_of(chance: float) -> float:
    """The z that a healthy curve passes anywhere with this chance.

    >>> round(gate_of(0.001), 1)
    20.1
    """
    return ONE_IN_TEN + TAIL_SCALE * math.log(0.1 / chance)


@dataclass(frozen=True, slots=True)
class Bend:
    """The most likely place at which the decline broke."""

    score: float
    is_step: bool
    at: int
    """Cell, of all that are held, in which it lies or ends."""
    low: int
    high: int
    """First and last possible such cell."""
    gap: float
    """How far the loss is above the decline carried on, in logarithms."""
    share: float
    """Slope after over slope before; infinite where it did not fall before."""


def find_bend(cells: Floats) -> Bend | None:
    """The bend or step upwards that explains most of ``cells``; None without one worth a word.

    >>> t = np.arange(100.0)
    >>> slows = 3.0 - 0.005 * np.minimum(t, 60) - 0.001 * np.maximum(t - 60, 0)
    >>> found = find_bend(slows + np.random.default_rng(0).normal(0, 3e-4, 100))
    >>> (found.score > gate_of(1e-4), abs(found.at - 60) <= 2, found.is_step)
    (True, True, False)
    """
    held = len(cells)
    if held < LEAST_CELLS or not bool((cells > 0).all()):
        return None
    first = max(held // 8, held - WINDOW)
    log_N, t_N = np.log(cells[first:]), np.arange(first, held) + 1.0
    basis_N4 = np.linalg.qr(np.column_stack((np.ones_like(t_N), np.log(t_N), t_N / held, (t_N / held) ** 2)))[
        0
    ]
    rest_N = log_N - basis_N4 @ (basis_N4.T @ log_N)
    at_C = np.arange(BEFORE, len(t_N) - AFTER)
    after_CN = np.maximum(0.0, t_N - t_N[at_C][:, np.newaxis])
    shapes = (after_CN, (after_CN > 0).astype(np.float64))
    found = [_best(shape_CN, is_step, rest_N, basis_N4) for is_step, shape_CN in enumerate(shapes)]
    score, is_step, place, low, high, gain = max(found)
    at = int(at_C[place])
    gap = gain if is_step else gain * (len(t_N) - at - 1)
    share = _share(log_N, at + 1)
    if gap < LEAST_GAP or not (is_step or share < SLOWER or log_N[-1] > log_N[at]):
        return None
    low, high = int(at_C[low]), int(at_C[high])
    return Bend(score, bool(is_step), first + at, first + low, first + high, gap, share)


def _best(
    shape_CN: Floats, is_step: int, rest_N: Floats, basis_N4: Floats
) -> tuple[float, int, int, int, int, float]:
    """Score, kind, place, first and last possible place, and size of the best upward one of its shape."""
    part_CN = shape_CN - (shape_CN @ basis_N4) @ basis_N4.T
    power_C = np.maximum((part_CN * part_CN).sum(axis=1), 1e-300)
    along_C = np.maximum(part_CN @ rest_N, 0.0)
    left_C = np.dot(rest_N, rest_N) - along_C**2 / power_C
    best = int(left_C.argmin())
    gain = float(along_C[best] / power_C[best])
    noise = _variance(rest_N - gain * part_CN[best])
    possible_C = np.flatnonzero(left_C - left_C[best] <= 2.0 * SURE * noise)
    score = gain * math.sqrt(float(power_C[best]) / noise)
    return score, is_step, best, int(possible_C[0]), int(possible_C[-1]), gain


def _variance(rest_N: Floats) -> float:
    """Variance of what is left, as that of independent noise that would mislead as much."""
    power = float(np.dot(rest_N, rest_N))
    phi = float(np.dot(rest_N[1:], rest_N[:-1])) / max(power, 1e-300) + 2.0 / len(rest_N)
    phi = min(max(phi, 0.0), 0.9)
    return max(power / (len(rest_N) - 6) * (1.0 + phi) / (1.0 - phi), 1e-300)


def _share(log_N: Floats, at: int) -> float:
    """Slope of the straight line after ``at`` over that of the one before."""
    before, after = _slope(log_N[max(0, at - SIDE) : at]), _slope(log_N[at : at + SIDE])
    return after / before if before < 0.0 else math.inf


def _slope(log_N: Floats) -> float:
    from_middle_N = np.arange(len(log_N)) - (len(log_N) - 1) / 2
    return float(np.dot(from_middle_N, log_N) / np.dot(from_middle_N, from_middle_N))


class Cells:
    """The points of a baseline as at most `CELLS` means of equally many, oldest first."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin a new baseline."""
        self.width = 1
        self.means: list[float] = []
        self.iterations: list[int] = []
        """First iteration of each cell, and of the open one."""
        self.total, self.count = 0.0, 0

    def add(self, value: float, iteration: int) -> bool:
        """Take a point; whether it closed a cell."""
        if self.count == 0:
            if len(self.means) == CELLS:
                self._halve()
            self.iterations.append(iteration)
        self.total += value
        self.count += 1
        if self.count < self.width:
            return False
        self.means.append(self.total / self.count)
        self.total, self.count = 0.0, 0
        return True

    def _halve(self) -> None:
        self.means = [(one + two) / 2 for one, two in zip(self.means[::2], self.means[1::2], strict=True)]
        self.iterations = self.iterations[::2]
        self.width *= 2

    def interval(self, bend: Bend) -> tuple[int, int, int]:
        """Iterations: last clean, most likely first bad, and first surely bad."""
        last = len(self.means) - 1
        clean, at, bad = max(bend.low - 1, 0), min(bend.at + 1, last), min(bend.high + 2, last)
        return self.iterations[clean], self.iterations[at], self.iterations[bad]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return {
            "width": self.width,
            "means": np.array(self.means, np.float64),
            "iterations": np.array(self.iterations, np.int64),
            "total": self.total,
            "count": self.count,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        means: Floats = np.asarray(state["means"], np.float64)
        iterations: Ints = np.asarray(state["iterations"], np.int64)
        self.width, self.count = int(state["width"]), int(state["count"])
        self.means, self.iterations = means.tolist(), iterations.tolist()
        self.total = float(state["total"])
