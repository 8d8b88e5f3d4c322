"""A job that hangs: heartbeats of real processes name the rank that the others wait for."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from detectors.registry import DetectorsConfig
from detectors.stall import StallConfig
from service.config import Settings
from service.notebook import replay_files

from .probe_builders import lines_of, started_job

TRAIN = """
import os, sys, time
import torch
from torch import nn
import firstfault
from firstfault import ProbeConfig
from firstfault.emitters import EmitterConfig

class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.calls = nn.Linear(4, 4), 0

    def forward(self, x):
        self.calls += 1
        if self.calls == 4 and int(os.environ["RANK"]) == 1:
            time.sleep(600)  # iteration 3 of rank 1
        return self.inner(x)

torch.set_num_threads(1)
torch.distributed.init_process_group(
    "gloo", init_method=f"file://{sys.argv[1]}/store", rank=int(os.environ["RANK"]), world_size=2
)
model = nn.parallel.DistributedDataParallel(Slow())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = ProbeConfig(heartbeat_s=0.2, emitter=EmitterConfig(flush_s=0.1))
probe = firstfault.Probe(sink=f"{sys.argv[1]}/run.jsonl", config=config)
probe.watch(model, optimizer)
for _ in range(10):
    loss = model(torch.ones(2, 4)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    probe.step(loss.detach())
"""


@pytest.mark.torch
def test_the_rank_that_does_not_come_to_the_collective_is_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with ExitStack() as jobs:
        for rank in (0, 1):
            environ = {"RANK": str(rank), "WORLD_SIZE": "2", "FIRSTFAULT_RUN": "job"}
            jobs.enter_context(started_job(TRAIN, str(tmp_path), **environ))
        assert _stood_s(tmp_path, "reduce_in", 3, timeout_s=60.0) > 2.0
    stall = StallConfig(suspect_s=1.0, confirm_s=1.5, together_s=1.5)
    (verdict,) = replay_files([tmp_path], Settings(detectors=DetectorsConfig(stall=stall)))
    first = verdict["incidents"][0]["first"]
    assert verdict["label"] == "stall"
    assert (first["ranks"], first["iteration"], first["phase"]) == ([1], 3, "forward")


def _stood_s(folder: Path, phase: str, iteration: int, timeout_s: float) -> float:
    """How long rank 0 has been at a place, by its heartbeats; 0 where time is up before two seconds."""
    give_up_s = time.monotonic() + timeout_s
    while time.monotonic() < give_up_s:
        path = folder / "run-rank0.jsonl"
        lines = lines_of(path) if path.exists() and path.read_bytes().endswith(b"\n") else []
        beats = [
            line["time"] for line in lines if (line.get("phase"), line["iteration"]) == (phase, iteration)
        ]
        if beats and beats[-1] - beats[0] > 2.0:
            return float(beats[-1] - beats[0])
        time.sleep(0.05)
    return 0.0
