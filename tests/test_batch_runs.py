"""A batch by run: rows and events of each in their order, whatever the mixture."""

from __future__ import annotations

import random

import numpy as np

from firstfault.telemetry import Event, EventKind, Record
from ingest.columns import batch_from_records
from service.batch_runs import by_run


def test_each_run_gets_its_rows_and_its_events_between_them() -> None:
    chance = random.Random(4)
    arrived: list[Record | Event] = []
    for at in range(300):
        run = f"run-{chance.randrange(40)}"
        if chance.random() < 0.3:
            arrived.append(Event(run=run, rank=0, iteration=at, kind=EventKind.HEARTBEAT))
        else:
            arrived.append(Record(run=run, rank=0, iteration=at, metrics={"loss": 1.0}))
    batch = batch_from_records(arrived)
    found = {}
    for name, rows, events in by_run(batch):
        merged = batch.iteration_N[rows].astype(np.int64).tolist()
        for shift, (before, event) in enumerate(events):
            merged.insert(before + shift, event.iteration)
        found[name] = merged
    runs = dict.fromkeys(one.run for one in arrived)
    assert found == {run: [one.iteration for one in arrived if one.run == run] for run in runs}
