"""The study: its grid, that it goes on where it was stopped, its table and picture."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from firstfault.drill.plans import DrillError
from firstfault.drill.rig.shares import Share
from firstfault.drill.rig.spec import Kind, Site
from firstfault.drill.rig.study import QUICK, RECIPES, Case, StudyPlan, cases
from firstfault.drill.rig.study_picture import picture
from firstfault.drill.rig.study_report import report, share, trained_better
from firstfault.drill.rig.study_results import Result, append, mend, read, result_of

SMALL = replace(QUICK, iterations=21, strikes=(14,), bit_step=32, ranks=2)


def results(outcomes: str = "no_effect") -> list[Result]:
    """One result a case of the quick study, of one outcome; every other one ends better than its twin."""
    return [
        result_of(case, outcomes, 0.01 * (-1) ** number, 0.1, is_same=False)
        for number, case in enumerate(cases(QUICK))
    ]


def test_the_grid_holds_each_case_once_and_the_same_faults_for_every_recipe() -> None:
    grid = list(cases(StudyPlan()))
    assert len({case.key for case in grid}) == len(grid) == StudyPlan().total()
    first = {
        recipe: {
            case.fault for case in grid if case.recipe == recipe and case.fault.site is not Site.SECOND_MOMENT
        }
        for recipe in RECIPES
    }
    assert len({frozenset(faults) for faults in first.values()}) == 1


@pytest.mark.parametrize(("count", "total", "low", "high"), [(0, 20, 0.0, 0.161), (19, 20, 0.764, 0.991)])
def test_intervals_of_shares_are_those_of_wilson(count: int, total: int, low: float, high: float) -> None:
    assert Share(count, total).interval() == pytest.approx((low, high), abs=1e-3)


def test_results_come_back_as_they_were_and_a_line_cut_short_is_no_result(tmp_path: Path) -> None:
    path, some = tmp_path / "study.jsonl", results()[:3]
    some[1] = replace(some[1], outcome="nonfinite_now", end_change=float("nan"), end_sigma=float("nan"))
    append(path, some)
    whole = path.read_text(encoding="utf-8")
    assert "NaN" in whole
    path.write_text(whole + whole[:40], encoding="utf-8")
    assert [one.key for one in read(path)] == [one.key for one in some]
    mend(path)
    assert path.read_text(encoding="utf-8") == whole
    assert np.isnan(read(path)[1].end_change)
    assert read(path)[0] == some[0]


@pytest.mark.parametrize("line", [b"[]", b'{"key": "x"}', b'{"key', b"\xff"])
def test_a_damaged_line_of_results_is_refused_by_its_number(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "study.jsonl"
    append(path, results()[:2])
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(DrillError, match="line 3 must be a result of the study"):
        read(path)


def test_the_share_that_trained_better_is_of_harmless_faults_that_changed_anything() -> None:
    some = results()[:4]
    some[0] = replace(some[0], is_same=True, end_change=0.0)
    some[1] = replace(some[1], outcome="sharp_degrade")
    assert trained_better(some) == Share(1, 2)
    assert share(some, lambda one: one.is_harmless) == Share(3, 4)


def test_the_table_says_how_many_cases_and_what_others_found() -> None:
    table = report(results())
    assert f"{QUICK.total()} cases" in table
    assert "82.3–90.3 %" in table
    flips = sum(
        case.fault.kind is Kind.BIT_FLIP
        and case.fault.site in (Site.FORWARD, Site.ACT_GRAD, Site.WEIGHT_GRAD)
        for case in cases(QUICK)
    )
    assert f"; {flips} of {flips})" in table


def test_the_picture_is_an_image_with_a_bar_for_every_recipe() -> None:
    drawn = ElementTree.fromstring(picture(results("slow_degrade")))
    said = [one.text for one in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert set(RECIPES) <= set(said)
    assert any(text is not None and text.startswith("0 % harmless") for text in said)


@pytest.mark.torch
def test_a_study_goes_on_where_it_was_stopped_and_gives_what_one_sitting_gives(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from firstfault.drill.rig.study_run import run_study

    plan = replace(SMALL, recipes=("sgd, clipped",))
    whole = run_study(plan, tmp_path / "whole.jsonl")
    lines = (tmp_path / "whole.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    stopped = tmp_path / "stopped.jsonl"
    stopped.write_text("".join(lines[:-3]) + lines[-3][:20], encoding="utf-8")
    told: list[tuple[int, int]] = []
    again = run_study(plan, stopped, lambda done, total: told.append((done, total)))
    assert told == [(len(lines), len(lines))]
    assert [replace(one, end_change=0.0, end_sigma=0.0) for one in again] == [
        replace(one, end_change=0.0, end_sigma=0.0) for one in whole
    ]
    assert sorted(stopped.read_text(encoding="utf-8").splitlines(keepends=True)) == sorted(lines)


@pytest.mark.torch
def test_copies_side_by_side_have_the_bits_of_jobs_run_alone() -> None:
    pytest.importorskip("torch")
    from firstfault.drill.rig.data_parallel import DataParallel
    from firstfault.drill.rig.engine import run
    from firstfault.drill.rig.faults import Faults
    from firstfault.drill.rig.links import OneProcess
    from firstfault.drill.rig.recording import record_run
    from firstfault.drill.rig.side_by_side import SideBySide
    from firstfault.drill.rig.study import job_of

    plan = replace(SMALL, iterations=16)
    job = job_of(plan, "adamw, clipped", 5)
    sites = (Site.FORWARD, Site.ACT_GRAD, Site.REDUCE_ALL, Site.SECOND_MOMENT)
    chosen: list[Case] = [
        next(
            case
            for case in cases(replace(plan, bit_step=1))
            if case.fault.site is site and case.fault.bit == 29
        )
        for site in sites
    ]
    copies = SideBySide(
        job,
        [case.fault for case in chosen],
        DataParallel(job, OneProcess(2), Faults(job, range(2))).state,
    )
    seen = np.array([copies.iterate(iteration, 0)["loss"] for iteration in range(16)])
    for number, case in enumerate(chosen):
        alone = record_run(run(job, case.fault)).numbers["loss"]
        assert np.array_equal(seen[:, 2 * number : 2 * number + 2], alone, equal_nan=True)
