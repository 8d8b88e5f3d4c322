"""Writes the segments of one attempt, joins small ones, and lets old values go.

Small files come with every flush; sixteen of a size are joined into one, so that a long run has few files and
each row is written a handful of times.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from firstfault.mesh import Layout
from ingest.blocks import Ints, IterationBlock

from .history_access import Files
from .history_budget import Budget
from .history_config import HistoryConfig
from .history_layout import write_layout
from .history_names import (
    COARSE,
    SUMMARY,
    TAIL,
    TAIL_VALUES,
    VALUES,
    Claim,
    Segment,
    claims,
    segment_path,
    segments,
    size_of,
    write_atomically,
)
from .history_parquet import read_fine, write_summary, write_values
from .history_stream import Pending, after, latest, names_of, summary_rows, value_slabs
from .history_summary import Columns, joined, picked

log = logging.getLogger(__name__)

_JOINED_FILES = 16
_JOINED_ROWS = 1 << 18
"""Fewer files are joined too once they hold 262 144 rows, some 30 MB in memory; such a file is left alone."""


class AttemptSegments:
    """The files of one attempt, and what of it waits to be written."""

    def __init__(self, folder: Path, config: HistoryConfig, budget: Budget) -> None:
        """Find where the files end: what lies before is read again after a crash and not written twice."""
        self.folder, self._config, self._budget = folder, config, budget
        self.pending = Pending()
        self._layout: Layout | None = None
        self._written_layout: Layout | None = None
        self.waiting_since_s: float | None = None
        self.summarised_to = max((one.last for one in segments(folder, SUMMARY, COARSE)), default=-1)
        self.recorded_to = max((one.last for one in segments(folder, VALUES)), default=-1)

    def add(self, block: IterationBlock) -> None:
        """Take the next settled block."""
        self.pending.add(block)
        self._note_layout(block)

    def write(self) -> None:
        """Write all that waits.

        Raises:
            OSError: it could not be written; what was not is still there.
        """
        self._write_layout()
        if not self.pending.blocks:
            return
        self._budget.demand_room(self.pending.bytes)
        self._write_summaries(after(self.pending.blocks, self.summarised_to))
        self._write_values(after(self.pending.blocks, self.recorded_to))
        self.pending.clear()
        self.waiting_since_s = None
        self._join_small()
        self._retire()

    def show(self, blocks: Sequence[IterationBlock], *, with_values: bool) -> None:
        """Write what has not settled beside what has, in the place of what was shown before.

        Raises:
            OSError: it could not be written.
        """
        if blocks:
            self._note_layout(blocks[-1])
        self.write()  # or there would be a gap
        open_ = after(blocks, self.summarised_to)
        kinds = (TAIL, TAIL_VALUES) if with_values else (TAIL,)
        before = segments(self.folder, *kinds)
        written: list[Path] = []
        if open_:
            first, last = int(open_[0].iteration_T[0]), int(open_[-1].iteration_T[-1])
            rows, metric_N, names = summary_rows(open_)
            if len(metric_N):
                written.append(self._write_rows(rows, metric_N, names, first, last, kind=TAIL))
            if with_values:
                written.append(self._write_cells(open_, kind=TAIL_VALUES))
        for one in before:
            if one.path not in written:
                self._budget.remove(one.path)

    def _note_layout(self, block: IterationBlock) -> None:
        if block.layout is not None and block.layout is not self._layout and block.layout != self._layout:
            self._layout = block.layout

    def _write_layout(self) -> None:
        if self._layout is not None and self._layout is not self._written_layout:
            self._budget.written(write_layout(self.folder, self._layout))
            self._written_layout = self._layout

    def _write_summaries(self, blocks: Sequence[IterationBlock]) -> None:
        if not blocks:
            return
        rows, metric_N, names = summary_rows(blocks)
        first, last = int(blocks[0].iteration_T[0]), int(blocks[-1].iteration_T[-1])
        if len(metric_N):
            self._write_rows(rows, metric_N, names, first, last)
        self.summarised_to = last

    def _write_rows(
        self,
        rows: Columns,
        metric_N: Ints,
        names: Sequence[str],
        first: int,
        last: int,
        *,
        kind: str = SUMMARY,
    ) -> Path:
        path = segment_path(self.folder, kind, first, last, len(metric_N))
        replaced = size_of(path)
        size = write_atomically(path, lambda temporary: write_summary(temporary, rows, metric_N, names))
        self._budget.written(size - replaced)
        return path

    def _write_values(self, blocks: Sequence[IterationBlock]) -> None:
        kept = latest(blocks, self._config.recorder_iterations, self._config.recorder_bytes)
        if kept:
            self._write_cells(kept, kind=VALUES)
            self.recorded_to = int(kept[-1].iteration_T[-1])

    def _write_cells(self, blocks: Sequence[IterationBlock], *, kind: str) -> Path:
        first, last = int(blocks[0].iteration_T[0]), int(blocks[-1].iteration_T[-1])
        path = segment_path(self.folder, kind, first, last, sum(len(block) for block in blocks))
        replaced, names = size_of(path), names_of(blocks)
        size = write_atomically(path, lambda temporary: write_values(temporary, value_slabs(blocks), names))
        self._budget.written(size - replaced)
        return path

    def _retire(self) -> None:
        """Remove values older than the flight recorder reaches, by iterations and by bytes."""
        held_bytes = held_positions = 0
        for one in reversed(segments(self.folder, VALUES)):
            size = size_of(one.path)
            is_needed = held_positions < self._config.recorder_iterations
            if is_needed or held_bytes + size <= self._config.recorder_bytes:
                held_bytes += size
                held_positions += one.rows
            else:
                self._budget.remove(one.path)

    def _join_small(self) -> None:
        while True:
            tail: list[Segment] = []
            for one in reversed(segments(self.folder, SUMMARY, COARSE)):
                is_large = one.kind != SUMMARY or one.rows >= _JOINED_ROWS
                if is_large or (tail and _tier(one) > _tier(tail[-1])):
                    break
                tail.append(one)
            is_much = len(tail) > 1 and sum(one.rows for one in tail) >= _JOINED_ROWS
            if not (is_much or len(tail) >= _JOINED_FILES) or not self._join(tail[::-1]):
                return

    def _join(self, small: Sequence[Segment]) -> bool:
        """Make one file of many; False if one of them cannot be read, which is then removed."""
        parts: list[tuple[Columns, Ints, list[str]]] = []
        for claim in claims(small):
            part = _claimed_rows(claim)
            if part is None:
                self._budget.remove(claim.path)
                return False
            parts.append(part)
        rows, metric_N, names = _merged(parts)
        last = max(one.last for one in small)
        path = self._write_rows(rows, metric_N, names, small[0].first, last)
        for one in small:
            if one.path != path:
                self._budget.remove(one.path)
        return True


def _claimed_rows(claim: Claim) -> tuple[Columns, Ints, list[str]] | None:
    fine = Files(is_last_look=True).read(claim.path, read_fine)
    if fine is None:
        return None
    rows, metric_N, names = fine
    if claim.is_whole:
        return rows, metric_N, names
    inside_N = rows["iteration"] >= claim.first
    return picked(rows, inside_N), metric_N[inside_N], names


def _merged(parts: Sequence[tuple[Columns, Ints, list[str]]]) -> tuple[Columns, Ints, list[str]]:
    """The rows of all, ascending by metric, then iteration."""
    names = sorted({name for _, _, own in parts for name in own})
    place = {name: at for at, name in enumerate(names)}
    metric_N = np.concatenate(
        [np.array([place[name] for name in own], np.int64)[metric_M] for _, metric_M, own in parts]
    )
    rows = joined([rows for rows, _, _ in parts])
    order_N = np.argsort(metric_N, kind="stable")  # iterations ascend already
    return picked(rows, order_N), metric_N[order_N], names


def _tier(one: Segment) -> int:
    """Sizes that differ by less than sixteen are alike."""
    return max(0, one.rows.bit_length() - 1) // 4
