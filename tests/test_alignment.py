"""Alignment: any order, any cutting, any duplication within the bound gives the same settled cells."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import WHOLE_ITERATION, Record
from ingest.alignment import AlignmentConfig, RunAligner
from ingest.blocks import NumberColumn, RecordBatch
from ingest.columns import batch_from_records

from .record_builders import Arrived, align, cells, cut, event, record

NAN = math.nan


def job(iterations: int = 200, ranks: int = 4) -> list[Arrived]:
    """A log of several ranks with a checksum at a slower cadence and an event in the middle."""
    rng = random.Random(7)
    arrived: list[Arrived] = [event("run_start", 0, mesh=[["dp", ranks]], world_size=ranks)]
    for iteration in range(iterations):
        for rank in range(ranks):
            loss = rng.choice([rng.gauss(3, 0.1), NAN, math.inf, -0.0])
            arrived.append(record(rank, iteration, loss=loss))
            if iteration % 10 == 0:
                arrived.append(record(rank, iteration, param_checksum=1000 + iteration))
        if iteration == 70:
            arrived.append(event("checkpoint", 70, path="ckpt"))
    return arrived


def shuffled_within(arrived: list[Arrived], bound: int, seed: int) -> list[Arrived]:
    """An order in which no record comes more than ``bound`` iterations after a later one."""
    rng = random.Random(seed)
    return sorted(arrived, key=lambda one: one.iteration + rng.uniform(0, bound))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), sizes=st.lists(st.integers(1, 400), min_size=1, max_size=8))
def test_order_cutting_and_duplication_leave_the_same_cells_and_events(seed: int, sizes: list[int]) -> None:
    arrived = job()
    _, plain = align([batch_from_records(arrived)])
    rng = random.Random(seed)
    doubled = [one for one in arrived for _ in range(rng.choice([1, 1, 2]))]

    aligner, blocks = align(cut(shuffled_within(doubled, 64, seed), sizes))

    assert cells(blocks) == cells(plain)
    assert [e for b in blocks for e in b.events] == [e for b in plain for e in b.events]
    assert aligner.attempts[0].admission.late == 0
    assert aligner.attempts[0].conflicts == 0


def test_an_iteration_settles_when_the_furthest_is_more_than_the_bound_ahead() -> None:
    config = AlignmentConfig(lateness_iterations=10)

    _, blocks = align([batch_from_records([record(0, i, loss=1.0) for i in range(15)])], config, ended=False)

    assert [list(block.iteration_T) for block in blocks] == [[0, 1, 2, 3]]


def test_a_silent_rank_does_not_hold_back_the_others_past_the_lateness_bound() -> None:
    arrived = [record(rank, i, loss=1.0) for i in range(200) for rank in range(4) if rank != 2 or i < 5]

    _, blocks = align([batch_from_records(arrived)], ended=False)

    assert blocks[-1].iteration_T[-1] == 200 - 1 - 64 - 1
    assert not blocks[-1].numbers["loss"].present_TR[-1, 2]


def test_a_record_beyond_the_bound_is_late_counted_and_dropped_however_it_is_cut() -> None:
    arrived = [record(0, i, loss=1.0) for i in range(100)] + [
        record(1, 3, loss=9.0),
        record(0, 100, loss=1.0),
    ]

    for sizes in ([1], [1000], [100, 1]):
        aligner, blocks = align(cut(arrived, sizes))
        assert aligner.attempts[0].admission.late == 1
        assert (0, 3, WHOLE_ITERATION, 1, "loss") not in cells(blocks)


@given(st.permutations([1.0, 2.0, NAN, -math.inf, -5.0, 2.0]))
def test_of_conflicting_values_a_non_finite_one_wins_in_any_order(values: list[float]) -> None:
    arrived = [record(0, 7, loss=value) for value in values]

    aligner, blocks = align(cut(arrived, [1]))

    assert math.isinf(blocks[0].numbers["loss"].values_TR[0, 0])  # -inf has the greater bit pattern
    (attempt,) = aligner.attempts.values()
    assert attempt.window.conflicts(1) == 1


def test_a_duplicate_is_no_conflict() -> None:
    aligner, _ = align(cut([record(0, 7, loss=NAN)] * 3, [2, 1]))

    assert aligner.attempts[0].window.conflicts(1) == 0


def test_metrics_of_one_rank_and_iteration_may_come_in_several_records() -> None:
    _, blocks = align(cut([record(0, 7, loss=1.0), record(0, 7, param_checksum=5)], [1]))

    assert {key[-1] for key in cells(blocks)} == {"loss", "param_checksum"}


def test_microbatches_come_before_their_whole_iteration() -> None:
    whole = record(0, 7, loss=1.0)
    parts = [Record(run="run", rank=0, iteration=7, microbatch=m, metrics={"loss": m}) for m in (1, 0)]

    _, blocks = align([batch_from_records([whole, *parts])])

    assert blocks[0].microbatch_T.tolist() == [0, 1, WHOLE_ITERATION]
    assert blocks[0].numbers["loss"].values_TR[:, 0].tolist() == [0.0, 1.0, 1.0]


def test_not_reported_and_nan_stay_apart() -> None:
    _, blocks = align([batch_from_records([record(0, 1, loss=NAN), record(1, 1, grad_norm=1.0)])])

    assert blocks[0].numbers["loss"].present_TR.tolist() == [[True, False]]


def test_attempts_settle_apart_and_an_old_one_closes_when_the_new_one_is_under_way() -> None:
    arrived = [record(0, i, loss=1.0) for i in range(150)]
    arrived += [record(0, i, attempt=1, loss=1.0) for i in range(100, 180)]

    aligner, blocks = align([batch_from_records(arrived)], ended=False)

    assert aligner.attempts[0].is_closed
    assert max(b.iteration_T[-1] for b in blocks if b.attempt == 0) == 149
    assert max(b.iteration_T[-1] for b in blocks if b.attempt == 1) == 179 - 65


def test_a_rank_that_joins_late_widens_the_block_in_rank_order() -> None:
    arrived = [record(rank, i, loss=rank) for i in range(100) for rank in (5, 2) if rank == 5 or i > 50]

    _, blocks = align(cut(arrived, [30]))

    assert blocks[-1].ranks_R.tolist() == [2, 5]
    assert blocks[-1].numbers["loss"].values_TR[-1].tolist() == [2.0, 5.0]


def test_a_layout_change_starts_a_new_block() -> None:
    arrived: list[Arrived] = [record(0, i, loss=1.0) for i in range(40)]
    arrived += [event("run_start", 0, mesh=[["dp", 1]]), event("membership", 20, mesh=[["tp", 1]])]

    _, blocks = align([batch_from_records(arrived)])

    assert [(b.iteration_T[0], b.layout.axes) for b in blocks if b.layout] == [(0, ("dp",)), (20, ("tp",))]


def test_a_launch_told_by_every_rank_of_a_large_job_costs_no_square() -> None:
    arrived: list[Arrived] = [event("run_start", 0, rank=rank, world_size=20_000) for rank in range(20_000)]
    arrived += [record(0, i, loss=1.0) for i in range(200)]

    _, blocks = align(cut(arrived, [1000]))  # minutes, were each compared with each

    assert sum(len(block.events) for block in blocks) == 20_000


def test_a_layout_told_by_every_rank_is_read_once() -> None:
    told: list[Arrived] = [event("run_start", 0, rank=rank, mesh=[["dp", 3]]) for rank in range(3)]

    aligner, blocks = align([batch_from_records([*told, record(0, 0, loss=1.0)])])

    (again,) = aligner.attempts[0].pending()
    assert blocks[0].layout is not None
    assert again.layout is blocks[0].layout


def test_a_size_that_is_no_number_is_not_taken_for_one_beside_it() -> None:
    told: list[Arrived] = [
        event("run_start", 0, rank=rank, mesh=[["dp", n]]) for rank, n in ((0, 1), (1, True))
    ]

    aligner, blocks = align([batch_from_records([*told, record(0, 0, loss=1.0)])])

    assert [block.layout is not None for block in blocks] == [True]
    assert list(aligner.attempts[0].admission.rejected) == [
        "mesh: mesh axis dp must have an integer size >= 1, got True"
    ]


def test_an_impossible_mesh_is_counted_and_changes_nothing() -> None:
    arrived: list[Arrived] = [event("run_start", 0, mesh=[["dp", 3]], world_size=8), record(0, 0, loss=1.0)]

    aligner, blocks = align([batch_from_records(arrived)])

    assert blocks[0].layout is None
    assert dict(aligner.attempts[0].admission.rejected) == {
        "mesh: mesh sizes multiply to 3 but world_size is 8": 1
    }


def test_one_impossible_counter_does_not_make_the_rest_late() -> None:
    arrived = [record(0, i, loss=1.0) for i in range(50)]
    arrived.insert(20, record(0, 2**50, loss=1.0))

    for sizes in ([1], [100]):
        aligner, blocks = align(cut(arrived, sizes))
        assert len(cells(blocks)) == 50
        assert sum(aligner.attempts[0].admission.rejected.values()) == 1


def test_ranks_metrics_and_attempts_over_the_limit_are_refused_and_known_ones_unharmed() -> None:
    config = AlignmentConfig(max_ranks=2, max_metrics=1, max_attempts=1)
    arrived = [record(r, i, loss=1.0) for i in range(3) for r in range(5)]
    arrived += [record(0, 3, loss=1.0, a=1.0, b=1.0), record(0, 0, attempt=9, loss=1.0)]

    for sizes in ([1], [100]):
        aligner, blocks = align(cut(arrived, sizes), config)
        assert {key[3] for key in cells(blocks)} == {0, 1}
        assert {key[4] for key in cells(blocks)} == {"loss", "a"}
        assert sum(aligner.attempts[0].admission.rejected.values()) == 9 + 1
        assert sum(aligner.rejected.values()) == 1


def test_names_without_a_contract_times_ranks_are_bounded_and_those_with_one_are_let_in() -> None:
    config = AlignmentConfig(max_metric_ranks=8)
    arrived = [record(r, i, a=1.0, b=1.0, c=1.0, loss=1.0, grad_norm=1.0) for i in range(3) for r in range(4)]

    aligner, blocks = align([batch_from_records(arrived)], config)

    assert {key[4] for key in cells(blocks)} == {"loss", "grad_norm", "a", "b"}
    assert dict(aligner.attempts[0].admission.rejected) == {"metric: at most 2 names a run": 12}


def test_random_iterations_by_random_ranks_cannot_blow_up_memory() -> None:
    count = 4096
    rng = np.random.default_rng(3)
    batch = RecordBatch(
        runs=("run",),
        run_N=np.zeros(count, np.int32),
        attempt_N=np.zeros(count, np.int32),
        rank_N=rng.integers(0, 100_000, count).astype(np.int32),
        iteration_N=np.sort(rng.integers(0, 10**8, count)),
        microbatch_N=np.full(count, WHOLE_ITERATION, np.int32),
        time_N=np.full(count, np.nan),
        numbers={"loss": NumberColumn(np.ones(count), np.ones(count, np.bool_))},
    )
    aligner = RunAligner("run")

    largest = max(block.numbers["loss"].values_TR.size for block in aligner.push(batch))

    assert largest <= 1 << 23


@pytest.mark.parametrize("at", [0, 1, 57, 300, 801])
def test_a_snapshot_continues_exactly(at: int) -> None:
    arrived = shuffled_within(job(), 40, 3)
    _, plain = align([batch_from_records(arrived)])
    first = RunAligner("run")
    blocks = first.push(batch_from_records(arrived[:at]))

    second = RunAligner("run")
    second.restore(first.snapshot())
    blocks += second.push(batch_from_records(arrived[at:]))
    blocks += [block for attempt in second.attempts.values() for block in attempt.pending()]

    assert cells(blocks) == cells(plain)


def test_complete_leaves_out_what_a_live_rank_has_yet_to_report() -> None:
    arrived = [record(rank, i, loss=1.0) for i in range(10) for rank in range(3)] + [record(0, 10, loss=1.0)]
    aligner, _ = align([batch_from_records(arrived)], ended=False)

    blocks = aligner.attempts[0].complete()

    assert blocks[-1].iteration_T[-1] == 9
