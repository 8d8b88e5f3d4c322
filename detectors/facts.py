"""What is known of an attempt beside evidence: the facts that causes, cost and coverage rest on.

A fold like every detector: bounded, cut-invariant, plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firstfault.contracts import BUILT_IN, Contracts
from firstfault.mesh import Layout
from firstfault.telemetry import Event

from .evidence import Annotation, Check, Evidence
from .roles import Role
from .trail import Trail


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFacts:
    """Facts of one attempt up to ``judged_to``, in the log's own iteration counter."""

    attempt: int
    first_iteration: int | None = None
    judged_to: int | None = None
    positions: int = 0
    """Settled (iteration, microbatch) positions with at least one value."""
    ranks: tuple[int, ...] = ()
    """Ranks that reported, ascending; empty when the log names none."""
    metrics: tuple[str, ...] = ()
    layout: Layout | None = None
    contracts: Contracts = BUILT_IN
    run_start: Mapping[str, object] = field(default_factory=dict)
    """The fields of the last run_start event; empty without one."""
    world_size: int | None = None
    checkpoints: tuple[Event, ...] = ()
    resumes: tuple[Event, ...] = ()
    hardware: tuple[Event, ...] = ()
    changes: tuple[Event, ...] = ()
    """lr_change, batch_size, data_change, loss_scale, membership events."""
    lr_rises: tuple[tuple[int, int], ...] = ()
    """(first, last) iteration of each stretch over which the reported learning rate grew."""
    labels: Mapping[int, Mapping[str, str]] = field(default_factory=dict)
    """Per rank the last text reported under each label (host, device)."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    """What each metric turned out to be (`roles.py`)."""
    iteration_time_s: float | None = None
    """Median time an iteration took, from ``step_time_s`` or record times; None when unknown."""
    silent_ranks: tuple[int, ...] = ()
    """Ranks that stopped reporting more than the lateness bound, and than their own cadence allows,
    before ``judged_to``."""
    silent_since: tuple[int, ...] = ()
    """The iteration of the last report of each of them."""
    ended: bool = False
    """Whether a run_end event came."""
    probe_losses: tuple[str, ...] = ()
    """What the probes say they lost, in words."""
    unrepeated_since: int | None = None
    """The last iteration with a canary or a repetition, if more have passed since than ever between two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFindings:
    """All that the detectors concluded of one attempt: what `fuse` judges."""

    facts: AttemptFacts
    evidence: tuple[Evidence, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    checks: tuple[Check, ...] = ()
    trail: Trail | None = None
    """The checksums that another attempt may repeat; None where none were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFacts:
    """What became of the records on the way in, over the whole run."""

    records: int = 0
    rejected: int = 0
    rejected_by: Mapping[str, int] = field(default_factory=dict)
    """Count by ``field: rule``."""
    late: int = 0
    duplicates: int = 0
    conflicts: int = 0
    padding: int = 0
