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
    """Everything is written, nothing is committed."""
    AFTER_CHECKPOINT = "after_checkpoint"
    ALERT_CLAIMED = "alert_claimed"
    """A message is leased, nothing is sent."""
    ALERT_SENT = "alert_sent"
    """The receiver has the message, the store does not know."""


UNALERTED = tuple(point for point in CrashPoint if not point.value.startswith("alert_"))
"""The places that a worker passes whom nobody has given a channel."""


class _Armed:
    """The place to die at, and how often it is still passed alive."""

    place = ""
    left = 0


def arm(text: str) -> None:
    """Die at a place, given as ``place`` or ``place:times``; empty for none.

    >>> arm("nowhere")
    Traceback (most recent call last):
    ...
    ValueError: FIRSTFAULT_CRASHPOINT must name one of after_claim, ..., got 'nowhere'

    Raises:
        ValueError: no such place, or ``times`` is no number from 1 on.
    """
    place, _, times = text.partition(":")
    if place and place not in set(CrashPoint):
        raise ValueError(f"{VARIABLE} must name one of {', '.join(CrashPoint)}, got {place!r}")
    if times and not (times.isascii() and times.isdigit() and int(times) >= 1):
        raise ValueError(f"{VARIABLE} must end in a number from 1 on, got {times!r}")
    _Armed.place, _Armed.left = place, int(times or 1)


def reach(point: CrashPoint) -> None:
    """Die here, if this is the place and it is time."""
    if point == _Armed.place:
        _Armed.left -= 1
        if _Armed.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get(VARIABLE, ""))
