"""One rank's log judged by firstfault and by other tools, side by side.

    python -m bench.peer_speed [--rows 1000000] [--rounds 3]

Each tool runs in a process of its own, by turns, and is charged the processor time of that process and the
time that somebody waits for it, its start included. Peers are installed each into an environment of its own;
what cannot be installed is named.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from .quality.peers import PEERS, Peer, install

Seconds = tuple[float, float]
"""Of processors, and by the clock."""
_GRADSNITCH = Peer(
    name="gradsnitch",
    version="0.1.0",
    command=["python", "-c", "import gradsnitch, sys; gradsnitch.lint_csv(sys.argv[1])"],
    read=lambda _: [],
)
"""A library without a command; it reads tables alone, and says nothing of steps."""
_LOSSLINT = next(peer for peer in PEERS if peer.name == "losslint")
_OTHERS = {"csv": (_GRADSNITCH, _LOSSLINT), "jsonl": (_LOSSLINT,)}


def main() -> None:
    """Print one line a format and tool."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    missing = {peer.name: why for peer in (_GRADSNITCH, _LOSSLINT) if (why := install(peer))}
    for why in missing.values():
        print(f"not compared: {why}", flush=True)
    with tempfile.TemporaryDirectory(prefix="firstfault-speed-") as name:
        frame = healthy_run(asked.rows)
        frame.write_csv(Path(name) / "log.csv")
        frame.write_ndjson(Path(name) / "log.jsonl")
        for kind, peers in _OTHERS.items():
            compare(
                Path(name) / f"log.{kind}", [one for one in peers if one.name not in missing], asked.rounds
            )


def healthy_run(rows: int) -> pl.DataFrame:
    """A loss that falls, a norm that scatters, a constant rate."""
    rng = np.random.default_rng(1)
    step = np.arange(rows)
    return pl.DataFrame(
        {
            "step": step,
            "loss": 2.0 + 4.0 * np.exp(-5.0 * step / rows) + rng.normal(0.0, 0.05, rows),
            "grad_norm": rng.lognormal(0.0, 0.2, rows),
            "lr": np.full(rows, 3e-4),
        }
    )


def compare(log: Path, peers: Sequence[Peer], rounds: int) -> None:
    """Every tool once a round, the first round not counted: it writes caches."""
    commands = {"firstfault": [sys.executable, "-m", "service.start", "replay", str(log), "--json"]}
    commands |= {peer.name: command_of(peer, log) for peer in peers}
    taken: dict[str, list[Seconds]] = {name: [] for name in commands}
    for at in range(rounds + 1):
        for name, command in commands.items():
            took = seconds_of(command)
            if at:
                taken[name].append(took)
    least = {name: _least(each) for name, each in taken.items()}
    own = least["firstfault"]
    for name, (processor_s, wall_s) in least.items():
        told = f"{log.suffix[1:]} {name}: {processor_s:.2f} s of processor time, {wall_s:.2f} s by the clock"
        if name != "firstfault":
            told += f"; firstfault takes {own[0] / processor_s:.2f} and {own[1] / wall_s:.2f} of it"
        print(told, flush=True)


def _least(each: Sequence[Seconds]) -> Seconds:
    """The least of each: whatever else runs on the machine only adds."""
    return min(processor_s for processor_s, _ in each), min(wall_s for _, wall_s in each)


def command_of(peer: Peer, log: Path) -> list[str]:
    """How the peer is asked about ``log``."""
    files = {"csv": str(log), "jsonl": str(log), "out": str(log.with_suffix(".answer"))}
    parts = [part.format(**files) for part in peer.command]
    rest = [str(log)] if str(log) not in parts else []
    return [str(peer.folder / "bin" / parts[0]), *parts[1:], *rest]


def seconds_of(command: Sequence[str]) -> Seconds:
    """Processor time, user's and system's, and time by the clock of one run.

    All processes may keep their bytecode, as an installed package does.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    ran = subprocess.run(command, capture_output=True, check=False, env=kept)
    wall_s = time.perf_counter() - start
    if ran.returncode not in (0, 1):  # 1: a finding
        raise SystemExit(f"{command[0]}: status {ran.returncode}: {ran.stderr.decode()[-300:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


if __name__ == "__main__":
    main()
