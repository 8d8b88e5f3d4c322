"""Record batches: built from records, joined, and cut down to some of their rows.

Axes: N records.

Cells of what was not reported hold NaN (0 in checksums), so that equal records give equal bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.telemetry import Event, Record

from .blocks import Flags, RecordBatch, Rejected


class BatchBuilder:
    """Collects records and events in arrival order, then gives them as columns."""

    def add(self, what: Record | Event) -> None:
        """Take the next record or event."""
        raise NotImplementedError

    def reject(self, rejected: Rejected) -> None:
        """Keep what was not understood."""
        raise NotImplementedError

    def build(self) -> RecordBatch:
        """All that was added, as one batch."""
        raise NotImplementedError


def batch_from_records(arrived: Sequence[Record | Event], rejected: Sequence[Rejected] = ()) -> RecordBatch:
    """Records and events in arrival order as one batch."""
    raise NotImplementedError


def records_from_batch(batch: RecordBatch) -> list[Record]:
    """The rows of a batch as records, for tests and small output."""
    raise NotImplementedError


def concatenate(batches: Sequence[RecordBatch]) -> RecordBatch:
    """The batches one after the other as one batch; of none, the empty batch."""
    raise NotImplementedError


def select_rows(batch: RecordBatch, keep_N: Flags) -> RecordBatch:
    """The records where ``keep_N``; events stay with the records before them, ``rejected`` is kept."""
    raise NotImplementedError
