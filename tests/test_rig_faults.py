"""Every kind of fault shows where it acts: in the metrics behind its site, on its rank alone or on all."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from firstfault.drill.rig import Fault, Kind, Site
from firstfault.drill.rig.catalogue import CATALOGUE
from firstfault.drill.rig.signs import SIGNS
from firstfault.telemetry import Record

from .rig_builders import (
    RANKS,
    STRIKE,
    STRUCK,
    Effect,
    by_place,
    effects,
    fits,
    job_for,
    small_job,
    sure_fault,
)

pytestmark = pytest.mark.torch

ALL = list(range(RANKS))
ONE = [STRUCK]
CASES = [
    (kind, site)
    for kind, entry in CATALOGUE.items()
    for site in entry.sites
    if site in SIGNS and fits(small_job(), kind)
]


@pytest.mark.parametrize(("kind", "site"), CASES)
def test_a_fault_shows_first_behind_its_site_and_on_its_rank(kind: Kind, site: Site) -> None:
    effect = effects(site)[kind]
    signs = SIGNS[site]
    starts_at = 0 if CATALOGUE[kind].from_start else STRIKE
    # the attempt after the restart repeats iteration 3
    assert effect.at == ((1, 3) if site is Site.CHECKPOINT else (0, starts_at))
    whole = sure_fault(kind, site).rank is None
    for metric in signs.own:
        assert effect.ranks.get(metric) == (ALL if whole else ONE), metric
    for metric in signs.everywhere:
        assert effect.ranks.get(metric) == ALL, metric
    assert [metric for metric in signs.clean if metric in effect.ranks] == []


@pytest.mark.parametrize("site", SIGNS)
def test_a_lasting_fault_of_the_computation_shows_in_the_canary_of_its_rank_alone(site: Site) -> None:
    lasting = [
        kind for kind in effects(site) if CATALOGUE[kind].lasts is None and CATALOGUE[kind].is_of_one_rank
    ]
    computes = site in {Site.FORWARD, Site.RECOMPUTE, Site.ACT_GRAD, Site.WEIGHT_GRAD}
    for kind in lasting:
        assert effects(site)[kind].ranks.get("canary_checksum") == (ONE if computes else None), kind


@pytest.mark.parametrize(
    ("kind", "site", "counts"),
    [
        (Kind.NAN_INPUT, Site.DATA, {"nonfinite_input": ONE, "nonfinite_act": ONE, "nonfinite_reduced": ALL}),
        (Kind.LOG_OF_ZERO, Site.LOSS_FUNCTION, {"nonfinite_loss": ALL, "nonfinite_grad": ALL}),
        (Kind.EXPONENT_OVERFLOW, Site.LOSS_FUNCTION, {"nonfinite_loss": ALL, "nonfinite_grad": ALL}),
        (Kind.NAN, Site.FORWARD, {"nonfinite_logits": ONE, "nonfinite_loss": ONE, "nonfinite_reduced": ALL}),
        (Kind.NAN, Site.ACT_GRAD, {"nonfinite_grad": ONE, "nonfinite_reduced": ALL}),
        (Kind.INF, Site.REDUCE_OUT, {"nonfinite_reduced": ONE, "nonfinite_param": ONE}),
        (Kind.INF_MINUS_INF, Site.REDUCE_IN, {"nonfinite_reduced": ALL, "nonfinite_param": ALL}),
        (Kind.NAN, Site.SECOND_MOMENT, {"nonfinite_param": ONE}),
    ],
)
def test_what_is_not_finite_is_counted_where_it_arises_and_behind(
    kind: Kind, site: Site, counts: dict[str, list[int]]
) -> None:
    effect: Effect = effects(site)[kind]
    known = ("input", "act", "logits", "loss", "grad", "reduced", "param")
    before = known[: known.index(next(iter(counts)).removeprefix("nonfinite_"))]
    assert {metric: effect.ranks.get(metric) for metric in counts} == counts
    assert [name for name in before if f"nonfinite_{name}" in effect.ranks] == []


def test_a_rank_that_reads_its_neighbours_shard_has_its_neighbours_checksum() -> None:
    metrics = _metrics(sure_fault(Kind.DUPLICATE_DATA, Site.DATA))
    assert metrics[STRUCK]["data_checksum"] == metrics[STRUCK + 1]["data_checksum"]
    assert metrics[STRUCK]["data_checksum"] != metrics[STRUCK - 1]["data_checksum"]


def test_a_wrong_normalization_multiplies_loss_and_gradient() -> None:
    fault = replace(sure_fault(Kind.WRONG_NORMALIZATION, Site.LOSS_FUNCTION), magnitude=2.0)
    clean, wrong = _metrics(None), _metrics(fault)
    for metric in ("loss", "local_grad_norm"):
        assert wrong[0][metric] == pytest.approx(2 * clean[0][metric], rel=1e-5)


def test_a_dropped_contribution_is_missing_from_the_mean() -> None:
    clean, wrong = _metrics(None), _metrics(sure_fault(Kind.DROPPED, Site.REDUCE_IN))
    missing = clean[STRUCK]["grad_sketch_in"] / RANKS
    assert wrong[0]["grad_sketch_out"] == pytest.approx(clean[0]["grad_sketch_out"] - missing, rel=1e-4)


def test_a_stale_contribution_is_that_of_the_iteration_before() -> None:
    clean, before = _metrics(None), _metrics(None, STRIKE - 1)
    wrong = _metrics(sure_fault(Kind.STALE, Site.REDUCE_IN))
    swapped = (before[STRUCK]["grad_sketch_in"] - clean[STRUCK]["grad_sketch_in"]) / RANKS
    assert wrong[0]["grad_sketch_out"] == pytest.approx(clean[0]["grad_sketch_out"] + swapped, rel=1e-4)


def test_a_rate_strikes_its_share_of_the_passes_and_a_repeated_canary_shows_it() -> None:
    from firstfault.drill.rig.engine import run

    job = small_job(iterations=40)
    fault = replace(sure_fault(Kind.RELATIVE_ERROR, Site.FORWARD), iteration=0, rate=0.3, lasts=None)
    records = [thing for thing in run(job, fault) if isinstance(thing, Record) and thing.rank == STRUCK]
    differs = [one.metrics["canary_checksum"] != one.metrics["repeat_checksum/canary"] for one in records]
    # one of two passes alone is struck in 2 x 0.3 x 0.7 = 42 % of the pairs: 17 of 40, give or take 3
    assert 8 <= sum(differs) <= 26


def test_a_transient_fault_does_not_come_again_when_its_iteration_is_repeated() -> None:
    from firstfault.drill.rig.engine import fork

    job = replace(job_for(Site.CHECKPOINT), iterations=6)
    fault = Fault(kind=Kind.NAN, site=Site.PARAMETER, iteration=3, rank=STRUCK)
    golden, branch = fork(job, [fault])
    clean, faulty = by_place(golden.said), by_place(branch.said)
    assert np.isfinite(clean[0, 3, 0]["loss"])
    assert faulty[0, 3, STRUCK]["nonfinite_param"] == 1
    assert faulty[1, 3, STRUCK] == clean[1, 3, STRUCK]


def _metrics(fault: Fault | None, iteration: int = STRIKE) -> list[dict[str, float]]:
    from firstfault.drill.rig.engine import run

    placed = by_place(list(run(small_job(), fault)))
    return [dict(placed[0, iteration, rank]) for rank in ALL]
