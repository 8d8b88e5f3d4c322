"""What can go wrong on the way in.

    IngestError
    ├── UnreadableInput     a path, file or stream that cannot be read at all
    ├── SourceUnavailable   a broker that does not answer; retriable
    ├── SpoolUnusable       the spool is damaged, foreign, or of a newer release
    ├── SpoolTaken          another worker reads the spool now
    └── SpoolFull           the spool takes nothing at the moment; retriable

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


class SpoolUnusable(IngestError):
    """The spool is damaged, of another program or a newer release, or cannot be written: names the file."""


class SpoolTaken(IngestError):
    """Another worker reads the spool now: there is nothing left for this one."""


class SpoolFull(IngestError):
    """The spool takes nothing at the moment: it or the disk is full, or another process holds its lock."""

    retriable = True
