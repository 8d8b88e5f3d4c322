"""What one detector saw: evidence, annotations, and which checks ran.

Axes: R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from firstfault.telemetry import WHOLE_ITERATION, Phase
from ingest.blocks import Flags, Ranks

Json = str | int | float | bool | None | list["Json"] | dict[str, "Json"]


class Label(StrEnum):
    """What we conclude of a run."""

    HEALTHY = "healthy"
    GRADIENT_EXPLOSION = "gradient_explosion"
    NAN = "nan"
    SILENT_DRIFT = "silent_drift"
    STALL = "stall"
    UNDETERMINED = "undetermined"


class Pattern(StrEnum):
    """The shape of a fault; each belongs to one label (`LABEL_OF`)."""

    IMMEDIATE_NONFINITE = "immediate_nonfinite"
    SHORT_NONFINITE = "short_nonfinite"
    RUNAWAY = "runaway"
    SHARP_DEGRADE = "sharp_degrade"
    REPLICA_DIVERGENCE = "replica_divergence"
    COMPUTE_MISMATCH = "compute_mismatch"
    COLLECTIVE_MISMATCH = "collective_mismatch"
    PEER_DRIFT = "peer_drift"
    SLOW_DEGRADE = "slow_degrade"
    SHARP_SLOW_DEGRADE = "sharp_slow_degrade"
    PLATEAU = "plateau"
    STUCK = "stuck"
    LOW_TEST_ACCURACY = "low_test_accuracy"
    HANG = "hang"
    UTILIZATION_DROP = "utilization_drop"


LABEL_OF: Mapping[Pattern, Label] = {
    Pattern.IMMEDIATE_NONFINITE: Label.NAN,
    Pattern.SHORT_NONFINITE: Label.NAN,
    Pattern.RUNAWAY: Label.GRADIENT_EXPLOSION,
    Pattern.SHARP_DEGRADE: Label.GRADIENT_EXPLOSION,
    Pattern.REPLICA_DIVERGENCE: Label.SILENT_DRIFT,
    Pattern.COMPUTE_MISMATCH: Label.SILENT_DRIFT,
    Pattern.COLLECTIVE_MISMATCH: Label.SILENT_DRIFT,
    Pattern.PEER_DRIFT: Label.SILENT_DRIFT,
    Pattern.SLOW_DEGRADE: Label.SILENT_DRIFT,
    Pattern.SHARP_SLOW_DEGRADE: Label.SILENT_DRIFT,
    Pattern.PLATEAU: Label.SILENT_DRIFT,
    Pattern.STUCK: Label.SILENT_DRIFT,
    Pattern.LOW_TEST_ACCURACY: Label.SILENT_DRIFT,
    Pattern.HANG: Label.STALL,
    Pattern.UTILIZATION_DROP: Label.STALL,
}


class Certainty(StrEnum):
    """How far a detector has come; only `CONFIRMED` makes a run unhealthy."""

    SUSPECTED = "suspected"
    CONFIRMED = "confirmed"
    RECOVERED = "recovered"


class Direction(StrEnum):
    """Which way the statistic left its null."""

    UP = "up"
    DOWN = "down"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """Which ranks were seen good and bad, of one metric at one position.

    What the cause graph reasons from: a rank that is in neither was not observed there.
    """

    metric: str
    iteration: int
    microbatch: int = WHOLE_ITERATION
    ranks_R: Ranks
    bad_R: Flags
    clean_R: Flags
    phase: Phase | None = None
    """Where a metric that the run declares is taken; None where its name tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation that something is wrong, with the numbers that let a person redraw it.

    Later evidence with the same ``detector`` and ``key`` replaces the earlier one (a suspicion that
    is confirmed, an onset that moves). The fault began inside ``(last_clean, first_bad]``; a
    ``last_clean`` of None means that no clean observation came before. ``iteration`` is the best
    single estimate, ``alarm_iteration`` where the detector first fired; all in the log's own counter.
    ``ranks`` are those seen bad, ascending; empty when the metric says nothing about ranks.
    ``supporting`` evidence never opens an incident by itself.
    """

    detector: str
    key: str
    pattern: Pattern
    certainty: Certainty
    metric: str
    attempt: int
    iteration: int
    first_bad: int
    last_clean: int | None
    alarm_iteration: int
    microbatch: int = WHOLE_ITERATION
    ranks: tuple[int, ...] = ()
    later_ranks: tuple[tuple[int, int], ...] = ()
    """(iteration, rank): who turned bad afterwards; at most `MAX_LATER_RANKS`."""
    is_tie: bool = False
    """The ranks could not be told from their peers: each of ``ranks`` may be the one."""
    statistic: float
    threshold: float
    direction: Direction
    supporting: bool = False
    phase: Phase | None = None
    """Where a metric that the run declares is taken; None where its name tells."""
    detail: Mapping[str, Json] = field(default_factory=dict)
    sights: tuple[Sight, ...] = ()


MAX_LATER_RANKS = 1000
JOINT = "joint"
"""In the place of a metric: what shows only in several of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A benign event that explains what a naive rule would alarm on.

    Like evidence, a later one of the same ``kind`` and ``key`` replaces the earlier, so that a
    series (sixty skips in a row) is one annotation with a count and not sixty.
    """

    kind: str
    key: str
    attempt: int
    iteration: int
    detail: Mapping[str, Json] = field(default_factory=dict)


class CheckState(StrEnum):
    """Whether a check could be made."""

    RAN = "ran"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of a verdict's coverage: the detector, whether it ran, and why not."""

    name: str
    state: CheckState
    why: str = ""
    metrics: tuple[str, ...] = ()


Finding = Evidence | Annotation
