"""Settings of how long things are kept; free of database libraries, so that every command can read them."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.bounds import check_bounds

_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """How long what nobody watches any more is kept; the worker removes it bit by bit."""

    runs_s: float = 180 * _DAY_S
    """A run without news for so long goes with its verdict, incidents, evidence and history: half a year
    holds two of its successors to compare it with."""
    judged_runs_s: float = 730 * _DAY_S
    """The same for a run with an incident that is not dealt with or was called a false alarm: what people
    said of alarms is what detectors are measured by."""
    changes_s: float = 30 * _DAY_S
    """Changes of the event stream and of the lists of events, beside `store.keep_changes`: a reader that was
    away for longer starts anew."""
    outbox_s: float = 7 * _DAY_S
    """A verdict that the topic has not taken for so long is given up: last week's helps no scheduler.
    Messages of alert channels have their own times (`alerts`)."""
    mutes_s: float = 365 * _DAY_S
    """A rule that mutes is kept for so long after its end: who asks why nothing was told then looks back no
    further than a rule may last."""
    prune_every_s: float = 300.0
    """Pause between two looks for what may go."""
    prune_rows: int = 500
    """Rows removed in one transaction: writers wait for it milliseconds only."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)


_BOUNDS = {
    "runs_s": (_DAY_S, 100 * 365 * _DAY_S),
    "judged_runs_s": (_DAY_S, 100 * 365 * _DAY_S),
    "changes_s": (3600.0, 100 * 365 * _DAY_S),
    "outbox_s": (3600.0, 100 * 365 * _DAY_S),
    "mutes_s": (3600.0, 100 * 365 * _DAY_S),
    "prune_every_s": (0.05, 86_400.0),
    "prune_rows": (1, 100_000),
}
