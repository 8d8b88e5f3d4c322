"""Runs of known truth on the whole path from lines to verdict: what is said, of whom, since when, and why."""

from __future__ import annotations

import math
from typing import Any

import pytest

from service.sentence import headline

from .run_builders import Json, SyntheticRun, digest, judged

TP = [("dp", 4), ("tp", 2)]


def only(verdict: Json) -> Json:
    (incident,) = verdict["incidents"]
    return dict(incident)


def cause(incident: Json, kind: str) -> float:
    return float(next((one["confidence"] for one in incident["causes"] if one["kind"] == kind), 0.0))


def advised(incident: Json) -> list[str]:
    return [step["action"] for step in incident["advice"]]


def spiked(run: SyntheticRun, name: str, start: int, height: float, points: float) -> SyntheticRun:
    return run.set(name, lambda v, t, _: v * (1 + (height - 1) * math.exp((start - t) / points)), start)


def skipping(run: SyntheticRun, start: int, every: int, *, rises: bool = False) -> SyntheticRun:
    """Overflow of all ranks every so many iterations, at a scale that has reached its minimum of 1."""
    run.set("loss_scale", 1.0, 0).set("skipped", 0, 0)
    for count, t in enumerate(range(start, 200, every)):
        for name in ("grad_norm", "local_grad_norm"):
            run.set(name, "Infinity", t, t + 1)
        run.set("skipped", 1, t, t + 1)
        if rises:
            run.set("loss_scale", 2.0 ** (9 - count), t + 1)
    return run


def repeated(run: SyntheticRun) -> SyntheticRun:
    for name in ("canary_checksum", "repeat_checksum/canary"):
        run.check(name, lambda t, _: digest(t))
    return run


def test_a_loss_that_recovers_beside_a_norm_that_explodes_is_one_incident() -> None:
    run = SyntheticRun(iterations=300)
    for name in ("grad_norm", "local_grad_norm"):
        run.set(name, lambda v, t, _: v * math.exp(min(0.15 * (t - 200), 18)), 200)
    incident = only(judged(spiked(run, "loss", 210, 2.5, 8)))
    assert (incident["label"], incident["certainty"]) == ("gradient_explosion", "confirmed")
    assert {"confirmed", "recovered"} <= {item["certainty"] for item in incident["evidence"]}


def test_a_spike_in_the_fast_decline_of_a_young_run_is_found_where_it_was() -> None:
    verdict = judged(spiked(SyntheticRun(iterations=300), "loss", 150, 5, 5))
    assert (verdict["label"], only(verdict)["certainty"]) == ("healthy", "recovered")
    low, high = only(verdict)["first"]["interval"]
    assert low < 150 <= high and high - low <= 20


def test_ranks_that_differ_in_two_groups_at_one_check_are_first_together() -> None:
    incident = only(judged(SyntheticRun(mesh=TP).differ("param_checksum", 100, [2, 3])))
    assert (incident["first"]["ranks"], incident["first"]["tie"]) == ([2, 3], False)
    assert incident["first"]["victims"] == []


def test_ranks_that_disagree_with_themselves_at_once_are_all_named() -> None:
    run = repeated(SyntheticRun()).differ("repeat_checksum/canary", 120, [1, 3, 5])
    assert only(judged(run))["first"]["ranks"] == [1, 3, 5]


def test_several_ranks_of_several_hosts_share_a_cause_and_no_host_is_drained() -> None:
    incident = only(judged(SyntheticRun(16).differ("param_checksum", 100, [3, 12])))
    assert cause(incident, "software") > cause(incident, "hardware") > 0
    assert "drain_host" not in advised(incident)


def test_all_ranks_of_one_host_may_have_its_fault() -> None:
    run = SyntheticRun(16, hosts=[f"n{rank // 2}" for rank in range(16)])
    incident = only(judged(run.differ("param_checksum", 100, [4, 5])))
    assert cause(incident, "hardware") > cause(incident, "software")


