"""Where records come from. Kafka, HTTP and files differ in one class; what follows `poll` is shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from .blocks import RecordBatch

ClaimParts = Callable[[frozenset[str]], Mapping[str, int] | None]
"""Told by a live source that these parts, and no others, are ours from now on, before anything of them is
handed out. The answer is the offset to go on from in each; a part that it lacks begins with its first
record. None: go on where you are. What it raises comes out of `Source.poll`, and it is called again."""


class Source(Protocol):
    """Hands out the next records, and can say where it stands."""

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches in order, waiting at most ``timeout_s`` seconds; empty when none came.

        What could not be decoded is in the batches' ``rejected``.

        Raises:
            IngestError: the source cannot be read; ``retriable`` tells whether to try again.
        """
        ...

    def position(self) -> Mapping[str, int]:
        """Per part of the source (partition, file) the offset after the last record handed out."""
        ...

    @property
    def is_exhausted(self) -> bool:
        """Whether nothing will ever come again; a live source is never exhausted."""
        ...

    def disown(self) -> None:
        """Hand out nothing of the parts held now until they, or others, are claimed anew."""
        ...

    def close(self) -> None:
        """Let go of files and connections; safe to call twice."""
        ...
