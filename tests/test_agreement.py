"""Numbers that all ranks must report the same. Axes: T iterations, R ranks."""

from __future__ import annotations

from typing import Any

import numpy as np

from detectors.agreement import Agreement
from detectors.evidence import Certainty, Check, CheckState, Evidence, Pattern
from ingest.blocks import IterationBlock

from .block_builders import block, canonical, evidence_in, mesh, one_at_a_time, run

T, R = 60, 8


def agreed(ranks: int = R) -> Any:
    return np.random.default_rng(0).uniform(1.0, 2.0, (T, 1)).repeat(ranks, axis=1)


def local(ranks: int = R) -> Any:
    return np.random.default_rng(0).uniform(1.0, 2.0, (T, ranks))


def spoiled(rank: int, start: int, stop: int = T, factor: float = 1.1, values: Any = None) -> Any:
    values_TR = agreed() if values is None else values
    values_TR[start:stop, rank] *= factor
    return values_TR


def evidence_of(whole: IterationBlock) -> list[Evidence]:
    found = run(Agreement(), [whole])
    assert canonical(run(Agreement(), one_at_a_time(whole))) == canonical(found)
    return evidence_in(found)


def only(whole: IterationBlock) -> Evidence:
    (evidence,) = evidence_of(whole)
    return evidence


def check_of(whole: IterationBlock) -> Check:
    detector = Agreement()
    detector.update(whole)
    return detector.check()


def test_the_rank_with_another_norm_is_named() -> None:
    evidence = only(block(grad_norm=spoiled(3, 40)))
    assert (evidence.ranks, evidence.last_clean, evidence.first_bad) == ((3,), 39, 40)
    assert (evidence.pattern, evidence.certainty) == (Pattern.COLLECTIVE_MISMATCH, Certainty.CONFIRMED)
    assert evidence.detail["minority"] == 1.1 * float(str(evidence.detail["majority"]))


def test_a_last_bit_that_differs_once_is_suspected_and_twice_confirmed() -> None:
    ulp = 1 + 2**-52
    assert only(block(grad_norm=spoiled(3, 40, 41, ulp))).certainty is Certainty.SUSPECTED
    assert only(block(grad_norm=spoiled(3, 40, 42, ulp))).certainty is Certainty.CONFIRMED


def test_norms_that_differ_by_rounding_from_the_start_have_a_tolerance() -> None:
    noise = 1 + 1e-7 * np.random.default_rng(1).standard_normal((T, R))
    assert evidence_of(block(grad_norm=agreed() * noise)) == []
    assert only(block(grad_norm=spoiled(3, 40, values=agreed() * noise))).ranks == (3,)


def test_norms_that_are_each_ranks_own_are_left_alone_and_the_check_says_so() -> None:
    whole = block(grad_norm=local())
    assert evidence_of(whole) == []
    assert check_of(whole).state is CheckState.NOT_RUN
    assert "local" in check_of(whole).why


def test_two_ranks_are_a_tie() -> None:
    evidence = only(block(global_loss=spoiled(1, 40, values=agreed(2))))
    assert (evidence.ranks, evidence.is_tie) == ((0, 1), True)


def test_nan_on_all_ranks_is_agreement_and_on_some_is_not_ours() -> None:
    everywhere, somewhere = agreed(), agreed()
    everywhere[40:] = np.nan
    somewhere[40:, 3] = np.nan
    assert evidence_of(block(grad_norm=everywhere)) == []
    assert evidence_of(block(grad_norm=somewhere)) == []


def test_a_loss_that_is_equal_everywhere_from_the_start_is_agreed() -> None:
    assert only(block(loss=spoiled(3, 40))).ranks == (3,)
    assert evidence_of(block(loss=local())) == []


def test_a_constant_on_all_ranks_shows_no_agreement() -> None:
    constant = np.ones((T, R))
    constant[40:] += 1e-9 * np.random.default_rng(2).standard_normal((T - 40, R))
    assert evidence_of(block(local_grad_norm=constant)) == []
    moving = np.where(np.arange(T)[:, None] < 20, 1.0, agreed())
    assert only(block(local_grad_norm=spoiled(3, 40, values=moving))).ranks == (3,)


def test_a_loss_is_agreed_inside_its_tensor_parallel_group() -> None:
    layout = mesh([("dp", 4), ("tp", 2)])
    values = local(4).repeat(2, axis=1)
    assert evidence_of(block(loss=values, layout=layout)) == []
    evidence = only(block(loss=spoiled(5, 40, values=values.copy()), layout=layout))
    assert (evidence.ranks, evidence.is_tie) == ((4, 5), True)


def test_a_learning_rate_that_differs_only_supports() -> None:
    assert only(block(lr=spoiled(3, 40))).supporting


def test_a_rank_that_never_agreed_is_only_suspected() -> None:
    assert only(block(grad_norm=spoiled(3, 0))).certainty is Certainty.SUSPECTED


def test_a_difference_inside_the_learning_positions_is_found_where_it_was() -> None:
    evidence = only(block(grad_norm=spoiled(3, 2)))
    assert (evidence.last_clean, evidence.first_bad) == (1, 2)


def test_a_number_that_agrees_again_keeps_its_evidence() -> None:
    evidence = only(block(grad_norm=spoiled(3, 40, 43)))
    assert evidence.detail["equal_again_at"] == 43


def test_one_rank_is_nothing_to_compare() -> None:
    assert "two ranks" in check_of(block(grad_norm=local(1))).why
