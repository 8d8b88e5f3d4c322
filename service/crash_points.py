"""Named places at which a test kills the worker, as a crash of the machine would.

``FIRSTFAULT_CRASHPOINT=in_checkpoint:3`` kills the process with SIGKILL when it reaches the place for the
third time. Nothing is flushed and no handler runs. Without the variable a place costs one comparison.
"""

from __future__ import annotations

import os
import signal
from enum import StrEnum

VARIABLE = "FIRSTFAULT_CRASHPOINT"


class CrashPoint(StrEnum):
    """Where a worker can be made to die, in the order in which a record passes them."""

    AFTER_CLAIM = "after_claim"
    AFTER_POLL = "after_poll"
    AFTER_FEED = "after_feed"
    BEFORE_VERDICT = "before_verdict"
    IN_VERDICT = "in_verdict"
    """Everything is written, nothing is committed."""
    AFTER_VERDICT = "after_verdict"
    AFTER_PUBLISH = "after_publish"
    """Handed to the broker's client, not yet marked as sent."""
    BEFORE_CHECKPOINT = "before_checkpoint"
    IN_CHECKPOINT = "in_checkpoint"
    AFTER_CHECKPOINT = "after_checkpoint"


def _armed() -> tuple[str, int]:
    name, _, times = os.environ.get(VARIABLE, "").partition(":")
    if name and name not in set(CrashPoint):
        raise ValueError(f"{VARIABLE} must name one of {', '.join(CrashPoint)}, got {name!r}")
    return name, int(times or 1)


_name, _left = _armed()


def reach(point: CrashPoint) -> None:
    """Die here, if this is the place and it is time."""
    global _left  # noqa: PLW0603  # one process, one countdown
    if point != _name:
        return
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)
