"""What the doctor finds: one line for each thing looked at, with the cure where it is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..ink import clean

_LONGEST = 500
"""Columns of a line: what a server says of itself may be longer."""


class State(StrEnum):
    """How a thing that was looked at is."""

    OK = "ok"
    WARN = "warn"
    """The service works, and will not for long or not as meant."""
    FAIL = "fail"
    SKIPPED = "skipped"
    """Not looked at: it is not used, or what it needs fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at."""

    check: str
    state: State
    found: str
    cure: str = ""

    def line(self) -> str:
        """As a person reads it; what a server said is made harmless."""
        told = f"{self.state:<7} {self.check:<8} {self.found}"
        return clean(f"{told}; {self.cure}" if self.cure else told, _LONGEST)

    def as_json(self) -> Mapping[str, str]:
        """As a program reads it."""
        return {"check": self.check, "state": str(self.state), "found": self.found, "cure": self.cure}


class Wrong(Exception):
    """What ends a series of steps of which each needs the one before."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.line())
        self.finding = finding


def ok(check: str, found: str) -> Finding:
    """Nothing is wrong with it."""
    return Finding(check=check, state=State.OK, found=found)


def warn(check: str, found: str, cure: str) -> Finding:
    """It works for now."""
    return Finding(check=check, state=State.WARN, found=found, cure=cure)


def fail(check: str, found: str, cure: str) -> Finding:
    """It does not work."""
    return Finding(check=check, state=State.FAIL, found=found, cure=cure)


def skipped(check: str, why: str) -> Finding:
    """It was not looked at."""
    return Finding(check=check, state=State.SKIPPED, found=why)
