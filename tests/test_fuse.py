"""Evidence becomes incidents: roots, chains, intervals, certainty, ids, and no say of arrival."""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import replace

import pytest

from detectors.evidence import Annotation, Certainty, Check, CheckState, Evidence, Label, Pattern
from detectors.facts import InputFacts
from detectors.fuse import fuse
from detectors.incident import MAX_LISTED_EVIDENCE, MAX_LISTED_RANKS, Scope, Severity
from detectors.precedence import FAMILY_OF, RULES, Family
from detectors.verdict import Verdict, canonical_bytes
from firstfault.telemetry import UNNAMED_RANK

from .evidence_builders import (
    EIGHT,
    but,
    divergence,
    drift,
    evidence,
    explosion,
    findings,
    mesh,
    nonfinite,
    sight,
    verdict,
)


def chain(judged: Verdict, at: int = 0) -> list[tuple[str, int]]:
    return [(link.label.value, link.iteration) for link in judged.incidents[at].chain]


def test_every_pattern_has_a_family_and_every_pair_of_families_a_rule() -> None:
    assert set(FAMILY_OF) == set(Pattern)
    assert set(RULES) == set(itertools.product(Family, Family))


def test_a_run_without_evidence_is_healthy() -> None:
    assert verdict().label is Label.HEALTHY


def test_a_nan_on_one_rank_is_one_incident_whose_victims_are_the_others() -> None:
    judged = verdict(nonfinite(sight("loss", [5], but(5)), sight("grad_norm", EIGHT)))
    (incident,) = judged.incidents
    assert (judged.label, incident.first.ranks, incident.first.iteration) == (Label.NAN, (5,), 700)
    assert (incident.first.phase, incident.first.interval) == ("forward", (699, 700))
    assert incident.first.victims == tuple(but(5))


def test_one_nan_told_by_two_metrics_is_one_incident() -> None:
    loss = nonfinite(sight("loss", [5], but(5)), key="a")
    norm = nonfinite(sight("grad_norm", EIGHT), key="b")
    judged = verdict(norm, loss)
    assert len(judged.incidents) == 1
    assert judged.incidents[0].first.ranks == (5,)


def test_drift_that_ends_loud_is_the_root_and_the_chain_tells_what_followed() -> None:
    end = nonfinite(sight("loss", EIGHT, iteration=1720))
    judged = verdict(divergence([3], 1200, 1190), explosion(1711), end)
    assert judged.label is Label.SILENT_DRIFT
    assert judged.incidents[0].first.ranks == (3,)
    assert chain(judged) == [("silent_drift", 1200), ("gradient_explosion", 1711), ("nan", 1720)]


def test_drift_seen_only_after_a_loud_event_is_not_its_root() -> None:
    judged = verdict(nonfinite(sight("loss", [5], but(5))), divergence([5], 710, 690))
    assert (judged.label, len(judged.incidents), chain(judged)) == (Label.NAN, 1, [("nan", 700)])


def test_growth_that_ends_in_nan_is_an_explosion() -> None:
    judged = verdict(explosion(500), nonfinite(sight("loss", EIGHT, iteration=520)))
    assert chain(judged) == [("gradient_explosion", 500), ("nan", 520)]


def test_a_nan_after_two_growing_points_is_a_nan() -> None:
    short = explosion(500, detail={"growing_points": 2})
    judged = verdict(short, nonfinite(sight("loss", EIGHT, iteration=502)))
    assert (judged.label, chain(judged)) == (Label.NAN, [("nan", 502)])


def test_growth_without_a_count_is_measured_in_iterations() -> None:
    grown = verdict(explosion(500, detail={}), nonfinite(sight("loss", EIGHT, iteration=503)))
    jumped = verdict(explosion(500, detail={}), nonfinite(sight("loss", EIGHT, iteration=502)))
    assert (grown.label, jumped.label) == (Label.GRADIENT_EXPLOSION, Label.NAN)


@pytest.mark.parametrize("onset", [1695, 1712, 1900])
def test_a_level_shift_inside_an_explosion_belongs_to_it(onset: int) -> None:
    judged = verdict(explosion(1711, 1700), drift(onset, onset - 10, 1950))
    assert (judged.label, len(judged.incidents)) == (Label.GRADIENT_EXPLOSION, 1)
    assert chain(judged) == [("gradient_explosion", 1711)]


def test_a_level_shift_that_alarmed_before_the_explosion_is_its_root() -> None:
    judged = verdict(explosion(1711, 1705), drift(1000, 950, 1100))
    assert chain(judged) == [("silent_drift", 1000), ("gradient_explosion", 1711)]


