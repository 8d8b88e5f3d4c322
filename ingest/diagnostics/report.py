"""What a report about hardware found, in the words of a ``hardware`` event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_FINDINGS = 1000
"""Findings kept of one report: the first ones; a flood of the same line is one finding with a count."""
MAX_TEXT = 240
MAX_BESIDE = 4096
"""Characters beside a report in its file: what the command said. A log of training into which a report was
printed at its start is a log."""
_TOLD = 8
"""Findings that are told for a person."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A device as a report names it. ``names`` are others of the same device: UUID, PCI address, serial."""

    device: str | None = None
    host: str | None = None
    names: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = f"device {self.device}" if self.device is not None else ""
        return " of ".join(part for part in (where, self.host or "") if part) or "the host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, or may be.

    ``kind`` is that of a ``hardware`` event. ``time`` is in seconds since 1970; ``day_time`` is
    (month, day, second of the day) where the year is not said.
    """

    kind: str
    text: str
    place: Place = field(default_factory=Place)
    code: str | None = None
    is_failure: bool = False
    """Whether a test of the device itself failed."""
    time: float | None = None
    day_time: tuple[int, int, float] | None = None
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.place}: {self.text}{times}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosticReport:
    """One file: what was found, and which devices passed the tests of their hardware."""

    path: str
    format: str
    findings: tuple[Finding, ...] = ()
    passed: tuple[tuple[Place, str], ...] = ()
    """(device, the tests it passed)."""
    remarks: tuple[str, ...] = ()
    devices: tuple[Place, ...] = ()
    """Devices that were described, whatever was found: a list of names that belong together."""

    @property
    def places(self) -> tuple[Place, ...]:
        """All devices that the report speaks of, each once."""
        every = [*self.devices, *(place for place, _ in self.passed)]
        every += [finding.place for finding in self.findings]
        return tuple(dict.fromkeys(place for place in every if place.device is not None))

    def lines(self) -> Iterator[str]:
        """What it says, for a person."""
        found = f"{len(self.findings)} finding{'s' * (len(self.findings) != 1)}"
        passed = f", {len(self.passed)} device{'s' * (len(self.passed) != 1)} passed" if self.passed else ""
        yield f"{self.format}: {found}{passed}"
        for finding in self.findings[:_TOLD]:
            yield str(finding)
        if len(self.findings) > _TOLD:
            yield f"and {len(self.findings) - _TOLD} more"
        yield from self.remarks
