"""The shapes of answers about triage: revisions of incidents, rules that mute, feedback on detectors."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from detectors.evidence import Certainty, Label
from detectors.incident import Severity

from .models import MAX_NOTE, FirstFault
from .parameters import LabelText, Name
from .values import Answer, Timestamp


class RevisionKind(StrEnum):
    """What a revision of an incident is."""

    NEW = "new"
    WORSENED = "worsened"
    CHANGED = "changed"
    WITHDRAWN = "withdrawn"
    RETURNED = "returned"


class FieldChange(Answer):
    """One field of an incident that is not what it was; null where there was or is none."""

    field: str
    before: Any
    after: Any


class RevisionAnswer(Answer):
    """An incident as it was for a while."""

    revision: int
    at: Timestamp
    kind: RevisionKind
    label: Label
    pattern: str
    certainty: Certainty
    severity: Severity
    sentence: str
    first: FirstFault
    changed: list[FieldChange] = Field(description="Against the revision before; of long values the size.")


class RevisionList(Answer):
    """The revisions of an incident, oldest first; state and notes of people are in its log."""

    items: list[RevisionAnswer]
    forgotten: bool = Field(description="True where some after the first may be gone, or the first is.")


class MuteAnswer(Answer):
    """A rule that mutes what it matches; null matches everything."""

    id: str
    run: str | None = Field(description="Shell pattern of names of runs.")
    label: Label | None
    pattern: str | None
    detector: str | None = Field(description="All evidence of the incident is by this one.")
    host: str | None = Field(description="Shell pattern; every suspect is on such a host.")
    comment: str
    who: str
    created_at: Timestamp
    until: Timestamp
    active: bool
    ended_at: Timestamp | None = Field(description="When somebody ended it before its time.")
    ended_by: str | None


class MutePage(Answer):
    """Some rules, newest first, and the cursor of the next page."""

    items: list[MuteAnswer]
    next: str | None


class NewMute(BaseModel):
    """A rule to be made: at least one matcher, an end and a comment."""

    model_config = ConfigDict(extra="forbid")

    run: Name | None = Field(default=None, description="Shell pattern of names of runs: `llama-*`.")
    label: Label | None = None
    pattern: Name | None = None
    detector: Name | None = None
    host: LabelText | None = Field(default=None, description="Shell pattern of hosts of all suspects.")
    comment: str = Field(min_length=1, max_length=MAX_NOTE, description="Why.")
    until: AwareDatetime = Field(description="At most a year away.")