def test_a_checksum_inside_the_vague_onset_of_a_curve_is_the_root() -> None:
    judged = verdict(drift(1150, 1100, 1260), divergence([3], 1200, 1190))
    assert len(judged.incidents) == 1
    assert judged.incidents[0].first.metric == "param_checksum"


def test_overlapping_checksums_of_one_rank_are_one_incident_with_intersected_interval() -> None:
    judged = verdict(divergence([3], 1200, 1190), divergence([3], 1210, 1195, metric="optim_checksum"))
    (incident,) = judged.incidents
    assert (incident.first.interval, incident.first.iteration) == ((1195, 1200), 1200)


def test_a_canary_whose_parameters_already_differ_is_a_consequence() -> None:
    judged = verdict(
        divergence([3], 1195, 1185, metric="canary_checksum"),
        divergence([3], 1200, 1190, metric="param_checksum"),
    )
    (incident,) = judged.incidents
    assert (incident.first.metric, incident.pattern) == ("param_checksum", Pattern.REPLICA_DIVERGENCE)
    assert incident.first.interval == (1190, 1195)


def test_a_canary_with_equal_parameters_is_a_compute_fault() -> None:
    (incident,) = verdict(divergence([6], 400, 390, metric="canary_checksum")).incidents
    assert (incident.pattern, incident.first.ranks, incident.first.phase) == (
        Pattern.COMPUTE_MISMATCH, (6,), "backward",
    )  # fmt: skip


def test_another_rank_that_differs_later_is_a_second_incident() -> None:
    judged = verdict(divergence([5], 1400, 1390), divergence([3], 1200, 1190))
    assert [one.first.ranks for one in judged.incidents] == [(3,), (5,)]


def test_a_tie_is_cut_down_by_concurrent_evidence_that_names_one_of_it() -> None:
    tie = divergence([0, 1], 1200, 1190, is_tie=True)
    own = divergence([1], 1205, 1195, metric="repeat_checksum/canary")
    judged = verdict(tie, own, ranks=(0, 1), layout=mesh(("dp", 2)), world_size=2)
    assert (judged.incidents[0].first.ranks, judged.incidents[0].first.tie) == ((1,), False)


@pytest.mark.parametrize(("odd", "named"), [([7], (7,)), ([2], (4, 5, 6, 7))])
def test_a_norm_that_several_ranks_share_is_traced_to_the_one_whose_own_state_differs(
    odd: list[int], named: tuple[int, ...]
) -> None:
    shared = range(4, 8)
    norm = evidence(Pattern.COLLECTIVE_MISMATCH, "grad_norm", 1200, ranks=tuple(shared), detector="agreement")
    judged = verdict(norm, divergence(odd, 1200, 1199))
    assert judged.incidents[0].first.ranks == named


@pytest.mark.parametrize(("alarm", "metric"), [(560, "param_checksum"), (538, "grad_norm")])
def test_values_that_differ_before_growth_was_seen_are_its_root(alarm: int, metric: str) -> None:
    growth = explosion(534, 520, alarm_iteration=alarm)
    judged = verdict(growth, divergence([3], 540, 539))
    assert judged.incidents[0].first.metric == metric


def test_a_nan_that_healed_explains_its_aftermath_and_no_more() -> None:
    healed = nonfinite(
        sight("loss", [5], but(5)), pattern=Pattern.SHORT_NONFINITE, detail={"last_bad": 702}
    )  # fmt: skip
    soon, late = verdict(healed, explosion(740)), verdict(healed, explosion(1500))
    assert (len(soon.incidents), len(late.incidents)) == (1, 2)
    assert [one.label for one in late.incidents] == [Label.NAN, Label.GRADIENT_EXPLOSION]


def test_suspicion_is_listed_and_leaves_the_run_healthy() -> None:
    judged = verdict(divergence([3], 1200, 1190, certainty=Certainty.SUSPECTED))
    assert (judged.label, judged.incidents[0].certainty) == (Label.HEALTHY, Certainty.SUSPECTED)
    assert judged.incidents[0].severity is Severity.WARNING


def test_suspicion_before_a_confirmed_fault_does_not_take_its_label() -> None:
    judged = verdict(
        divergence([3], 400, 390, certainty=Certainty.SUSPECTED), nonfinite(sight("loss", [5], but(5)))
    )  # fmt: skip
    assert judged.label is Label.NAN
    assert [one.certainty for one in judged.incidents] == [Certainty.CONFIRMED, Certainty.SUSPECTED]


def test_suspicion_that_a_confirmed_fault_explains_is_part_of_it() -> None:
    judged = verdict(nonfinite(sight("loss", [5], but(5))), explosion(800, certainty=Certainty.SUSPECTED))
    assert (len(judged.incidents), judged.incidents[0].evidence_count) == (1, 2)


