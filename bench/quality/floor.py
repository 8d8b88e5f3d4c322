"""One demand beside its measured figure, and whether the cases decide it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from .scores import Figure

FEWEST_EXACT = 59
"""Cases without one miss that let the 95 % interval of "all" exclude a miss in twenty."""


class Holds(StrEnum):
    """What the cases say of a floor."""

    YES = "holds"
    NO = "does not hold"
    OPEN = "too few cases to tell"
    NOT_RUN = "no cases"
    FREE = "no bound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """One demand and its measured figure; ``is_ceiling`` where less is better."""

    name: str
    bound: float | None
    figure: Figure
    is_ceiling: bool = False
    note: str = ""

    @property
    def holds(self) -> Holds:
        """Whether the whole interval is on the good side, the whole on the bad one, or neither."""
        figure = self.figure
        if figure.cases == 0 or math.isnan(figure.value):
            return Holds.NOT_RUN
        if self.bound is None:
            return Holds.FREE
        if self.is_ceiling:
            return _side(figure.high <= self.bound, figure.low > self.bound)
        if self.bound == 1.0:
            return _side(figure.value == 1.0 and figure.cases >= FEWEST_EXACT, figure.high < 1.0)
        return _side(figure.low >= self.bound, figure.high < self.bound)


def _side(is_good: bool, is_bad: bool) -> Holds:
    return Holds.YES if is_good else Holds.NO if is_bad else Holds.OPEN
