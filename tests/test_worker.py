"""The worker: stores and tells what is new once, goes on where it was, and ends when told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from detectors.explosion import ExplosionConfig
from detectors.registry import DetectorsConfig
from detectors.verdict import canonical_bytes, to_json
from ingest.blocks import RecordBatch
from ingest.errors import SourceUnavailable
from service import tables
from service.config import WorkerConfig
from service.errors import StoreBusy, StoreError, StoreFull
from service.journal import Journal
from service.pipeline import Pipeline
from service.resumption import resume
from service.store import Store
from service.worker import Worker

from .service_builders import ListOutlet, ListSource, batches_of, log_lines, stop_after

EAGER = WorkerConfig(judge_every_s=0.0, settle_after_s=0.1, checkpoint_every_s=0.1, poll_timeout_s=0.01)
FAULTY = log_lines("job", odd_rank=3)
NAME = "kafka:t"


def work(
    data: Path, batches: list[RecordBatch], idle_polls: int = 40, config: WorkerConfig = EAGER
) -> tuple[list[str], ListOutlet]:
    """Run a worker over the batches, going on from its store."""
    stop, at_end = stop_after(idle_polls)

    def slow_end() -> None:
        threading.Event().wait(0.01)
        at_end()

    store, said, outlet = Store(data), list[str](), ListOutlet()
    try:
        worker = Worker(store, name=NAME, config=config, outlet=outlet, say=said.append)
        worker.run(ListSource(batches, slow_end, worker.claim), stop)
    finally:
        store.close()
    return said, outlet


def stored(data: Path) -> Mapping[str, bytes]:
    store = Store(data, read_only=True)
    try:
        return {one.run: one.canonical for one in store.verdicts()}
    finally:
        store.close()


def offsets(data: Path) -> Mapping[str, int]:
    store = Store(data)
    try:
        return store.claim(NAME, ["topic:0"]).offsets
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
    assert offsets(tmp_path) == {"topic:0": cut}
    second, _ = work(tmp_path, batches)
    assert stored(tmp_path) == offline(batches)
    assert len([line for line in first + second if line.startswith("job: silent drift. Rank 3 ")]) == 1


def test_records_read_again_after_a_crash_change_nothing(tmp_path: Path) -> None:
    batches = batches_of(FAULTY)
    work(tmp_path, batches)
    store = Store(tmp_path)
    store.forget(store.claim(NAME, ["topic:0"]).tenure)
    store.close()
    said, _ = work(tmp_path, batches)
    assert stored(tmp_path) == offline(batches)
    assert said == []


@pytest.mark.parametrize("version", ["0-elsewhere", Pipeline().version])
def test_a_checkpoint_of_another_release_or_a_damaged_one_is_put_aside(tmp_path: Path, version: str) -> None:
    batches = batches_of(FAULTY)
    work(tmp_path, batches)
    store = Store(tmp_path)
    with store.database.write() as db:
        db.execute(tables.run_states.update().values(version=version, snapshot=b"from elsewhere"))
    store.close()
    work(tmp_path, batches)
    assert offsets(tmp_path) == {"topic:0": len(batches)}
    assert stored(tmp_path) == offline(batches)


def test_a_checkpoint_made_with_other_thresholds_is_put_aside(tmp_path: Path) -> None:
    other = DetectorsConfig(explosion=ExplosionConfig(loss_rise=0.5))
    assert Pipeline(detectors=other).version != Pipeline().version


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
    worker = Worker(store, name=NAME, config=EAGER, is_caught_up=lambda: False)
    worker.run(ListSource(batches, away, worker.claim), stop)
    store.close()
    assert b'"judged_to_iteration":118' in stored(tmp_path)["job"]


def test_a_worker_whose_parts_were_taken_over_drops_them_and_waits(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    stop, at_end = stop_after(60)

    class TakenOver(ListSource):
        """Another worker claims the part while there is still something to be read."""

        def poll(self, timeout_s: float) -> list[RecordBatch]:
            if self._next == 3:
                other.claim(NAME, ["topic:0"])
            threading.Event().wait(0.01)
            return super().poll(timeout_s)

    worker = Worker(store, name=NAME, config=EAGER)
    source = TakenOver(batches_of(FAULTY), at_end, worker.claim)
    worker.run(source, stop)
    assert source.is_disowned
    assert other.claim(NAME, ["topic:0"]).offsets.get("topic:0", 0) <= 3
    store.close()
    other.close()


def test_workers_that_take_parts_from_each_other_for_ever_end_with_the_cure(tmp_path: Path) -> None:
    store, other = Store(tmp_path), Store(tmp_path)
    config = replace(EAGER, max_losses=2)
    worker = Worker(store, name=NAME, config=config)

    class Contested(ListSource):
        """Claims anew whenever it lost its part, after another worker has claimed it too."""

        def poll(self, timeout_s: float) -> list[RecordBatch]:
            worker.claim(frozenset(["topic:0"]))
            other.claim(NAME, ["topic:0"])
            worker._records_unsaved, worker._saved_at_s = 1, 0.0
            return []

        def position(self) -> Mapping[str, int]:
            return {"topic:0": 1}

    with pytest.raises(StoreError, match=r"give both the same kafka\.group"):
        worker.run(Contested([], lambda: None, worker.claim), threading.Event())
    store.close()
    other.close()


def test_a_full_store_stops_the_reading_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_of(FAULTY)
    real, failures = Store.save_checkpoint, [0]

    def full_at_first(self: Store, *given: Any) -> None:
        failures[0] += 1
        if failures[0] <= 3:
            raise StoreFull("the disk is full")
        real(self, *given)

    monkeypatch.setattr(Store, "save_checkpoint", full_at_first)
    work(tmp_path, batches, config=replace(EAGER, store_retry_s=0.02))
    assert failures[0] > 3
    assert stored(tmp_path) == offline(batches)
    assert offsets(tmp_path) == {"topic:0": len(batches)}


def test_a_store_that_cannot_be_asked_for_a_retired_run_costs_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_of(log_lines("new", iterations=10) + FAULTY)
    real, failures = Store.state_of, [0]

    def away_at_first(self: Store, tenure: Any, run: str) -> Any:
        failures[0] += run == "job"
        if failures[0] <= 3 and run == "job":
            raise StoreBusy("the server is away")
        return real(self, tenure, run)

    monkeypatch.setattr(Store, "state_of", away_at_first)
    work(tmp_path, batches, config=replace(EAGER, store_retry_s=0.02))
    assert failures[0] > 3
    assert stored(tmp_path) == offline(batches)


def test_every_verdict_that_was_not_acknowledged_is_told_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Store.unsent
    monkeypatch.setattr(ListOutlet, "acknowledged", lambda self: [])
    monkeypatch.setattr(Store, "unsent", lambda self, after=0: real(self, after, limit=1))
    batches = batches_of(FAULTY + log_lines("other", odd_rank=2))
    _, outlet = work(tmp_path, batches)
    _, told_again = work(tmp_path, batches)
    assert {key for key, _ in told_again.verdicts} == {key for key, _ in outlet.verdicts}
    assert len({key for key, _ in outlet.verdicts}) == 2


def test_the_worker_says_how_it_stands(tmp_path: Path) -> None:
    work(tmp_path, batches_of([*FAULTY, b"[["]), config=replace(EAGER, health_every_s=0.05))
    store = Store(tmp_path, read_only=True)
    with store.database.read() as db:
        row = db.execute(tables.health.select()).one()
    store.close()
    body = json.loads(row.body)
    assert row.component.startswith("worker:")
    assert body["counts"]["records"] == len(FAULTY)
    assert body["counts"]["rejected_records"] == 1
    assert (body["source"], body["runs"], body["store_failure"]) == (NAME, 1, "")
    assert body["verdict_seconds"]["median"] > 0


def test_a_run_that_goes_quiet_is_noted_and_cleared_when_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise StoreBusy("somebody else writes")

    store, clock = Store(tmp_path), [1000.0]
    journal = Journal(store, NAME, replace(EAGER, health_every_s=0.05, quiet_after_s=10.0), dict)
    journal.now = lambda: clock[0]
    pipeline, (batch, *_) = Pipeline(), batches_of(FAULTY)
    pipeline.feed(batch)
    verdict = pipeline.verdict("job")
    tenure = store.claim(NAME, ["topic:0"]).tenure
    store.save_verdict(tenure, ["topic:0"], to_json(verdict), canonical_bytes(verdict))

    def quiet_since() -> float | None:
        journal.note(pipeline, tenure, is_due=True)
        with store.database.read() as db:
            since = db.execute(tables.runs.select()).one().quiet_since
        return None if since is None else float(since)

    journal.heard(batch)
    assert quiet_since() is None
    clock[0] += 11.0
    with monkeypatch.context() as busy:
        busy.setattr(Store, "note_quiet", refuse)
        with pytest.raises(StoreBusy):
            journal.note(pipeline, tenure, is_due=True)
    assert quiet_since() == 1000.0
    journal.heard(batch)
    assert quiet_since() is None
    store.close()


def test_only_runs_with_news_are_judged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    real = Pipeline.verdict

    def counting(self: Pipeline, name: str, **options: Any) -> Any:
        judged.append(name)
        return real(self, name, **options)

    monkeypatch.setattr(Pipeline, "verdict", counting)
    # the first run ends before the second begins
    batches = batches_of(log_lines("a", iterations=50)) + batches_of(log_lines("b", iterations=50))
    work(tmp_path, batches, idle_polls=150, config=replace(EAGER, settle_after_s=1.0))
    assert max(at for at, name in enumerate(judged[:-2]) if name == "a") < judged.index("b")
    assert sorted(judged[-2:]) == ["a", "b"]  # once more, as if ended


def test_a_verdict_does_not_depend_on_the_records_of_other_runs() -> None:
    alone, beside = Pipeline(), Pipeline()
    for batch in batches_of(FAULTY):
        alone.feed(batch)
    for batch in batches_of(FAULTY + log_lines("good")):
        beside.feed(batch)
    assert canonical_bytes(alone.verdict("job")) == canonical_bytes(beside.verdict("job"))


@pytest.mark.parametrize("is_of_another_release", [False, True])
def test_a_run_that_was_retired_goes_on_with_its_past(tmp_path: Path, is_of_another_release: bool) -> None:
    batches = batches_of(FAULTY)
    config = replace(EAGER, retire_after_s=1.0)
    store, said = Store(tmp_path), list[str]()
    worker = Worker(store, name=NAME, config=config, say=said.append)
    stop, at_end = stop_after(60)

    def wait_for_retirement() -> None:
        threading.Event().wait(0.01)
        worker._journal.now = lambda: time.time() + 3600.0
        worker._retire_at_s = 0.0
        at_end()

    worker.run(ListSource(batches[:4], wait_for_retirement, worker.claim), stop)
    assert worker._pipeline.runs == []
    if is_of_another_release:
        with store.database.write() as db:
            db.execute(tables.run_states.update().values(version="0-elsewhere"))
    store.close()
    work(tmp_path, batches)
    assert stored(tmp_path) == offline(batches)
    assert offsets(tmp_path) == {"topic:0": len(batches)}


def test_a_damaged_state_of_a_retired_run_costs_its_past_and_not_the_worker(tmp_path: Path) -> None:
    batches = batches_of(FAULTY)
    work(tmp_path, batches[:2])
    store = Store(tmp_path)
    with store.database.write() as db:
        db.execute(tables.run_states.update().values(is_retired=True))
        broken = tables.run_states.update().values(snapshot=b"damaged")
        db.execute(broken)
    pipeline, _ = resume(store, store.claim(NAME, ["topic:0"]), Pipeline)
    pipeline.feed(batches[2])
    store.close()
    assert pipeline.verdict("job").judged_to_iteration is not None
