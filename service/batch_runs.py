"""What a batch holds of each run: its rows, its events, and the parts of the source they came from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from firstfault.telemetry import Event
from ingest.blocks import Ints, RecordBatch


def by_run(batch: RecordBatch) -> Iterator[tuple[str, Ints, list[tuple[int, Event]]]]:
    """Each run in the batch with its rows and its events."""
    if len(batch.runs) == 1 and all(event.run == batch.runs[0] for _, event in batch.events):
        yield batch.runs[0], np.arange(len(batch)), list(batch.events)
        return
    names = list(dict.fromkeys([*batch.runs, *(event.run for _, event in batch.events)]))
    for index, name in enumerate(names):
        rows = np.flatnonzero(batch.run_N == index) if index < len(batch.runs) else np.empty(0, np.int64)
        events = [(int(np.searchsorted(rows, at)), event) for at, event in batch.events if event.run == name]
        if len(rows) or events:
            yield name, rows, events


def part_of(batch: RecordBatch, run: str) -> str:
    """The first of the parts that a run's records came from."""
    return min((part for name, part in batch.origins or () if name == run), default="")


def origins_of(batch: RecordBatch) -> list[tuple[str, str]]:
    """(run, part) of everything in the batch, in order; a source without parts is one part of no name."""
    if batch.origins is not None:
        return sorted(batch.origins)
    return [(name, "") for name in sorted({*batch.runs, *(event.run for _, event in batch.events)})]
