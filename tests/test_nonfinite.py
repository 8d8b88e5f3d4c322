"""Non-finite values: who was first, and what is benign. Axes: T iterations, R ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from detectors.evidence import Certainty, Evidence, Pattern
from detectors.nonfinite import Nonfinite
from firstfault.telemetry import WHOLE_ITERATION, EventKind
from ingest.blocks import IterationBlock

from .block_builders import (
    annotations_in,
    block,
    canonical,
    event,
    evidence_in,
    masked,
    mesh,
    one_at_a_time,
    run,
)

NAN, INF = float("nan"), float("inf")
T, R = 200, 8


def quiet(value: float = 2.0) -> Any:
    return np.full((T, R), value)


def own(value: float = 2.0) -> Any:
    """Values around ``value`` that differ from rank to rank, as local ones do."""
    return value * np.random.default_rng(0).uniform(0.9, 1.1, (T, R))


def with_value(
    value: float, start: int, stop: int = T, ranks: Sequence[int] = range(R), of: float = 2.0
) -> Any:
    """Values of T × R with ``value`` on some ranks in ``[start, stop)``; own ones unless all turn bad."""
    values_TR = own(of) if len(ranks) < R else quiet(of)
    values_TR[start:stop, list(ranks)] = value
    return values_TR


def findings_of(whole: IterationBlock) -> Any:
    """Findings, after checking that cutting does not change them."""
    found = run(Nonfinite(), [whole])
    assert canonical(run(Nonfinite(), one_at_a_time(whole))) == canonical(found)
    return found


def only(whole: IterationBlock) -> Evidence:
    """The one piece of evidence that ``whole`` gives."""
    (evidence,) = evidence_in(findings_of(whole))
    return evidence


def kinds(whole: IterationBlock) -> list[str]:
    return [annotation.kind for annotation in annotations_in(findings_of(whole))]


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_loss_that_turns_non_finite_is_confirmed_at_once_on_its_rank(value: float) -> None:
    evidence = only(block(loss=with_value(value, 70, ranks=[5])))
    assert (evidence.ranks, evidence.iteration, evidence.last_clean) == ((5,), 70, 69)
    assert (evidence.certainty, evidence.alarm_iteration) == (Certainty.CONFIRMED, 70)
    assert evidence.pattern is Pattern.IMMEDIATE_NONFINITE


def test_the_global_norm_of_the_same_iteration_makes_victims_and_no_first() -> None:
    evidence = only(block(loss=with_value(NAN, 70, ranks=[5]), grad_norm=with_value(NAN, 70)))
    assert (evidence.metric, evidence.ranks, evidence.is_tie) == ("loss", (5,), False)
    assert evidence.later_ranks == tuple((70, rank) for rank in range(R) if rank != 5)


def test_sights_hold_every_watched_metric_of_the_first_bad_iteration() -> None:
    whole = block(
        loss=with_value(NAN, 70, ranks=[5]),
        grad_norm=with_value(NAN, 70),
        nonfinite_input=quiet(0.0),
        weather=quiet(),
    )
    seen = {sight.metric: sight for sight in only(whole).sights}
    assert set(seen) == {"loss", "grad_norm", "nonfinite_input"}
    assert list(seen["loss"].ranks_R[seen["loss"].bad_R]) == [5]
    assert seen["nonfinite_input"].clean_R.all()
    assert seen["grad_norm"].bad_R.all()


def test_a_non_finite_count_before_the_reduction_names_its_rank() -> None:
    whole = block(
        nonfinite_grad=with_value(3.0, 70, ranks=[2], of=0.0),
        loss=with_value(NAN, 70),
        grad_norm=with_value(NAN, 70),
    )
    by_metric = {sight.metric: sight for sight in only(whole).sights}
    assert list(by_metric["nonfinite_grad"].ranks_R[by_metric["nonfinite_grad"].bad_R]) == [2]


def test_a_non_finite_parameter_is_confirmed_at_once() -> None:
    evidence = only(block(loss=quiet(), nonfinite_param=with_value(1.0, 70, ranks=[3], of=0.0)))
    assert (evidence.metric, evidence.ranks, evidence.certainty) == (
        "nonfinite_param",
        (3,),
        Certainty.CONFIRMED,
    )


def test_a_loss_that_is_finite_again_was_a_short_fault_and_stays_confirmed() -> None:
    evidence = only(block(loss=with_value(NAN, 70, 71, ranks=[5])))
    assert (evidence.pattern, evidence.certainty) == (Pattern.SHORT_NONFINITE, Certainty.CONFIRMED)
    assert evidence.detail["bad_iterations"] == 1


def test_only_the_very_first_loss_missing_is_no_fault() -> None:
    assert only(block(loss=with_value(NAN, 0, 1))).certainty is Certainty.RECOVERED


def test_one_record_is_enough() -> None:
    whole = block(loss=[NAN], ranks=[-1])
    evidence = only(whole)
    assert (evidence.certainty, evidence.ranks, evidence.last_clean) == (Certainty.CONFIRMED, (), None)


def test_a_rank_that_falls_silent_after_its_nan_has_not_recovered() -> None:
    loss = masked(with_value(NAN, 70, ranks=[5]), np.zeros((T, R), bool))
    loss[71:, 5] = np.ma.masked
    assert only(block(loss=loss)).pattern is Pattern.IMMEDIATE_NONFINITE


def test_absent_values_never_alarm() -> None:
    whole = block(loss=masked(quiet(NAN), np.ones((T, R), bool)), grad_norm=quiet())
    assert findings_of(whole) == {}


def test_the_interval_follows_the_cadence_of_the_metric() -> None:
    off_cadence = (np.arange(T) % 10 != 0)[:, None] * np.ones(R)
    evidence = only(block(loss=masked(with_value(NAN, 65, ranks=[5]), off_cadence)))
    assert (evidence.last_clean, evidence.first_bad) == (60, 70)


def test_separate_episodes_are_separate_evidence_and_close_ones_are_one() -> None:
    apart = with_value(NAN, 20, 21, ranks=[1])
    apart[150, 2] = NAN
    assert [e.ranks for e in evidence_in(findings_of(block(loss=apart)))] == [(1,), (2,)]
    close = with_value(NAN, 20, 21, ranks=[1])
    close[40, 1] = NAN
    assert only(block(loss=close)).first_bad == 20


def test_the_episodes_told_of_are_bounded() -> None:
    loss_T = np.full(20_000, 2.0)
    loss_T[::100] = NAN
    assert len(evidence_in(run(Nonfinite(), [block(loss=loss_T)]))) < 50


def test_who_turns_bad_later_is_listed() -> None:
    loss = with_value(NAN, 70, ranks=[5])
    loss[90:, 1] = NAN
    assert only(block(loss=loss)).later_ranks == ((90, 1),)


def test_a_microbatch_is_named() -> None:
    iterations, microbatches = np.repeat(np.arange(10), 5), np.tile([0, 1, 2, 3, WHOLE_ITERATION], 10)
    loss = masked(own()[:50, :2], (microbatches == WHOLE_ITERATION)[:, None] * np.ones(2))
    loss[4 * 5 + 2, 1] = NAN
    norm = masked(np.full((50, 2), 1.0), (microbatches != WHOLE_ITERATION)[:, None] * np.ones(2))
    norm[4 * 5 + 4] = NAN
    whole = block(loss=loss, grad_norm=norm, iterations=iterations, microbatches=microbatches)
    evidence = only(whole)
    assert (evidence.iteration, evidence.microbatch, evidence.ranks) == (4, 2, (1,))


def skips(at: Sequence[int], scale_T: Any) -> IterationBlock:
    norm, skipped = quiet(1.0), quiet(0.0)
    norm[list(at)], skipped[list(at)] = INF, 1.0
    return block(loss=quiet(), grad_norm=norm, skipped=skipped, loss_scale=scale_T[:, None] * np.ones(R))


def test_the_search_for_a_loss_scale_is_one_annotation() -> None:
    scale_T = 2.0 ** (16 - np.minimum(np.arange(T), 6))
    whole = skips(range(6), scale_T)
    assert evidence_in(findings_of(whole)) == []
    (annotation,) = annotations_in(findings_of(whole))
    assert (annotation.kind, annotation.iteration, annotation.detail["skips"]) == ("loss_scale_skip", 0, 6)


def test_megatrons_long_search_from_two_to_the_32_is_benign() -> None:
    whole = skips(range(18), 2.0 ** (32 - np.minimum(np.arange(T), 18)))
    assert evidence_in(findings_of(whole)) == []


@pytest.mark.parametrize("falls_at", [70, 71])
def test_a_scale_that_falls_now_or_next_explains_a_gradient(falls_at: int) -> None:
    scale = quiet(1024.0)
    scale[falls_at:] = 512.0
    whole = block(loss=quiet(), grad_norm=with_value(INF, 70, 71), loss_scale=scale)
    assert evidence_in(findings_of(whole)) == []
    assert kinds(whole) == ["loss_scale_skip"]


def test_a_scaler_named_at_the_start_explains_a_gradient() -> None:
    start = event(EventKind.RUN_START, precision="fp16")
    whole = block(loss=quiet(), grad_norm=with_value(INF, 70, 71), events=[start])
    assert evidence_in(findings_of(whole)) == []


def test_a_loss_scale_event_explains_a_gradient() -> None:
    whole = block(loss=quiet(), grad_norm=with_value(INF, 70, 71), events=[event(EventKind.LOSS_SCALE, 70)])
    assert evidence_in(findings_of(whole)) == []


def test_skips_at_the_least_scale_are_a_fault() -> None:
    evidence = only(skips(range(100, T), np.where(np.arange(T) < 100, 64.0, 1.0)))
    assert (evidence.certainty, evidence.first_bad) == (Certainty.CONFIRMED, 100)
    assert evidence.alarm_iteration < 110


def test_skips_without_end_are_a_fault() -> None:
    evidence = only(skips(range(100, T), 2.0 ** (40.0 - np.maximum(0, np.arange(T) - 100).clip(max=39))))
    assert (evidence.certainty, evidence.first_bad) == (Certainty.CONFIRMED, 100)


def test_a_gradient_that_nothing_explains_recovers_when_the_losses_go_on() -> None:
    whole = block(loss=quiet(), grad_norm=with_value(NAN, 70, 71))
    assert only(whole).certainty is Certainty.RECOVERED
    assert kinds(whole) == ["nonfinite_gradient"]


def test_a_gradient_that_stays_non_finite_is_confirmed_at_its_first_iteration() -> None:
    evidence = only(block(loss=quiet(), grad_norm=with_value(NAN, 70)))
    assert (evidence.certainty, evidence.first_bad, evidence.alarm_iteration) == (Certainty.CONFIRMED, 70, 75)


def test_a_gradient_followed_by_a_non_finite_loss_is_where_it_began() -> None:
    evidence = only(block(loss=with_value(NAN, 71), grad_norm=with_value(NAN, 70)))
    assert (evidence.metric, evidence.first_bad, evidence.alarm_iteration) == ("grad_norm", 70, 71)


def test_a_skipped_gradient_is_not_where_a_later_loss_began() -> None:
    skipped = quiet(0.0)
    skipped[70] = 1.0
    whole = block(loss=with_value(NAN, 71), grad_norm=with_value(NAN, 70), skipped=skipped)
    assert (only(whole).metric, only(whole).first_bad) == ("loss", 71)


def test_a_gradient_at_the_end_of_the_log_is_suspected_until_more_comes() -> None:
    detector = Nonfinite()
    whole = block(loss=quiet(), grad_norm=with_value(NAN, T - 1))
    assert evidence_in(run(detector, [whole], finish=False)) == []
    assert only(whole).certainty is Certainty.SUSPECTED


def test_a_log_of_nothing_but_non_finite_gradients_is_confirmed() -> None:
    evidence = only(block(grad_norm=[NAN, NAN], ranks=[-1]))
    assert evidence.certainty is Certainty.CONFIRMED


def test_overflows_of_one_rank_alone_accuse_it() -> None:
    at = list(range(20, 180, 10))
    local, norm, skipped = own(1.0), quiet(1.0), quiet(0.0)
    local[at, 3], norm[at], skipped[at] = INF, INF, 1.0
    metrics = {"loss": quiet(), "local_grad_norm": local, "grad_norm": norm, "skipped": skipped}
    known = only(block(metrics, layout=mesh([("dp", R)])))
    assert (known.ranks, known.certainty) == ((3,), Certainty.CONFIRMED)
    assert only(block(metrics)).certainty is Certainty.SUSPECTED


def test_overflows_of_one_pipeline_stage_accuse_nobody() -> None:
    at = list(range(20, 180, 10))
    local, norm, skipped = own(1.0), quiet(1.0), quiet(0.0)
    local[at, 7], norm[at], skipped[at] = INF, INF, 1.0
    whole = block(
        loss=quiet(),
        local_grad_norm=local,
        grad_norm=norm,
        skipped=skipped,
        layout=mesh([("pp", R), ("dp", 1)]),
    )
    assert evidence_in(findings_of(whole)) == []


def test_a_rank_without_tokens_may_have_no_loss() -> None:
    tokens = with_value(0.0, 70, 75, ranks=[2], of=4096.0)
    whole = block(loss=with_value(NAN, 70, 75, ranks=[2]), tokens=tokens)
    assert evidence_in(findings_of(whole)) == []
    assert kinds(whole) == ["no_tokens"]


def test_activations_alone_are_an_annotation() -> None:
    whole = block(loss=quiet(), grad_norm=quiet(), nonfinite_act=with_value(9.0, 70, 75, ranks=[2], of=0.0))
    assert evidence_in(findings_of(whole)) == []
    assert kinds(whole) == ["nonfinite_activation"]


def test_activations_that_are_always_non_finite_accuse_nobody_of_a_later_loss() -> None:
    whole = block(loss=with_value(NAN, 150, ranks=[4]), nonfinite_act=with_value(9.0, 10, ranks=[1], of=0.0))
    assert only(whole).ranks == (4,)
    assert only(whole).later_ranks == ()


def test_metrics_that_nobody_declared_only_support() -> None:
    evidence = only(block(loss=quiet(), eval_loss=with_value(NAN, 70, ranks=[1])))
    assert (evidence.supporting, evidence.metric, evidence.last_clean) == (True, "eval_loss", 69)


def test_a_metric_that_never_was_finite_says_nothing() -> None:
    assert findings_of(block(loss=quiet(), accuracy=quiet(NAN), mask_min=with_value(-INF, 50))) == {}


def test_a_local_norm_under_an_agreed_name_is_taken_before_the_reduction() -> None:
    rng = np.random.default_rng(0)
    norm, reduced = rng.uniform(1, 2, (T, R)), quiet(1.0)
    norm[70:, 5], reduced[70:] = NAN, NAN
    loss = with_value(NAN, 71)
    evidence = only(block(grad_norm=norm, global_loss=reduced, loss=loss))
    assert (evidence.metric, evidence.ranks) == ("grad_norm", (5,))


def test_values_inferred_by_a_reader_are_marked() -> None:
    whole = block(loss=with_value(NAN, 70))
    column = whole.numbers["loss"]
    object.__setattr__(column, "inferred_TR", np.isnan(column.values_TR))
    assert only(whole).detail["inferred"] is True


def test_both_extremes_are_fast() -> None:
    for shape in ((1, 100_000), (100_000, 1)):
        whole = block(
            loss=np.full(shape, NAN), grad_norm=np.full(shape, NAN), nonfinite_param=np.zeros(shape)
        )
        (evidence,) = evidence_in(run(Nonfinite(), [whole]))
        assert evidence.first_bad == 0
        assert len(evidence.later_ranks) <= 1000
