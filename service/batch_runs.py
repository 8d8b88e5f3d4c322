"""What a batch holds of each run: its rows, its events, and the parts of the source they came from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from firstfault.telemetry import Event
from ingest.blocks import Ints, RecordBatch

_NO_ROWS = np.empty(0, np.int64)


def by_run(batch: RecordBatch) -> Iterator[tuple[str, Ints, list[tuple[int, Event]]]]:
    """Each run in the batch with its rows and its events."""
    if len(batch.runs) == 1 and all(event.run == batch.runs[0] for _, event in batch.events):
        yield batch.runs[0], np.arange(len(batch)), list(batch.events)
        return
    # One sort and one pass over the events: a batch may hold as many runs as it has rows.
    order = np.argsort(batch.run_N, kind="stable")
    ends = np.searchsorted(batch.run_N[order], np.arange(len(batch.runs) + 1))
    rows_of = {name: order[ends[at] : ends[at + 1]] for at, name in enumerate(batch.runs)}
    events_of: dict[str, list[tuple[int, Event]]] = {}
    for at, event in batch.events:
        before = int(np.searchsorted(rows_of.get(event.run, _NO_ROWS), at))
        events_of.setdefault(event.run, []).append((before, event))
    for name in dict.fromkeys([*batch.runs, *events_of]):
        rows, events = rows_of.get(name, _NO_ROWS), events_of.get(name, [])
        if len(rows) or events:
            yield name, rows, events


def parts_by_run(batch: RecordBatch) -> dict[str, str]:
    """The first of the parts that each run's records came from."""
    return dict(sorted(batch.origins or (), reverse=True))


def origins_of(batch: RecordBatch) -> list[tuple[str, str]]:
    """(run, part) of everything in the batch, in order; a source without parts is one part of no name."""
    if batch.origins is not None:
        return sorted(batch.origins)
    return [(name, "") for name in sorted({*batch.runs, *(event.run for _, event in batch.events)})]
