"""Kills a worker with SIGKILL, at named places and at random, and tells what its store holds in the end.

The worker is a process of its own, forked from a server that has everything imported, so that a
life costs a tenth of a second and not three. It is the same code as `firstfault worker`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from ingest.kafka_config import KafkaSourceConfig
from ingest.kafka_topics import TopicsConfig
from ingest.spool import Spool
from service import crash_points, tables
from service.config import Settings, WorkerConfig
from service.crash_points import CrashPoint
from service.database import Database
from service.errors import StoreBusy, StoreError
from service.pipeline import Pipeline
from service.store import Store, StoreConfig
from service.warm_up import load
from service.worker_process import work_on_kafka, work_on_spool

from .service_builders import log_lines

EAGER = WorkerConfig(
    compiles_beforehand=False,
    poll_timeout_s=0.02,
    judge_every_s=0.02,
    settle_after_s=0.3,
    checkpoint_every_s=0.1,
    checkpoint_every_records=400,
    health_every_s=0.2,
)
_LIFE_S = 20.0
"""Longest wait for a life to reach its crash point, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a worker of the harness works on."""

    data: Path
    settings: Settings
    is_spooling: bool = True

    def __post_init__(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a store holds that must not depend on crashes."""

    verdicts: dict[str, bytes]
    """Canonical bytes per run."""
    incidents: list[tuple[str, bytes]]
    rejected: dict[str, int]
    arrivals: dict[str, tuple[int, ...]]
    """Per run, as its saved state counts them: records, late ones, doubled ones, conflicting ones."""


@dataclass(slots=True)
class Tally:
    """How often the worker was killed, and where."""

    kills: int = 0
    at: dict[str, int] = field(default_factory=dict)

    def count(self, place: str) -> None:
        self.kills += 1
        self.at[place] = self.at.get(place, 0) + 1


def spooling(data: Path, config: StoreConfig | None = None) -> Setup:
    """A worker on a spool."""
    return Setup(data=data, settings=Settings(worker=EAGER, store=config or StoreConfig()))


def on_kafka(data: Path, address: str, topic: str, group: str = "") -> Setup:
    """A worker on a topic; without ``group`` each life has one of its own and need not wait for the dead."""
    kafka = KafkaSourceConfig(
        bootstrap=(address,),
        group=group or f"group-{time.time_ns()}",
        topics=TopicsConfig(telemetry=topic, verdicts=f"{topic}.v", dead_letter=f"{topic}.d"),
        session_timeout_s=2.0,
        probe_interval_s=0.2,
        backoff_max_s=0.5,
        max_poll_messages=200,
        connect_timeout_s=2.0,
    )
    return Setup(data=data, settings=Settings(worker=EAGER, kafka=kafka), is_spooling=False)


