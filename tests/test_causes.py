"""Causes: what the evidence allows, last good iteration, cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from detectors.device_causes import ONE_RANK_LIMIT
from detectors.evidence import Evidence, Pattern
from detectors.facts import InputFacts
from detectors.fuse import fuse
from detectors.incident import Basis, Cause, CauseKind, Incident
from firstfault.telemetry import UNNAMED_RANK, EventKind

from .evidence_builders import (
    EIGHT,
    but,
    divergence,
    drift,
    event,
    evidence,
    explosion,
    findings,
    labels,
    mesh,
    nonfinite,
    sight,
    verdict,
)


def root(*found: Evidence, **facts: Any) -> Incident:
    return verdict(*found, **facts).incidents[0]


def causes(*found: Evidence, **facts: Any) -> dict[CauseKind, Cause]:
    return {cause.kind: cause for cause in root(*found, **facts).causes}


LOSS_5 = sight("loss", [5], but(5))


@pytest.mark.parametrize("found", [nonfinite(LOSS_5), divergence([3], 1200, 1190)])
def test_one_rank_among_clean_peers_is_hardware_up_to_a_limit(found: Evidence) -> None:
    ranked = causes(found)
    assert next(iter(ranked)) is CauseKind.HARDWARE
    assert ranked[CauseKind.HARDWARE].confidence <= ONE_RANK_LIMIT
    assert CauseKind.SOFTWARE in ranked


def test_a_rank_that_disagrees_with_itself_is_hardware_beyond_the_limit() -> None:
    own = divergence([3], 1205, 1195, metric="repeat_checksum/canary")
    cause = causes(divergence([3], 1200, 1190), own)[CauseKind.HARDWARE]
    assert cause.confidence >= 0.9
    assert any("disagrees with itself" in why for why in cause.because)


@pytest.mark.parametrize(
    ("fields", "is_strong"),
    [
        ({"kind": "xid", "code": 48}, True),
        ({"kind": "xid", "code": "79"}, True),
        ({"kind": "ecc_uncorrectable"}, True),
        ({"kind": "mce"}, True),
        ({"kind": "xid", "code": 31}, False),
        ({"kind": "xid", "code": "nonsense"}, False),
        ({"kind": "ecc_correctable"}, False),
        ({"kind": "thermal"}, False),
    ],
)
def test_a_hardware_event_near_the_onset_counts_by_kind(fields: dict[str, object], is_strong: bool) -> None:
    told = event(EventKind.HARDWARE, 1150, host="node-3", **fields)
    cause = causes(divergence([3], 1200, 1190), hardware=(told,), labels=labels({3: "node-3"}))[
        CauseKind.HARDWARE
    ]
    assert (cause.confidence > ONE_RANK_LIMIT) is is_strong
    assert any("node-3" in why for why in cause.because)


def test_a_hardware_event_of_another_host_says_nothing_about_the_suspect() -> None:
    told = event(EventKind.HARDWARE, 1150, host="node-9", kind="mce")
    cause = causes(divergence([3], 1200, 1190), hardware=(told,), labels=labels({3: "node-3"}))[
        CauseKind.HARDWARE
    ]
    assert cause.confidence <= ONE_RANK_LIMIT


def test_a_hardware_event_of_another_device_on_the_same_host_says_nothing() -> None:
    told = event(EventKind.HARDWARE, 1150, host="n", device="GPU-1", kind="mce")
    place = {3: {"host": "n", "device": "GPU-0"}}
    cause = causes(divergence([3], 1200, 1190), hardware=(told,), labels=place)[CauseKind.HARDWARE]
    assert cause.confidence <= ONE_RANK_LIMIT


@pytest.mark.parametrize(
    ("first", "second", "confidence"),
    [
        ({3: "bad"}, {6: "bad"}, 0.9),
        ({3: "bad"}, {3: "bad"}, 0.7),
        ({3: "one"}, {6: "other"}, ONE_RANK_LIMIT),
    ],
)
def test_a_fault_that_follows_the_device_is_hardware(
    first: dict[int, str], second: dict[int, str], confidence: float
) -> None:
    (before,), (after,) = first, second
    attempts = [
        findings(divergence([before], 1200, 1190), labels=labels(first)),
        findings(
            replace(divergence([after], 300, 290), attempt=1), attempt=1, judged_to=400, labels=labels(second)
        ),
    ]
    last = fuse("r", attempts, InputFacts()).incidents[-1]
    assert last.causes[0].kind is CauseKind.HARDWARE
    assert last.causes[0].confidence == pytest.approx(confidence)


def test_a_fault_at_the_same_iteration_on_another_host_is_data_or_software() -> None:
    again = replace(nonfinite(sight("loss", [5], but(5))), attempt=1)
    attempts = [
        findings(nonfinite(LOSS_5), labels=labels({5: "a"})),
        findings(again, attempt=1, labels=labels({5: "b"})),
    ]
    last = fuse("r", attempts, InputFacts()).incidents[-1]
    assert [cause.kind for cause in last.causes[:2]] == [CauseKind.DATA, CauseKind.SOFTWARE]
    assert last.causes[0].confidence > 0.5


def test_a_bad_input_is_data_before_anything_else() -> None:
    ranked = causes(nonfinite(sight("nonfinite_input", [5], but(5)), LOSS_5))
    assert next(iter(ranked)) is CauseKind.DATA
    assert ranked[CauseKind.DATA].confidence > 0.8


def test_finite_logits_and_a_bad_loss_are_the_loss_function() -> None:
    ranked = causes(nonfinite(LOSS_5, sight("nonfinite_logits", clean=EIGHT)))
    assert next(iter(ranked)) is CauseKind.LOSS_FUNCTION


def test_bad_logits_are_not_the_loss_function() -> None:
    assert CauseKind.LOSS_FUNCTION not in causes(nonfinite(LOSS_5, sight("nonfinite_logits", [5], but(5))))


def test_an_infinite_value_in_half_precision_is_overflow() -> None:
    found = nonfinite(LOSS_5, detail={"value": "Infinity"})
    half, wide = (
        causes(found, run_start={"precision": "fp16"}),
        causes(found, run_start={"precision": "bf16"}),
    )
    assert half[CauseKind.NUMERIC_OVERFLOW].confidence > wide[CauseKind.NUMERIC_OVERFLOW].confidence
    assert CauseKind.NUMERIC_OVERFLOW not in causes(nonfinite(LOSS_5, detail={"value": "NaN"}))


def test_a_loss_scale_that_does_not_recover_is_overflow() -> None:
    assert CauseKind.NUMERIC_OVERFLOW in causes(evidence(Pattern.IMMEDIATE_NONFINITE, "skipped", 700))


def test_all_at_once_without_counts_before_the_reduction_is_undetermined() -> None:
    assert list(causes(nonfinite(sight("grad_norm", EIGHT)))) == [CauseKind.UNDETERMINED]


def test_all_at_once_with_clean_counts_before_the_reduction_is_the_collective_or_software() -> None:
    found = nonfinite(sight("nonfinite_reduced", EIGHT), sight("nonfinite_grad", clean=EIGHT))
    ranked = causes(found)
    assert list(ranked) == [CauseKind.COLLECTIVE, CauseKind.SOFTWARE]
    assert ranked[CauseKind.SOFTWARE].stage == "reduce"
    update = causes(nonfinite(sight("nonfinite_param", EIGHT), sight("nonfinite_reduced", clean=EIGHT)))
    assert next(iter(update)) is CauseKind.SOFTWARE


def test_of_a_rank_alone_no_collective_is_blamed() -> None:
    found = nonfinite(sight("nonfinite_reduced", [0]), sight("nonfinite_grad", clean=[0]), ranks=())
    ranked = causes(found, ranks=(0,), layout=None)
    assert list(ranked) == [CauseKind.SOFTWARE]
    assert "all ranks" not in ranked[CauseKind.SOFTWARE].because[0]
    assert all(one.action != "test_collectives" for one in root(found, ranks=(0,), layout=None).advice)


def test_a_shard_that_everybody_gathers_can_be_one_owners_fault() -> None:
    found = nonfinite(sight("nonfinite_param", EIGHT), sight("nonfinite_grad", clean=EIGHT))
    ranked = causes(found, layout=mesh(("dp", 8), sharding="zero1"))
    assert list(ranked) == [CauseKind.HARDWARE, CauseKind.SOFTWARE]


@pytest.mark.parametrize(
    ("onset", "facts", "is_hyper"),
    [
        (60, {}, True),
        (100, {}, True),
        (500, {}, False),
        (500, {"lr_rises": ((380, 420),)}, True),
        (500, {"lr_rises": ((100, 900),)}, True),
        (500, {"lr_rises": ((100, 300),)}, False),
        (500, {"changes": (event(EventKind.LR_CHANGE, 450),)}, True),
    ],
)
def test_growth_after_the_start_or_a_rise_of_the_rate_is_a_hyperparameter(
    onset: int, facts: dict[str, object], is_hyper: bool
) -> None:
    ranked = causes(explosion(onset), **facts)
    assert (next(iter(ranked)) is CauseKind.HYPERPARAMETER) is is_hyper


def test_a_rise_within_one_iteration_is_told_as_one() -> None:
    ranked = causes(explosion(500), lr_rises=((498, 498),))
    assert ranked[CauseKind.HYPERPARAMETER].because[0] == "the learning rate rose at iteration 498"


def test_growth_on_one_rank_alone_is_no_hyperparameter() -> None:
    assert CauseKind.HYPERPARAMETER not in causes(explosion(60, metric="local_grad_norm", ranks=(2,)))


def test_growth_soon_after_a_resume_is_weaker_than_after_the_start() -> None:
    resumed = causes(explosion(60), resumes=(event(EventKind.RESUME, 0),))
    assert (
        resumed[CauseKind.HYPERPARAMETER].confidence
        < causes(explosion(60))[CauseKind.HYPERPARAMETER].confidence
    )


def test_the_loss_function_of_a_log_without_ranks_is_found_too() -> None:
    found = nonfinite(
        sight("loss", [UNNAMED_RANK]), sight("nonfinite_logits", clean=[UNNAMED_RANK]), ranks=()
    )
    ranked = causes(found, ranks=(UNNAMED_RANK,), layout=None, world_size=None)
    assert next(iter(ranked)) is CauseKind.LOSS_FUNCTION


def test_a_likely_cause_leaves_no_room_for_undetermined() -> None:
    assert CauseKind.UNDETERMINED not in causes(explosion(60))
    assert CauseKind.UNDETERMINED in causes(explosion(500))


def test_after_a_resume_the_majority_may_be_the_corrupted_side() -> None:
    resumed = root(divergence([3], 10, None), resumes=(event(EventKind.RESUME, 5),))
    assert "majority may be the corrupted side" in resumed.first.note
    assert root(divergence([3], 10, None)).first.note == ""


def test_a_change_of_the_data_before_the_drift_is_a_cause() -> None:
    ranked = causes(drift(1000, 950, 1100), changes=(event(EventKind.DATA_CHANGE, 960),))
    assert ranked[CauseKind.DATA].confidence > 0


def test_a_rank_that_differed_from_the_start_is_software_first() -> None:
    assert next(iter(causes(divergence([3], 10, None)))) is CauseKind.SOFTWARE


@pytest.mark.parametrize(
    ("found", "stage"),
    [
        (nonfinite(LOSS_5), "before_reduce"),
        (nonfinite(sight("grad_norm", EIGHT)), "unknown"),
        (nonfinite(sight("grad_norm", EIGHT), sight("local_grad_norm", clean=but(2))), "before_reduce"),
        (divergence([3], 1200, 1190), "after_reduce"),
        (divergence([3], 1200, 1190, metric="grad_checksum"), "reduce"),
        (divergence([3], 1200, 1190, metric="canary_checksum"), "before_reduce"),
        (explosion(500), "unknown"),
    ],
)
def test_the_stage_follows_from_which_telemetry_disagrees(found: Evidence, stage: str) -> None:
    assert {cause.stage for cause in root(found).causes} == {stage}


@pytest.mark.parametrize(
    "found",
    [
        nonfinite(LOSS_5),
        nonfinite(sight("grad_norm", EIGHT)),
        divergence([3], 1200, 1190),
        divergence([0, 1], 1200, 1190, is_tie=True),
        explosion(50),
        drift(1000, 950, 1100),
        evidence(Pattern.HANG, "loss", 900),
    ],
)
def test_there_is_always_a_cause_and_each_says_why(found: Evidence) -> None:
    ranked = root(found).causes
    assert ranked and all(cause.because and 0 < cause.confidence < 1 for cause in ranked)
    assert [cause.confidence for cause in ranked] == sorted((c.confidence for c in ranked), reverse=True)


def _saved(*iterations: int, **fields: object) -> dict[str, Any]:
    saved = tuple(event(EventKind.CHECKPOINT, at, path=f"/c/{at}", **fields) for at in iterations)
    return {"checkpoints": saved}


def test_last_good_is_the_newest_checkpoint_before_the_first_possible_fault() -> None:
    good = root(divergence([3], 1200, 1190), **_saved(500, 1000, 1195, 1300)).last_good
    assert (good.iteration, good.checkpoint, good.checkpoint_iteration) == (1190, "/c/1000", 1000)
    assert good.basis is Basis.PROVED


def test_an_incomplete_checkpoint_is_not_good() -> None:
    facts = {"checkpoints": (*_saved(500)["checkpoints"], *_saved(1000, complete=False)["checkpoints"])}
    assert root(divergence([3], 1200, 1190), **facts).last_good.checkpoint == "/c/500"


@pytest.mark.parametrize(
    "found", [nonfinite(LOSS_5), explosion(500), divergence([3], 900, 800, metric="canary_checksum")]
)
def test_nothing_but_checksums_of_the_state_proves_the_last_good_iteration(found: Evidence) -> None:
    assert root(found).last_good.basis is Basis.ASSUMED


def test_without_a_clean_observation_nothing_is_known_to_be_good() -> None:
    good = root(divergence([3], 10, None), **_saved(5)).last_good
    assert (good.iteration, good.checkpoint, good.basis) == (None, None, Basis.UNKNOWN)


def test_a_checkpoint_that_an_earlier_attempt_saved_after_its_own_fault_is_not_good() -> None:
    attempts = [
        findings(divergence([3], 200, 190), **_saved(150, 250)),
        findings(replace(divergence([3], 400, 390), attempt=1), attempt=1, judged_to=500),
    ]
    assert fuse("r", attempts, InputFacts()).incidents[-1].last_good.checkpoint == "/c/150"


def test_cost_counts_from_the_interval_and_the_checkpoint() -> None:
    cost = root(divergence([3], 1200, 1190), judged_to=1840, iteration_time_s=9.0, **_saved(1000)).cost
    assert cost.iterations_since_onset == (640, 650)
    assert cost.iterations_to_redo == 840
    assert cost.device_hours == pytest.approx(840 * 9.0 * 8 / 3600)


def test_cost_says_nothing_of_what_it_cannot_know() -> None:
    cost = root(divergence([3], 10, None), layout=mesh(("dp", 8))).cost
    assert (cost.iterations_since_onset, cost.iterations_to_redo, cost.device_hours) == (
        (1990, None),
        None,
        None,
    )
