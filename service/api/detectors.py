"""`/v1/detectors`: what each detector fired, and what people said of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from service.config import detector_settings
from service.feedback import Counts, detector_counts, precision_interval

from .answers import answer
from .context import context_of
from .values import Answer, Number

router = APIRouter(prefix="/v1/detectors", tags=["detectors"])


class Precision(Answer):
    """The share of judged alarms that were real, with an interval of 95 %."""

    judged: int = Field(description="Incidents of which people said whether they were real.")
    estimate: Number | None = Field(description="Null where none was judged.")
    low: Number
    high: Number


class PatternFeedback(Answer):
    """What was fired of one pattern."""

    pattern: str
    fired: int = Field(description="Incidents with evidence of this detector, also withdrawn ones.")
    confirmed: int = Field(description="Confirmed and not withdrawn.")
    withdrawn: int = Field(description="Explained away by later records.")
    judged_real: int = Field(description="Resolved by people.")
    false_alarms: int = Field(description="Called so by people.")
    precision: Precision


class DetectorFeedback(Answer):
    """What one detector fired, over all patterns and by pattern."""

    detector: str
    fired: int
    confirmed: int
    withdrawn: int
    judged_real: int
    false_alarms: int
    precision: Precision
    patterns: list[PatternFeedback]


class DetectorList(Answer):
    """All detectors that ever fired; nothing here retunes any."""

    items: list[DetectorFeedback]


class Setting(Answer):
    """One setting."""

    name: str = Field(description="In full: `detectors.explosion.loss_hold`.")
    value: Any = Field(description="Null where it is not set.")


class SettingList(Answer):
    """All settings of the detectors."""

    items: list[Setting]


@router.get("", response_model=DetectorList, summary="What people made of each detector's alarms")
def get_detectors(request: Request) -> Response:
    """Counts by detector and pattern, and the precision that people's marks give, with its interval."""
    with context_of(request).database.read() as db:
        counts = detector_counts(db)
    return answer(DetectorList(items=feedback(counts)))


@router.get("/settings", response_model=SettingList, summary="The settings of the detectors")
def get_settings(request: Request) -> Response:
    """What the worker judges with, by full name: what `what-if` may be asked to change."""
    found = detector_settings(context_of(request).detectors)
    return answer(SettingList(items=[Setting(name=name, value=value) for name, value in found.items()]))


def feedback(counts: Sequence[Counts]) -> list[DetectorFeedback]:
    """The answer's items out of the counts, which are sorted by detector."""
    found = []
    for detector, group in groupby(counts, key=lambda one: one.detector):
        mine = list(group)
        patterns = [PatternFeedback(pattern=one.pattern, **_told([one])) for one in mine]
        found.append(DetectorFeedback(detector=detector, **_told(mine), patterns=patterns))
    return found


def _told(counts: Sequence[Counts]) -> dict[str, Any]:
    real, false = (sum(getattr(one, name) for one in counts) for name in ("judged_real", "judged_false"))
    low, high = precision_interval(real, real + false)
    return {
        **{name: sum(getattr(one, name) for one in counts) for name in ("fired", "confirmed", "withdrawn")},
        "judged_real": real,
        "false_alarms": false,
        "precision": Precision(
            judged=real + false,
            estimate=round(real / (real + false), 4) if real + false else None,
            low=round(low, 4),
            high=round(high, 4),
        ),
    }
