"""Who was first inside an iteration: suspects, ties, victims, over meshes."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.cause_graph import Plan, Stage, edges_of, stage_of
from detectors.difference import trace_ranks
from detectors.origin import Origin, trace_nonfinite
from detectors.rank_groups import groups_of
from detectors.roles import Role
from firstfault.mesh import Layout
from firstfault.telemetry import Phase

from .evidence_builders import EIGHT, but, divergence, mesh, sight

DP8 = mesh(("dp", 8))
TP2 = mesh(("dp", 4), ("tp", 2))
PP4 = mesh(("pp", 4), ("dp", 2))


def trace(*sights: object, layout: Layout | None = DP8, **more: object) -> Origin:
    origin = trace_nonfinite(sights, layout=layout, **more)  # type: ignore[arg-type]  # passed through
    assert origin is not None
    return origin


@pytest.mark.parametrize("layout", [DP8, None])
def test_a_loss_before_the_reduction_names_the_rank_whatever_is_bad_behind_it(layout: Layout | None) -> None:
    origin = trace(sight("loss", [5], but(5)), sight("grad_norm", EIGHT), layout=layout)
    assert (origin.listed, origin.phase, origin.is_tie) == ((5,), Phase.FORWARD, False)
    assert origin.bad_ranks == tuple(EIGHT)
    assert "peers were finite" in origin.why[5]


@pytest.mark.parametrize("layout", [DP8, None])
def test_a_bad_loss_is_a_better_witness_than_finite_norms_before_a_bad_one(layout: Layout | None) -> None:
    finite = sight("local_grad_norm", clean=EIGHT)
    origin = trace(sight("loss", [5], but(5)), finite, sight("grad_norm", EIGHT), layout=layout)
    assert (origin.listed, origin.phase, origin.is_tie) == ((5,), Phase.FORWARD, False)


@pytest.mark.parametrize("layout", [DP8, None])
def test_a_local_gradient_norm_names_the_rank_when_all_losses_are_finite(layout: Layout | None) -> None:
    origin = trace(
        sight("loss", clean=EIGHT),
        sight("local_grad_norm", [2], but(2)),
        sight("grad_norm", EIGHT),
        layout=layout,
    )
    assert (origin.listed, origin.phase) == ((2,), Phase.REDUCE_IN)


def test_the_only_rank_not_seen_finite_before_the_reduction_is_the_suspect() -> None:
    origin = trace(sight("local_grad_norm", clean=but(2)), sight("grad_norm", EIGHT))
    assert origin.listed == (2,)
    assert "no finite value clears" in origin.why[2]


def test_finite_losses_alone_do_not_clear_a_backward() -> None:
    origin = trace(sight("loss", clean=EIGHT), sight("grad_norm", EIGHT))
    assert origin.is_all and origin.is_tie and origin.listed == ()
    assert "local_grad_norm" in origin.note


def test_an_agreed_norm_alone_leaves_every_rank_suspect() -> None:
    origin = trace(sight("grad_norm", EIGHT))
    assert (origin.listed, origin.ranks, origin.is_all) == ((), tuple(EIGHT), True)


def test_all_losses_at_once_after_a_finite_update_share_a_cause() -> None:
    before = sight("grad_norm", clean=EIGHT, iteration=699)
    origin = trace(sight("loss", EIGHT), sight("grad_norm", EIGHT), before)
    assert origin.is_common and origin.is_all and not origin.is_tie


def test_all_losses_at_once_after_an_unseen_update_can_come_from_any_rank() -> None:
    origin = trace(sight("loss", EIGHT))
    assert origin.is_all and origin.is_tie and not origin.is_common


def test_finite_before_and_bad_behind_the_reduction_accuses_no_rank() -> None:
    origin = trace(sight("nonfinite_grad", clean=EIGHT), sight("nonfinite_reduced", EIGHT))
    assert origin.is_common and origin.is_all and origin.is_reduce_in_clean


def test_independent_ranks_of_one_layout_are_listed_together_and_are_no_tie() -> None:
    origin = trace(sight("loss", [1, 6], but(1, 6)), sight("grad_norm", EIGHT))
    assert (origin.listed, origin.is_tie, origin.is_common) == ((1, 6), False, True)


def test_without_a_layout_ranks_that_fail_together_may_share_a_model() -> None:
    origin = trace(sight("loss", [1, 6], but(1, 6)), layout=None)
    assert (origin.listed, origin.is_tie) == ((1, 6), True)
    assert "mesh" in origin.note and "plain data parallel" in origin.note


@pytest.mark.parametrize(
    ("clearing", "suspects"),
    [
        ([], (2, 3)),
        # its part of the logits, which the loss of both is made of, comes after its activations
        ([sight("nonfinite_act", clean=[2])], (2, 3)),
        ([sight("nonfinite_send/tp", clean=[2])], (3,)),
        ([sight("nonfinite_act", [2, 3], [0, 1])], (2, 3)),
        ([sight("nonfinite_act", [3], [0, 1, 2])], (3,)),
    ],
)
def test_a_tensor_parallel_pair_is_a_tie_until_a_clean_value_clears_one(
    clearing: list[object], suspects: tuple[int, ...]
) -> None:
    origin = trace(sight("loss", [2, 3], but(2, 3)), *clearing, layout=TP2)
    assert (origin.listed, origin.is_tie) == (suspects, len(suspects) > 1)


@pytest.mark.parametrize(
    ("clearing", "suspects"),
    [
        ([], (0, 2, 4, 6)),
        ([sight("nonfinite_send/pp", clean=[0, 2])], (4, 6)),
        ([sight("nonfinite_act", [4, 6], [0, 2])], (4,)),
        ([sight("nonfinite_act", clean=[0, 2, 4])], (6,)),
    ],
)
def test_the_last_pipeline_stage_accuses_all_stages_of_its_replica_that_nothing_clears(
    clearing: list[object], suspects: tuple[int, ...]
) -> None:
    origin = trace(sight("loss", [6], [7]), *clearing, sight("grad_norm", EIGHT), layout=PP4)
    assert origin.listed == suspects


def test_a_later_stage_is_a_suspect_of_a_gradient_but_not_of_an_activation() -> None:
    pipeline = mesh(("pp", 2), ("dp", 2))
    before = sight("grad_norm", clean=range(4), iteration=699)
    backward = trace(sight("act_grad_norm", [0], [1]), before, layout=pipeline)
    forward = trace(sight("nonfinite_act", [0], [1]), before, layout=pipeline)
    assert (backward.listed, forward.listed) == ((0, 2), (0,))


def test_interleaved_stages_are_visited_in_turn() -> None:
    seen = (sight("nonfinite_act", [0], [1, 3, 5, 7]), sight("grad_norm", clean=EIGHT, iteration=699))
    plain = trace(*seen, layout=PP4)
    interleaved = trace(*seen, layout=PP4, chunks=2)
    assert (plain.listed, interleaved.listed) == ((0,), (0, 2, 4, 6))


def test_an_expert_exchange_accuses_its_group_and_clears_nobody() -> None:
    experts = mesh(("dp", 2), ("ep", 2))
    before = sight("grad_norm", clean=range(4), iteration=699)
    origin = trace(sight("loss", [2], [0, 1, 3]), before, layout=experts)
    assert origin.listed == (2, 3)


def test_the_gradient_of_an_expert_is_its_ranks_where_the_others_got_clean_ones_back() -> None:
    experts = mesh(("dp", 2), ("ep", 4))
    forward = (sight("nonfinite_act", clean=EIGHT), sight("loss", clean=EIGHT), sight("grad_norm", EIGHT))
    counted = (sight("nonfinite_grad", [5], but(5)), *forward)
    of_expert = trace(
        sight("local_grad_norm/expert", [5], but(5)),
        sight("local_grad_norm", clean=EIGHT),
        *counted,
        layout=experts,
    )
    of_the_rest = trace(
        sight("local_grad_norm/expert", clean=EIGHT),
        sight("local_grad_norm", [5], but(5)),
        *counted,
        layout=experts,
    )
    assert (of_expert.listed, of_expert.phase, of_expert.is_reduce_in_clean) == ((5,), Phase.REDUCE_IN, False)
    # An expert elsewhere may have handed back what spoiled it, and shows nothing of that.
    assert of_the_rest.listed == (4, 5, 6, 7)


def test_the_first_bad_microbatch_speaks_for_the_iteration() -> None:
    origin = trace(
        sight("loss", [5], but(5), microbatch=2),
        sight("loss", [1, 5], but(1, 5), microbatch=3),
        sight("loss", EIGHT),
    )
    assert (origin.listed, origin.microbatch) == ((5,), 2)
    assert origin.bad_ranks == tuple(EIGHT)


def test_a_bad_input_is_before_the_loss_it_makes() -> None:
    origin = trace(
        sight("nonfinite_input", [3], but(3)), sight("loss", [3], but(3)), sight("grad_norm", EIGHT)
    )
    assert (origin.listed, origin.phase, origin.metric) == ((3,), Phase.DATA, "nonfinite_input")


def test_a_parameter_that_is_bad_on_one_holder_was_not_bad_in_the_update() -> None:
    assert trace(sight("nonfinite_param", [3], but(3))).listed == (3,)


def test_a_local_norm_under_an_agreed_name_is_taken_before_the_reduction() -> None:
    sights = [sight("grad_norm", [4], but(4))]
    origin = trace(*sights, roles={"grad_norm": Role.LOCAL})
    assert (origin.listed, origin.phase) == ((4,), Phase.REDUCE_IN)
    assert stage_of("loss", Role.GLOBAL) is Stage.MEAN_LOSS


def test_a_reduced_loss_accuses_every_rank_and_a_finite_one_clears_every_forward() -> None:
    assert trace(sight("loss", EIGHT), roles={"loss": Role.GLOBAL}).is_all
    cleared = trace(sight("global_loss", clean=EIGHT), sight("local_grad_norm", [1], []))
    assert cleared.listed == (1,)


def test_gathered_shards_can_have_come_from_any_owner_unless_one_rank_got_them_clean() -> None:
    shards = mesh(("dp", 4), sharding="zero3")
    assert trace(sight("loss", range(4)), layout=shards).is_all
    assert trace(sight("loss", [1], [0, 2, 3]), layout=shards).listed == (1,)


def test_ranks_of_the_layout_that_never_report_are_not_cleared() -> None:
    origin = trace(sight("local_grad_norm", clean=range(6)), sight("grad_norm", range(6)))
    assert origin.listed == (6, 7)


def test_nothing_bad_has_no_origin() -> None:
    assert trace_nonfinite([sight("loss", clean=EIGHT)], layout=DP8) is None


def test_edges_run_forward_except_between_pipeline_stages_and_layers() -> None:
    back = {"NEXT", "PREVIOUS", "NEXT_ANY", "PREVIOUS_ANY"}
    for plan in (Plan(), Plan("zero1", clips=False, skips=False), Plan("zero3"), Plan("hsdp")):
        loops = [edge for edge in edges_of(plan) if edge.source >= edge.target and edge.via.name not in back]
        assert {(edge.source, edge.target) for edge in loops} == {
            (Stage.ACTIVATION, Stage.COMPUTE),
            (Stage.ACTIVATION_GRAD, Stage.BACKPROP),
        }
        assert not any(edge.passes for edge in loops)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_the_true_culprit_is_always_among_the_suspects(data: st.DataObject) -> None:
    """A simulated NaN: it passes the edges of the textbook layout, and ranks report some of what they see."""
    layout = data.draw(st.sampled_from([DP8, TP2, PP4, mesh(("pp", 2), ("dp", 2), ("tp", 2))]))
    culprit = data.draw(st.sampled_from(sorted(layout.coordinates)))
    groups = groups_of(layout, np.array(sorted(layout.coordinates), np.int32))
    stage_R, replica_R = groups.stage_R, groups.replica_R
    in_replica_R = replica_R == replica_R[culprit]
    forward_R = in_replica_R & (stage_R > stage_R[culprit])
    forward_R |= groups.collective_R == groups.collective_R[culprit]
    bad = {
        "nonfinite_act": forward_R,
        "loss": forward_R & (stage_R == groups.stages - 1),
        "local_grad_norm": in_replica_R,
        "grad_norm": np.ones(8, np.bool_),
    }
    # Only the last stage has a loss; of all else a random part is reported.
    sights = []
    for metric, bad_R in bad.items():
        eligible = [r for r in EIGHT if metric != "loss" or stage_R[r] == groups.stages - 1]
        seen = data.draw(st.sets(st.sampled_from(eligible)))
        sights.append(sight(metric, [r for r in seen if bad_R[r]], [r for r in seen if not bad_R[r]]))
    origin = trace_nonfinite([one for one in sights if len(one.ranks_R)], layout=layout)
    if origin is not None:
        assert culprit in origin.ranks


@pytest.mark.parametrize("axes", [[("dp", 100_000)], [("pp", 16), ("dp", 780), ("tp", 8)]])
def test_a_hundred_thousand_ranks_are_traced_in_moments(axes: list[tuple[str, int]]) -> None:
    layout = mesh(*axes)
    ranks = range(len(layout.coordinates))
    sights = [sight("loss", [5], but(5, ranks=ranks)), sight("grad_norm", ranks)]
    start = time.process_time()
    origin = trace(*sights, layout=layout)
    # 5 s: about thirty times what it takes, since the machine may be busy; a pass per rank takes hours.
    assert time.process_time() - start < 5
    assert 5 in origin.ranks and len(origin.ranks) <= 128


def test_group_numbers_are_those_of_the_layout() -> None:
    layout = mesh(("pp", 2), ("dp", 3), ("cp", 2), ("tp", 2))
    ranks = np.array(sorted(layout.coordinates), np.int32)
    groups = groups_of(layout, ranks)
    free = {"collective_R": ("tp", "cp", "ep"), "tensor_R": ("tp",), "replica_R": ("tp", "cp", "ep", "pp")}
    for name, along in free.items():
        number_R = getattr(groups, name)
        keys = [layout.group_key(int(rank), along) for rank in ranks]
        for a, b in zip(range(0, len(ranks), 5), range(1, len(ranks), 5), strict=False):
            assert (number_R[a] == number_R[b]) == (keys[a] == keys[b])
        assert len(np.unique(number_R)) == len(set(keys))


def test_a_checksum_names_its_ranks_and_a_tie_says_what_would_split_it() -> None:
    odd = trace_ranks(divergence([3], 1200, 1190), ranks=EIGHT, layout=DP8)
    pair = trace_ranks(divergence([0, 1], 1200, 1190, is_tie=True), ranks=range(2), layout=mesh(("dp", 2)))
    assert (odd.listed, odd.is_tie, odd.phase) == ((3,), False, Phase.STATE)
    assert (pair.ranks, pair.is_tie, pair.is_all) == ((0, 1), True, True)
    assert "third replica" in pair.note


@pytest.mark.parametrize(
    ("layout", "suspects"),
    [
        (DP8, (3,)),
        (mesh(("dp", 4), ("tp", 2)), (2, 3)),
        (mesh(("pp", 2), ("dp", 2), ("tp", 2)), (2, 3, 6, 7)),
    ],
)
def test_a_canary_accuses_the_whole_model_parallel_group(layout: Layout, suspects: tuple[int, ...]) -> None:
    canary = divergence([3], 1200, 1190, metric="canary_checksum", sights=())
    origin = trace_ranks(canary, ranks=EIGHT, layout=layout)
    assert (origin.listed, origin.is_tie, origin.phase) == (suspects, len(suspects) > 1, Phase.BACKWARD)


def test_a_fully_sharded_canary_accuses_its_shard_group_less_the_clean_ranks() -> None:
    shards = mesh(("dp", 4), sharding="zero3")
    seen = (sight("canary_checksum", [3], [0, 1], iteration=1200),)
    canary = divergence([3], 1200, 1190, metric="canary_checksum", sights=seen)
    assert trace_ranks(canary, ranks=range(4), layout=shards).listed == (2, 3)
