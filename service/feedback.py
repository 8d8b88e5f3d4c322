"""What people made of each detector's alarms: counted, and never used to retune one.

An incident counts for every detector that gave evidence of it, and for its pattern. What people concluded is
the last that one of them said: resolved means that it was real, false alarm that it was not; acknowledged and
muted leave the question open. When new evidence opens an incident again, what was said of it stays counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from .tables import evidence, incidents

_Z = 1.959964
"""Quantile of the normal distribution for an interval of 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Incidents of one detector and pattern."""

    detector: str
    pattern: str
    fired: int
    """All that were ever stored, also what later records explained away."""
    confirmed: int
    """Confirmed and not withdrawn: those that people are called for."""
    withdrawn: int
    judged_real: int
    judged_false: int
    """Called a false alarm by a person."""

    @property
    def judged(self) -> int:
        """Of how many people have said what they were."""
        return self.judged_real + self.judged_false


def detector_counts(db: Connection) -> list[Counts]:
    """Per detector and pattern what was fired, and what people said of it."""
    of = select(evidence.c.incident_id, evidence.c.detector).distinct().subquery()
    is_there = incidents.c.is_withdrawn.is_(False)

    rows = db.execute(
        select(
            of.c.detector,
            incidents.c.pattern,
            func.count().label("fired"),
            _count(and_(is_there, incidents.c.certainty == "confirmed")).label("confirmed"),
            _count(incidents.c.is_withdrawn.is_(True)).label("withdrawn"),
            _count(incidents.c.judged == "real").label("judged_real"),
            _count(incidents.c.judged == "false_alarm").label("judged_false"),
        )
        .join(incidents, incidents.c.id == of.c.incident_id)
        .group_by(of.c.detector, incidents.c.pattern)
        .order_by(of.c.detector, incidents.c.pattern)
    )
    return [Counts(**row._mapping) for row in rows]


def precision_interval(real: int, judged: int) -> tuple[float, float]:
    """Wilson's interval of 95 % for the share of alarms that were real; all of [0, 1] where none was judged.

    Wilson, Probable Inference, the Law of Succession, and Statistical Inference, JASA 22 (1927): unlike the
    normal approximation it says something of three alarms of which all were real.

    >>> [round(bound, 2) for bound in precision_interval(3, 3)], precision_interval(0, 0)
    ([0.44, 1.0], (0.0, 1.0))
    """
    if judged == 0:
        return 0.0, 1.0
    share, squared = real / judged, _Z * _Z / judged
    middle = (share + squared / 2) / (1 + squared)
    half = _Z * math.sqrt(share * (1 - share) / judged + squared / (4 * judged)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)


def _count(wanted: ColumnElement[bool]) -> ColumnElement[int]:
    return func.sum(case((wanted, 1), else_=0))
