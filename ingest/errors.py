"""What can go wrong on the way in.

    IngestError
    ├── UnreadableInput     a path, file or stream that cannot be read at all
    └── SourceUnavailable   a broker that does not answer; retriable

Bad *data* is never an exception: it is a `Rejected` value, counted and kept.
"""

from __future__ import annotations


class IngestError(Exception):
    """Something on the way in failed; ``retriable`` says whether trying again can help."""

    retriable = False


class UnreadableInput(IngestError):
    """The input cannot be read: names the path and the reason."""


class SourceUnavailable(IngestError):
    """The source does not answer at the moment."""

    retriable = True