def test_recovered_spikes_stay_apart_and_advise_nothing() -> None:
    spikes = [explosion(at, certainty=Certainty.RECOVERED, key=str(at)) for at in (300, 900)]
    judged = verdict(*spikes)
    assert (judged.label, len(judged.incidents)) == (Label.HEALTHY, 2)
    assert all(one.advice == () and one.severity is Severity.INFO for one in judged.incidents)


def test_supporting_evidence_opens_nothing_but_is_shown_with_what_explains_it() -> None:
    support = explosion(705, metric="num_zeros", supporting=True)
    assert verdict(support).incidents == ()
    judged = verdict(support, nonfinite(sight("loss", [5], but(5))))
    assert [item.metric for item in judged.incidents[0].evidence] == ["loss", "num_zeros"]


def test_detection_is_the_alarm_of_confirming_evidence() -> None:
    assert verdict(explosion(500)).incidents[0].detected_at_iteration == 503


def test_a_curve_alone_is_a_warning_and_ranks_that_differ_are_critical() -> None:
    assert verdict(drift(1000, 950, 1100)).incidents[0].severity is Severity.WARNING
    assert verdict(divergence([3], 1200, 1190)).incidents[0].severity is Severity.CRITICAL


def test_all_ranks_are_a_scope_and_not_a_list() -> None:
    first = verdict(nonfinite(sight("grad_norm", EIGHT))).incidents[0].first
    assert (first.ranks, first.rank_count, first.scope, first.tie) == ((), 8, Scope.ALL, True)


@pytest.mark.parametrize("rank", [0, UNNAMED_RANK])
def test_one_reporting_rank_is_never_named(rank: int) -> None:
    judged = verdict(nonfinite(sight("loss", [rank])), ranks=(rank,), layout=None, world_size=None)
    first = judged.incidents[0].first
    assert (judged.label, first.ranks, first.scope, first.victims) == (Label.NAN, (), Scope.UNKNOWN, ())
    assert any("one rank reports" in note for note in judged.coverage.notes)


def test_evidence_without_sights_still_names_its_ranks() -> None:
    first = verdict(evidence(Pattern.IMMEDIATE_NONFINITE, "skipped", 700, ranks=(5,))).incidents[0].first
    assert (first.ranks, first.iteration, first.phase) == ((5,), 700, "optimizer")


def test_long_lists_are_cut_and_counted() -> None:
    ranks = range(3000)
    bad = range(1500)
    many = divergence(bad, 1200, 1190, sights=())
    shifts = [drift(1300 + at, 1299 + at, 1300 + at, key=str(at)) for at in range(80)]
    judged = verdict(many, *shifts, ranks=tuple(ranks), layout=mesh(("dp", 3000)))
    incident = judged.incidents[0]
    assert (len(incident.first.ranks), incident.first.rank_count) == (MAX_LISTED_RANKS, 1500)
    assert (len(incident.evidence), incident.evidence_count) == (MAX_LISTED_EVIDENCE, 81)


def test_nothing_judged_is_undetermined() -> None:
    not_run = (Check(name="nonfinite", state=CheckState.NOT_RUN, why="no loss"),)
    assert fuse("r", [], InputFacts()).label is Label.UNDETERMINED
    assert fuse("r", [findings(checks=not_run)], InputFacts()).label is Label.UNDETERMINED
    assert fuse("r", [findings(positions=0, judged_to=None)], InputFacts()).label is Label.UNDETERMINED


def test_each_attempt_has_its_label_and_the_run_that_of_the_first_fault() -> None:
    ill = replace(divergence([3], 600, 590), attempt=1)
    attempts = [
        findings(nonfinite(sight("loss", [5], but(5)))),
        findings(ill, attempt=1, judged_to=900),
        findings(attempt=2, judged_to=800),
    ]
    judged = fuse("r", attempts, InputFacts())
    assert [one.label for one in judged.attempts] == [Label.NAN, Label.SILENT_DRIFT, Label.HEALTHY]
    assert (judged.label, judged.judged_to_iteration) == (Label.NAN, 800)
    assert [one.first.attempt for one in judged.incidents] == [0, 1]


def test_an_earlier_observation_revises_an_incident_and_keeps_its_id() -> None:
    late = verdict(divergence([3], 1200, 1190))
    early = verdict(divergence([3], 1200, 1190), divergence([3], 1195, 1185, metric="optim_checksum"))
    assert [one.id for one in late.incidents] == [one.id for one in early.incidents]
    assert early.incidents[0].first.interval == (1190, 1195)


