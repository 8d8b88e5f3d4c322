"""Votes on checksums inside equality groups. Axes: T checks, R ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detectors.checksum_vote import ChecksumVote
from detectors.evidence import Certainty, Check, CheckState, Evidence, Pattern
from firstfault.mesh import Layout
from firstfault.telemetry import EventKind
from ingest.blocks import IterationBlock

from .block_builders import (
    Findings,
    block,
    canonical,
    data_parallel,
    event,
    evidence_in,
    masked,
    mesh,
    one_at_a_time,
    run,
)

T = 20


def sums(ranks: int, *, classes: list[int] | None = None) -> Any:
    """Checksums of T × ranks that change at every check; ranks of one class are equal."""
    class_R = np.array(classes or [0] * ranks)
    return (np.arange(T)[:, None] * 1009 + class_R * 7 + 1).astype(np.int64)


def spoiled(ranks: int, rank: int, start: int, stop: int = T, **kwargs: Any) -> Any:
    values_TR = sums(ranks, **kwargs)
    values_TR[start:stop, rank] += 500_000
    return values_TR


def findings_of(whole: IterationBlock) -> Findings:
    found = run(ChecksumVote(), [whole])
    assert canonical(run(ChecksumVote(), one_at_a_time(whole))) == canonical(found)
    return found


def evidence_of(whole: IterationBlock) -> list[Evidence]:
    return evidence_in(findings_of(whole))


def only(whole: IterationBlock) -> Evidence:
    (evidence,) = evidence_of(whole)
    return evidence


def check_of(whole: IterationBlock) -> Check:
    detector = ChecksumVote()
    detector.update(whole)
    return detector.check()


@pytest.mark.parametrize("layout", [None, data_parallel(8)], ids=["learned", "layout"])
def test_the_odd_replica_is_named_with_the_interval(layout: Layout | None) -> None:
    evidence = only(block(param_checksum=spoiled(8, 3, 12), iterations=np.arange(T) * 10, layout=layout))
    assert (evidence.ranks, evidence.is_tie, evidence.certainty) == ((3,), False, Certainty.CONFIRMED)
    assert (evidence.last_clean, evidence.first_bad) == (110, 120)
    assert evidence.pattern is Pattern.REPLICA_DIVERGENCE
    assert (evidence.statistic, evidence.threshold) == (1.0, 0.0)
    (sight,) = evidence.sights
    assert list(sight.ranks_R[sight.bad_R]) == [3]
    assert list(sight.ranks_R[sight.clean_R]) == [0, 1, 2, 4, 5, 6, 7]


def test_the_detail_shows_both_values_in_hexadecimal() -> None:
    values = np.array([["ab", "AB", "0xab"], ["cd", "cd", "ce"]], dtype=object)
    evidence = only(block(param_checksum=values, layout=data_parallel(3)))
    assert (evidence.detail["majority"], evidence.detail["minority"]) == (f"{0xCD:016x}", f"{0xCE:016x}")


def test_a_difference_in_the_upper_64_bits_is_seen() -> None:
    values = np.array([[1, 1, 1], [1 << 100, 1 << 100, 1 << 101]], dtype=object)
    assert only(block(param_checksum=values, layout=data_parallel(3))).ranks == (2,)


def test_of_two_replicas_either_may_be_the_one() -> None:
    evidence = only(block(param_checksum=spoiled(2, 1, 12), layout=data_parallel(2)))
    assert (evidence.ranks, evidence.is_tie, evidence.statistic) == ((0, 1), True, 1.0)
    assert evidence.certainty is Certainty.CONFIRMED


def test_two_learned_replicas_must_differ_twice() -> None:
    whole = block(param_checksum=spoiled(2, 1, 12, 13))
    assert only(whole).certainty is Certainty.SUSPECTED
    assert only(block(param_checksum=spoiled(2, 1, 12))).certainty is Certainty.CONFIRMED


def test_a_tie_of_two_values_is_a_tie_of_all() -> None:
    values = sums(4)
    values[12:, 2:] += 500_000
    evidence = only(block(param_checksum=values, layout=data_parallel(4)))
    assert (evidence.ranks, evidence.is_tie) == ((0, 1, 2, 3), True)


def test_two_ranks_that_turn_odd_at_once_are_both_named() -> None:
    values = spoiled(8, 3, 12)
    values[12:, 6] += 900_000
    assert only(block(param_checksum=values)).ranks == (3, 6)


def test_a_rank_that_turns_odd_later_is_evidence_of_its_own() -> None:
    values = spoiled(8, 3, 12)
    values[15:, 6] += 900_000
    first, second = evidence_of(block(param_checksum=values))
    assert ((first.ranks, first.first_bad), (second.ranks, second.first_bad)) == (((3,), 12), ((6,), 15))
    assert list(second.sights[0].ranks_R[second.sights[0].bad_R]) == [3, 6]


def test_a_rank_that_is_equal_again_keeps_its_evidence_and_its_key() -> None:
    values = spoiled(8, 3, 12, 14)
    values[17:, 3] += 500_000
    evidence = only(block(param_checksum=values))
    assert (evidence.first_bad, evidence.detail["equal_again_at"]) == (12, 14)
    assert evidence.certainty is Certainty.CONFIRMED


def test_missing_checks_widen_the_interval_and_accuse_nobody() -> None:
    absent = np.zeros((T, 8), bool)
    absent[10:15, 3] = True
    evidence = only(block(param_checksum=masked(spoiled(8, 3, 12), absent)))
    assert (evidence.last_clean, evidence.first_bad) == (9, 15)


def test_groups_follow_the_mesh() -> None:
    layout = mesh([("dp", 4), ("tp", 2)])
    classes = [0, 1] * 4
    assert evidence_of(block(param_checksum=sums(8, classes=classes), layout=layout)) == []
    assert only(block(param_checksum=spoiled(8, 5, 12, classes=classes), layout=layout)).ranks == (5,)


def test_groups_of_an_unknown_mesh_are_learned() -> None:
    classes = [0, 1] * 4
    assert evidence_of(block(param_checksum=sums(8, classes=classes))) == []
    assert only(block(param_checksum=spoiled(8, 5, 12, classes=classes))).ranks == (5,)


def test_a_fault_at_the_second_check_is_not_learned_as_normal() -> None:
    evidence = only(block(param_checksum=spoiled(8, 5, 1)))
    assert (evidence.ranks, evidence.last_clean, evidence.first_bad) == ((5,), 0, 1)


def test_a_rank_that_is_odd_from_the_start_is_suspected() -> None:
    evidence = only(block(param_checksum=spoiled(8, 5, 0)))
    assert (evidence.ranks, evidence.certainty, evidence.last_clean) == ((5,), Certainty.SUSPECTED, None)


def test_state_that_differs_everywhere_has_no_groups_and_the_check_says_so() -> None:
    whole = block(optim_checksum=sums(4, classes=[0, 1, 2, 3]))
    assert evidence_of(whole) == []
    assert check_of(whole).state is CheckState.NOT_RUN
    assert "no groups" in check_of(whole).why


def test_moments_that_are_equal_only_while_they_are_zero_accuse_nobody() -> None:
    values = sums(4, classes=[0, 1, 2, 3])
    values[0] = 77
    assert evidence_of(block(optim_checksum=values)) == []


def test_a_rank_that_joins_is_compared_from_its_first_equal_check_on() -> None:
    absent = np.zeros((T, 8), bool)
    absent[:10, 7] = True
    whole = block(param_checksum=masked(spoiled(8, 7, 14), absent))
    evidence = only(whole)
    assert (evidence.ranks, evidence.last_clean, evidence.first_bad) == ((7,), 13, 14)


@pytest.mark.parametrize(
    ("metric", "sharding", "is_compared"),
    [
        ("optim_checksum", "none", True),
        ("optim_checksum", "zero1", False),
        ("param_checksum", "zero1", True),
        ("grad_checksum", "zero2", False),
        ("param_checksum", "zero3", False),
        ("param_checksum", "hsdp", False),
    ],
)
def test_sharded_state_is_not_compared(metric: str, sharding: str, is_compared: bool) -> None:
    whole = block({metric: spoiled(8, 3, 12)}, layout=data_parallel(8, sharding=sharding))
    assert bool(evidence_of(whole)) is is_compared
    assert (check_of(whole).state is CheckState.RAN) is is_compared


def test_hybrid_sharding_compares_along_the_axis_that_replicates() -> None:
    layout = mesh([("dp_replicate", 3), ("dp_shard", 2)], sharding="hsdp")
    whole = block(param_checksum=spoiled(6, 4, 12, classes=[0, 1] * 3), layout=layout)
    assert only(whole).ranks == (4,)


def test_experts_are_compared_over_their_own_replicas_only() -> None:
    layout = mesh([("dp", 3), ("ep", 2)])
    classes = [0, 1] * 3
    assert evidence_of(block({"param_checksum/expert": sums(6, classes=classes)}, layout=layout)) == []
    assert only(
        block({"param_checksum/expert": spoiled(6, 2, 12, classes=classes)}, layout=layout)
    ).ranks == (2,)


def test_canaries_are_compared_on_the_same_device_model_only() -> None:
    layout = data_parallel(8)
    mixed = Layout(
        axes=layout.axes,
        coordinates=layout.coordinates,
        devices={rank: "H100" if rank < 4 else "H200" for rank in range(8)},
    )
    classes = [0] * 4 + [1] * 4
    assert evidence_of(block(canary_checksum=sums(8, classes=classes), layout=mixed)) == []
    evidence = only(block(canary_checksum=spoiled(8, 6, 12, classes=classes), layout=mixed))
    assert (evidence.ranks, evidence.pattern) == ((6,), Pattern.COMPUTE_MISMATCH)


def test_canaries_on_unknown_devices_are_compared_where_they_were_equal() -> None:
    layout = mesh([("dp", 8)], device="")
    classes = [0] * 4 + [1] * 4
    assert evidence_of(block(canary_checksum=sums(8, classes=classes), layout=layout)) == []
    assert only(block(canary_checksum=spoiled(8, 6, 12, classes=classes), layout=layout)).ranks == (6,)


def test_a_canary_under_tensor_parallelism_names_the_group_that_computed_it() -> None:
    layout = mesh([("dp", 4), ("tp", 2)])
    values = spoiled(8, 4, 12)
    values[12:, 5] = values[12:, 4]
    first, second = evidence_of(block(canary_checksum=values, layout=layout))
    assert first.ranks == second.ranks == (4, 5)
    assert first.is_tie


def test_the_loss_of_a_canary_must_be_bit_equal() -> None:
    loss = np.arange(T)[:, None] * np.ones(8)
    loss[12:, 3] = np.nextafter(loss[12:, 3], 1e9)
    evidence = only(block(canary_loss=loss, layout=data_parallel(8)))
    assert (evidence.ranks, evidence.pattern) == ((3,), Pattern.COMPUTE_MISMATCH)


def test_reduced_gradients_accuse_the_collective() -> None:
    evidence = only(block(grad_checksum=spoiled(8, 3, 12), layout=data_parallel(8)))
    assert evidence.pattern is Pattern.COLLECTIVE_MISMATCH


def test_nothing_is_compared_across_a_change_of_membership() -> None:
    values = sums(8, classes=[0] * 8)
    values[10:] = sums(8, classes=[0, 1] * 4)[10:]
    assert evidence_of(block(param_checksum=values)) != []
    change = event(EventKind.MEMBERSHIP, 10)
    assert evidence_of(block(param_checksum=values, events=[change])) == []


def test_nothing_is_compared_across_a_change_of_the_layout() -> None:
    before = block(param_checksum=sums(8), layout=data_parallel(8))
    after = block(
        param_checksum=sums(8, classes=[0, 1] * 4),
        iterations=np.arange(T) + T,
        layout=mesh([("dp", 4), ("tp", 2)]),
    )
    assert evidence_in(run(ChecksumVote(), [before, after])) == []


def test_a_new_attempt_that_begins_odd_says_that_the_majority_may_be_wrong() -> None:
    evidence = only(block(param_checksum=spoiled(8, 3, 0), layout=data_parallel(8), attempt=1))
    assert evidence.last_clean is None
    assert "majority may be the corrupted side" in str(evidence.detail["note"])


def test_replicas_that_never_agreed_are_only_suspected() -> None:
    whole = block(param_checksum=sums(4, classes=[0, 1, 2, 3]), layout=data_parallel(4))
    assert only(whole).certainty is Certainty.SUSPECTED


def test_one_rank_has_nothing_to_compare_and_the_check_says_so() -> None:
    assert check_of(block(param_checksum=sums(1))).why == "checksums come from one rank only"


def test_checksums_that_nobody_declared_are_not_compared() -> None:
    assert findings_of(block(data_order_checksum=spoiled(8, 3, 12), layout=data_parallel(8))) == {}


def test_ranks_that_read_the_same_data_again_and_again_are_named() -> None:
    values = sums(4, classes=[0, 1, 2, 3])
    values[12:, 3] = values[12:, 1]
    evidence = only(block(data_checksum=values, layout=data_parallel(4)))
    assert (evidence.ranks, evidence.is_tie, evidence.supporting) == ((1, 3), True, False)
    assert (evidence.last_clean, evidence.first_bad) == (11, 12)


def test_ranks_that_read_the_same_data_once_only_support() -> None:
    values = sums(4, classes=[0, 1, 2, 3])
    values[12, 3] = values[12, 1]
    assert only(block(data_checksum=values, layout=data_parallel(4))).supporting


def test_ranks_of_one_tensor_parallel_group_must_read_the_same() -> None:
    layout = mesh([("dp", 2), ("tp", 3)])
    evidence = only(block(data_checksum=spoiled(6, 4, 12, classes=[0] * 3 + [1] * 3), layout=layout))
    assert evidence.ranks == (4,)


def test_ten_thousand_broken_groups_are_told_of_in_bounds() -> None:
    values = np.arange(20_000).repeat(1).reshape(1, -1).repeat(2, axis=0)
    layout = mesh([("pp", 10_000), ("dp", 2)])
    found = evidence_in(run(ChecksumVote(), [block(param_checksum=values, layout=layout)]))
    assert 1 < len(found) <= 256


def test_ranks_that_join_one_after_the_other_are_compared_with_those_before_them() -> None:
    absent = np.zeros((T, 8), bool)
    absent[:8, 6] = absent[:7, 7] = True
    values = sums(8)
    values[7:, 7] += 500_000
    values[8:, 6] += 500_000
    assert evidence_of(block(param_checksum=masked(values, absent))) == []


def test_ranks_that_are_gone_at_the_second_check_are_in_no_class() -> None:
    absent = np.zeros((T, 4), bool)
    absent[1:, 2:] = True
    assert evidence_of(block(param_checksum=masked(sums(4, classes=[0, 0, 1, 1]), absent))) == []


def test_a_replicated_layer_that_parts_along_tp_alone_in_a_pipeline_accuses_every_stage() -> None:
    layout = mesh([("pp", 2), ("dp", 2), ("tp", 2)])
    sums_TR = np.repeat(np.arange(1, 31)[:, None], 8, axis=1)
    along_tp, alone = sums_TR.copy(), sums_TR.copy()
    along_tp[20:, [1, 3]] += 500
    alone[20:, 1] += 500
    metric = "param_checksum/tp_replicated"
    (tie,) = evidence_in(run(ChecksumVote(), [block({metric: along_tp}, layout=layout)]))
    (odd,) = evidence_in(run(ChecksumVote(), [block({metric: alone}, layout=layout)]))
    assert (tie.ranks, tie.is_tie, odd.ranks) == (tuple(range(8)), True, (1,))
    assert "before the reduction" in str(tie.detail["suspects"])


@pytest.mark.parametrize(
    ("weights", "biases", "certainties"),
    [
        ([7, 7], [1, 2], [Certainty.CONFIRMED]),
        ([7, 8], [1, 1], [Certainty.SUSPECTED]),
        ([7, 8], [1, 2], [Certainty.SUSPECTED, Certainty.SUSPECTED]),
        ([7, 7], [1, 1], []),
    ],
    ids=["bias differs", "a split weight", "all split", "all equal"],
)
def test_what_is_printed_once_is_compared_where_a_log_holds_nothing_else(
    weights: list[int], biases: list[int], certainties: list[Certainty]
) -> None:
    printed = block({"param_checksum/l0.weight": [weights], "param_checksum/l0.bias": [biases]})
    detector = ChecksumVote()
    assert detector.update(printed) == []
    found = detector.finish()
    assert [one.certainty for one in found if isinstance(one, Evidence)] == certainties
    assert (detector.check().state is CheckState.RAN) == (weights[0] == weights[1] or biases[0] == biases[1])
    beside_a_loss = ChecksumVote()
    beside_a_loss.update(block({"loss": [[2.0, 2.0]], "param_checksum/l0.bias": [biases]}))
    assert beside_a_loss.finish() == []