def test_a_canary_accuses_its_model_group_and_says_what_would_split_it() -> None:
    run = SyntheticRun(mesh=TP).check("canary_checksum", lambda t, rank: digest(t, rank % 2))
    first = only(judged(run.differ("canary_checksum", 120, [3])))["first"]
    assert (first["ranks"], first["tie"]) == ([2, 3], True)
    assert "model-parallel group" in first["note"] and "third replica" not in first["note"]
    assert [suspect["why"].startswith("computes together") for suspect in first["suspects"]] == [True, False]


def test_a_job_that_proves_not_deterministic_withdraws_what_was_said() -> None:
    run = repeated(SyntheticRun()).differ("repeat_checksum/canary", 60, [0])
    verdict = judged(run.differ("repeat_checksum/canary", 140, range(1, 8)))
    assert (verdict["label"], verdict["incidents"]) == ("healthy", [])
    assert [one["kind"] for one in verdict["annotations"]] == ["nondeterministic_job"]


def test_the_one_rank_of_a_log_that_disagrees_with_itself_is_hardware_first() -> None:
    run = SyntheticRun(1, mesh=[("dp", 1)])
    for name in ("canary_checksum", "repeat_checksum/canary"):
        run.check(name, lambda t, _: digest(t), every=1)
    incident = only(judged(run.differ("repeat_checksum/canary", 120, [0])))
    assert incident["causes"][0]["kind"] == "hardware" and "run_diagnostics" in advised(incident)


def test_ranks_that_read_the_same_data_are_both_named_and_the_sampler_asked() -> None:
    run = SyntheticRun().check("data_checksum", lambda t, r: digest(t, 1 if r == 5 and t >= 120 else r), 1)
    verdict = judged(run)
    incident = only(verdict)
    assert "Ranks 1 and 5 read the same data since iteration 120." in headline(verdict)
    assert "sampler" in incident["first"]["note"]
    assert not {"replay_iterations", "drain_host"} & set(advised(incident))


@pytest.mark.parametrize(("sharding", "is_tie"), [("none", False), ("zero1", True), ("zero3", True)])
def test_a_finite_update_before_clears_all_ranks_unless_owners_share_shards(
    sharding: str, is_tie: bool
) -> None:
    first = only(judged(SyntheticRun(sharding=sharding).turn_nan(120, range(8))))["first"]
    assert (first["scope"], first["tie"]) == ("all", is_tie)


def test_parameters_that_turn_non_finite_behind_a_finite_reduction_do_not_accuse_the_collective() -> None:
    run = SyntheticRun().set("nonfinite_param", 0, 0).set("nonfinite_param", 7, 120)
    for name in ("loss", "local_grad_norm", "grad_norm"):
        run.set(name, "NaN", 121)
    incident = only(judged(run))
    assert (incident["causes"][0]["kind"], cause(incident, "collective")) == ("software", 0)
    assert "collect_telemetry" not in advised(incident)


def test_telemetry_that_is_there_is_not_asked_for() -> None:
    steps = only(judged(SyntheticRun().turn_nan(120, range(8))))["advice"]
    (asked,) = [step["target"] for step in steps if step["action"] == "collect_telemetry"]
    assert "nonfinite_act" in asked and "local_grad_norm" not in asked


def test_skips_at_the_least_scale_are_a_fault_also_with_clean_steps_between() -> None:
    incident = only(judged(skipping(SyntheticRun(), 100, 3)))
    assert (incident["label"], incident["first"]["iteration"]) == ("nan", 100)
    assert incident["causes"][0]["kind"] == "numeric_overflow"


@pytest.mark.parametrize(("every", "rises"), [(60, False), (3, True)])
def test_rare_skips_and_skips_at_which_the_scale_falls_are_benign(every: int, rises: bool) -> None:
    run = skipping(SyntheticRun(), 100, every, rises=rises)
    assert judged(run.set("skipped", 0, 130) if rises else run)["label"] == "healthy"


def test_a_fault_since_a_resume_goes_back_to_what_the_attempt_before_saved() -> None:
    good = only(
        judged(SyntheticRun(), SyntheticRun(start=150, attempt=1).differ("param_checksum", 150, [3]))
    )["last_good"]
    assert (good["iteration"], good["checkpoint"], good["basis"]) == (149, "/c/100", "assumed")