def test_an_incident_found_later_leaves_the_ids_of_others_alone() -> None:
    one = verdict(nonfinite(sight("loss", [5], but(5))))
    vague = divergence([2], 300, 290, certainty=Certainty.SUSPECTED, alarm_iteration=1500)
    two = verdict(nonfinite(sight("loss", [5], but(5))), vague)
    assert two.incidents[0].id == one.incidents[0].id
    assert [one.first.iteration for one in two.incidents] == [700, 300]


def test_ids_tell_runs_and_attempts_apart() -> None:
    found = divergence([3], 1200, 1190)
    names = {verdict(found, run=run, attempt=attempt).incidents[0].id for run in "ab" for attempt in (0, 1)}
    assert len(names) == 4


def _everything() -> list[Evidence]:
    return [
        drift(300, 280, 360, key="curve"),
        divergence([3], 1200, 1190),
        divergence([3], 1205, 1195, metric="canary_checksum"),
        divergence([5], 1400, 1390),
        explosion(1711),
        explosion(1714, metric="loss", key="loss"),
        explosion(100, certainty=Certainty.RECOVERED, key="spike"),
        divergence([7], 90, 80, certainty=Certainty.SUSPECTED, key="odd"),
        nonfinite(sight("loss", EIGHT, iteration=1720), sight("grad_norm", EIGHT, iteration=1720)),
        explosion(1720, metric="num_zeros", supporting=True, key="zeros"),
    ]


def test_the_order_of_evidence_annotations_checks_and_attempts_has_no_say() -> None:
    notes = [Annotation(kind="loss_scale_skip", key=str(at), attempt=0, iteration=at) for at in (14, 3, 9)]
    second = findings(replace(divergence([2], 50, 40), attempt=1), attempt=1)
    shuffler = random.Random(7)
    seen = set()
    for _ in range(20):
        found = _everything()
        shuffler.shuffle(found)
        shuffler.shuffle(notes)
        attempts = [findings(*found, annotations=notes), second]
        shuffler.shuffle(attempts)
        seen.add(canonical_bytes(fuse("r", attempts, InputFacts(rejected_by={"b: x": 1, "a: y": 2}))))
    assert len(seen) == 1


def test_a_nan_on_a_hundred_thousand_ranks_is_judged_in_moments() -> None:
    ranks = range(100_000)
    found = nonfinite(sight("loss", [5], but(5, ranks=ranks)), sight("grad_norm", ranks))
    start = time.process_time()
    judged = verdict(found, ranks=tuple(ranks), layout=mesh(("dp", len(ranks))), world_size=len(ranks))
    # 10 s: twenty times what it takes on an idle core.
    assert time.process_time() - start < 10
    first = judged.incidents[0].first
    assert (first.ranks, first.victim_count, len(first.victims)) == ((5,), 99_999, MAX_LISTED_RANKS)


def test_a_flood_of_evidence_is_fused_in_bounded_time_and_space() -> None:
    flood = [divergence([at % 7], 10 * at + 10, 10 * at + 9, key=str(at), sights=()) for at in range(1500)]
    judged = verdict(*flood)
    assert len(judged.incidents) <= 200
    assert sum(one.evidence_count for one in judged.incidents) == 1500


def test_a_number_that_differed_once_is_confirmed_by_state_of_the_same_rank_that_does() -> None:
    norm = evidence(
        Pattern.COLLECTIVE_MISMATCH,
        "grad_norm",
        72,
        ranks=(3,),
        certainty=Certainty.SUSPECTED,
        detector="agreement",
    )
    (incident,) = verdict(norm, divergence([3], 80, 60)).incidents
    first = incident.first
    assert (first.metric, first.interval, first.ranks) == ("grad_norm", (71, 72), (3,))
    assert incident.causes[0].stage == "reduce"
    assert len(verdict(norm, divergence([5], 80, 60)).incidents) == 2


def test_of_ranks_that_share_a_norm_the_one_with_another_gradient_is_named() -> None:
    layout = mesh(("dp", 2), ("ep", 4))
    norm = evidence(Pattern.COLLECTIVE_MISMATCH, "grad_norm", 411, detector="agreement", ranks=(4, 5, 6, 7))
    gradient = evidence(
        Pattern.COLLECTIVE_MISMATCH, "grad_checksum", 411, detector="checksum_vote", ranks=(7,)
    )
    state = divergence([4, 5, 6, 7], 411, 410)
    judged = verdict(norm, gradient, state, layout=layout)
    assert (judged.incidents[0].first.ranks, judged.incidents[0].first.tie) == ((7,), False)
