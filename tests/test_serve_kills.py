"""Killed anywhere between the sender and the verdict, the service loses nothing that it acknowledged."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

from .service_builders import log_lines, write_log
from .test_serve import Service, serving, wait_until
from .test_worker_kafka import replayed


def bodies_of(lines: Sequence[bytes], iterations: int) -> list[list[bytes]]:
    """The lines in bodies of so many iterations each."""
    bodies: dict[int, list[bytes]] = {}
    for line in lines:
        bodies.setdefault(json.loads(line)["iteration"] // iterations, []).append(line)
    return [bodies[at] for at in sorted(bodies)]


def send_until_killed(service: Service, bodies: list[list[bytes]], kill_at: int, rng: random.Random) -> None:
    """Take bodies off the list as they are acknowledged; around the ``kill_at``-th one the service dies."""
    for at in range(len(bodies)):
        if at == kill_at:
            killer = threading.Timer(rng.uniform(0.0, 0.01), service.process.kill)
            killer.start()
        elif at == kill_at // 2:
            for worker in service.workers():
                os.kill(worker, signal.SIGKILL)
        if service.try_post(bodies[0]) != 202:
            break  # nobody knows whether it was taken: it is sent again
        del bodies[0]
    wait_until(lambda: service.process.poll() is not None or not bodies)


def workers_of(folder: Path) -> list[int]:
    """Workers that live on the data folder, whoever started them."""
    data = str(folder / "data")
    found = [one.info for one in psutil.process_iter(["pid", "cmdline", "status"])]
    mine = [one for one in found if {data, "worker"} <= set(one["cmdline"] or [])]
    return [one["pid"] for one in mine if one["status"] != psutil.STATUS_ZOMBIE]


def test_whatever_was_acknowledged_is_judged_however_often_all_is_killed(tmp_path: Path) -> None:
    lines = log_lines("bad", odd_rank=3) + log_lines("good")
    expected = replayed(write_log(tmp_path / "both.jsonl", lines))
    waiting = bodies_of(lines, iterations=4)
    rng = random.Random(20261130)
    kills = 0
    while waiting and kills < 3:
        with serving(tmp_path) as service:
            wait_until(lambda: service.workers() != [])
            send_until_killed(service, waiting, rng.randrange(2, 9), rng)
            kills += 1
        # a worker does not outlive its service: the folder is free for the next
        wait_until(lambda: workers_of(tmp_path) == [])
    assert kills == 3
    with serving(tmp_path) as service:
        assert [service.post(body) for body in waiting] == [202] * len(waiting)
        wait_until(lambda: {run: service.verdict(run) for run in expected} == expected)