def test_what_went_on_from_a_bad_state_is_not_good() -> None:
    bad = SyntheticRun().differ("param_checksum", 60, [3])
    verdict = judged(bad, SyntheticRun(start=120, attempt=1).turn_nan(230, [5]))
    assert [one["last_good"]["checkpoint"] for one in verdict["incidents"]] == ["/c/50", "/c/50"]


def test_what_went_on_from_before_the_fault_is_good() -> None:
    bad = SyntheticRun().differ("param_checksum", 160, [3])
    verdict = judged(bad, SyntheticRun(start=120, attempt=1).turn_nan(230, [5]))
    assert verdict["incidents"][-1]["last_good"]["checkpoint"] == "/c/200"


def test_another_rank_of_the_same_host_does_not_mean_that_the_fault_moved() -> None:
    again = judged(SyntheticRun().turn_nan(130, [3]), SyntheticRun(start=101, attempt=1).turn_nan(160, [5]))
    incident = again["incidents"][-1]
    assert cause(incident, "hardware") < 0.9
    assert not any("follows the device" in why for one in incident["causes"] for why in one["because"])


def test_the_same_failure_on_another_device_of_the_host_is_data_or_software() -> None:
    devices = [f"GPU-{rank}" for rank in range(8)]
    swapped = [*devices[:3], devices[5], devices[4], devices[3], *devices[6:]]
    again = judged(
        SyntheticRun(device_ids=devices).turn_nan(130, [3]),
        SyntheticRun(start=101, attempt=1, device_ids=swapped).turn_nan(130, [3]),
    )
    assert [one["kind"] for one in again["incidents"][-1]["causes"][:2]] == ["data", "software"]


def test_checksums_that_no_layout_lets_compare_are_told_as_a_blind_spot() -> None:
    blind = judged(SyntheticRun(sharding="hsdp"))["coverage"]["blind_to"]
    assert any(line.startswith("replicas that differ") for line in blind)


def _pair(run: SyntheticRun) -> SyntheticRun:
    return run.differ("param_checksum", 100, [1])


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (SyntheticRun().turn_nan(120, [1]), "Rank 1 (host n0) has a non-finite loss since iteration 120."),
        (SyntheticRun().turn_nan(120, range(8)), "All 8 ranks have a non-finite loss since iteration 120."),
        (SyntheticRun(mesh=TP).turn_nan(120, [2, 3]), "One of ranks 2 and 3 (they cannot be told"),
        (SyntheticRun().set("grad_norm", "NaN", 120), "All 8 ranks have a non-finite gradient norm since"),
        (_pair(SyntheticRun(2)), "One of the 2 ranks (they cannot be told apart) holds other parameters"),
        (_pair(SyntheticRun(2)), "than the other replica since iteration 100 (between 90 and 100)."),
        (_pair(SyntheticRun(8)), "Rank 1 (host n0) holds other parameters than the other replicas since"),
        (
            SyntheticRun(2).set("grad_norm", lambda v, *_: v * 1.2, 120, ranks=[1]),
            "One of the 2 ranks (they cannot be told apart) reports another gradient norm than the other",
        ),
    ],
)
def test_the_sentence_says_who_did_what(run: SyntheticRun, said: str) -> None:
    assert said in headline(judged(run))


def test_the_sentence_says_that_the_next_attempt_went_well() -> None:
    verdict: dict[str, Any] = judged(
        SyntheticRun().turn_nan(130, [3]), SyntheticRun(start=101, attempt=1, iterations=100)
    )
    assert headline(verdict).endswith("since iteration 130. Attempt 1 shows no fault up to iteration 200.")


def test_a_suspicion_or_a_recovery_never_makes_a_run_unhealthy() -> None:
    suspected = judged(SyntheticRun(2, 101).differ("param_checksum", 0, [1]))
    recovered = judged(spiked(SyntheticRun(iterations=300), "loss", 200, 5, 5))
    for verdict, certainty in ((suspected, "suspected"), (recovered, "recovered")):
        assert (verdict["label"], only(verdict)["certainty"]) == ("healthy", certainty)
        assert not {"drain_host", "restore_checkpoint"} & set(advised(only(verdict)))
