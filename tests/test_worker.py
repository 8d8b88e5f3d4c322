"""The worker: stores and tells what is new once, goes on where it was, and ends when told to."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from detectors.verdict import canonical_bytes
from ingest.blocks import RecordBatch
from ingest.errors import SourceUnavailable
from service.config import Settings, WorkerConfig
from service.errors import StoreError
from service.pipeline import Pipeline
from service.store import Checkpoint, Store
from service.worker import Worker, resume

from .service_builders import ListOutlet, ListSource, batches_of, log_lines, stop_after

EAGER = WorkerConfig(judge_every_s=0.0, settle_after_s=0.1, checkpoint_every_s=0.1, poll_timeout_s=0.01)
FAULTY = log_lines("job", odd_rank=3)
NAME = "kafka:t"


def work(
    data: Path, batches: list[RecordBatch], start: int = 0, idle_polls: int = 40, config: WorkerConfig = EAGER
) -> tuple[list[str], ListOutlet]:
    """Run a worker over the batches from ``start`` on, resuming from its store."""
    stop, at_end = stop_after(idle_polls)

    def slow_end() -> None:
        threading.Event().wait(0.01)
        at_end()

    store, said, outlet = Store(data), list[str](), ListOutlet()
    try:
        pipeline = resume(store, NAME, Settings()).pipeline
        source = ListSource(batches, slow_end, start)
        Worker(source, pipeline, store, name=NAME, config=config, outlet=outlet, say=said.append).run(stop)
    finally:
        store.close()
    return said, outlet


def stored(data: Path) -> Mapping[str, bytes]:
    store = Store(data, read_only=True)
    try:
        return {one.run: one.canonical for one in store.verdicts()}
    finally:
        store.close()


def offline(batches: list[RecordBatch]) -> Mapping[str, bytes]:
    pipeline = Pipeline()
    for batch in batches:
        pipeline.feed(batch)
    return {run: canonical_bytes(pipeline.verdict(run)) for run in pipeline.runs}


def test_a_worker_stores_the_bytes_that_replay_of_the_same_records_gives(tmp_path: Path) -> None:
    batches = batches_of(FAULTY + log_lines("good"))
    work(tmp_path, batches)
    assert stored(tmp_path) == offline(batches)


def test_a_new_incident_is_said_once_and_handed_on_under_its_id(tmp_path: Path) -> None:
    said, outlet = work(tmp_path, batches_of(FAULTY))
    confirmed = [line for line in said if line.startswith("job: silent drift. Rank 3 ")]
    assert len(confirmed) == 1
    assert len({incident for incident, _ in outlet.verdicts}) == 1
    assert outlet.verdicts[-1][1] == stored(tmp_path)["job"]


def test_a_healthy_run_makes_no_word(tmp_path: Path) -> None:
    said, outlet = work(tmp_path, batches_of(log_lines("good")))
    assert said == []
    assert outlet.verdicts == []


@pytest.mark.parametrize("cut", [1, 3, 4])
def test_a_restart_goes_on_at_the_checkpoint_and_says_nothing_twice(tmp_path: Path, cut: int) -> None:
    batches = batches_of(FAULTY)
    first, _ = work(tmp_path, batches[:cut])
    store = Store(tmp_path)
    checkpoint = store.load_checkpoint(NAME)
    store.close()
    assert checkpoint is not None
    assert checkpoint.offsets == {"topic:0": cut}
    second, _ = work(tmp_path, batches, start=cut)
    assert stored(tmp_path) == offline(batches)
    assert len([line for line in first + second if line.startswith("job: silent drift. Rank 3 ")]) == 1


def test_records_read_again_after_a_crash_change_nothing(tmp_path: Path) -> None:
    batches = batches_of(FAULTY)
    work(tmp_path, batches)
    store = Store(tmp_path)
    store.forget_checkpoint(NAME)
    store.close()
    said, _ = work(tmp_path, batches)
    assert stored(tmp_path) == offline(batches)
    assert said == []


def test_a_checkpoint_of_another_release_is_put_aside(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save_checkpoint(NAME, Checkpoint(version="0", offsets={"topic:0": 9}, snapshot=b"from elsewhere"))
    resumed = resume(store, NAME, Settings())
    assert resumed.offsets == {}
    assert resumed.pipeline.runs == []
    assert store.load_checkpoint(NAME) is None
    store.close()


def test_rejected_lines_are_counted_and_handed_on_and_their_neighbours_judged(tmp_path: Path) -> None:
    batches = batches_of([*FAULTY, b"[[[[", b'{"run":"job","rank":-1,"iteration":1}'])
    _, outlet = work(tmp_path, batches)
    store = Store(tmp_path, read_only=True)
    rejected = store.rejected()
    store.close()
    assert sum(rejected.values()) == 2
    assert [letter.raw for letter in outlet.letters] == [b"[[[[", b'{"run":"job","rank":-1,"iteration":1}']
    assert b'"label":"silent_drift"' in stored(tmp_path)["job"]


def test_an_outage_is_not_an_end_of_the_run(tmp_path: Path) -> None:
    """Half of the last iteration has come when the broker goes away: nobody is judged by it."""
    batches = batches_of(FAULTY[:-4])
    stop, at_end = stop_after(30)

    def away() -> None:
        threading.Event().wait(0.01)
        at_end()
        raise SourceUnavailable("the broker is away")

    store = Store(tmp_path)
    source = ListSource(batches, away)
    worker = Worker(source, Pipeline(), store, name=NAME, config=EAGER, is_caught_up=lambda: False)
    worker.run(stop)
    store.close()
    assert b'"judged_to_iteration":118' in stored(tmp_path)["job"]


def test_a_worker_whose_store_was_taken_over_stops_with_the_reason(tmp_path: Path) -> None:
    batches = batches_of(FAULTY)
    store = Store(tmp_path)
    source = ListSource(batches, lambda: Store(tmp_path).close())
    with pytest.raises(StoreError, match="another worker"):
        Worker(source, Pipeline(), store, name=NAME, config=EAGER).run(threading.Event())


def test_only_runs_with_news_are_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    real = Pipeline.verdict

    def counting(self: Pipeline, name: str, **options: Any) -> Any:
        judged.append(name)
        return real(self, name, **options)

    monkeypatch.setattr(Pipeline, "verdict", counting)
    # the first run ends before the second begins
    work(tmp_path, batches_of(log_lines("a", iterations=50)) + batches_of(log_lines("b", iterations=50)))
    assert max(at for at, name in enumerate(judged[:-2]) if name == "a") < judged.index("b")
    assert sorted(judged[-2:]) == ["a", "b"]  # once more, as if ended


def test_a_verdict_does_not_depend_on_the_records_of_other_runs() -> None:
    alone, beside = Pipeline(), Pipeline()
    for batch in batches_of(FAULTY):
        alone.feed(batch)
    for batch in batches_of(FAULTY + log_lines("good")):
        beside.feed(batch)
    assert canonical_bytes(alone.verdict("job")) == canonical_bytes(beside.verdict("job"))