def mixed_lines(iterations: int = 120) -> list[bytes]:
    """Three runs side by side, one with odd parameters and one that turns NaN, and lines that are none."""
    runs = [
        log_lines("bad", odd_rank=3, odd_from=iterations // 2, iterations=iterations),
        log_lines("nan", nan_rank=2, odd_from=iterations * 2 // 3, iterations=iterations),
        log_lines("good", iterations=iterations),
    ]
    lines = [line for row in zip(*runs, strict=True) for line in row]
    for at in range(97, len(lines), 211):
        lines.insert(at, b'{"run":"bad","rank":-1,"iteration":%d}' % at)
    return lines


def append_to_spool(setup: Setup, lines: Sequence[bytes], size: int = 40) -> None:
    """The lines as bodies of ``size`` lines."""
    spool = Spool(setup.data)
    for at in range(0, len(lines), size):
        spool.append([(None, b"\n".join(lines[at : at + size]))])
    spool.close()


def start(setup: Setup, crash: str = "") -> ForkServerProcess:
    """Start a worker that dies at ``crash`` ("place:times"), or lives until it is told to stop."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.crash_harness"])
    can_be_stopped = context.Event()
    process = context.Process(target=_live, args=(setup, crash, can_be_stopped), daemon=True)
    process.start()
    assert can_be_stopped.wait(30)
    return process


def kill_over_and_over(
    setup: Setup, feed: Callable[[], bool], rng: random.Random, tally: Tally, points: Sequence[CrashPoint]
) -> None:
    """Before each life ``feed`` brings more, until it says that this was all; then the last life ends well.

    Half of the kills are at one of ``points``, the others at a random moment.
    """
    while feed():
        renewed = setup if setup.is_spooling else on_kafka_again(setup)
        if rng.random() < 0.5:
            point = rng.choice(points)
            times = 1 if point is CrashPoint.AFTER_CLAIM else rng.randint(1, 2)
            process = start(renewed, f"{point.value}:{times}")
            process.join(_LIFE_S if not _is_done_soon(setup, process) else 0.1)
            place = point.value if process.exitcode == -signal.SIGKILL else "nowhere: it had caught up"
        else:
            process = start(renewed)
            process.join(rng.uniform(0.05, 0.8))
            place = "at random"
        if process.is_alive():
            process.kill()
            process.join()
        assert process.exitcode == -signal.SIGKILL
        tally.count(place)


def on_kafka_again(setup: Setup) -> Setup:
    """The same in a new consumer group: only the dead would have to be waited for in the old one."""
    kafka = replace(setup.settings.kafka, group=f"group-{time.time_ns()}")
    return replace(setup, settings=replace(setup.settings, kafka=kafka))


def finish(setup: Setup, ends: int, timeout_s: float = 90.0) -> Kept:
    """Let a worker live until all is read, judged as ended and saved; then what the store holds.

    ``ends`` is the sum of the offsets that its parts must have reached.
    """
    process = start(setup if setup.is_spooling else on_kafka_again(setup))
    give_up_s = time.monotonic() + timeout_s
    while not is_done(setup, ends):
        assert process.is_alive(), f"the worker ended with {process.exitcode}"
        assert time.monotonic() < give_up_s, "the worker did not get to the end"
        time.sleep(0.05)
    process.terminate()
    process.join(20)
    assert process.exitcode == 0, f"the worker ended with {process.exitcode}"
    return kept(setup)


def freeze(setup: Setup, process: ForkServerProcess) -> None:
    """Stop a worker between two transactions: in the middle of one it would hold SQLite's lock."""
    assert process.pid is not None
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        database = Database(setup.data, StoreConfig(busy_timeout_s=0.2))
        try:
            with database.write():
                return
        except StoreBusy:
            thaw(process)
            time.sleep(0.01)
        finally:
            database.close()


def thaw(process: ForkServerProcess) -> None:
    """Let a frozen worker go on."""
    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)


def is_done(setup: Setup, ends: int) -> bool:
    """Whether every part is read to its end and every run settled."""
    try:
        store = Store(setup.data, setup.settings.store, read_only=True)
    except StoreError:
        return False
    parts, states = tables.partitions, tables.run_states
    try:
        with store.database.read() as db:
            offsets = [row.next_offset or 0 for row in db.execute(select(parts))]
            settled = [row.is_settled for row in db.execute(select(states.c.is_settled))]
    finally:
        store.close()
    return sum(offsets) == ends and bool(settled) and all(settled)


def offsets(setup: Setup) -> int:
    """Sum of the offsets at the last checkpoints."""
    with reading(setup) as db:
        return sum(row.next_offset or 0 for row in db.execute(select(tables.partitions)))


def owners(setup: Setup) -> int:
    """How many workers hold parts."""
    with reading(setup) as db:
        return len({row.owner for row in db.execute(select(tables.partitions)) if row.owner})


def health(setup: Setup) -> list[dict[str, Any]]:
    """What the workers last said of themselves."""
    with reading(setup) as db:
        return [json.loads(row.body) for row in db.execute(select(tables.health))]


@contextmanager
def reading(setup: Setup) -> Iterator[Connection]:
    """The store, to be looked into once it is there."""
    wait_until(lambda: _is_there(setup))
    store = Store(setup.data, setup.settings.store, read_only=True)
    try:
        with store.database.read() as db:
            yield db
    finally:
        store.close()


def _is_there(setup: Setup) -> bool:
    try:
        Store(setup.data, setup.settings.store, read_only=True).close()
    except StoreError:
        return False
    return True


def wait_until(is_true: Callable[[], bool], timeout_s: float = 90.0) -> None:
    """Wait for something to become true; fails when it does not."""
    give_up_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < give_up_s
        time.sleep(0.05)


def kept(setup: Setup) -> Kept:
    """What the store holds."""
    store = Store(setup.data, setup.settings.store, read_only=True)
    table = tables.incidents
    try:
        with store.database.read() as db:
            rows = db.execute(select(table).where(table.c.is_withdrawn.is_(False)).order_by(table.c.id)).all()
        return Kept(
            verdicts={one.run: one.canonical for one in store.verdicts()},
            incidents=[(row.id, bytes(row.body)) for row in rows],
            rejected=store.rejected(),
            arrivals=arrivals(store),
        )
    finally:
        store.close()


def arrivals(store: Store) -> dict[str, tuple[int, ...]]:
    """What the saved states say of how records came: none lost, none applied twice."""
    pipeline = Pipeline()
    with store.database.read() as db:
        snapshots = [bytes(row.snapshot) for row in db.execute(select(tables.run_states.c.snapshot))]
    for snapshot in snapshots:
        pipeline.restore_run(snapshot)
    counted = {verdict.run: verdict.coverage for verdict in pipeline.verdicts()}
    return {run: (one.records, one.late, one.duplicates, one.conflicts) for run, one in counted.items()}


def _is_forkserver() -> bool:
    return multiprocessing.current_process().name == "MainProcess" and "forkserver" in " ".join(sys.orig_argv)


def _is_done_soon(setup: Setup, process: ForkServerProcess) -> bool:
    """Wait until the life ends by itself or has nothing left to do, at most as long as a life lasts."""
    give_up_s = time.monotonic() + _LIFE_S
    while process.is_alive() and time.monotonic() < give_up_s:
        if _is_idle(setup):
            return True
        process.join(0.05)
    return False


def _is_idle(setup: Setup) -> bool:
    if not setup.is_spooling:
        return False
    spool = Spool(setup.data)
    end = spool.next_seq()
    spool.close()
    return is_done(setup, end)


def _live(setup: Setup, crash: str, can_be_stopped: Event) -> None:
    """One life of a worker."""
    crash_points.arm(crash)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    can_be_stopped.set()
    work = work_on_spool if setup.is_spooling else work_on_kafka
    work(setup.settings, setup.data, stop, lambda _sentence: None)


if _is_forkserver():
    load()  # what the server has loaded its children need not load
