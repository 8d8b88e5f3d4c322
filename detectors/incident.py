"""One fault and what followed: the nodes of an incident.

Every field is settled by records alone; how they become JSON is in `verdict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .evidence import Certainty, Direction, Json, Label, Pattern

MAX_LISTED_RANKS = 1000
"""Ranks listed in any one place; the count beside them is always the whole count."""
MAX_LISTED_EVIDENCE = 50
"""Pieces of evidence listed per incident: enough to redraw the decision, bounded for any run."""


class Scope(StrEnum):
    """What an empty list of ranks means."""

    RANKS = "ranks"
    """The fault is pinned to the listed ranks."""
    ALL = "all"
    """Every rank is a suspect, or all turned bad together."""
    UNKNOWN = "unknown"
    """The telemetry says nothing about ranks."""


class Severity(StrEnum):
    """How loudly an incident should be told."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


class CauseKind(StrEnum):
    """What may lie behind an incident."""

    HARDWARE = "hardware"
    COLLECTIVE = "collective"
    HYPERPARAMETER = "hyperparameter"
    DATA = "data"
    LOSS_FUNCTION = "loss_function"
    NUMERIC_OVERFLOW = "numeric_overflow"
    SOFTWARE = "software"
    UNDETERMINED = "undetermined"


class Basis(StrEnum):
    """How well the last good iteration is known."""

    PROVED = "proved"
    """Checksums of the replicas agreed at it, so no replica's state was corrupted before."""
    ASSUMED = "assumed"
    """Nothing looked wrong up to it, which a silent fault can survive."""
    UNKNOWN = "unknown"
    """No clean observation came before the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A rank that can have caused the first observations, and why it is suspected."""

    rank: int
    host: str | None = None
    device: str | None = None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Where an incident began: inside ``(interval[0], interval[1]]``, in the log's own counter.

    ``ranks`` are the suspects, ascending, at most `MAX_LISTED_RANKS`; ``rank_count`` counts all of
    them. A ``tie`` means one of them did it and the telemetry cannot tell which; otherwise each of
    them went wrong.
    """

    attempt: int
    ranks: tuple[int, ...] = ()
    rank_count: int = 0
    scope: Scope = Scope.UNKNOWN
    tie: bool = False
    iteration: int
    interval: tuple[int | None, int]
    phase: str
    metric: str
    suspects: tuple[Suspect, ...] = ()
    victims: tuple[int, ...] = ()
    victim_count: int = 0
    note: str = ""
    """In words: how the suspects were found, and what telemetry would split a tie."""


@dataclass(frozen=True, slots=True)
class ChainLink:
    """A label and the iteration from which it held; the first link is the root."""

    label: Label
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A ranked guess. ``stage`` is before_reduce, reduce, after_reduce or unknown."""

    kind: CauseKind
    stage: str
    confidence: float
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGood:
    """The last iteration before the first *possible* fault, and a checkpoint that is not newer."""

    iteration: int | None = None
    checkpoint: str | None = None
    checkpoint_iteration: int | None = None
    basis: Basis = Basis.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the fault costs so far; None where it cannot be computed."""

    iterations_since_onset: tuple[int, int | None]
    iterations_to_redo: int | None = None
    device_hours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceItem:
    """One piece of evidence as a verdict shows it."""

    detector: str
    metric: str
    pattern: Pattern
    certainty: Certainty
    phase: str
    ranks: tuple[int, ...]
    rank_count: int
    iteration: int
    interval: tuple[int | None, int]
    statistic: float
    threshold: float
    direction: Direction
    detail: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something to do; ``command`` is quoted for a POSIX shell, None where no command fits all sites."""

    action: str
    target: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """One fault and what followed from it."""

    id: str
    label: Label
    pattern: Pattern
    certainty: Certainty
    severity: Severity
    first: First
    detected_at_iteration: int
    chain: tuple[ChainLink, ...]
    causes: tuple[Cause, ...] = ()
    last_good: LastGood = field(default_factory=LastGood)
    cost: Cost
    evidence: tuple[EvidenceItem, ...] = ()
    evidence_count: int = 0
    advice: tuple[Advice, ...] = ()
