"""A worker with more runs than it can judge at once looks up between verdicts, and owes none at the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service import tables
from service.journal import Journal
from service.pipeline import Pipeline, PipelineConfig
from service.store import Store

from .service_builders import batches_of, log_lines
from .test_worker import EAGER, NAME, offline, offsets, stored, work


def test_a_worker_with_many_runs_to_judge_reads_on_and_says_how_it_is_meanwhile(tmp_path: Path) -> None:
    lines = [line for at in range(12) for line in log_lines(f"run-{at}", iterations=3)]
    batches = batches_of([*lines, *log_lines("late", iterations=3)], size=len(lines))
    one_at_a_time = replace(EAGER, judge_at_most_s=0.0, health_every_s=0.05)
    turns: list[int] = []
    journal_note = Journal.note

    def note(journal: Journal, pipeline: Pipeline, tenure: Any, *, is_due: bool = False) -> None:
        turns.append(len(stored(tmp_path)))
        journal_note(journal, pipeline, tenure, is_due=is_due)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Journal, "note", note)
        work(tmp_path, batches, idle_polls=60, config=one_at_a_time)
    assert turns[:5] == [1, 2, 3, 4, 5]
    assert stored(tmp_path) == offline(batches)


def test_verdicts_that_a_stopping_worker_has_no_time_for_are_made_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = batches_of([line for at in range(6) for line in log_lines(f"run-{at}", iterations=3)], size=500)
    monkeypatch.setattr("service.worker._LAST_VERDICTS_S", 0.0)
    never = replace(EAGER, judge_every_s=3600.0)
    work(tmp_path, batches, idle_polls=3, config=never)
    assert len(stored(tmp_path)) == 1 and offsets(tmp_path) == {"topic:0": len(batches)}
    work(tmp_path, batches)
    assert stored(tmp_path) == offline(batches)


def test_a_run_that_a_former_worker_found_quiet_has_news(tmp_path: Path) -> None:
    batches = batches_of(log_lines("good"))
    work(tmp_path, batches[:2])
    store = Store(tmp_path)
    store.note_quiet({"good": 1_764_470_000.0})
    store.close()
    work(tmp_path, batches)
    with Store(tmp_path, read_only=True).database.read() as db:
        assert db.execute(tables.runs.select()).one().quiet_since is None


def test_names_of_runs_that_were_never_let_in_are_not_remembered(tmp_path: Path) -> None:
    store, pipeline = Store(tmp_path), Pipeline(PipelineConfig(max_runs=2))
    journal = Journal(store, NAME, EAGER, dict)
    for batch in batches_of([log_lines(f"run-{at}", iterations=1)[0] for at in range(50)], size=10):
        pipeline.feed(batch)
        journal.heard(batch)
    journal.note(pipeline, None, is_due=True)
    assert set(journal._heard_of) == {"run-0", "run-1"}
    store.close()
