"""Types of values as they stand in answers: times, whole numbers, numbers that are not numbers."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer, WithJsonSchema

_EXACT = 2**53
"""Greatest whole number that every JSON reader keeps exactly; beyond it is text."""
_LAST_SECOND = 253_402_300_799
"""9999-12-31T23:59:59Z, the last second that RFC 3339 can write."""


class Answer(BaseModel):
    """Base of all answers: no surprise keys, and no number that JSON lacks."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", allow_inf_nan=True)


def timestamp(seconds: float | None) -> str | None:
    """RFC 3339 in UTC; None for what is no time between 1970 and 9999.

    >>> timestamp(1764470000.25), timestamp(float("nan")), timestamp(1e300)
    ('2025-11-30T02:33:20.250Z', None, None)
    """
    if seconds is None or math.isnan(seconds) or not 0 <= seconds <= _LAST_SECOND:
        return None
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def whole(value: int) -> int | str:
    """A whole number as every reader keeps it.

    >>> whole(2**53), whole(2**53 + 1)
    (9007199254740992, '9007199254740993')
    """
    return value if abs(value) <= _EXACT else str(value)


Whole = Annotated[
    int,
    PlainSerializer(whole, return_type=int | str, when_used="json"),
]
"""A whole number; text beyond 2**53."""
Timestamp = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
"""RFC 3339 in UTC."""
Number = Annotated[
    float, WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]})
]
"""A number that may be NaN or infinite, which is then text."""
