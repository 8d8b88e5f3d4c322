"""Loss scales that fall and fall, and what else is wrong where gradients are all that a log tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from detectors.evidence import Certainty, Evidence, Pattern
from detectors.nonfinite import Nonfinite
from firstfault.telemetry import Event, EventKind
from ingest.blocks import IterationBlock

from .block_builders import block, canonical, event, evidence_in, masked, one_at_a_time, run

NAN, INF = float("nan"), float("inf")


def halvings(first: int, scale: float, count: int, *, step: int = 1) -> list[Event]:
    """One ``loss_scale`` event a step, each half of the one before."""
    return [
        event(
            EventKind.LOSS_SCALE,
            first + k * step,
            scale=scale / 2 ** (k + 1),
            previous=scale / 2**k,
        )
        for k in range(count)
    ]


def judged(whole: IterationBlock) -> list[Evidence]:
    """The evidence, after checking that cutting does not change it."""
    found = run(Nonfinite(), [whole])
    assert canonical(run(Nonfinite(), one_at_a_time(whole))) == canonical(found)
    return [one for one in evidence_in(found) if not one.supporting]


def with_events(events: Sequence[Event], first: int = 370, last: int = 390) -> IterationBlock:
    iterations = np.arange(first, last)
    return block(loss=np.full(len(iterations), 2.0), iterations=iterations, ranks=[-1], events=events)


def test_a_scale_that_falls_step_after_step_to_nothing_is_an_explosion_from_its_first_fall() -> None:
    (lost,) = judged(with_events(halvings(378, 64.0, 6)))
    assert (lost.pattern, lost.certainty, lost.metric) == (Pattern.RUNAWAY, Certainty.CONFIRMED, "loss_scale")
    assert (lost.iteration, lost.last_clean) == (378, 377)
    assert lost.detail == {"falls": 6, "scale_before": 64.0, "scale_after": 1.0, "growing_points": 6}


@pytest.mark.parametrize(
    "events",
    [
        halvings(378, 65536.0, 4),
        halvings(378, 4096.0, 11),
        halvings(0, 128.0, 6),
        halvings(378, 64.0, 6, step=10),
        halvings(378, 64.0, 4),
    ],
    ids=["after a spike", "a new search", "at the start", "steps between", "too few"],
)
def test_a_search_for_the_scale_is_none(events: list[Event]) -> None:
    assert judged(with_events(events, 0 if events[0].iteration == 0 else 370)) == []


def test_ranks_that_print_the_same_fall_do_not_make_it_more() -> None:
    falls = [event(EventKind.LOSS_SCALE, 378, rank=r, scale=32.0, previous=64.0) for r in range(8)]
    assert judged(with_events(falls)) == []


def test_a_scale_below_anything_that_trains_is_lost_after_any_number_of_falls() -> None:
    falls = [event(EventKind.LOSS_SCALE, 380, scale=2.0**-k) for k in (11, 12)]
    (lost,) = judged(with_events(falls))
    assert lost.iteration == 380


def test_a_scaler_that_gives_up_is_taken_at_its_word() -> None:
    falls = halvings(380, 2.0, 1)
    (lost,) = judged(with_events([*falls, event(EventKind.LOSS_SCALE, 381, at_minimum=True)]))
    assert (lost.iteration, lost.alarm_iteration) == (380, 381)


def test_skipped_steps_with_a_falling_scale_are_counted_as_its_events_are() -> None:
    skipped = np.array([0.0] * 60 + [1.0] * 8)
    scale = np.concatenate((np.full(60, 64.0), 64.0 / 2 ** np.arange(8)))
    lost = judged(block(loss=np.full(68, 2.0), skipped=skipped, loss_scale=scale, ranks=[-1]))
    assert ("loss_scale", 60) in {(one.metric, one.iteration) for one in lost}


def test_a_log_of_nothing_but_skipped_gradients_is_a_nan_and_two_of_them_are_a_suspicion() -> None:
    for count, certainty in ((9, Certainty.CONFIRMED), (2, Certainty.SUSPECTED)):
        (found,) = judged(block(grad_norm=np.full(count, NAN), skipped=np.ones(count), ranks=[-1]))
        assert found.certainty is certainty


def test_gradients_that_are_nan_for_longer_than_any_search_are_a_fault_though_records_are_few() -> None:
    few = block(loss=[2.0] * 5, grad_norm=[NAN] * 5, iterations=np.arange(5) * 10, ranks=[-1])
    assert judged(few)[0].certainty is Certainty.CONFIRMED
    dense = block(loss=[2.0] * 5, grad_norm=[NAN] * 5, ranks=[-1])
    assert judged(dense)[0].certainty is Certainty.SUSPECTED


def test_another_loss_that_is_lost_to_the_end_is_told_and_one_that_comes_back_is_not() -> None:
    loss, value = np.full(20, 1.0), np.full(20, 2.0)
    value[15:] = INF
    (lost,) = judged(block({"loss": loss, "Value function loss": value}, ranks=[-1]))
    assert (lost.metric, lost.iteration, lost.last_clean) == ("Value function loss", 15, 14)
    value[18:] = 2.0
    assert judged(block({"loss": loss, "Value function loss": value}, ranks=[-1])) == []


@pytest.mark.parametrize("name", ["val_loss", "accuracy", "policy_loss"])
def test_validation_metrics_and_padding_between_reports_open_nothing(name: str) -> None:
    padded = np.where(np.arange(40) % 10 == 0, 1.0, NAN)
    assert judged(block({"loss": np.full(40, 1.0), name: padded}, ranks=[-1])) == []


def test_a_rank_that_steps_alone_at_first_is_looked_up_after_it_has_a_row() -> None:
    skipped = masked(np.ones((12, 2)), [[False, True]] * 12)
    judged(block(loss=np.full((12, 2), 2.0), skipped=skipped))
