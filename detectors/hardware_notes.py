"""What the log tells of hardware besides the curves, also on a healthy run.

A failing device is an annotation, since it will be used again. What ended the program, memory that ran out
or a collective that did not come back, is a note: no curve shows it, and a dead run would just be healthy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from firstfault.telemetry import UNNAMED_RANK, Event

from .device_record import is_device_fault, tell
from .evidence import Annotation
from .facts import AttemptFacts
from .reports import placed

KIND = "hardware"
_ENDINGS = frozenset({"out_of_memory", "cuda", "collective", "gpu_hang", "exception", "signal"})
"""Kinds of events after which a program seldom lives on, though no device need be broken."""
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


def ending_notes(hardware: Sequence[Event]) -> list[str]:
    """Of each kind of line that tells why a program ended, the first, as it was printed."""
    first: dict[str, Event] = {}
    for event in sorted(hardware, key=lambda one: one.iteration):
        kind = str(event.fields.get("kind"))
        if kind in _ENDINGS and event.fields.get("text"):
            first.setdefault(kind, event)
    return [
        f"the log tells at iteration {one.iteration}: {str(one.fields['text'])[:160]}"
        for one in first.values()
    ]
