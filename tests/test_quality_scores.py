"""The figures of the quality benchmark are what their names say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.quality.case import Origin, Tier
from bench.quality.comparison import compare, lost_columns
from bench.quality.floor import Floor, Holds
from bench.quality.floors import floors
from bench.quality.intervals import bootstrap, exact_rate, exact_share, quantile_interval
from bench.quality.naive import ANY, Alarm, alarms_of_rules, merged
from bench.quality.outlier_floors import outlier_floors
from bench.quality.outliers import Outcome, Trial
from bench.quality.scores import (
    Figure,
    cause_confusion,
    confusion,
    delays,
    false_alarms,
    macro_f1,
    onset_errors,
    precision,
    rank_class,
    recall,
    scored,
    stage_share,
)

from .quality_builders import a_found, a_row

DRIFT, EXPLOSION = "silent_drift", "gradient_explosion"


def test_intervals_are_those_of_the_textbook() -> None:
    assert exact_share(8, 10) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert exact_share(0, 10) == pytest.approx((0.0, 0.3085), abs=1e-4)
    assert exact_rate(3, 1.0) == pytest.approx((0.6187, 8.7673), abs=1e-4)
    assert exact_rate(0, 1.0) == pytest.approx((0.0, 2.9957), abs=1e-4)


def test_the_interval_of_a_median_holds_it_nineteen_times_in_twenty() -> None:
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(400):
        low, high = quantile_interval(rng.normal(size=25).tolist(), 0.5)
        inside += low <= 0.0 <= high
    assert inside >= 0.93 * 400


def test_a_bootstrap_interval_is_as_wide_as_the_theory_says() -> None:
    values = np.random.default_rng(2).normal(size=400).tolist()
    low, high = bootstrap(values, lambda drawn: sum(drawn) / len(drawn))
    assert high - low == pytest.approx(2 * 1.96 / math.sqrt(400), rel=0.25)


def test_labels_are_counted_against_the_truth() -> None:
    rows = [
        a_row("healthy"),
        a_row("healthy", a_found(DRIFT, 5)),
        a_row(DRIFT, a_found(DRIFT, 500), onset=500),
        a_row(DRIFT, onset=500),
        a_row("nan", a_found("nan", 500), onset=500),
    ]
    assert confusion(rows)["healthy", DRIFT] == 1
    assert recall(rows, DRIFT).value == precision(rows, DRIFT).value == 0.5
    assert macro_f1(rows).value == pytest.approx((0.5 + 0.5 + 1.0) / 3)


def test_only_faults_that_mattered_and_show_are_asked_for() -> None:
    unseen = a_row("healthy", a_found(DRIFT, 600), injected_at=500, is_observable=False)
    harmless = a_row(DRIFT, onset=500, mattered=False)
    spike = a_row("healthy", injected_at=500, mattered=False)
    asked = a_row(DRIFT, onset=500)
    assert scored([unseen, harmless, spike, asked]) == [asked]


def test_delays_count_logged_points_from_the_onset_and_nothing_before_it() -> None:
    early = a_found(EXPLOSION, 100, suspected_at=100, confirmed_at=100)
    right = a_found(EXPLOSION, 500, suspected_at=510, confirmed_at=600)
    row = a_row(EXPLOSION, early, right, onset=500, log_interval=5)
    assert delays([row], is_sure=False) == [2]
    assert delays([row], is_sure=True) == [20]
    assert row.false_alarms == 1
    assert onset_errors([row]) == [80]  # the root is the early one


def test_a_restore_that_comes_back_wrong_is_no_false_alarm_at_the_iteration_of_its_checkpoint() -> None:
    row = a_row(DRIFT, a_found(DRIFT, 40), onset=40, injected_at=53)
    assert row.false_alarms == 0


def test_a_fault_that_an_attempt_repeats_from_before_is_no_false_alarm() -> None:
    first, again = a_found(DRIFT, 44), a_found(DRIFT, 40, attempt=1)
    assert a_row(DRIFT, first, again, onset=44, injected_at=44).false_alarms == 0
    assert a_row(DRIFT, replace(again, attempt=0), first, onset=44, injected_at=44).false_alarms == 1


def test_false_alarms_are_a_rate_over_healthy_points() -> None:
    rows = [
        a_row("healthy", a_found(DRIFT, 7), healthy_points=50_000),
        a_row("healthy", healthy_points=150_000),
    ]
    figure = false_alarms(rows)
    assert (figure.value, figure.cases) == (0.5, 200_000)
    assert figure.low < 0.5 < figure.high


def test_a_tie_of_all_ranks_lists_none_and_is_a_tie_all_the_same() -> None:
    both = a_found(DRIFT, 500, ranks=(), is_tie=True, rank_count=2)
    row = a_row(DRIFT, both, onset=500, ranks=(0,), suspects=(0, 1), replicas=2)
    assert rank_class(row) == "tie"
    assert rank_class(replace(row, truth=replace(row.truth, suspects=(0, 1, 2)))) == "none"


@pytest.mark.parametrize(
    ("ranks", "is_tie", "share"), [((0, 1), True, 1.0), ((1,), False, 1.0), ((0,), False, 0.0)]
)
def test_of_two_replicas_the_floor_wants_both_or_the_right_one(
    ranks: tuple[int, ...], is_tie: bool, share: float
) -> None:
    named = a_found(DRIFT, 500, ranks=ranks, is_tie=is_tie)
    row = a_row(DRIFT, named, onset=500, tier=Tier.CHECKSUMS, ranks=(1,), suspects=(0, 1), replicas=2)
    (floor,) = [one for one in floors([row]) if "one of two" in one.name]
    assert floor.figure.value == share


@pytest.mark.parametrize(
    ("ranks", "is_tie", "expected"),
    [((3,), False, "exact"), ((1, 3), True, "tie"), ((1,), False, "wrong"), ((), False, "none")],
)
def test_named_ranks_are_exact_a_tie_that_holds_it_wrong_or_none(
    ranks: tuple[int, ...], is_tie: bool, expected: str
) -> None:
    row = a_row(DRIFT, a_found(DRIFT, 500, ranks=ranks, is_tie=is_tie), onset=500, ranks=(3,))
    assert rank_class(row) == expected


def test_a_cause_that_is_accepted_too_counts_as_the_true_one() -> None:
    accepted = a_row(DRIFT, a_found(DRIFT, 5, cause="collective"), onset=5, causes=("hardware", "collective"))
    wrong = a_row(DRIFT, a_found(DRIFT, 5, cause="data"), onset=5, causes=("hardware",), stage="reduce")
    assert cause_confusion([accepted, wrong]) == {("hardware", "hardware"): 1, ("hardware", "data"): 1}
    assert stage_share([wrong]).value == 0.0


@pytest.mark.parametrize(
    ("figure", "bound", "holds"),
    [
        (Figure(value=0.99, low=0.985, high=0.995, cases=500), 0.98, Holds.YES),
        (Figure(value=0.99, low=0.9, high=1.0, cases=20), 0.98, Holds.OPEN),
        (Figure(value=0.5, low=0.4, high=0.6, cases=100), 0.98, Holds.NO),
        (Figure(value=1.0, low=0.94, high=1.0, cases=60), 1.0, Holds.YES),
        (Figure(value=1.0, low=0.9, high=1.0, cases=40), 1.0, Holds.OPEN),
        (Figure(value=math.nan, low=0.0, high=1.0, cases=0), 0.9, Holds.NOT_RUN),
    ],
)
def test_a_floor_holds_when_the_whole_interval_does(figure: Figure, bound: float, holds: Holds) -> None:
    assert Floor(name="floor", bound=bound, figure=figure).holds is holds


def test_every_floor_is_measured_on_the_rows_that_it_is_about() -> None:
    fast = a_row(EXPLOSION, a_found(EXPLOSION, 501, confirmed_at=520), onset=500, facts={"fast": 1.0})
    vote = a_row(
        DRIFT,
        a_found(DRIFT, 500),
        onset=500,
        origin=Origin.RIG,
        tier=Tier.CHECKSUMS,
        ranks=(3,),
        replicas=8,
        interval=10,
    )
    lost = a_row("nan", a_found("nan", 500), onset=500, suspects=(3,))
    measured = {floor.name: floor.figure for floor in floors([fast, vote, lost])}
    for name in (
        "explosion, fast: suspected within 4 points",
        "explosion, fast: onset within 2 points",
        "checksum faults of replicated state found",
        "checksum faults: within one checking interval",
        "checksum faults: rank exact, 3 replicas or more",
        "NaN: suspects equal the oracle's minimal set",
    ):
        assert (measured[name].value, measured[name].cases) == (1.0, 1), name


def test_single_ranks_are_held_against_the_published_rule() -> None:
    trial = Trial(noise="gaussian", sigmas=6.0, is_lasting=False, iterations=8000, seed=0)
    measured = outlier_floors([Outcome(trial=trial, cases=100, ours=90, rule=60)])
    assert measured[0].figure.value == 0.9
    assert measured[-1].figure.value == pytest.approx(0.3)
    assert measured[-1].holds is Holds.YES


def test_naive_rules_fire_on_a_jump_and_name_a_nan() -> None:
    loss = [2.0 + 0.01 * (at % 7) for at in range(400)]
    loss[300:] = [5.0] * 100
    loss[390:] = [math.nan] * 10
    found = alarms_of_rules({"iteration": list(range(400)), "loss": loss})
    assert found["2 x mean of 10"][0] == Alarm(300, ANY)
    assert merged(found["2 x mean of 10"], 50) == [Alarm(300, ANY), Alarm(390, frozenset({"nan"}))]
    assert found["z > 3 over 30"][0].iteration == 300
    assert merged(found["10 x maximum of the first 100"], 50) == [Alarm(390, frozenset({"nan"}))]


def test_an_alarm_that_the_twin_has_too_finds_nothing() -> None:
    alarm = Alarm(510, ANY)
    caught = a_row(DRIFT, onset=500, others={"rule": [alarm]}, of_twin={"rule": []})
    chance = a_row(DRIFT, onset=500, others={"rule": [alarm]}, of_twin={"rule": [Alarm(508, ANY)]})
    ours, rule = compare([caught, chance])
    assert rule.found[DRIFT].value == 0.5
    assert ours.found[DRIFT].value == 0.0
    assert any(line.startswith("silent_drift found: rule 0.5") for line in lost_columns([ours, rule]))


def test_onsets_are_compared_on_the_faults_that_the_other_method_dates() -> None:
    sharp = a_row(EXPLOSION, a_found(EXPLOSION, 500), onset=500, others={"rule": [Alarm(501, ANY)]})
    vague = a_row(DRIFT, a_found(DRIFT, 530), onset=500, others={"rule": []})
    ours, rule = compare([sharp, vague])
    assert (ours.near.value, rule.near.value) == (0.5, 1.0)
    assert rule.near_ours is not None and (rule.near_ours.value, rule.near_ours.cases) == (1.0, 1)
    assert not any("onset" in line for line in lost_columns([ours, rule]))
    late = a_row(EXPLOSION, a_found(EXPLOSION, 520), onset=500, others={"rule": [Alarm(501, ANY)]})
    assert any(
        "onset within 5 points, of the 1 that rule dates" in line for line in lost_columns(compare([late]))
    )
