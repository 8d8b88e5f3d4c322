"""A drill of the rig as it is asked for on the command line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from firstfault.drill.log import log_path
from firstfault.drill.rig import DrillError, Kind, LayoutName, ModelSize, Site
from firstfault.drill.rig.catalogue import CATALOGUE
from firstfault.drill.rig.drilling import RigDrill, planned, write_drill
from firstfault.drill.rig.page import page
from firstfault.drill.rig.signs import ELSEWHERE, SIGNS


@pytest.mark.parametrize("kind", CATALOGUE)
def test_every_kind_can_be_asked_for_by_its_name_alone(kind: Kind) -> None:
    entry = CATALOGUE[kind]
    job, fault = planned(RigDrill(kind=kind, seed=2))
    assert fault is not None
    assert (fault.kind, fault.site) == (kind, entry.sites[0])
    assert fault.iteration == 0 if entry.from_start else 150 <= fault.iteration < 450
    assert job.layout.name is LayoutName.DP or LayoutName.DP not in entry.layouts
    assert planned(RigDrill(kind=kind, seed=2)) == (job, fault)


def test_what_is_given_wins_over_what_is_usual_and_what_the_site_needs_is_there() -> None:
    _, fault = planned(
        RigDrill(kind="bit_flip", site="reduce_out", rank=2, at=7, bit=3, dtype="fp16", lasts=4)
    )
    assert fault is not None
    assert (fault.site, fault.rank, fault.iteration, fault.bit) == (Site.REDUCE_OUT, 2, 7, 3)
    assert (fault.dtype, fault.lasts) == ("fp16", 4)
    _, lasting = planned(RigDrill(kind="bit_flip", lasts=0))
    assert lasting is not None
    assert lasting.lasts is None
    scaled, _ = planned(RigDrill(kind="bit_flip", site="loss_scale"))
    assert scaled.training.precision == "fp16"
    restarting, restore = planned(RigDrill(kind="corrupt_restore"))
    assert restore is not None
    assert [one.iteration for one in restarting.training.restarts] == [restore.iteration]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (RigDrill(kind="gremlin"), "kind must be one of bit_flip"),
        (RigDrill(kind="bit_flip", site="moon"), "site must be one of data"),
        (RigDrill(kind="stale", site="data"), "fault.site of stale must be one of reduce_in, got data"),
        (RigDrill(kind="bit_flip", bit=20, dtype="fp16"), "fault.bit must be None or from 0 to 15 in fp16"),
        (RigDrill(layout="ring"), "layout must be one of dp"),
        (RigDrill(layout="pp4_tp2_dp2", ranks=8), "ranks of layout pp4_tp2_dp2 must be 16, got 8"),
        (RigDrill(kind="tied_desync", rank=5), "fault.rank must be one that has the site"),
        (RigDrill(kind="shard_owner", layout="dp"), "fault.kind must be one that acts in layout dp"),
        (RigDrill(engine="steam"), "engine must be virtual or processes"),
        (RigDrill(kind="bit_flip", rank=8), "fault.rank must be below 8"),
        (RigDrill(kind="stale", iterations=0), "^iterations must be >= 1, got 0"),
        (RigDrill(kind="stale", seed=1 << 70), "^seed must be from 0 to 4294967295"),
        (
            RigDrill(kind="relative_error", magnitude=float("inf")),
            "magnitude must be over 0 and at most 1e.30",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_the_rule(asked: RigDrill, words: str) -> None:
    with pytest.raises(DrillError, match=words):
        planned(asked)


def test_a_pipeline_has_a_block_for_each_stage() -> None:
    job, _ = planned(RigDrill(layout="pp4_tp2_dp2"))
    assert job.model.layers == 4
    with pytest.raises(DrillError, match=r"model\.layers must be at least the 4 stages, got 2"):
        replace(job, model=ModelSize())


def test_the_page_of_faults_is_that_of_the_catalogue() -> None:
    written = Path(__file__).parent.parent / "docs" / "faults.md"
    assert written.read_text(encoding="utf-8") == page()
    assert {site for entry in CATALOGUE.values() for site in entry.sites} == {*SIGNS, *ELSEWHERE} == set(Site)


def test_a_log_is_a_file_of_ours_or_goes_into_a_folder(tmp_path: Path) -> None:
    assert log_path("stale", tmp_path) == tmp_path / "stale.jsonl.gz"
    assert log_path("stale", tmp_path / "one.jsonl") == tmp_path / "one.jsonl"
    with pytest.raises(DrillError, match=r"out must end in \.jsonl"):
        log_path("stale", tmp_path / "one.csv")


def test_a_twin_does_not_overwrite_the_log_with_the_fault(tmp_path: Path) -> None:
    with pytest.raises(DrillError, match="twin must be another file"):
        write_drill(RigDrill(kind="stale"), tmp_path / "one.jsonl", tmp_path / "." / "one.jsonl")


@pytest.mark.torch
def test_a_drill_and_its_twin_differ_from_the_fault_on(tmp_path: Path) -> None:
    asked = RigDrill(kind="missing_sync", ranks=2, iterations=8, at=5, rank=1)
    seen: list[tuple[int, int]] = []
    path = write_drill(
        asked, tmp_path, tmp_path / "twin.jsonl", lambda done, total: seen.append((done, total))
    )
    assert path == tmp_path / "missing_sync.jsonl.gz"
    plain = write_drill(asked, tmp_path / "again.jsonl")
    faulty, healthy = (
        [json.loads(line) for line in path.read_text().splitlines()]
        for path in (plain, tmp_path / "twin.jsonl")
    )
    assert {one.pop("run") for one in faulty} == {"missing_sync"}
    assert {one.pop("run") for one in healthy} == {"missing_sync-twin"}
    differing = [one["iteration"] for one, other in zip(faulty, healthy, strict=True) if one != other]
    assert differing[0] == 5
    assert seen[:8] == [(done, 8) for done in range(1, 9)]
    with pytest.raises(DrillError, match="it needs a kind"):
        write_drill(RigDrill(), tmp_path, tmp_path / "twin.jsonl")
