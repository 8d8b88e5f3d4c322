"""The supervisor: a child that ends is started again, more and more slowly, and never outlives its parent."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from service.errors import AlreadyRunning
from service.folder_lock import FolderLock
from service.serve_config import ServeConfig
from service.supervisor import Supervisor

QUICK = ServeConfig(restart_after_s=0.01, restart_max_s=0.05, crash_loop_after=3, worker_stop_s=1.0)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def wait_until(is_true: Callable[[], bool], timeout_s: float = 30.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < give_up_s
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_child_that_is_killed_is_started_again_and_ended_at_the_end() -> None:
    supervisor = Supervisor(python("import time; time.sleep(600)"), QUICK, rng=random.Random(1))
    supervisor.start()
    wait_until(lambda: supervisor.state().pid is not None)
    first = supervisor.state().pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: supervisor.state().pid not in (None, first))
    state = supervisor.state()
    assert (state.restarts, state.last_end, state.is_crash_looping) == (1, "signal SIGKILL", False)

    supervisor.stop()
    assert state.pid is not None
    assert not is_alive(state.pid)
    assert supervisor.state().pid is None
    supervisor.stop()


def test_a_child_that_cannot_live_is_a_crash_loop_and_says_how_it_ended(
    caplog: pytest.LogCaptureFixture,
) -> None:
    supervisor = Supervisor(python("raise SystemExit(3)"), QUICK, rng=random.Random(2))
    supervisor.start()
    wait_until(lambda: supervisor.state().is_crash_looping)
    supervisor.stop()
    assert supervisor.state().last_end == "status 3"
    assert supervisor.state().early_deaths >= 3
    told = [one for one in caplog.records if one.message == "worker ended and is started again"]
    assert [vars(one)["end"] for one in told[:3]] == ["status 3"] * 3
    pauses = [vars(one)["pause_s"] for one in told[:3]]
    assert all(0.005 * 2**at <= pause <= 0.01 * 2**at for at, pause in enumerate(pauses))


def test_a_child_that_lives_long_enough_is_no_crash_loop_whatever_came_before(tmp_path: Path) -> None:
    mark = tmp_path / "deaths"
    program = f"import pathlib, time; p = pathlib.Path({str(mark)!r})\n"
    program += "n = len(p.read_bytes()) if p.exists() else 0\n"
    program += "if n < 3: p.write_bytes(b'x' * (n + 1)); raise SystemExit(1)\ntime.sleep(600)"
    config = ServeConfig(restart_after_s=0.01, restart_max_s=0.01, crash_loop_after=3, steady_after_s=3.0)
    supervisor = Supervisor(python(program), config)
    supervisor.start()
    wait_until(lambda: supervisor.state().is_crash_looping)
    wait_until(lambda: not supervisor.state().is_crash_looping)
    assert supervisor.state().restarts == 3
    supervisor.stop()


def test_what_cannot_be_started_is_tried_again_and_told(tmp_path: Path) -> None:
    supervisor = Supervisor([str(tmp_path / "missing")], QUICK)
    supervisor.start()
    wait_until(lambda: supervisor.state().is_crash_looping)
    supervisor.stop()
    assert supervisor.state().last_end.startswith("not started: [Errno 2]")


def test_a_child_that_does_not_hear_is_killed_in_time(tmp_path: Path) -> None:
    mark = tmp_path / "deaf"
    deaf = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    deaf += f"pathlib.Path({str(mark)!r}).touch(); time.sleep(600)"
    supervisor = Supervisor(python(deaf), ServeConfig(worker_stop_s=0.2))
    supervisor.start()
    wait_until(mark.exists)
    pid = supervisor.state().pid
    assert pid is not None
    supervisor.stop()
    assert not is_alive(pid)
    assert supervisor.state().last_end == "signal SIGKILL"


def test_the_end_of_the_service_ends_the_child_before_it_is_stopped() -> None:
    is_over = False
    supervisor = Supervisor(python("import time; time.sleep(600)"), QUICK, is_stopping=lambda: is_over)
    supervisor.start()
    wait_until(lambda: supervisor.state().pid is not None)
    pid = supervisor.state().pid
    assert pid is not None
    is_over = True
    wait_until(lambda: not is_alive(pid))
    supervisor.stop()
    assert supervisor.state().restarts == 0


PARENT = """
import sys, time
from service.serve_config import ServeConfig
from service.supervisor import Supervisor
program = "import threading; from service.supervised import end_with_parent;"
program += "stop = threading.Event(); end_with_parent(stop); stop.wait(600)"
supervisor = Supervisor([sys.executable, "-c", program], ServeConfig())
supervisor.start()
while supervisor.state().pid is None:
    time.sleep(0.01)
print(supervisor.state().pid, flush=True)
time.sleep(600)
"""


def test_a_parent_that_is_killed_leaves_no_child_behind() -> None:
    with subprocess.Popen(python(PARENT), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid)
        parent.kill()
        wait_until(lambda: not is_alive(pid))


def test_a_folder_is_held_by_one_process_and_free_once_that_is_killed(tmp_path: Path) -> None:
    holder = "import time; from pathlib import Path; from service.folder_lock import FolderLock\n"
    holder += (
        f"lock = FolderLock(Path({str(tmp_path)!r}), 'serve'); print('held', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(python(holder), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(
            AlreadyRunning, match=rf"another firstfault serve \(process {process.pid}\): stop it"
        ):
            FolderLock(tmp_path, "serve")
        FolderLock(tmp_path, "worker").release()
        process.kill()
    lock = FolderLock(tmp_path, "serve")
    lock.release()
    lock.release()
