"""A watch on data-parallel training over gloo: the same bits as without, and what each rank says."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from .parallel_jobs import ITERATIONS, JOBS

pytestmark = pytest.mark.torch

Said = list[dict[int, dict[str, Any]]]
REDUCED = ["plain", "bucket_view", "static_graph", "small_buckets", "accumulated", "bf16"]
SHARDED = ["sharded", "sharded_accumulated"]


class Results:
    """What each rank of each job found."""

    def __init__(self, ranks: list[dict[str, Any]]) -> None:
        self._ranks = ranks

    def said(self, job: str) -> Said:
        """By rank and iteration."""
        return [dict(rank[job]["said"]) for rank in self._ranks]

    def of(self, job: str, key: str) -> list[Any]:
        """One finding of each rank."""
        return [rank[job][key] for rank in self._ranks]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return launched(2, list(JOBS), tmp_path_factory.mktemp("jobs"))


def launched(world_size: int, jobs: list[str], folder: Path) -> Results:
    command = [sys.executable, "-m", "tests.parallel_jobs", str(world_size), str(folder), *jobs]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parent.parent,
        stderr=subprocess.PIPE,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Results([json.loads((folder / f"{rank}.json").read_text()) for rank in range(world_size)])


@pytest.mark.parametrize("job", list(JOBS))
def test_training_has_the_same_bits_with_and_without_a_watch(results: Results, job: str) -> None:
    assert results.of(job, "errors") == [[], []]
    assert results.of(job, "same") == [True, True]
    assert [sorted(said) for said in results.said(job)] == [list(range(ITERATIONS))] * 2


@pytest.mark.parametrize("job", [*REDUCED, "hook_before", "hook_after"])
def test_local_norms_differ_between_ranks_and_the_norm_of_the_mean_does_not(
    results: Results, job: str
) -> None:
    one, other = results.said(job)
    for t in range(ITERATIONS):
        assert one[t]["grad_norm"] == other[t]["grad_norm"]
        assert one[t]["local_grad_norm"] != other[t]["local_grad_norm"]
        assert one[t]["grad_norm"] <= max(one[t]["local_grad_norm"], other[t]["local_grad_norm"])
        assert one[t]["nonfinite_grad"] == one[t]["nonfinite_reduced"] == 0


@pytest.mark.parametrize("job", REDUCED)
def test_what_comes_out_of_an_all_reduce_is_the_mean_of_what_goes_in(results: Results, job: str) -> None:
    one, other = results.said(job)
    for t in range(ITERATIONS):
        for group in (0, 1):
            into, out = f"grad_sketch_in/{group}", f"grad_sketch_out/{group}"
            assert one[t][out] == other[t][out]
            mean = (one[t][into] + other[t][into]) / 2
            assert math.isclose(one[t][out], mean, rel_tol=1e-4, abs_tol=1e-6)


@pytest.mark.parametrize("job", SHARDED)
def test_the_shards_of_a_reduce_scatter_add_up_to_the_mean_of_what_goes_in(
    results: Results, job: str
) -> None:
    one, other = results.said(job)
    for t in range(ITERATIONS):
        for group in (0, 1):
            into, out = f"grad_sketch_in/{group}", f"grad_sketch_out/{group}"
            assert one[t][out] != other[t][out]
            sums = [one[t][name] + other[t][name] for name in (into, out)]
            assert math.isclose(sums[1], sums[0] / 2, rel_tol=1e-4, abs_tol=1e-6)


def test_replicas_have_equal_checksums_and_shards_their_own(results: Results) -> None:
    for job in JOBS:
        one, other = results.said(job)
        is_equal = [one[t]["param_checksum"] == other[t]["param_checksum"] for t in range(ITERATIONS)]
        assert is_equal == [job not in SHARDED] * ITERATIONS


def test_norms_are_without_the_loss_scale_and_a_step_that_overflows_is_told_as_skipped(
    results: Results,
) -> None:
    said = results.said("fp16")[0]
    plain = results.said("plain")[0]
    assert math.isclose(said[0]["local_grad_norm"], plain[0]["local_grad_norm"], rel_tol=1e-3)
    assert [said[t]["loss_scale"] for t in range(ITERATIONS)] == [2.0**20] * ITERATIONS
    assert [said[t]["skipped"] for t in range(ITERATIONS)] == [0] * ITERATIONS
