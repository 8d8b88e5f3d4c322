"""Reports about hardware put at the attempt and the iteration that they speak of.

They come when all records are read, with the newest attempt, since older ones are settled by then. One
that says when it was made (`at_attempt`, `at_iteration`) belongs there, any other to every attempt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from firstfault.telemetry import Event

from .facts import AttemptFindings


def spread(attempts: Sequence[AttemptFindings]) -> list[AttemptFindings]:
    """The attempts, each with the reports that speak of it or of the run as a whole."""
    reports = [placed(event) for one in attempts for event in one.facts.hardware if is_report(event)]
    if not reports:
        return list(attempts)
    return [_with(one, reports) for one in attempts]


def is_report(event: Event) -> bool:
    """Whether an event was made of a report, and not by the run itself."""
    return "source" in event.fields and "at_iteration" in event.fields


def placed(event: Event) -> Event:
    """The event at the attempt and the iteration that it speaks of."""
    attempt, iteration = event.fields.get("at_attempt"), event.fields.get("at_iteration")
    if not is_report(event) or not isinstance(attempt, int) or not isinstance(iteration, int):
        return event
    return replace(event, attempt=attempt, iteration=iteration)


def _with(findings: AttemptFindings, reports: Sequence[Event]) -> AttemptFindings:
    facts = findings.facts
    own = [event for event in facts.hardware if not is_report(event)]
    about = [
        event
        for event in reports
        if event.attempt == facts.attempt or event.fields.get("moment", "during") != "during"
    ]
    return replace(findings, facts=replace(facts, hardware=(*own, *about)))
