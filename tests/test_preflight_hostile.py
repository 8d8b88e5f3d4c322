"""A preflight on a terminal, and one that is interrupted or whose ranks or broker are away: it says why."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .probe_builders import ROOT
from .probe_job import free_port

pytestmark = pytest.mark.torch
COMMAND = (sys.executable, "-m", "firstfault", "canary", "--size", "tiny", "--rounds")
ALONE = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")} | {
    "PYTHONPATH": str(ROOT)
}


def test_a_terminal_sees_how_far_it_is_and_nothing_of_that_stays() -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [*COMMAND, "3"], env=ALONE, stdout=subprocess.PIPE, stderr=theirs, check=False, timeout=120
    )
    shown = os.read(ours, 4096).decode()
    os.close(theirs)
    os.close(ours)
    assert done.returncode == 0
    assert "round 1 of 3, about " in shown and " s left" in shown
    assert shown.endswith("\r\x1b[K")


def test_an_interrupt_ends_it_without_a_traceback() -> None:
    with subprocess.Popen(
        [*COMMAND, "5000"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ALONE
    ) as process:
        assert process.stderr is not None
        assert "5000 rounds" in process.stderr.readline()  # after a hundredth of them
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in told


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_does_not_come_ends_the_others_in_time(rank: int) -> None:
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "LOCAL_RANK": "0"}
    launch = {"RANK": str(rank), "WORLD_SIZE": "2"}
    done = subprocess.run(
        [*COMMAND, "2", "--timeout", "3"],
        env=ALONE | place | launch,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "the 2 ranks of this launch cannot meet" in done.stderr


def test_a_broker_that_is_dead_costs_no_result_and_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "2", "--sink", f"kafka://127.0.0.1:{free_port()}/t"],
        env=ALONE | {"FIRSTFAULT_SPILL": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "the same each time" in done.stdout
    assert f"telemetry waits in {tmp_path}" in done.stderr
