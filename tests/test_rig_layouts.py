"""The layouts of the rig train as they claim to, and show of a fault what a real job would show."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from firstfault.drill.rig import DrillError, LayoutName, Restart, RigTraining
from firstfault.drill.rig.catalogue import check, draw
from firstfault.drill.rig.layouts import has_site, is_outer, ranks_at
from firstfault.telemetry import Record

from .layout_builders import (
    ALONE_IN_OUTER_STEP,
    FLIPPED_COPY,
    FLIPPED_PARAMETER,
    ITERATIONS,
    LOST_CONTRIBUTION,
    LOST_IN_OUTER_STEP,
    NAN_MESSAGE,
    NORM_DESYNC,
    SAME_DATA,
    SHARD_OWNER,
    STRIKE,
    TIED_DESYNC,
    TP_DESYNC,
    WRONG_GATHER,
    WRONG_MESSAGE,
    WRONG_TOKENS,
    layout_job,
    said_by,
)

pytestmark = pytest.mark.torch
PIPELINE, EXPERT = LayoutName.PP4_TP2_DP2, LayoutName.EXPERT
ZERO, SHARDED, LOCAL = LayoutName.ZERO1, LayoutName.FULL_SHARD, LayoutName.LOCAL_SGD


@pytest.mark.parametrize("name", [ZERO, SHARDED])
def test_sharded_state_trains_as_replicated_state_does(name: LayoutName) -> None:
    plain, sharded = (said_by(one)[None] for one in (LayoutName.DP, name))
    for iteration in range(ITERATIONS):
        losses = [run.of(iteration, "loss") for run in (plain, sharded)]
        assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_a_pipeline_reports_each_metric_where_it_is_and_keeps_its_copies_equal() -> None:
    job = said_by(PIPELINE)[None]
    ends, last = [0, 1, 2, 3, 12, 13, 14, 15], [12, 13, 14, 15]
    for iteration in range(ITERATIONS):
        for metric, ranks in (("loss", last), ("nonfinite_logits", last), ("data_checksum", ends)):
            told = [rank for rank, value in enumerate(job.of(iteration, metric)) if value is not None]
            assert told == ranks, metric
        assert [bool(job.of(iteration, "param_checksum/tied")[rank]) for rank in (0, 4, 8, 12)] == [
            True,
            False,
            False,
            True,
        ]
        # (rank, rank that must hold the same): along dp, tp, and from the first to the last stage
        _assert_equal(job.of(iteration, "param_checksum"), [(4, 6), (5, 7), (12, 14)])
        _assert_equal(job.of(iteration, "param_checksum/tp_replicated"), [(4, 5), (4, 6), (13, 14)])
        _assert_equal(job.of(iteration, "param_checksum/tied"), [(0, 12), (1, 13), (2, 14)])
        _assert_equal(job.of(iteration, "loss"), [(12, 13), (14, 15)])
        if iteration % 2 == 0:
            _assert_equal(job.of(iteration, "canary_checksum"), [(0, 2), (9, 11)])
        assert len(set(job.of(iteration, "param_checksum"))) == 8
        assert len(set(job.of(iteration, "grad_norm"))) == 1


def test_experts_are_replicated_along_dp_alone_and_their_load_is_uneven() -> None:
    job = said_by(EXPERT)[None]
    for iteration in range(ITERATIONS):
        assert len(set(job.of(iteration, "param_checksum"))) == 1
        sums = job.of(iteration, "param_checksum/expert")
        assert sums[:4] == sums[4:]
        assert len(set(sums)) == 4
    assert len(set(job.of(ITERATIONS - 1, "expert_tokens"))) > 2


def test_ranks_of_local_sgd_agree_after_outer_steps_and_nowhere_else() -> None:
    job = said_by(LOCAL)[None]
    for iteration in range(ITERATIONS):
        sums = job.of(iteration, "param_checksum")
        assert len(set(sums)) == 1
        assert (sums[0] is not None) == is_outer(iteration)
        assert (job.of(iteration, "grad_sketch_in")[0] is None) == (not is_outer(iteration))
    assert len(set(job.of(10, "canary_checksum"))) == 1
    assert job.of(9, "canary_checksum")[0] is None


def test_an_owner_s_moment_makes_no_rank_differ_and_all_of_them_wrong() -> None:
    runs = said_by(ZERO)
    twin, faulty = runs[None], runs[SHARD_OWNER]
    assert len(set(faulty.of(STRIKE, "param_checksum"))) == 1
    assert faulty.differing(twin, STRIKE, "param_checksum") == list(range(8))
    assert faulty.differing(twin, STRIKE, "optim_checksum") == [3]


def test_a_wrong_gather_on_one_receiver_heals_at_the_next() -> None:
    faulty = said_by(ZERO)[WRONG_GATHER]
    assert faulty.odd(STRIKE, "param_checksum", range(8)) == [3]
    assert faulty.odd(STRIKE + 1, "param_checksum", range(8)) == []


def test_of_a_reduced_gradient_a_zero_owner_uses_its_shard_alone() -> None:
    runs = said_by(ZERO)
    assert runs[FLIPPED_COPY].odd(STRIKE, "grad_checksum", range(8)) == [3]
    assert runs[FLIPPED_COPY].differing(runs[None], STRIKE, "param_checksum") == []


def test_full_shard_ranks_hold_nothing_alike_but_what_they_gather() -> None:
    runs = said_by(SHARDED)
    assert len(set(runs[None].of(STRIKE, "param_checksum"))) == 8
    assert len(set(runs[None].of(STRIKE, "gathered_checksum"))) == 1
    faulty = runs[WRONG_GATHER]
    assert faulty.odd(STRIKE, "gathered_checksum", range(8)) == [3]
    assert faulty.odd(STRIKE + 1, "gathered_checksum", range(8)) == []
    assert 3 in faulty.differing(runs[None], STRIKE, "loss")
    owner = runs[SHARD_OWNER]
    assert owner.differing(runs[None], STRIKE, "param_checksum") == [3]
    assert len(set(owner.of(STRIKE + 1, "gathered_checksum"))) == 1


def test_a_norm_that_misses_its_reduction_makes_its_rank_differ_along_dp_and_tp() -> None:
    faulty = said_by(PIPELINE)[NORM_DESYNC]
    assert faulty.odd(STRIKE, "param_checksum/tp_replicated", (4, 5, 6, 7)) == [5]
    assert faulty.odd(STRIKE, "param_checksum", (5, 7)) == [5, 7]
    assert faulty.odd(STRIKE, "param_checksum", (4, 6)) == []


def test_norms_that_drift_apart_along_tp_leave_the_replicas_equal() -> None:
    faulty = said_by(PIPELINE)[TP_DESYNC]
    assert faulty.odd(STRIKE, "param_checksum/tp_replicated", (4, 5, 6, 7)) == [4, 5, 6, 7]
    for replicas in ((4, 6), (5, 7)):
        assert faulty.odd(STRIKE, "param_checksum", replicas) == []


def test_a_tied_embedding_that_misses_a_gradient_differs_between_the_stages() -> None:
    faulty = said_by(PIPELINE)[TIED_DESYNC]
    assert faulty.odd(STRIKE, "param_checksum/tied", (1, 3, 13, 15)) == [13]
    assert faulty.odd(STRIKE, "param_checksum/tied", (0, 2, 12, 14)) == []


def test_a_message_of_nan_is_first_seen_where_it_is_sent() -> None:
    faulty = said_by(PIPELINE)[NAN_MESSAGE]
    sent, acts = (faulty.of(STRIKE, metric) for metric in ("nonfinite_send/pp", "nonfinite_act"))
    assert [rank for rank, count in enumerate(sent) if count] == [6, 10, 11]
    # the other half of its tensor-parallel pair gets it with the next sum
    assert [rank for rank, count in enumerate(acts) if count] == [10, 11, 14, 15]


def test_a_wrong_message_moves_one_replica_s_loss_and_everybody_s_parameters() -> None:
    runs = said_by(PIPELINE)
    faulty = runs[WRONG_MESSAGE]
    assert faulty.differing(runs[None], STRIKE, "loss") == [12, 13]
    # sent to one of a tensor-parallel pair, but both have all logits in the end
    assert faulty.odd(STRIKE, "loss", (12, 13)) == []
    assert len(faulty.differing(runs[None], STRIKE, "param_checksum")) == 16
    assert faulty.odd(STRIKE, "param_checksum", (8, 10)) == []


def test_wrong_tokens_reach_other_ranks_experts_and_no_checksum_differs() -> None:
    runs = said_by(EXPERT)
    faulty = runs[WRONG_TOKENS]
    assert faulty.differing(runs[None], STRIKE, "loss") == [5]
    assert set(faulty.differing(runs[None], STRIKE, "local_grad_norm/expert")) <= {4, 5, 6, 7}
    assert len(set(faulty.of(STRIKE, "param_checksum"))) == 1


def test_replicas_of_a_pipeline_that_read_the_same_read_it_at_both_ends() -> None:
    faulty = said_by(PIPELINE)[SAME_DATA]
    assert len({value for value in faulty.of(STRIKE, "data_checksum") if value is not None}) == 1


def test_what_one_rank_gets_wrong_alone_an_outer_step_shares_out() -> None:
    runs = said_by(LOCAL)
    faulty = runs[FLIPPED_PARAMETER]
    assert faulty.differing(runs[None], 6, "loss") == [3]
    assert faulty.odd(9, "param_checksum", range(8)) == []


def test_an_outer_step_alone_makes_a_rank_differ_and_one_without_a_rank_does_not() -> None:
    runs = said_by(LOCAL)
    assert runs[ALONE_IN_OUTER_STEP].odd(9, "param_checksum", range(8)) == [3]
    lost = runs[LOST_IN_OUTER_STEP]
    assert lost.odd(9, "param_checksum", range(8)) == []
    sent, got = (
        [value for value in lost.of(9, name) if value is not None]
        for name in ("grad_sketch_in", "grad_sketch_out")
    )
    assert sum(sent) != pytest.approx(sum(got), rel=1e-3)
    assert sum(sent) - sent[3] == pytest.approx(sum(got), rel=1e-4)


def test_what_a_scattered_reduction_loses_breaks_the_sum_of_all_shards() -> None:
    from firstfault.drill.rig.recording import align, record_run
    from firstfault.drill.rig.relations import broken_relations

    runs = said_by(SHARDED)
    faulty, twin = align(record_run(runs[LOST_CONTRIBUTION].said), record_run(runs[None].said))
    (sums,) = (one for one in broken_relations(faulty, twin) if one.metric == "grad_sketch_out")
    assert (sums.iteration, sums.ranks) == (STRIKE, (3,))


@pytest.mark.parametrize("name", [one for one in LayoutName if one is not LayoutName.DP])
def test_drawn_faults_fit_their_layout(name: LayoutName) -> None:
    job = replace(layout_job(name), iterations=100)
    rng = random.Random(1)
    for _ in range(200):
        drawn = draw(job, rng)
        check(job, drawn)
        assert has_site(job.layout, drawn.site)
        assert drawn.rank is None or drawn.rank in ranks_at(job.layout, drawn.site)


@pytest.mark.parametrize(
    ("name", "training"),
    [
        (PIPELINE, {"precision": "bf16"}),
        (EXPERT, {"evaluation_every": 5}),
        (PIPELINE, {"restarts": (Restart(iteration=4, is_spiking=True),)}),
        (ZERO, {"restarts": (Restart(iteration=4, ranks=4),)}),
    ],
)
def test_what_a_layout_cannot_do_it_refuses(name: LayoutName, training: dict[str, Any]) -> None:
    from firstfault.drill.rig.engine import run

    with pytest.raises(DrillError, match="training"):
        next(run(replace(layout_job(name), training=RigTraining(**training))))


@pytest.mark.parametrize("name", [PIPELINE, SHARDED])
def test_a_restart_repeats_the_same_bits(name: LayoutName) -> None:
    from firstfault.drill.rig.engine import run

    job = replace(layout_job(name, iterations=7), training=RigTraining(restarts=(Restart(iteration=6),)))
    told: dict[tuple[int, int], list[object]] = {}
    for one in run(job):
        if isinstance(one, Record) and one.iteration in (4, 5):
            told.setdefault((one.iteration, one.rank), []).append(one.metrics["param_checksum"])
    assert all(len(sums) == 2 and sums[0] == sums[1] for sums in told.values())


def _assert_equal(values: list[Any], pairs: list[tuple[int, int]]) -> None:
    for one, other in pairs:
        assert values[one] is not None
        assert values[one] == values[other], (one, other)
