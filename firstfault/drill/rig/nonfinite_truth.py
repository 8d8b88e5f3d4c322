"""When a non-finite value is a fault, and not the work of a loss scale. Axes: T positions, R ranks."""

from __future__ import annotations

import math

import numpy as np

from .effects import first_true
from .oracle import nonfinite_flags, watched
from .recording import Flags, Recording

ENDLESS_SKIPS = 20
"""A loss scale halves after each skip: from the usual 65 536 it is at 1 after 16 of them in a row."""
SKIPS_AT_FLOOR = 3
"""The same at a scale of 1 or less, from which nothing is left to halve."""
ALIKE_ODDS = 1e5
"""How unlikely it must be that the same one of R alike ranks overflows alone k times in a row."""
_AT_ONCE = ("loss", "nonfinite_loss", "nonfinite_param")
_GRADIENTS = (
    "grad_norm",
    "local_grad_norm",
    "grad_absmax",
    "act_grad_norm",
    "nonfinite_grad",
    "nonfinite_reduced",
)


def nonfinite_event(faulty: Recording, twin: Recording) -> int | None:
    """The first position at which the fault shows as a non-finite value; None where it never does.

    A loss or a parameter counts at once; a gradient too, unless the step was skipped under a loss scale:
    then skips without end, or so many of one rank alone that the others cannot have been lucky.
    """
    lost_TR = _extra(faulty, twin, _AT_ONCE)
    gradient_TR = _extra(faulty, twin, _GRADIENTS)
    skipped_T = skipped(faulty)
    bad_T = np.asarray(gradient_TR.any(axis=1))
    plain_T = np.asarray(lost_TR.any(axis=1) | (bad_T & ~skipped_T))
    found = [
        first_true(plain_T),
        first_without_end(faulty, bad_T),
        _sole(gradient_TR & skipped_T[:, None]),
    ]
    return min((at for at in found if at is not None), default=None)


def _extra(faulty: Recording, twin: Recording, names: tuple[str, ...]) -> Flags:
    flags_TR = np.zeros((len(twin), len(twin.ranks_R)), dtype=np.bool_)
    for metric in watched(faulty):
        if metric.partition("/")[0] in names and metric in twin.numbers:
            flags_TR |= nonfinite_flags(faulty, metric) & ~nonfinite_flags(twin, metric)
    return flags_TR


def skipped(faulty: Recording) -> Flags:
    """Positions at which a step was skipped under a loss scale."""
    if "skipped" not in faulty.numbers or "loss_scale" not in faulty.numbers:
        return np.zeros(len(faulty), dtype=np.bool_)
    return np.asarray((faulty.numbers["skipped"] > 0).any(axis=1))


def first_without_end(faulty: Recording, bad_T: Flags) -> int | None:
    """The first of non-finite gradients ``bad_T`` that no loss scale gets over; None without such."""
    found = [in_a_row(bad_T, ENDLESS_SKIPS), in_a_row(bad_T & _at_floor(faulty), SKIPS_AT_FLOOR)]
    return min((at for at in found if at is not None), default=None)


def _at_floor(faulty: Recording) -> Flags:
    """Positions at which the loss scale has nothing left to give."""
    scale_TR = faulty.numbers.get("loss_scale")
    if scale_TR is None:
        return np.zeros(len(faulty), dtype=np.bool_)
    return np.asarray((faulty.present["loss_scale"] & (scale_TR <= 1.0)).any(axis=1))


def in_a_row(bad_T: Flags, points: int) -> int | None:
    """The first position of so many bad ones in a row."""
    if len(bad_T) < points:
        return None
    return first_true(np.asarray(np.lib.stride_tricks.sliding_window_view(bad_T, points).all(axis=1)))


def _sole(bad_TR: Flags) -> int | None:
    """The first of so many overflows of one rank alone, one after the other, that it is no chance."""
    ranks = bad_TR.shape[1]
    needed = 1 + math.ceil(math.log(ALIKE_ODDS) / math.log(max(ranks, 2)))
    rows = np.flatnonzero(bad_TR.any(axis=1))
    if ranks < 2 or len(rows) < needed:
        return None
    owner = np.where(bad_TR[rows].sum(axis=1) == 1, bad_TR[rows].argmax(axis=1), -1)
    for first in range(len(rows) - needed + 1):
        streak = owner[first : first + needed]
        if streak[0] >= 0 and (streak == streak[0]).all():
            return int(rows[first])
    return None
