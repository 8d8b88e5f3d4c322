"""The examples do what they say, started by environment variables as torchrun does."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import firstfault

from .probe_job import free_port, launch

pytestmark = pytest.mark.torch

EXAMPLE = Path(__file__).parent.parent / "examples" / "silent_fault.py"
RANKS = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of the example with each of its faults."""
    folder = tmp_path_factory.mktemp("examples")
    command = [sys.executable, "-m", "tests.test_examples", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("kind", "metric", "interval"),
    # the canary at 112 hashes the parameters too, before it runs
    [("unit", "canary_checksum", [112, 128]), ("parameter", "param_checksum", [112, 120])],
)
def test_the_silent_fault_is_named_by_rank_and_iteration(
    folder: Path, kind: str, metric: str, interval: list[int]
) -> None:
    (verdict,) = firstfault.replay(str(folder / kind))
    assert verdict["label"] == "silent_drift"
    first = verdict["incidents"][0]["first"]
    assert (first["ranks"], first["metric"], first["interval"]) == ([2], metric, interval)


def run_examples(rank: int, ports: Sequence[int], folder: str) -> None:
    """One rank of the example, with one fault after the other."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1")
    for kind, port in zip(("unit", "parameter"), ports, strict=True):
        os.environ["MASTER_PORT"] = str(port)
        sink = str(Path(folder, kind, "probe.jsonl"))
        sys.argv = [str(EXAMPLE), "--kind", kind, "--iterations", "140", "--sink", sink]
        runpy.run_path(str(EXAMPLE), run_name="__main__")


if __name__ == "__main__":
    ports = [free_port(), free_port()]
    sys.exit(launch(RANKS, lambda rank: run_examples(rank, ports, sys.argv[1])))
