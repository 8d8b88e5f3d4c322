"""The shapes of answers about hosts."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .models import IncidentSummary
from .values import Answer, Number, Timestamp, Whole


class ChanceState(StrEnum):
    """Whether a record is more than chance."""

    MORE = "more_than_chance"
    MAY_BE = "may_be_chance"
    UNKNOWN = "unknown"


class ChanceAnswer(Answer):
    """How surprising a host's record is where faults strike all hosts of a run alike."""

    state: ChanceState
    p_value: Number | None = Field(description="After the correction for all hosts compared.")
    expected_runs: Number | None = Field(description="Runs that would accuse it alone by chance.")
    hosts_compared: int
    why: str = Field(description="The same in a sentence.")


class NewestIncident(Answer):
    """The newest incident that accuses a host."""

    id: str
    run_id: str
    run: str
    label: str
    severity: str
    iteration: Whole
    opened_at: Timestamp


class HostSummary(Answer):
    """A host in a list: how often its ranks were suspects of confirmed incidents."""

    host: str
    incidents: int = Field(description="Without withdrawn ones and false alarms.")
    as_sole_suspect: int = Field(description="All suspects are on this host.")
    as_one_of_several: int
    false_alarms: int = Field(description="Called so by people.")
    runs: int = Field(description="Different runs with such an incident.")
    runs_seen: int | None = Field(description="Runs that named this host; null where none did.")
    devices: list[str] = Field(description="Devices of its suspects, most often suspected first.")
    newest: NewestIncident | None
    chance: ChanceAnswer


class HostPage(Answer):
    """Some hosts, repeat offenders first, and the cursor of the next page."""

    items: list[HostSummary]
    next: str | None


class DeviceSummary(Answer):
    """A device that was a suspect on a host."""

    device: str
    incidents: int
    as_sole_suspect: int
    other_hosts: list[str] = Field(description="Where the same device was a suspect, too: it was moved.")


class HostIncident(IncidentSummary):
    """An incident that accuses the host."""

    is_sole_suspect: bool = Field(description="All suspects are on this host.")


class HostAnswer(HostSummary):
    """One host: its devices one by one, and the incidents that accuse it."""

    device_history: list[DeviceSummary]
    history: list[HostIncident] = Field(description="Newest first.")
    more: bool = Field(description="True where older ones are left out.")
