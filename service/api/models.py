"""The shapes of answers about runs and incidents."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from detectors.evidence import Certainty, Label
from detectors.incident import Severity
from service.intake_problem import COMPONENT

from .values import Answer, Timestamp, Whole

MAX_NOTE = 2000
"""Characters of a note: a paragraph, not a document."""


class State(StrEnum):
    """What a person made of an incident."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    MUTED = "muted"
    RESOLVED = "resolved"
    FALSE_ALARM = "false_alarm"


class Freshness(Answer):
    """How much of now a verdict knows: what is around the canonical part and never in it."""

    revision: int = Field(description="Counts the different verdicts of this run.")
    updated_at: Timestamp = Field(description="When this verdict was stored.")
    judged_to_iteration: Whole | None = Field(description="The last iteration that was judged.")
    stale: bool = Field(description="True while newer telemetry may exist that was not judged.")
    stale_reasons: list[str] = Field(description="Why, in words.")
    quiet_since: Timestamp | None = Field(description="Since when nothing came of a run that has not ended.")


class FirstFault(Answer):
    """Where and when an incident began."""

    attempt: Whole
    iteration: Whole
    interval: list[Whole | None]
    ranks: list[int]
    rank_count: int
    hosts: list[str]
    metric: str | None


class CoverageSummary(Answer):
    """How much of a run was looked at, in numbers; the verdict has it in words."""

    ranks: Whole
    metrics: Whole = Field(description="Metrics that were reported.")
    checks_run: Whole
    checks_not_run: Whole = Field(description="Checks that lacked what they need.")
    blind_to: Whole = Field(description="Kinds of fault that this telemetry can never show.")
    silent_ranks: Whole
    rejected: Whole = Field(description="Records and values that could not be read.")


class RunSummary(Answer):
    """A run in a list."""

    run_id: str = Field(description="Opaque id; goes into addresses.")
    run: str = Field(description="The name that telemetry gives it.")
    label: Label
    severity: str = Field(description="The worst of its incidents: critical, warning, info or none.")
    sentence: str = Field(description="What happened, on which rank, since when.")
    incident_id: str | None = Field(description="The incident that the sentence is about.")
    first: FirstFault | None = Field(description="Where and when that incident began.")
    judged_to_iteration: Whole | None
    open_incidents: int = Field(description="Confirmed incidents that nobody has dealt with.")
    incident_states: dict[str, int] = Field(description="Confirmed incidents by what people made of them.")
    coverage: CoverageSummary
    revision: int
    first_seen_at: Timestamp
    updated_at: Timestamp
    newest_record_at: Timestamp | None = Field(description="By the clocks of the trainers.")
    quiet_since: Timestamp | None


class RunPage(Answer):
    """Some runs, and the cursor of the next page."""

    items: list[RunSummary]
    next: str | None


class RunAnswer(RunSummary):
    """One run: what happened in a sentence, and how fresh that is."""

    freshness: Freshness


class VerdictAnswer(Answer):
    """A canonical verdict, byte for byte, beside what is known of its freshness."""

    run_id: str
    freshness: Freshness
    verdict: dict[str, Any] = Field(json_schema_extra={COMPONENT: "Verdict"})


class MutedBy(Answer):
    """The rule that mutes an incident now."""

    id: str
    until: Timestamp
    comment: str
    who: str


class IncidentSummary(Answer):
    """An incident in a list."""

    id: str
    run_id: str
    run: str
    label: Label
    pattern: str
    certainty: Certainty
    severity: Severity
    state: State
    muted_until: Timestamp | None
    muted_by: MutedBy | None = Field(description="A rule that mutes it; the state is what people said.")
    is_withdrawn: bool = Field(description="True once later records explained it away.")
    sentence: str = Field(description="Who, what and since when.")
    first: FirstFault
    revision: int
    opened_at: Timestamp
    updated_at: Timestamp


class IncidentPage(Answer):
    """Some incidents, newest first, and the cursor of the next page."""

    items: list[IncidentSummary]
    next: str | None


class LogEntry(Answer):
    """What one person did with an incident, or what opened it again."""

    at: Timestamp
    who: str = Field(description="The name of the token; `firstfault` where new evidence did it.")
    state: State
    note: str
    muted_until: Timestamp | None
    by_system: bool = Field(description="True where new evidence opened it again.")


class IncidentAnswer(IncidentSummary):
    """One incident: its canonical part byte for byte, and its log."""

    log: list[LogEntry]
    allowed: list[State] = Field(description="What it may become now; to remain what it is needs a note.")
    incident: dict[str, Any] = Field(json_schema_extra={COMPONENT: "VerdictIncident"})


class StateChange(BaseModel):
    """What a person makes of an incident."""

    model_config = ConfigDict(extra="forbid")

    state: State
    note: str = Field(default="", max_length=MAX_NOTE, description="Why; a mute and a false alarm need one.")
    muted_until: AwareDatetime | None = Field(default=None, description="End of a mute, which needs one.")

    @model_validator(mode="after")
    def _check_mute(self) -> StateChange:
        if (self.state is State.MUTED) != (self.muted_until is not None):
            raise ValueError("muted_until belongs to the state muted, which needs it")
        if self.state is State.MUTED and not self.note.strip():
            raise ValueError("a mute needs a note that says why")
        if self.state is State.FALSE_ALARM and not self.note.strip():
            raise ValueError("a false alarm needs a note that says what it was instead")
        return self

    def until(self) -> float | None:
        """The end of the mute in seconds since 1970."""
        return None if self.muted_until is None else _seconds(self.muted_until)


class EventKind(StrEnum):
    """What an entry in a run's history is."""

    INCIDENT = "incident"
    ANNOTATION = "annotation"
    CHANGE = "change"


class Event(Answer):
    """An entry of a run's history: where it lies in the run, or when it changed in the store."""

    kind: EventKind
    name: str = Field(description="Label of the incident, kind of the annotation or of the change.")
    attempt: Whole | None
    iteration: Whole | None
    at: Timestamp | None = Field(description="When the change was stored.")
    seq: Whole | None = Field(description="Its place in the event stream.")
    incident_id: str | None
    detail: dict[str, Any]


class EventPage(Answer):
    """Incidents and annotations by position, then changes in their order."""

    items: list[Event]
    next: str | None


def _seconds(moment: datetime) -> float:
    return moment.timestamp()
