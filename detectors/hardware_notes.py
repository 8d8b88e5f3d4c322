"""Annotations of failing hardware: also on a healthy run, since the device will be used again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firstfault.telemetry import UNNAMED_RANK

from .device_record import is_device_fault, tell
from .evidence import Annotation
from .facts import AttemptFacts
from .reports import placed

KIND = "hardware"
MAX_NOTES = 64
"""Devices that are told of in one attempt; more are a host to be looked at as a whole."""


def hardware_notes(attempts: Sequence[AttemptFacts]) -> Iterator[Annotation]:
    """One annotation for each device and kind of fault in each attempt."""
    for facts in attempts:
        told: set[str] = set()
        for event in map(placed, facts.hardware):
            fields = event.fields
            key = "/".join(str(fields.get(name)) for name in ("kind", "code", "host", "device"))
            if not is_device_fault(event) or key in told or len(told) >= MAX_NOTES:
                continue
            told.add(key)
            where = {name: str(fields[name])[:100] for name in ("host", "device") if name in fields}
            yield Annotation(
                kind=KIND,
                key=key,
                attempt=event.attempt,
                iteration=event.iteration,
                detail={
                    "what": tell(event)[:300],
                    **({} if event.rank == UNNAMED_RANK else {"rank": event.rank}),
                    **where,
                },
            )
