"""What became of what was said."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the records and events so far."""

    sent: int = 0
    """Lines that the sink took."""
    dropped: int = 0
    """Records and events that nobody will see: the queue or the disk was full, or the sink refused them."""
    errors: int = 0
    """Values that cannot be sent, and failures of the sending thread."""
    waiting: int = 0
    """Records and events in memory."""
    is_spilled: bool = False
    """Whether some wait on disk."""
