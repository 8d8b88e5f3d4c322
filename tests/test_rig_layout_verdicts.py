"""What the product makes of the rig's layouts: silence where nothing is wrong, and what can be seen named."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from firstfault import replay
from firstfault.drill.rig import Fault, Kind, LayoutName, Site

from .layout_builders import fault, layout_job, write

pytestmark = pytest.mark.torch
STRIKE = 16
"""Late enough for all that is learned from the first settled checks."""
PIPELINE = LayoutName.PP4_TP2_DP2
_HIDES = {
    LayoutName.ZERO1: "a corrupted optimizer shard",
    LayoutName.FULL_SHARD: "replicas that differ",
    LayoutName.LOCAL_SGD: "what a rank gets wrong between two outer steps",
}


def _struck(kind: Kind, site: Site, rank: int, **more: Any) -> Fault:
    return fault(kind, site, rank, **{"iteration": STRIKE, **more})


@pytest.mark.parametrize("name", [one for one in LayoutName if one is not LayoutName.DP])
def test_a_healthy_job_of_every_layout_is_healthy_and_what_it_hides_is_told(
    name: LayoutName, tmp_path: Path
) -> None:
    verdict = _verdict(tmp_path, name, None)
    assert (verdict["label"], verdict["incidents"]) == ("healthy", [])
    ran = {check["name"]: check for check in verdict["coverage"]["checks"] if check["state"] == "ran"}
    assert ran.keys() >= {"checksum_vote", "agreement", "repeat", "nonfinite"}
    assert "canary_checksum" in ran["checksum_vote"]["metrics"]
    hidden = [line for line in verdict["coverage"]["blind_to"] if line.startswith(_HIDES.get(name, "-"))]
    assert bool(hidden) == (name in _HIDES)


@pytest.mark.parametrize(
    ("name", "struck", "metric", "ranks"),
    [
        (PIPELINE, _struck(Kind.BIT_FLIP, Site.PARAMETER, 10, bit=25), "param_checksum", [8, 10]),
        (PIPELINE, _struck(Kind.NAN, Site.MESSAGE, 6, place="activation"), None, [6]),
        (LayoutName.ZERO1, _struck(Kind.WRONG_GATHER, Site.GATHER, 3), "param_checksum", [3]),
        (LayoutName.FULL_SHARD, _struck(Kind.WRONG_GATHER, Site.GATHER, 3), "gathered_checksum", [3]),
        (LayoutName.EXPERT, _struck(Kind.DUPLICATE_DATA, Site.DATA, 5, lasts=None), "data_checksum", [5, 6]),
        (LayoutName.LOCAL_SGD, _struck(Kind.MISSING_SYNC, Site.REDUCE_OUT, 5, iteration=19), None, [5]),
    ],
)
def test_the_struck_rank_is_named_or_in_the_tie_that_the_layout_leaves(
    name: LayoutName, struck: Fault, metric: str | None, ranks: list[int], tmp_path: Path
) -> None:
    verdict = _verdict(tmp_path, name, struck)
    assert verdict["label"] == ("nan" if struck.kind is Kind.NAN else "silent_drift")
    first = verdict["incidents"][0]["first"]
    assert (first["ranks"], first["tie"], first["iteration"]) == (ranks, len(ranks) > 1, struck.iteration)
    assert metric in (None, first["metric"])


def test_what_an_owner_gets_wrong_is_not_seen_and_said_to_be_hidden(tmp_path: Path) -> None:
    struck = _struck(Kind.SHARD_OWNER, Site.FIRST_MOMENT, 3, bit=24)
    verdict = _verdict(tmp_path, LayoutName.ZERO1, struck)
    assert (verdict["label"], verdict["incidents"]) == ("healthy", [])
    assert any("optimizer shard" in line for line in verdict["coverage"]["blind_to"])


def _verdict(folder: Path, name: LayoutName, struck: Fault | None) -> dict[str, Any]:
    from firstfault.drill.rig.engine import run

    verdict: dict[str, Any] = replay(write(list(run(_job(name), struck)), folder / "run.jsonl"))[0]
    return verdict


@cache
def _job(name: LayoutName) -> Any:
    return replace(layout_job(name, iterations=STRIKE + 5, canary=5), run="run")
