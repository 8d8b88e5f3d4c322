"""Training with the probe is, to the bit, training without it, and what it holds stays the same."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

import firstfault

from .probe_job import Case, JobSpec, free_port

pytestmark = pytest.mark.torch

RANKS = 2
WAYS = {
    case.run: case
    for case in (
        Case(run="ddp-accumulated", iterations=200, microbatches=2, state_every=20),
        Case(run="ddp-fp16", iterations=60, precision="fp16", state_every=20),
        Case(run="single-bf16", iterations=200, precision="bf16", wrap="single", state_every=20),
        Case(run="fsdp-accumulated", iterations=10, microbatches=2, wrap="fsdp"),
        Case(run="compiled", iterations=10, wrap="compiled"),
    )
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is left of each way of training, with the probe and without."""
    folder = tmp_path_factory.mktemp("identity")
    cases = [
        one for case in WAYS.values() for one in (case, replace(case, run=f"{case.run}-bare", probe=False))
    ]
    spec = JobSpec(folder=str(folder), ranks=RANKS, port=free_port(), cases=cases)
    command = [sys.executable, "-m", "tests.probe_job", str(spec.write())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the probe failed" not in done.stderr
    return folder


@pytest.mark.parametrize("run", WAYS)
def test_parameters_are_bit_equal_with_and_without_the_probe(folder: Path, run: str) -> None:
    import torch

    for rank in range(RANKS):
        with_probe, without = (torch.load(folder / f"{name}-rank{rank}.pt") for name in (run, f"{run}-bare"))
        assert with_probe.keys() == without.keys()
        assert [name for name, one in without.items() if not torch.equal(one, with_probe[name])] == []


@pytest.mark.parametrize("run", WAYS)
def test_every_iteration_is_measured(folder: Path, run: str) -> None:
    lines = [json.loads(line) for line in (folder / f"{run}-rank1.jsonl").read_text().splitlines()]
    # of a shard no rank has the whole norm, and alone it is the local one
    reduced = ["grad_norm"] if WAYS[run].wrap in ("ddp", "compiled") else []
    every = dict.fromkeys(("loss", "local_grad_norm", *reduced), 1)
    every |= dict.fromkeys(("param_checksum", "optim_checksum"), WAYS[run].state_every)
    for metric, cadence in every.items():
        seen = {line["iteration"] for line in lines if metric in line}
        # and of the parameters at each canary besides
        assert seen >= set(range(0, WAYS[run].iterations, cadence)), metric


def test_steps_that_the_scaler_skips_are_told(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "ddp-fp16-rank0.jsonl").read_text().splitlines()]
    scales = {line["loss_scale"] for line in lines if "loss_scale" in line}
    assert len(scales) > 1
    assert {line["skipped"] for line in lines if "skipped" in line} >= {0.0}


def test_what_a_probe_holds_does_not_grow_with_the_steps(tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
    optimizer = torch.optim.AdamW(model.parameters())
    probe = firstfault.Probe(run="long", rank=0, sink=str(tmp_path / "long.jsonl"))
    probe.watch(model, optimizer)
    held_bytes = []
    tracemalloc.start()
    try:
        for step in range(1, 1001):
            loss = model(torch.ones(2, 8)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            probe.step(loss)
            if step % 50 == 0:
                gc.collect()
                held_bytes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        probe.close()
    # what waits for the sending thread comes and goes; 150 bytes kept of each step would be 75 kB
    assert min(held_bytes[10:]) - min(held_bytes[:10]) < 60_000
