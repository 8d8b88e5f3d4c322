"""Streams merged by iteration, and files sorted whatever their size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import Event, EventKind, Record
from ingest.blocks import RecordBatch, Rejected
from ingest.columns import batch_from_records, records_from_batch
from ingest.file_order import OrderConfig, sort_batches
from ingest.joining import concatenate
from ingest.lateness import LatenessWatch
from ingest.merge import MergeConfig, merge

from .file_builders import batch_of, cut, rows_of, with_attempts


def ranks_of(count: int, iterations: int, sizes: list[int]) -> list[Iterator[RecordBatch]]:
    return [iter(cut(batch_of([(rank, i) for i in range(iterations)]), sizes)) for rank in range(count)]


def test_streams_are_merged_by_iteration_whatever_their_pieces() -> None:
    cursors = [
        iter(cut(batch_of([(rank, i) for i in range(200)]), [size] * 50))
        for rank, size in enumerate((3, 7, 200, 50))
    ]

    rows = rows_of(concatenate(list(merge(cursors))))

    assert rows == [(0, rank, i) for i in range(200) for rank in range(4)]


def test_one_stream_passes_through_untouched() -> None:
    parts = cut(batch_of([(0, 5), (0, 3), (0, 9)]), [1, 1])

    assert [id(batch) for batch in merge([iter(parts)])] == [id(part) for part in parts]


def test_a_record_is_handed_on_as_soon_as_no_stream_is_behind_it() -> None:
    merged = merge(ranks_of(3, 1000, [10] * 100))

    assert rows_of(next(merged)) == [(0, rank, i) for i in range(10) for rank in range(3)]


def test_a_stream_that_ends_early_does_not_hold_back_the_others() -> None:
    long, short = batch_of([(0, i) for i in range(100)]), batch_of([(1, i) for i in range(10)])

    rows = rows_of(concatenate(list(merge([iter(cut(long, [10] * 10)), iter(cut(short, [10]))]))))

    assert len(rows) == 110
    assert rows == sorted(rows, key=lambda row: row[2])


def test_attempts_come_one_after_the_other() -> None:
    history = [(i, 0) for i in range(50)] + [(i, 1) for i in range(30, 80)]
    cursors = [
        iter(
            cut(
                with_attempts(batch_of([(rank, i) for i, _ in history]), [a for _, a in history]),
                [rank + 7] * 9,
            )
        )
        for rank in range(2)
    ]

    rows = rows_of(concatenate(list(merge(cursors))))

    assert rows == sorted(rows, key=lambda row: (row[0], row[2], row[1]))


def test_runs_that_follow_each_other_in_every_file_are_each_merged() -> None:
    def file(rank: int, length: int) -> Iterator[RecordBatch]:
        for run in ("a", "b"):
            yield from cut(batch_of([(rank, i) for i in range(length)], run=run), [10] * 20)

    merged = concatenate(list(merge([file(0, 100), file(1, 60)])))

    for code, run in enumerate(merged.runs):
        iterations = merged.iteration_N[merged.run_N == code]
        assert (np.diff(iterations) >= 0).all(), run


def test_a_run_in_one_file_only_does_not_wait_for_ever() -> None:
    one = cut(batch_of([(0, i) for i in range(1000)], run="only"), [10] * 100)
    merged = merge(
        [iter(one), iter(cut(batch_of([(1, i) for i in range(1000)]), [10] * 100))],
        MergeConfig(max_waiting_cells=1000),
    )

    assert len(concatenate(list(merged))) == 2000


def test_events_take_their_place_and_rejections_are_kept() -> None:
    start = Event(kind=EventKind.RUN_START, run="r", rank=1, iteration=0)
    end = Event(kind=EventKind.RUN_END, run="r", rank=1, iteration=19)
    bad = Rejected("line", "must be JSON", "x", True)
    with_events = replace(
        batch_of([(1, i) for i in range(20)]), events=((0, start), (20, end)), rejected=(bad,)
    )

    merged = concatenate(
        list(merge([iter(cut(batch_of([(0, i) for i in range(20)]), [4] * 5)), iter([with_events])]))
    )

    assert [(before, event.kind) for before, event in merged.events] == [
        (0, EventKind.RUN_START),
        (40, EventKind.RUN_END),
    ]
    assert merged.rejected == (bad,)


def test_labels_and_values_stay_with_their_rows() -> None:
    records = [
        Record(
            run="r", rank=rank, iteration=i, metrics={f"m{rank}": float(i)}, labels={"host": f"h{rank}-{i}"}
        )
        for rank in range(2)
        for i in (4, 0, 2)
    ]
    batches = [batch_from_records(records[:3]), batch_from_records(records[3:])]

    for found in (merge([iter([each]) for each in batches]), sort_batches(iter(batches))):
        assert sorted(
            records_from_batch(concatenate(list(found))), key=lambda each: (each.rank, each.iteration)
        ) == (sorted(records, key=lambda each: (each.rank, each.iteration)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400)), max_size=120),
    st.lists(st.integers(1, 30), max_size=10),
    st.integers(1, 400),
)
def test_sorting_by_parts_on_disk_loses_and_doubles_nothing(
    rows: list[tuple[int, int]], sizes: list[int], part_cells: int
) -> None:
    batch = batch_of([(rank, iteration, float(at)) for at, (rank, iteration) in enumerate(rows)])

    found = concatenate(
        list(sort_batches(iter(cut(batch, sizes)), OrderConfig(part_cells=part_cells, piece_cells=20)))
    )

    values = found.numbers["loss"].values_N.astype(int).tolist() if rows else []
    assert sorted(values) == list(range(len(rows)))
    assert rows_of(found) == [(0, *rows[at]) for at in values]
    assert (np.diff(found.iteration_N) >= 0).all()


def test_a_file_sorted_by_rank_comes_out_by_iteration() -> None:
    batch = batch_of([(rank, i) for rank in range(8) for i in range(300)])

    found = concatenate(
        list(sort_batches(iter(cut(batch, [100] * 30)), OrderConfig(part_cells=2000, piece_cells=300)))
    )

    assert rows_of(found) == [(0, rank, i) for i in range(300) for rank in range(8)]


def test_lateness_is_measured_against_the_furthest_of_the_attempt() -> None:
    watch = LatenessWatch(64)

    assert not watch.is_late(batch_of([(0, 0), (0, 100), (0, 36)]))
    assert watch.is_late(batch_of([(1, 35)]))


def test_an_earlier_attempt_is_late_once_the_next_is_well_on_its_way() -> None:
    watch = LatenessWatch(64)
    assert not watch.is_late(with_attempts(batch_of([(0, 0), (0, 1000), (0, 500)]), [0, 0, 1]))
    assert not watch.is_late(batch_of([(1, 1000)]))
    assert not watch.is_late(with_attempts(batch_of([(0, 570)]), [1]))

    assert watch.is_late(batch_of([(1, 1001)]))
