"""The truth of faulty runs, from made-up columns whose truth is known by construction."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firstfault.drill.rig.accepted import accepted_causes, phase_of_fault
from firstfault.drill.rig.catalogue import CATALOGUE
from firstfault.drill.rig.effects import first_effects
from firstfault.drill.rig.outcomes import Outcome, damage_of
from firstfault.drill.rig.recording import Recording, align, record_run
from firstfault.drill.rig.relations import broken_relations
from firstfault.drill.rig.spec import Fault, Kind, Site
from firstfault.drill.rig.tiers import Tier
from firstfault.drill.rig.truth import judge_truth
from firstfault.mesh import Layout
from firstfault.telemetry import Checksum, Event, EventKind, Record

from .truth_builders import FAULT, NOISE, healthy, with_checksum, with_metric, with_number


def labels(faulty: Recording, twin: Recording) -> dict[str, str]:
    return {tier.value: truth.label for tier, truth in judge_truth(faulty, twin, FAULT).tiers.items()}


def test_records_become_columns_that_tell_nan_from_not_reported() -> None:
    said: list[Record | Event] = [
        Event(kind=EventKind.RUN_START, run="a", rank=0, iteration=0, fields={"mesh": [["dp", 2]]}),
        Record(run="a", rank=1, iteration=0, metrics={"loss": float("nan"), "param_checksum": Checksum(9)}),
        Record(run="a", rank=0, iteration=0, metrics={"param_checksum": Checksum(1 << 100)}),
        Record(run="a", rank=0, iteration=1, attempt=1, metrics={"loss": 2.0}),
        Record(run="a", rank=0, iteration=1, metrics={"loss": 3.0}),
    ]
    run = record_run(said)
    assert run.present["loss"].tolist() == [[False, True], [True, False], [True, False]]
    assert np.isnan(run.numbers["loss"][0, 1])
    assert run.numbers["loss"][1:, 0].tolist() == [3.0, 2.0]
    assert run.checksums["param_checksum"][0].tolist() == [1 << 36, 9]
    assert run.layout is not None
    assert run.layout.axes == ("dp",)


def test_a_run_is_compared_where_both_have_it() -> None:
    twin = healthy(iterations=50)
    short = align(healthy(iterations=30, seed=9), twin)
    assert [len(one) for one in short] == [30, 30]


def test_a_run_equal_to_its_twin_shows_nothing() -> None:
    truth = judge_truth(healthy(), healthy(), FAULT)
    assert truth.first_effect == {}
    assert truth.damage.outcome is Outcome.NO_EFFECT
    assert {one.label for one in truth.tiers.values()} == {"healthy"}
    assert not any(one.is_observable for one in truth.tiers.values())


def test_a_checksum_that_differs_from_the_twin_but_not_from_its_peers_is_not_observable() -> None:
    twin = healthy()
    faulty = with_checksum(twin, "param_checksum", slice(200, None))
    truth = judge_truth(faulty, twin, FAULT)
    assert truth.first_effect == {"param_checksum": 200}
    assert not truth.tiers[Tier.CANARY].is_observable


def test_an_odd_replica_is_a_drift_from_the_tier_of_checksums_on_and_is_named() -> None:
    twin = healthy()
    faulty = with_checksum(twin, "param_checksum", (slice(200, None), 3))
    truth = judge_truth(faulty, twin, FAULT).tiers
    assert [truth[tier].label for tier in Tier] == ["healthy", "healthy", "silent_drift", "silent_drift"]
    assert (truth[Tier.CHECKSUMS].ranks, truth[Tier.CHECKSUMS].onset) == ((3,), 200)
    assert truth[Tier.CHECKSUMS].last_clean == 199


def test_of_two_replicas_that_differ_either_may_be_the_faulty_one() -> None:
    twin = healthy(ranks=2)
    (broken,) = broken_relations(with_checksum(twin, "param_checksum", (slice(200, None), 1)), twin)
    assert broken.ranks == (0, 1)


def test_the_onset_of_a_checksum_checked_now_and_then_is_an_interval() -> None:
    twin = healthy()
    twin.present["param_checksum"][np.arange(400) % 10 != 0] = False
    faulty = with_checksum(twin, "param_checksum", (slice(203, None), 3))
    truth = judge_truth(faulty, twin, FAULT).tiers[Tier.CHECKSUMS]
    assert (truth.last_clean, truth.onset) == (200, 210)


def test_a_rank_that_disagrees_with_its_own_repetition_is_named() -> None:
    twin = healthy()
    faulty = with_checksum(twin, "repeat_checksum/canary", (250, 5))
    truth = judge_truth(faulty, twin, FAULT).tiers[Tier.CANARY]
    assert (truth.label, truth.ranks, truth.onset) == ("silent_drift", (5,), 250)


def test_one_rank_nine_sigma_off_its_peers_once_is_observable_with_ranks_alone() -> None:
    twin = healthy()
    faulty = with_number(twin, "loss", 10 * NOISE, (260, 2))
    truth = judge_truth(faulty, twin, FAULT).tiers
    assert [truth[tier].label for tier in Tier] == ["healthy", *["silent_drift"] * 3]
    assert (truth[Tier.RANKS].ranks, truth[Tier.RANKS].onset) == ((2,), 260)


def test_a_lasting_shift_of_one_rank_is_observable_and_a_small_one_is_not() -> None:
    twin = healthy()
    shifted = with_number(twin, "loss", 1.5 * NOISE, (slice(220, None), 6))
    small = with_number(twin, "loss", 0.5 * NOISE, (slice(220, None), 6))
    assert judge_truth(shifted, twin, FAULT).tiers[Tier.RANKS].ranks == (6,)
    assert labels(small, twin)["ranks"] == "healthy"


def test_a_level_that_rises_on_all_ranks_is_a_drift_in_one_curve_already() -> None:
    twin = healthy()
    faulty = with_number(twin, "loss", 3 * NOISE, slice(240, None))
    truth = judge_truth(faulty, twin, FAULT)
    assert truth.tiers[Tier.CURVE].label == "silent_drift"
    assert truth.tiers[Tier.CURVE].onset == 240
    assert truth.damage.outcome is Outcome.SLOW_DEGRADE
    assert truth.damage.mattered_at == 240


def test_a_level_that_falls_is_no_fault_to_see() -> None:
    twin = healthy()
    assert labels(with_number(twin, "loss", -3 * NOISE, slice(240, None)), twin)["curve"] == "healthy"


def test_a_loss_that_only_falls_more_slowly_is_a_drift_that_one_curve_cannot_show() -> None:
    twin = healthy()
    gap = np.minimum(np.arange(400.0) - 150, 150)[:, None] / 150
    slower = with_number(twin, "loss", (0.3 * gap)[150:], slice(150, None))
    truth = judge_truth(slower, twin, FAULT)
    assert (truth.tiers[Tier.CURVE].label, truth.tiers[Tier.CURVE].is_observable) == ("silent_drift", False)
    rising = judge_truth(with_number(twin, "loss", (2.0 * gap)[150:], slice(150, None)), twin, FAULT)
    assert rising.tiers[Tier.CURVE].is_observable


@pytest.mark.parametrize(("points", "label"), [(2, "nan"), (3, "gradient_explosion")])
def test_a_jump_of_two_points_that_ends_in_nan_is_a_nan_in_every_tier(points: int, label: str) -> None:
    twin = healthy()
    growth = np.asarray(9.0 * 4.0 ** np.arange(points)[:, None], np.float64)
    grown = with_number(twin, "loss", growth, slice(200, 200 + points))
    grown = with_number(grown, "local_grad_norm", 30.0, (slice(200, 200 + points), 2))
    faulty = with_number(grown, "loss", np.nan, slice(200 + points, None))
    assert set(labels(faulty, twin).values()) == {label}


@pytest.mark.parametrize(("skips", "label"), [(5, "healthy"), (25, "nan")])
def test_skips_of_a_loss_scale_are_a_fault_only_where_they_do_not_end(skips: int, label: str) -> None:
    scaled = with_metric(healthy(), "loss_scale", np.full((400, 8), 2.0**20))
    twin = with_metric(scaled, "skipped", np.zeros((400, 8)))
    struck = with_number(twin, "skipped", 1.0, slice(200, 200 + skips))
    faulty = with_number(struck, "grad_norm", np.inf, slice(200, 200 + skips))
    assert labels(faulty, twin)["curve"] == label
    is_lost = judge_truth(faulty, twin, FAULT).damage.outcome is Outcome.NONFINITE_NOW
    assert is_lost is (label == "nan")


def test_growth_is_an_explosion_also_where_it_ends_in_nan() -> None:
    twin = healthy()
    growth = 0.5 * np.exp(np.arange(8))[:, None]
    grown = with_number(twin, "loss", growth, slice(200, 208))
    faulty = with_number(grown, "loss", np.nan, slice(208, None))
    truth = judge_truth(faulty, twin, FAULT)
    assert {one.label for one in truth.tiers.values()} == {"gradient_explosion"}
    assert truth.tiers[Tier.CURVE].onset == 200
    assert truth.damage.outcome is Outcome.NONFINITE_LATER


def test_nan_out_of_a_clean_curve_is_nan_and_names_who_was_first() -> None:
    twin = healthy()
    faulty = with_number(twin, "nonfinite_act", 1.0, (201, 4))
    for metric, ranks in (
        ("loss", 4),
        ("local_grad_norm", 4),
        ("nonfinite_grad", 4),
        ("grad_norm", slice(None)),
    ):
        faulty = with_number(faulty, metric, np.inf, (201, ranks))
    truth = judge_truth(with_number(faulty, "loss", np.nan, slice(202, None)), twin, FAULT)
    assert [one.label for one in truth.tiers.values()] == ["nan"] * 4
    assert [one.ranks for one in truth.tiers.values()] == [(), (4,), (4,), (4,)]
    assert truth.tiers[Tier.CURVE].onset == 201
    assert truth.damage.outcome is Outcome.NONFINITE_NOW


def test_a_drift_that_ends_in_an_explosion_is_a_drift() -> None:
    twin = healthy()
    faulty = with_checksum(twin, "param_checksum", (slice(200, None), 3))
    faulty = with_number(faulty, "loss", np.exp(np.arange(50))[:, None], slice(350, None))
    truth = judge_truth(faulty, twin, FAULT).tiers
    assert [truth[tier].label for tier in Tier] == [*["gradient_explosion"] * 2, *["silent_drift"] * 2]


def test_a_rank_that_shows_the_growth_of_all_first_is_no_drift_of_that_rank() -> None:
    twin = healthy()
    faulty = with_number(twin, "loss", 10 * NOISE, (335, 2))
    faulty = with_number(faulty, "loss", np.exp(np.arange(50))[:, None], slice(350, None))
    of_all = replace(FAULT, rank=None)
    assert labels(faulty, twin)["ranks"] == "silent_drift"
    assert judge_truth(faulty, twin, of_all).tiers[Tier.RANKS].label == "gradient_explosion"


def test_a_spike_that_passes_is_observable_and_healthy() -> None:
    twin = healthy()
    faulty = with_number(twin, "loss", 40 * NOISE, slice(200, 203))
    truth = judge_truth(faulty, twin, FAULT)
    assert (truth.tiers[Tier.CURVE].label, truth.tiers[Tier.CURVE].is_observable) == ("healthy", True)
    assert truth.damage.outcome is Outcome.BENIGN_JITTER


def test_a_skipped_step_of_a_loss_scale_is_no_fault_and_one_rank_that_makes_them_all_is() -> None:
    scaled = with_metric(healthy(), "loss_scale", np.ones((400, 8)))
    twin = with_metric(scaled, "skipped", np.zeros((400, 8)))
    once, often = (with_number(twin, "skipped", 1.0, where) for where in (210, slice(210, 390, 20)))
    assert labels(with_number(once, "nonfinite_grad", 3.0, (210, 1)), twin)["ranks"] == "healthy"
    truth = judge_truth(with_number(often, "nonfinite_grad", 3.0, (slice(210, 390, 20), 1)), twin, FAULT)
    assert (truth.tiers[Tier.RANKS].label, truth.tiers[Tier.RANKS].ranks) == ("nan", (1,))


def test_a_sharp_rise_that_stays_is_a_sharp_degrade_and_one_that_worsens_is_sharp_and_slow() -> None:
    twin = healthy()
    stays = with_number(twin, "loss", 20 * NOISE, slice(200, None))
    worsens = with_number(stays, "loss", NOISE * np.arange(200.0)[:, None], slice(200, None))
    assert damage_of(stays, twin, 200).outcome is Outcome.SHARP_DEGRADE
    assert damage_of(worsens, twin, 200).outcome is Outcome.SHARP_SLOW_DEGRADE
    assert damage_of(stays, twin, 200).mattered_at == 200


def test_first_effects_tell_the_bit_from_the_noise() -> None:
    twin = healthy()
    faulty = with_number(twin, "loss", 0.1 * NOISE, (slice(200, None), 3))
    faulty = with_number(faulty, "nonfinite_act", 1.0, (230, 3))
    assert first_effects(faulty, twin) == {"nonfinite_act": 230}


def test_every_fault_has_a_cause_and_a_phase() -> None:
    faults = [
        Fault(kind=kind, site=site, iteration=10) for kind, entry in CATALOGUE.items() for site in entry.sites
    ]
    assert all(accepted_causes(fault) and phase_of_fault(fault) for fault in faults)


def test_a_wrong_value_behind_the_reduction_may_be_the_collectives_work() -> None:
    at = {
        site: Fault(kind=Kind.BIT_FLIP, site=site, iteration=10) for site in (Site.FORWARD, Site.REDUCE_OUT)
    }
    assert accepted_causes(at[Site.FORWARD]) == ("hardware",)
    assert accepted_causes(at[Site.REDUCE_OUT]) == ("collective", "hardware")


def test_a_fault_after_the_world_shrank_is_seen_among_the_ranks_that_are_left() -> None:
    said: list[Record | Event] = []
    for attempt, ranks in ((0, 6), (1, 3)):
        fields: dict[str, object] = {"mesh": [["dp", ranks]], "world_size": ranks}
        said.append(
            Event(kind=EventKind.RUN_START, run="a", rank=0, iteration=0, attempt=attempt, fields=fields)
        )
        for iteration in range(40):
            for rank in range(ranks):
                is_odd = (attempt, rank) == (1, 2) and iteration >= 30
                metrics = {"param_checksum": Checksum(iteration + 100 * is_odd)}
                said.append(Record(run="a", rank=rank, attempt=attempt, iteration=iteration, metrics=metrics))
    faulty = record_run(said)
    twin = with_checksum(faulty, "param_checksum", (slice(70, None), 2))
    twin.checksums["param_checksum"][70:, 2] = twin.checksums["param_checksum"][70:, 0]
    (broken,) = broken_relations(faulty, twin)
    assert (broken.position, broken.iteration, broken.ranks) == (70, 30, (2,))


def test_replicas_that_part_in_several_stages_are_all_suspects_and_nobody_is_where_the_culprit_is_not() -> (
    None
):
    places = {rank: divmod(rank, 2) for rank in range(8)}
    twin = healthy(layout=Layout(axes=("pp", "dp"), coordinates=places))
    both = with_checksum(twin, "param_checksum", (slice(200, None), [2, 4]))
    assert judge_truth(both, twin, FAULT).tiers[Tier.CHECKSUMS].ranks == (2, 3, 4, 5)
    others = with_checksum(twin, "param_checksum", (slice(200, None), [0, 4]))
    assert judge_truth(others, twin, FAULT).tiers[Tier.CHECKSUMS].ranks == ()


def test_ranks_of_different_experts_may_not_read_the_same_data() -> None:
    places = {rank: divmod(rank, 4) for rank in range(8)}
    twin = healthy(layout=Layout(axes=("dp", "ep"), coordinates=places))
    sums, present = dict(twin.checksums), dict(twin.present)
    sums["data_checksum"] = np.arange(400 * 8, dtype=np.uint64).reshape(400, 8)
    present["data_checksum"] = np.ones((400, 8), dtype=np.bool_)
    twin = replace(twin, checksums=sums, present=present)
    same = sums["data_checksum"].copy()
    same[200:, 3] = same[200:, 4]
    truth = judge_truth(replace(twin, checksums={**sums, "data_checksum": same}), twin, FAULT)
    assert (truth.tiers[Tier.CHECKSUMS].label, truth.tiers[Tier.CHECKSUMS].ranks) == ("silent_drift", (3, 4))


def test_a_checksum_that_some_stages_alone_report_is_compared_among_them() -> None:
    layout = Layout(("pp", "dp"), {at: (at // 2, at % 2) for at in range(8)})
    twin = healthy(layout=layout)
    ends = np.isin(twin.ranks_R, (0, 1, 6, 7))
    tied = np.where(ends, twin.checksums["param_checksum"], np.uint64(0))
    present = {**twin.present, "param_checksum/tied": np.repeat(ends[None], len(twin), axis=0)}
    twin = replace(twin, checksums={**twin.checksums, "param_checksum/tied": tied}, present=present)
    parted = tied.copy()
    parted[200:, 7] += np.uint64(1)
    faulty = replace(twin, checksums={**twin.checksums, "param_checksum/tied": parted})
    (broken,) = broken_relations(faulty, twin)
    assert (broken.metric, broken.ranks, broken.iteration) == ("param_checksum/tied", (7,), 200)


def test_a_sum_of_values_that_grow_may_be_rounded_as_they_grow_and_a_wrong_one_shows() -> None:
    rng = np.random.default_rng(4)
    into = rng.normal(size=(400, 8))
    rounding = 1e-7 * rng.normal(size=(400, 1)) * np.abs(into).sum(axis=1, keepdims=True)
    summed = np.repeat(into.sum(axis=1, keepdims=True) + rounding, 8, axis=1)
    twin = with_metric(with_metric(healthy(), "grad_sketch_in", into), "grad_sketch_out", summed)
    grown = np.where(np.arange(400)[:, None] < 200, 1.0, 1e6)
    large = with_metric(
        with_metric(healthy(), "grad_sketch_in", into * grown), "grad_sketch_out", summed * grown
    )
    assert broken_relations(large, twin) == []
    wrong = summed * grown
    wrong[200] += 10.0 * np.abs(into[200]).sum() * 1e6 * 1e-3
    faulty = with_metric(large, "grad_sketch_out", wrong)
    assert [one.iteration for one in broken_relations(faulty, twin)] == [200]
