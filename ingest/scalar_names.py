"""What the names of separately logged scalars mean: which is the loss, and what counts iterations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .blocks import Floats, Ints
from .roles import Role, assign_roles
from .scalar_points import Points

_SAMPLE = 1000
"""Values of each name that are looked at."""
_STEP_REMARKS = ("nothing counts iterations",)


@dataclass(frozen=True, slots=True)
class Named:
    """The meaning of the names of `Points`.

    ``metrics`` maps a name to its metric, ``scales`` to its factor where it is in another unit; ``summed``
    are metrics whose sum is the loss. ``counter`` is the name that counts iterations, None where that is
    the tracker's own step.
    """

    metrics: Mapping[str, str]
    scales: Mapping[str, float]
    summed: tuple[str, ...]
    counter: str | None
    remarks: tuple[str, ...]

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Each name that is read, and as what."""
        return tuple(self.metrics.items())


def names_of(points: Points, wanted: Mapping[str, str], step: str, *, may_recount: bool = False) -> Named:
    """The meaning of the names, given that the tracker counts ``step``.

    With ``may_recount`` a name can be a better counter: some trackers count their own calls.

    Raises:
        UnreadableInput: ``wanted`` names what is not there.
    """
    names = list(points.names)
    name_P, value_P = np.array(points.name_P, np.int64), np.array(points.value_P)
    columns: list[list[object]] = [list(points.step_P[:_SAMPLE])]
    columns += [value_P[name_P == at][:_SAMPLE].tolist() for at in range(len(names))]
    forced = {} if may_recount else {Role.ITERATION.value: step}
    roles = assign_roles([step, *names], columns, {**forced, **wanted})
    counter = roles.names[roles.iteration] if roles.iteration else None
    metrics = {roles.names[at]: metric for at, metric in roles.metrics.items() if at and metric}
    return Named(
        metrics=metrics,
        scales={roles.names[at]: scale for at, scale in roles.scales.items()},
        summed=roles.summed,
        counter=counter,
        remarks=tuple(each for each in roles.remarks if not each.startswith(_STEP_REMARKS)),
    )


def recounted(points: Points, counter: str) -> Ints:
    """The steps of all points in another counter: its value at the same step, else the last before.

    A step before its first value gets the first. Values that are no iteration are passed over.
    """
    name_P, step_P = np.array(points.name_P, np.int64), np.array(points.step_P, np.int64)
    value_P: Floats = np.array(points.value_P)
    mine = np.flatnonzero((name_P == points.names[counter]) & np.isfinite(value_P) & (value_P >= 0))
    if not len(mine):
        return step_P
    mine = mine[np.argsort(step_P[mine], kind="stable")]
    at = np.searchsorted(step_P[mine], step_P, side="right") - 1
    result_P: Ints = value_P[mine][np.clip(at, 0, None)].astype(np.int64)
    return result_P
