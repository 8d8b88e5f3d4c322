"""A probe on tensor by data parallel training in four real processes: the same bits, and who went wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import firstfault

from .probe_builders import lines_of

pytest.importorskip("torch")

from .tensor_ranks import CANARY, ITERATIONS, RANKS, STRIKE, STRUCK, WAYS

pytestmark = pytest.mark.torch
CANARIES = list(range(CANARY, ITERATIONS, CANARY))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What all trainings left, of one launch."""
    folder = tmp_path_factory.mktemp("tensor")
    command = [sys.executable, "-m", "tests.tensor_ranks", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "the probe failed" not in done.stderr
    return folder


def verdict_of(folder: Path, run: str) -> Mapping[str, Any]:
    (verdict,) = firstfault.replay([folder / f"{run}-rank{rank}.jsonl" for rank in range(RANKS)])
    return verdict


@pytest.mark.parametrize("way", WAYS)
def test_parameters_are_bit_equal_with_probe_and_canary_and_without(folder: Path, way: str) -> None:
    assert [json.loads((folder / f"equal-{rank}.json").read_text())[way] for rank in range(RANKS)] == [
        True
    ] * RANKS


@pytest.mark.parametrize("way", WAYS)
def test_every_canary_repeats_itself_to_the_bit_on_every_rank(folder: Path, way: str) -> None:
    for rank in range(RANKS):
        lines = lines_of(folder / f"{way}-rank{rank}.jsonl")
        ran = [line for line in lines if "canary_checksum" in line]
        assert [line["iteration"] for line in ran] == CANARIES
        assert [line["repeat_checksum/canary"] for line in ran] == [line["canary_checksum"] for line in ran]


@pytest.mark.parametrize("way", WAYS)
def test_no_rank_gives_the_norm_of_its_part_for_that_of_the_model(folder: Path, way: str) -> None:
    lines = lines_of(folder / f"{way}-rank0.jsonl")
    assert not any("grad_norm" in line for line in lines)
    assert any("part of the model" in line.get("not_measured", {}).get("grad_norm", "") for line in lines)
    assert verdict_of(folder, way)["label"] == "healthy"


AT = [STRIKE - 1, STRIKE]
NAMED: Mapping[str, tuple[str, list[int], str, list[int]]] = {
    "replicated-gradient": ("nan", [STRUCK], "nonfinite_grad", AT),
    "replicated-parameter": ("silent_drift", [STRUCK], "param_checksum/tp_replicated", AT),
    # two pairs that differ: no majority says which
    "replicated-unit": ("silent_drift", [], "canary_checksum", [2 * CANARY, 3 * CANARY]),
    # of what all four hold each holds a shard: the same one on the two of a pair
    "sharded-parameter": ("silent_drift", [2, 3], "param_checksum/tp_replicated", AT),
}


@pytest.mark.parametrize("run", NAMED)
def test_a_fault_on_one_rank_is_named(folder: Path, run: str) -> None:
    label, ranks, metric, interval = NAMED[run]
    verdict = verdict_of(folder, run)
    first = verdict["incidents"][0]["first"]
    assert verdict["label"] == label
    assert (first["ranks"], first["metric"], first["interval"]) == (ranks, metric, interval)
