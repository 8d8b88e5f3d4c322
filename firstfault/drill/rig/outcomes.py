"""What a fault did to the training: the outcome classes of He et al., and when it mattered.

The classes are those of He et al., Understanding and Mitigating Hardware Failures in Deep Learning Training
Systems, ISCA 2023; the thresholds are ours, since theirs are read off curves of accuracy: the loss against
that of the golden twin, in standard deviations of the twin's own noise from point to point. Faults that
change nothing for long are *harmless*; of those, some train even better than the twin.
Axes: T reported positions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from .curves import LASTING_POINTS, mean_curves
from .effects import JUMP_SIGMA, SHIFT_SIGMA, first_shift, first_true, noise_of_curve
from .nonfinite_truth import first_without_end, in_a_row, skipped
from .recording import Flags, Floats, Ints, Recording

NOW_ITERATIONS = 1
"""Non-finite in the iteration of the fault or the next: a bad update shows in the forward pass after it."""
SHARP_ITERATIONS = 3
"""A sharp degrade shows in the iteration of the fault or soon after; later it is a slow one."""
END_SHARE = 0.1
"""Share of the run, at its end, whose mean loss is the result of the training."""
LEAST_POINTS = 20
"""Points of a mean at least: below, its error is a good part of what is judged."""
LOST_POINTS = 3
"""Non-finite gradients in a row that nobody skips; where a loss scale does, so many as it can have no end."""
_GETS_WORSE = 1.5
"""At the end half as far off again as after the sharp start: it degraded further."""


class Outcome(StrEnum):
    """What became of the training."""

    NO_EFFECT = "no_effect"
    """The loss never leaves its noise."""
    BENIGN_JITTER = "benign_jitter"
    """It does, and comes back."""
    SLOW_DEGRADE = "slow_degrade"
    SHARP_SLOW_DEGRADE = "sharp_slow_degrade"
    """A sharp rise, and it gets worse from there."""
    SHARP_DEGRADE = "sharp_degrade"
    """A sharp rise from which it does not come back to the twin."""
    NONFINITE_NOW = "nonfinite_now"
    NONFINITE_LATER = "nonfinite_later"

    @property
    def is_harmless(self) -> bool:
        """Whether the training ends as well as without the fault."""
        return self in (Outcome.NO_EFFECT, Outcome.BENIGN_JITTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """The outcome of one fault."""

    outcome: Outcome
    mattered_at: int | None
    """First iteration of the lasting change; None of a harmless fault."""
    end_change: float
    """Mean loss at the end less the twin's, in nats; negative where the fault trained better. NaN where
    there is no finite end."""
    end_sigma: float
    """The same in standard deviations of one point of the twin."""

    @property
    def mattered(self) -> bool:
        """Whether the training ends worse than it would have."""
        return not self.outcome.is_harmless


def damage_of(faulty: Recording, twin: Recording, injected_at: int) -> Damage:
    """What a fault of iteration ``injected_at`` did to the loss; the worst of the mean and of any one rank's.

    One replica that goes its own way is averaged out of the mean, and may be the one that is saved.
    """
    curves = [mean_curves(faulty, twin, "loss")]
    if (faulty.present["loss"] & twin.present["loss"]).any(axis=0).sum() > 1:
        curves += [_one_rank(faulty, twin, column) for column in range(len(twin.ranks_R))]
    bad = _nonfinite_at(faulty, twin)
    found = [
        _damage(twin.iterations_T[rows], values_T, expected_T, injected_at)
        for rows, values_T, expected_T in curves
        if len(rows)
    ]
    worst = max(found, key=lambda one: list(Outcome).index(one.outcome)) if found else None
    if bad is not None:
        is_now = bad <= injected_at + NOW_ITERATIONS
        outcome = Outcome.NONFINITE_NOW if is_now else Outcome.NONFINITE_LATER
        return Damage(outcome=outcome, mattered_at=bad, end_change=math.nan, end_sigma=math.nan)
    if worst is None:
        return Damage(outcome=Outcome.NO_EFFECT, mattered_at=None, end_change=math.nan, end_sigma=math.nan)
    return (
        worst
        if worst.mattered
        else Damage(
            outcome=worst.outcome,
            mattered_at=None,
            end_change=found[0].end_change,
            end_sigma=found[0].end_sigma,
        )
    )


def _damage(iterations_T: Ints, values_T: Floats, expected_T: Floats, injected_at: int) -> Damage:
    sigma_T = noise_of_curve(expected_T)
    change_T = values_T - expected_T
    z_T = np.nan_to_num(change_T / sigma_T, nan=0.0)
    tail = min(len(z_T), max(LEAST_POINTS, round(END_SHARE * len(z_T))))
    end, end_change = float(np.mean(z_T[-tail:])), float(np.mean(change_T[-tail:]))
    struck = int(np.argmax(iterations_T >= injected_at))  # the first time: a restart repeats iterations
    start_T = z_T[struck : struck + SHARP_ITERATIONS]
    is_sharp = bool(len(start_T)) and float(start_T.max()) > JUMP_SIGMA
    shift = first_shift(z_T)
    at = None
    if end > SHIFT_SIGMA:
        outcome = _degrade(z_T[struck:], end) if is_sharp else Outcome.SLOW_DEGRADE
        at = int(iterations_T[struck if is_sharp else _lasting_from(z_T, tail)])
    elif shift is not None or bool((np.abs(z_T) > JUMP_SIGMA).any()):
        outcome = Outcome.BENIGN_JITTER
    else:
        outcome = Outcome.NO_EFFECT
    return Damage(outcome=outcome, mattered_at=at, end_change=end_change, end_sigma=end)


def _degrade(after_T: Floats, end: float) -> Outcome:
    """Sharp, or sharp and then slow: by how far off it is behind the start."""
    settled = (
        float(np.median(after_T[SHARP_ITERATIONS:LASTING_POINTS])) if len(after_T) > LASTING_POINTS else end
    )
    return Outcome.SHARP_SLOW_DEGRADE if end > _GETS_WORSE * max(settled, 1.0) else Outcome.SHARP_DEGRADE


def _lasting_from(z_T: Floats, tail: int) -> int:
    """The first point from which the loss is worse to the end, on average of ``tail`` points."""
    sums = np.concatenate([[0.0], np.cumsum(z_T)])
    mean_B = (sums[tail:] - sums[:-tail]) / tail
    below = np.flatnonzero(mean_B <= SHIFT_SIGMA)
    first = int(below[-1]) + 1 if len(below) else 0
    above = np.flatnonzero(z_T[first:] > SHIFT_SIGMA)
    return first + (int(above[0]) if len(above) else 0)


def _one_rank(faulty: Recording, twin: Recording, column: int) -> tuple[Ints, Floats, Floats]:
    both_T = (faulty.present["loss"] & twin.present["loss"])[:, column]
    rows = np.flatnonzero(both_T)
    return rows, faulty.numbers["loss"][rows, column], twin.numbers["loss"][rows, column]


def _nonfinite_at(faulty: Recording, twin: Recording) -> int | None:
    """First iteration of a non-finite loss or parameter, or of gradients that no loss scale explains."""
    at_once = [_bad_rows(faulty, twin, name) for name in ("loss", "nonfinite_loss", "nonfinite_param")]
    found = [at for flags in at_once if (at := first_true(flags)) is not None]
    bad_T = _bad_rows(faulty, twin, "grad_norm") | _bad_rows(faulty, twin, "nonfinite_reduced")
    lost_T = bad_T & ~skipped(faulty)
    ends = [in_a_row(lost_T, LOST_POINTS), first_without_end(faulty, bad_T)]
    found += [at for at in ends if at is not None]
    return int(twin.iterations_T[min(found)]) if found else None


def _bad_rows(faulty: Recording, twin: Recording, metric: str) -> Flags:
    """Where ``metric`` says non-finite (by value, or by count) and the twin's does not."""
    if metric not in faulty.numbers or metric not in twin.numbers:
        return np.zeros(len(twin), dtype=np.bool_)
    flags = []
    for run in (faulty, twin):
        values_TR, present_TR = run.numbers[metric], run.present[metric]
        is_bad_TR = values_TR > 0 if metric.startswith("nonfinite_") else ~np.isfinite(values_TR)
        flags.append(np.asarray((is_bad_TR & present_TR).any(axis=1)))
    return np.asarray(flags[0] & ~flags[1])
