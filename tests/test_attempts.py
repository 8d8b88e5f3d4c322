"""A counter that goes back is a restart: the rule, against a row-by-row oracle too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import Event, EventKind, Record
from ingest.attempts import AttemptAssigner, AttemptConfig
from ingest.blocks import RecordBatch
from ingest.columns import batch_from_records
from ingest.joining import concatenate

from .file_builders import batch_of, cut


def attempts_of(batch: RecordBatch, *, far_only: bool = False, sizes: list[int] | None = None) -> list[int]:
    assigner = AttemptAssigner(AttemptConfig(far_only=far_only))
    return [
        attempt for part in cut(batch, sizes or []) for attempt in assigner.assign(part).attempt_N.tolist()
    ]


def test_a_rising_counter_is_one_attempt() -> None:
    assert attempts_of(batch_of([(0, i) for i in range(300)])) == [0] * 300


def test_a_counter_exactly_the_window_behind_starts_nothing_if_values_agree() -> None:
    rows = [(0, i) for i in range(200)] + [(0, i) for i in range(135, 300)]

    assert attempts_of(batch_of(rows)) == [0] * 365


def test_a_counter_more_than_the_window_behind_starts_an_attempt_whatever_the_values() -> None:
    rows = [(0, i) for i in range(200)] + [(0, i) for i in range(134, 300)]

    assert attempts_of(batch_of(rows)) == [0] * 200 + [1] * 166


def test_another_value_of_a_repeated_iteration_inside_the_window_starts_an_attempt() -> None:
    rows = [(0, i, 1.0) for i in range(30)] + [(0, i, 2.0) for i in range(10, 40)]

    assert attempts_of(batch_of(rows)) == [0] * 30 + [1] * 30


def test_a_repetition_with_equal_values_starts_nothing() -> None:
    rows = [(0, i) for i in range(30)] + [(0, i) for i in range(10, 40)]

    assert attempts_of(batch_of(rows)) == [0] * 60


def test_repeated_nans_are_equal_values() -> None:
    rows = [(0, i, float("nan")) for i in range(30)] * 2

    assert attempts_of(batch_of(rows)) == [0] * 60


def test_another_value_at_the_furthest_iteration_is_a_conflict_and_no_restart() -> None:
    assert attempts_of(batch_of([(0, 1, 1.0), (0, 2, 1.0), (0, 2, 3.0), (0, 3, 1.0)])) == [0] * 4


def test_a_shuffle_inside_the_window_starts_nothing() -> None:
    rng = np.random.default_rng(7)
    order = np.argsort(np.arange(500) + rng.uniform(0, 60, 500))

    assert attempts_of(batch_of([(0, int(i)) for i in order])) == [0] * 500


def test_evaluation_rows_that_repeat_an_iteration_with_other_metrics_start_nothing() -> None:
    train = batch_of([(0, i) for i in range(50)])
    evaluation = batch_of([(0, i, 9.0) for i in (10, 20, 30)], metric="eval_loss")
    parts = [*cut(train, [12, 10, 10]), evaluation]
    mixed = concatenate(
        [parts[0], *cut(evaluation, [1])[:1], parts[1], parts[2], parts[3], *cut(evaluation, [1])[1:]]
    )

    assert attempts_of(mixed) == [0] * 53


def test_microbatches_of_one_iteration_do_not_conflict() -> None:
    records = [
        Record(run="r", rank=0, iteration=i, microbatch=m, metrics={"loss": float(m)})
        for i in range(5)
        for m in range(4)
    ]

    assert attempts_of(batch_from_records(records)) == [0] * 20


def test_ranks_that_restart_some_rows_later_land_on_the_same_attempt() -> None:
    first = [(rank, i, 1.0) for i in range(100) for rank in range(3)]
    late = [(2, 100, 1.0), (2, 101, 1.0)]
    second = [(0, 0, 2.0), (1, 0, 2.0), *late, (0, 1, 2.0), (1, 1, 2.0), (2, 0, 2.0), (2, 1, 2.0)]

    assert attempts_of(batch_of(first + second))[300:] == [1, 1, 0, 0, 1, 1, 1, 1]


def test_a_file_sorted_by_rank_gives_each_rank_its_attempts_by_its_own_restarts() -> None:
    history = [(i, 1.0) for i in range(200)] + [(i, 2.0) for i in range(100, 300)]
    rows = [(rank, i, value) for rank in range(3) for i, value in history]

    assert attempts_of(batch_of(rows)) == ([0] * 200 + [1] * 200) * 3


def test_a_rank_that_appears_in_the_second_launch_joins_it() -> None:
    rows = [(0, i, 1.0) for i in range(200)]
    rows += [(rank, i, 2.0) for i in range(100, 110) for rank in (0, 1)]

    assert attempts_of(batch_of(rows))[200:] == [1] * 20


def test_a_rank_that_missed_a_launch_joins_the_one_that_runs() -> None:
    rows = [(rank, i, 1.0) for i in range(300) for rank in (0, 1)]
    rows += [(0, i, 2.0) for i in range(100, 300)]
    rows += [(rank, i, 3.0) for i in range(150, 160) for rank in (0, 1)]

    assert attempts_of(batch_of(rows))[-20:] == [2] * 20


def test_wire_lines_restart_only_by_more_than_the_window() -> None:
    conflict = [(0, i, 1.0) for i in range(30)] + [(0, i, 2.0) for i in range(10, 40)]
    far = [(0, i, 1.0) for i in range(200)] + [(0, i, 2.0) for i in range(100, 200)]

    assert attempts_of(batch_of(conflict), far_only=True) == [0] * 60
    assert attempts_of(batch_of(far), far_only=True) == [0] * 200 + [1] * 100


def test_runs_in_one_file_are_numbered_apart() -> None:
    one = batch_of([(0, i, 1.0) for i in range(100)] + [(0, i, 2.0) for i in range(20)], run="a")
    two = batch_of([(0, i, 1.0) for i in range(50)], run="b")

    assert attempts_of(concatenate([one, two])) == [0] * 100 + [1] * 20 + [0] * 50


def test_an_event_gets_the_attempt_of_the_rows_it_stands_among() -> None:
    start = Event(kind=EventKind.RUN_START, run="r", rank=0, iteration=0)
    checkpoint = Event(kind=EventKind.CHECKPOINT, run="r", rank=0, iteration=0)
    rows = batch_of([(0, i) for i in range(100)] + [(0, i) for i in range(50)])
    batch = replace(rows, events=((0, start), (100, start), (150, checkpoint)))

    assigned = AttemptAssigner().assign(batch)

    assert [event.attempt for _, event in assigned.events] == [0, 1, 1]
    assert assigned.attempt_N.tolist() == [0] * 100 + [1] * 50


def test_a_checkpoint_event_of_long_ago_is_no_restart() -> None:
    old = Event(kind=EventKind.CHECKPOINT, run="r", rank=0, iteration=0)
    batch = replace(batch_of([(0, i) for i in range(200)]), events=((150, old),))

    assert AttemptAssigner().assign(batch).attempt_N.tolist() == [0] * 200


def by_rows(rows: list[tuple[int, int, float]], window: int) -> list[int]:
    """The rule as it is said, for one rank a call, row by row."""
    attempt, furthest = 0, -1
    reported: dict[int, float] = {}
    numbered: list[int] = []
    for _, iteration, value in rows:
        conflicts = iteration < furthest and reported.get(iteration, value) != value
        if furthest >= 0 and (iteration < furthest - window or conflicts):
            attempt, furthest = attempt + 1, iteration
            reported = {}
        furthest = max(furthest, iteration)
        reported[iteration] = value
        reported = {each: kept for each, kept in reported.items() if each >= furthest - window}
        numbered.append(attempt)
    return numbered


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, int, float]]:
    iteration, rows = draw(st.integers(0, 100)), []
    for _ in range(draw(st.integers(1, 60))):
        iteration = max(0, iteration + draw(st.sampled_from([1, 1, 1, 1, 2, 0, -1, -3, -9, 20, -40])))
        rows.append((0, iteration, float(draw(st.sampled_from([1, 1, 1, 2])))))
    return rows


@settings(max_examples=150, deadline=None)
@given(histories(), st.lists(st.integers(1, 9), max_size=12))
def test_the_rule_holds_row_by_row_however_the_file_is_cut(
    rows: list[tuple[int, int, float]], sizes: list[int]
) -> None:
    assigner = AttemptAssigner(AttemptConfig(window_iterations=8))

    found = [a for part in cut(batch_of(rows), sizes) for a in assigner.assign(part).attempt_N.tolist()]

    assert found == by_rows(rows, window=8)


@settings(max_examples=50, deadline=None)
@given(st.lists(histories(), min_size=2, max_size=4), st.randoms(use_true_random=False), st.data())
def test_ranks_interleaved_in_any_way_are_numbered_the_same_at_every_cut(
    ranks: list[list[tuple[int, int, float]]], random: object, data: st.DataObject
) -> None:
    turns = data.draw(st.permutations([rank for rank, rows in enumerate(ranks) for _ in rows]))
    waiting = [iter(rows) for rows in ranks]
    rows = [(turn, *next(waiting[turn])[1:]) for turn in turns]
    sizes = data.draw(st.lists(st.integers(1, 20), max_size=10))

    assert attempts_of(batch_of(rows), sizes=sizes) == attempts_of(batch_of(rows))


@pytest.mark.parametrize("sizes", [[], [1] * 4000, [999, 1001]])
def test_many_ranks_in_step_are_one_attempt(sizes: list[int]) -> None:
    rows = [(rank, i) for i in range(4) for rank in range(1000)]

    assert attempts_of(batch_of(rows), sizes=sizes[:40]) == [0] * 4000
