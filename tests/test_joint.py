"""A rank whose metrics go apart is found where no single metric shows it, and nothing else is.

Axes: T iterations, R ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detectors.evidence import JOINT, Certainty, CheckState, Evidence
from detectors.joint import Joint, JointConfig
from detectors.joint_fit import fit
from detectors.peer_outlier import PeerOutlier
from firstfault.telemetry import EventKind
from ingest.blocks import IterationBlock

from .block_builders import block, event, evidence_in, run

CONFIG = JointConfig(fit_after=300)
ONSET = 900
"""Late enough for what the levels of ranks wander to be known: an early shift stays suspected."""


def job(
    iterations: int = 1400, ranks: int = 8, seed: int = 0, *, apart: int | None = None, **more: Any
) -> IterationBlock:
    """A loss and two norms that go together; those of rank ``apart`` no more from `ONSET` on."""
    rng = np.random.default_rng(seed)
    shared_TR, own_TR, loss_TR = rng.normal(size=(3, iterations, ranks))
    other_TR = shared_TR.copy()
    if apart is not None:
        other_TR[ONSET:, apart] = rng.normal(size=iterations - ONSET)
    level_T1 = np.exp(rng.normal(0.0, 0.1, (iterations, 1)))
    return block(
        {
            "local_grad_norm": level_T1 * np.exp(0.1 * shared_TR),
            "grad_absmax": level_T1 * np.exp(0.2 * (0.9 * other_TR + 0.436 * own_TR)),
            "loss": 2.0 * np.exp(0.03 * (0.3 * shared_TR + 0.954 * loss_TR)),
        },
        **more,
    )


def found(whole: IterationBlock) -> list[Evidence]:
    evidence: list[Evidence] = evidence_in(run(Joint(CONFIG), [whole]))
    return evidence


def confirmed(evidence: list[Evidence]) -> list[Evidence]:
    return [one for one in evidence if one.certainty is Certainty.CONFIRMED]


@pytest.mark.parametrize("seed", range(3))
def test_what_no_single_metric_shows_is_confirmed_on_the_right_rank(seed: int) -> None:
    broken = job(seed=seed, apart=5)
    assert evidence_in(run(PeerOutlier(), [broken])) == []

    (one,) = confirmed(found(broken))

    assert (one.ranks, one.metric) == ((5,), JOINT)
    assert one.last_clean is not None
    assert one.last_clean < ONSET <= one.first_bad
    assert one.detail["metrics"] == ["grad_absmax", "local_grad_norm", "loss"]


@pytest.mark.parametrize("seed", range(3))
def test_a_healthy_job_is_quiet(seed: int) -> None:
    assert found(job(4000, seed=seed)) == []


def test_a_shift_of_one_metric_is_left_to_peer_outlier() -> None:
    whole = job()
    whole.numbers["local_grad_norm"].values_TR[ONSET:, 5] *= 1.1
    assert confirmed(found(whole)) == []
    assert [one.ranks for one in confirmed(evidence_in(run(PeerOutlier(), [whole])))] == [(5,)]


def test_metrics_that_go_apart_on_all_ranks_are_nobodys_fault() -> None:
    whole, other = job(), job(seed=9)
    whole.numbers["grad_absmax"].values_TR[ONSET:] = other.numbers["grad_absmax"].values_TR[ONSET:]
    assert confirmed(found(whole)) == []


def test_after_a_change_of_data_the_metrics_may_go_together_otherwise() -> None:
    assert found(job(apart=5, events=[event(EventKind.DATA_CHANGE, ONSET)])) == []


def test_a_rank_that_is_wrong_while_it_is_learned_does_not_teach_its_error() -> None:
    rng = np.random.default_rng(0)
    shared_N, own_N = rng.normal(size=(2, 512))
    vectors_NM = np.stack([shared_N, 0.9 * shared_N + 0.436 * own_N], axis=1)
    clean = fit(vectors_NM)[1]
    vectors_NM[::8, 1] = 4.0 * rng.normal(size=64)
    taught = fit(vectors_NM)[1]
    assert np.abs(taught / clean - 1).max() < 0.3


def test_a_metric_that_is_reported_twice_counts_once() -> None:
    whole = job(apart=5)
    whole.numbers["act_grad_norm"] = whole.numbers["local_grad_norm"]  # type: ignore[index]  # a dict underneath
    (one,) = found(whole)
    assert one.detail["metrics"] == ["act_grad_norm", "grad_absmax", "loss"]


def test_two_ranks_are_too_few_and_it_says_so() -> None:
    detector = Joint(CONFIG)
    detector.update(job(ranks=2, apart=1))
    assert detector.check().state is CheckState.NOT_RUN
    assert detector.check().why == "no three peers reported all metrics for long enough"


@pytest.mark.parametrize("setting", ["fit_after", "iterations_per_alarm", "hold_points", "least_shift"])
def test_settings_out_of_range_are_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        JointConfig(**{setting: 0})
