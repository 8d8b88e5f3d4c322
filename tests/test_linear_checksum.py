"""What comes out of a reduction is the sum of what went in. Axes: T iterations, R ranks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.evidence import Certainty, CheckState, Evidence, Pattern
from detectors.linear_checksum import MAX_BUCKETS, LinearChecksum
from detectors.linear_fit import FLOOR, LEARNED_CHECKS, Collective, Given, Sums, learn
from ingest.blocks import IterationBlock

from .block_builders import block, canonical, cut, evidence_in, masked, mesh, one_at_a_time, run
from .record_builders import event

T, R = 120, 8
AT = 80


def sent(ranks: int = R, iterations: int = T) -> Any:
    return np.random.default_rng(5).normal(0.0, 3.0, (iterations, ranks))


def reduced(in_TR: Any, factor: float = 1 / R, noise: float = 1e-8) -> Any:
    """The result that every rank of an all-reduce gets."""
    rng = np.random.default_rng(6)
    total_T1 = factor * in_TR.sum(axis=1, keepdims=True) + rng.normal(0.0, noise, (len(in_TR), 1))
    return total_T1.repeat(in_TR.shape[1], axis=1)


def scattered(in_TR: Any, factor: float = 1.0) -> Any:
    """A shard for each rank: random parts of the result."""
    share_TR = np.random.default_rng(7).normal(0.0, 1.0, in_TR.shape)
    share_TR[:, -1] = factor * in_TR.sum(axis=1) - share_TR[:, :-1].sum(axis=1)
    return share_TR


def sketches(in_TR: Any, out_TR: Any, bucket: str = "", **more: Any) -> IterationBlock:
    names = {f"grad_sketch_in{bucket}": in_TR, f"grad_sketch_out{bucket}": out_TR}
    return block({**names, **{name: more.pop(name) for name in ("skipped",) if name in more}}, **more)


def found(whole: IterationBlock) -> list[Evidence]:
    findings = run(LinearChecksum(), [whole])
    assert canonical(run(LinearChecksum(), one_at_a_time(whole))) == canonical(findings)
    return evidence_in(findings)


def only(whole: IterationBlock) -> Evidence:
    (evidence,) = found(whole)
    return evidence


def why(whole: IterationBlock) -> str:
    detector = LinearChecksum()
    detector.update(whole)
    assert detector.check().state is CheckState.NOT_RUN
    return detector.check().why


def test_the_rank_that_gets_another_result_is_named() -> None:
    in_TR = sent()
    out_TR = reduced(in_TR)
    out_TR[AT, 3] *= 2.0
    evidence = only(sketches(in_TR, out_TR))
    assert (evidence.ranks, evidence.first_bad, evidence.last_clean) == ((3,), AT, AT - 1)
    assert (evidence.pattern, evidence.certainty) == (Pattern.COLLECTIVE_MISMATCH, Certainty.CONFIRMED)
    assert evidence.detail["reduction"] == "result_differs"
    assert evidence.detail["factor"] == 1 / R
    assert evidence.sights[0].bad_R.tolist() == [rank == 3 for rank in range(R)]


@pytest.mark.parametrize(("sign", "fault"), [(-1, "contribution_missing"), (1, "contribution_doubled")])
@pytest.mark.parametrize("is_scattered", [False, True])
def test_the_rank_whose_contribution_is_missing_or_doubled_is_named(
    sign: int, fault: str, is_scattered: bool
) -> None:
    in_TR = sent()
    entered_TR = in_TR.copy()
    entered_TR[AT:, 5] *= 1 + sign
    out_TR = scattered(entered_TR) if is_scattered else reduced(entered_TR)
    evidence = only(sketches(in_TR, out_TR))
    assert (evidence.ranks, evidence.first_bad, evidence.is_tie) == ((5,), AT, False)
    assert evidence.detail["reduction"] == fault
    assert evidence.detail["collective"] == ("reduce_scatter" if is_scattered else "all_reduce")


def test_a_wrong_sum_that_no_contribution_explains_is_a_tie_of_the_group() -> None:
    in_TR = sent()
    out_TR = reduced(in_TR)
    out_TR[AT:] += 0.37
    evidence = only(sketches(in_TR, out_TR))
    assert (evidence.ranks, evidence.is_tie) == (tuple(range(R)), True)
    assert evidence.detail["reduction"] == "sum_differs"
    # the statistic, by hand
    expected = math.fsum(in_TR[AT]) / R
    scale = abs(out_TR[AT, 0]) + math.fsum(map(abs, in_TR[AT])) / R
    assert evidence.statistic <= abs(out_TR[AT, 0] - expected) / scale * (1 + 1e-12)
    assert evidence.statistic > evidence.threshold


@pytest.mark.parametrize("factor", [1.0, 1 / R, 0.31])
@pytest.mark.parametrize("is_scattered", [False, True])
def test_sum_mean_and_any_other_factor_are_learned(factor: float, is_scattered: bool) -> None:
    in_TR = sent()
    out_TR = scattered(in_TR, factor) if is_scattered else reduced(in_TR, factor)
    checks = [Sums.of(t, in_TR[t].tolist(), out_TR[t].tolist()) for t in range(LEARNED_CHECKS)]
    fit = learn(checks, R, Given())
    assert fit is not None
    assert fit.collective is (Collective.REDUCE_SCATTER if is_scattered else Collective.ALL_REDUCE)
    assert fit.factor == pytest.approx(factor, rel=1e-7)
    assert found(sketches(in_TR, out_TR)) == []


def test_wrong_checks_while_learning_do_not_move_the_relation() -> None:
    in_TR = sent()
    out_TR = reduced(in_TR)
    out_TR[:12] += 1.0
    out_TR[AT:, 2] += 1.0
    evidence = only(sketches(in_TR, out_TR))
    assert (evidence.ranks, evidence.first_bad) == ((2,), AT)


def test_what_the_run_start_says_of_the_reduction_is_believed() -> None:
    in_TR = sent()
    start = event("run_start", 0, grad_reduction="sum", grad_collective="all_reduce")
    mean = sketches(in_TR, reduced(in_TR), events=[start])
    assert why(mean) == "what comes out is no multiple of the sum of what goes in, from the start"
    assert found(sketches(in_TR, reduced(in_TR, 1.0), events=[start])) == []


@pytest.mark.parametrize("said", ["product", True, math.nan, -2.0, 0.0, [1], None])
def test_a_reduction_that_is_none_is_learned_instead(said: object) -> None:
    assert Given.of({"grad_reduction": said, "grad_collective": said}) == Given()


def test_noise_of_low_precision_is_no_fault_and_sets_the_tolerance() -> None:
    in_TR = sent(iterations=2000)
    out_TR = reduced(in_TR, noise=2e-3)
    assert found(sketches(in_TR, out_TR)) == []
    out_TR[1500:] += 0.5
    evidence = only(sketches(in_TR, out_TR))
    assert evidence.first_bad == 1500
    assert evidence.threshold > 10 * FLOOR


def test_one_check_just_beyond_the_tolerance_is_suspected_and_two_confirm() -> None:
    in_TR = sent()
    for stop, certainty in ((AT + 1, Certainty.SUSPECTED), (AT + 2, Certainty.CONFIRMED)):
        out_TR = reduced(in_TR, noise=0.0)
        out_TR[AT:stop] += 3e-5
        evidence = only(sketches(in_TR, out_TR))
        assert (evidence.certainty, evidence.first_bad) == (certainty, AT)
        assert evidence.detail["wrong_checks"] == stop - AT


def test_faults_far_apart_are_two_pieces_of_evidence() -> None:
    in_TR = sent(iterations=200)
    out_TR = reduced(in_TR)
    out_TR[100, 1] += 1.0
    out_TR[150, 6] += 1.0
    assert [(one.first_bad, one.ranks) for one in found(sketches(in_TR, out_TR))] == [
        (100, (1,)),
        (150, (6,)),
    ]


def test_a_second_rank_that_goes_wrong_later_is_told_of() -> None:
    in_TR = sent()
    out_TR = reduced(in_TR)
    out_TR[AT:, 1] += 1.0
    out_TR[AT + 5 :, 6] += 1.0
    evidence = only(sketches(in_TR, out_TR))
    assert (evidence.ranks, evidence.later_ranks) == ((1,), ((AT + 5, 6),))


def test_a_skip_a_missing_member_and_a_value_that_is_no_number_make_a_check_void() -> None:
    in_TR = sent()
    out_TR = reduced(in_TR)
    skipped = np.zeros(in_TR.shape)
    skipped[AT, 4] = 1.0
    out_TR[AT] += 9.0
    out_TR[AT + 1] = [np.inf] * (R - 1) + [np.nan]
    in_TR[AT + 2, 0] = np.nan
    out_TR[AT + 3] += 9.0
    absent_TR = np.zeros(in_TR.shape, bool)
    absent_TR[AT + 3, 7] = True
    assert found(sketches(masked(in_TR, absent_TR), out_TR, skipped=skipped)) == []


def test_each_tensor_parallel_group_reduces_for_itself() -> None:
    layout = mesh((("dp", 4), ("tp", 2)))
    in_TR = sent()
    out_TR = np.zeros_like(in_TR)
    for tp in range(2):
        out_TR[:, tp::2] = reduced(in_TR[:, tp::2], 1 / 4)
    assert found(sketches(in_TR, out_TR, layout=layout)) == []
    out_TR[AT:, 1::2] += 1.0
    evidence = only(sketches(in_TR, out_TR, layout=layout))
    assert (evidence.ranks, evidence.is_tie) == ((1, 3, 5, 7), True)
    # the sums over both groups add up too, so that without a layout the fault is seen, less exactly placed
    assert only(sketches(in_TR, out_TR)).ranks == tuple(range(R))


def test_buckets_are_apart_and_the_wrong_one_is_named() -> None:
    in_TR = sent()
    good_TR, bad_TR = reduced(in_TR), reduced(in_TR)
    bad_TR[AT:, 2] += 1.0
    names = {"grad_sketch_in/0": in_TR, "grad_sketch_out/0": good_TR}
    names |= {"grad_sketch_in/1": in_TR, "grad_sketch_out/1": bad_TR}
    assert only(block(names)).metric == "grad_sketch_out/1"


def test_a_group_without_a_layout_learns_anew_when_a_rank_joins() -> None:
    in_TR = sent()
    absent_TR = np.zeros(in_TR.shape, bool)
    absent_TR[:50, 7] = True
    present = np.where(absent_TR, 0.0, in_TR)
    count_T1 = (~absent_TR).sum(axis=1, keepdims=True)
    out_TR = (present.sum(axis=1, keepdims=True) / count_T1).repeat(R, axis=1)
    out_TR[AT + 10 :, 0] += 1.0
    whole = sketches(masked(in_TR, absent_TR), masked(out_TR, absent_TR))
    evidence = only(whole)
    assert (evidence.ranks, evidence.first_bad, evidence.last_clean) == ((0,), AT + 10, AT + 9)


def test_ranks_that_the_launch_promised_and_that_never_report_void_every_check() -> None:
    in_TR = sent()
    whole = sketches(in_TR, reduced(in_TR), events=[event("run_start", 0, world_size=9)])
    assert why(whole).startswith("no reduction was reported by all ranks")


@pytest.mark.parametrize(
    ("whole", "reason"),
    [
        (block(loss=np.ones((5, 2))), "no grad_sketch_in and grad_sketch_out were reported"),
        (block(grad_sketch_in=sent()), "no reduction was reported by all ranks of a group"),
        (sketches(sent(1), sent(1)), "no reduction was reported by all ranks of a group"),
        (sketches(sent(iterations=9), reduced(sent(iterations=9))), "fewer than 33 reductions"),
        (sketches(sent(), sent()[::-1].copy()), "what comes out is no multiple"),
        (sketches(np.zeros((T, R)), np.zeros((T, R))), "what comes out is no multiple"),
    ],
)
def test_it_says_why_it_could_not_run(whole: IterationBlock, reason: str) -> None:
    assert why(whole).startswith(reason)
    assert found(whole) == []


@pytest.mark.parametrize("size", [1e-310, 1e-160, 1e149, 1e160, 1.7e308])
def test_sketches_of_any_size_are_checked_or_passed_over(size: float) -> None:
    in_TR = np.clip(sent(), -1.0, 1.0) * size
    out_TR = (in_TR / R).sum(axis=1, keepdims=True).repeat(R, axis=1)
    assert found(sketches(in_TR, out_TR)) == []
    out_TR[AT:, 2] = size
    assert [one.ranks for one in found(sketches(in_TR, out_TR))] == ([(2,)] if size < 1e150 else [])
    mixed_TR = np.random.default_rng(1).choice([size, 1.0, -1e-300, 0.0], in_TR.shape)
    found(sketches(mixed_TR, mixed_TR[::-1].copy()))  # whatever it says, it does not fail


def test_names_with_numbers_in_them_do_not_fill_the_memory() -> None:
    detector = LinearChecksum()
    names = {f"grad_sketch_in/{at}": np.ones((1, 2)) for at in range(MAX_BUCKETS + 50)}
    detector.update(block(names))
    assert len(detector.snapshot()["buckets"]) == MAX_BUCKETS


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, T), max_size=6), seed=st.integers(0, 99), is_meshed=st.booleans())
def test_any_cutting_gives_the_same_findings(cuts: list[int], seed: int, is_meshed: bool) -> None:
    rng = np.random.default_rng(seed)
    in_TR = sent()
    out_TR = reduced(in_TR)
    for t in rng.integers(LEARNED_CHECKS, T, 6):
        out_TR[t : t + rng.integers(1, 12), rng.integers(0, R)] += rng.normal()
    absent_TR = rng.random(in_TR.shape) < 0.01
    absent_TR[: int(rng.integers(0, 40)), 3] = True
    layout = mesh((("dp", R),)) if is_meshed else None
    whole = sketches(masked(in_TR, absent_TR), masked(out_TR, rng.random(in_TR.shape) < 0.01), layout=layout)
    assert canonical(run(LinearChecksum(), cut(whole, cuts))) == canonical(run(LinearChecksum(), [whole]))


def test_shares_that_are_uneven_for_once_are_weighed_by_their_tokens_and_no_fault() -> None:
    in_TR = sent()
    token_TR = np.full(in_TR.shape, 4096.0)
    token_TR[T // 2, 1] = 2048.0
    out_TR = reduced(in_TR)
    out_TR[T // 2] = (in_TR[T // 2] * token_TR[T // 2]).sum() / token_TR[T // 2].sum()
    assert found(sketches(in_TR, out_TR, tokens=token_TR)) == []
    assert found(sketches(in_TR, out_TR)) != []


def clipped(at: float, level: float, iterations: int = 400) -> tuple[Any, Any, Any]:
    """(sketches before, behind a clipping to ``at``, the norms before it) of gradients around ``level``."""
    in_TR = sent(iterations=iterations)
    norm_TR = np.repeat(
        level * np.exp(np.random.default_rng(8).normal(0.0, 0.3, (iterations, 1))), R, axis=1
    ).round(5)
    return in_TR, reduced(in_TR) * np.minimum(1.0, at / norm_TR), norm_TR


@pytest.mark.parametrize("level", [0.5, 0.9, 3.0])
@pytest.mark.parametrize("at", [1.0, 0.73])
def test_a_sketch_behind_the_clipping_is_a_convention_and_what_goes_wrong_behind_it_is_found(
    at: float, level: float
) -> None:
    in_TR, out_TR, norm_TR = clipped(at, level * at)
    healthy = block(grad_sketch_in=in_TR, grad_sketch_out=out_TR, grad_norm=norm_TR)
    assert all(one.supporting for one in found(healthy))
    out_TR[380:, 2] *= 1.01
    odd = [
        one
        for one in found(block(grad_sketch_in=in_TR, grad_sketch_out=out_TR, grad_norm=norm_TR))
        if not one.supporting
    ]
    assert [(one.ranks, one.first_bad, one.certainty) for one in odd] == [((2,), 380, Certainty.CONFIRMED)]


@pytest.mark.parametrize("share", [0.5, 0.871])
def test_a_sum_that_comes_out_too_small_at_norms_that_were_never_clipped_is_wrong(share: float) -> None:
    in_TR, out_TR, norm_TR = clipped(1e9, 1.0)
    out_TR[AT : AT + 3] *= share
    evidence = only(block(grad_sketch_in=in_TR, grad_sketch_out=out_TR, grad_norm=norm_TR))
    assert (evidence.first_bad, evidence.certainty, evidence.is_tie) == (AT, Certainty.CONFIRMED, True)


def test_without_a_norm_a_sum_that_is_too_small_alike_everywhere_stays_a_suspicion() -> None:
    in_TR, out_TR, _ = clipped(1.0, 1.5)
    whole = sketches(in_TR[:200], np.where(np.arange(200)[:, None] < 100, reduced(in_TR[:200]), out_TR[:200]))
    assert {one.certainty for one in found(whole)} == {Certainty.SUSPECTED}


def test_a_loss_scale_that_is_divided_out_between_the_sketches_is_a_convention() -> None:
    in_TR = sent()
    scale_TR = np.where(np.arange(T)[:, None] < 70, 1024.0, 2048.0).repeat(R, axis=1)
    whole = block(grad_sketch_in=in_TR * scale_TR, grad_sketch_out=reduced(in_TR), loss_scale=scale_TR)
    assert found(whole) == []
