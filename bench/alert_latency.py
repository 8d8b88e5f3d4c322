"""From the arrival of the record of a fault in Kafka to the alert at a webhook.

    python -m bench.alert_latency [--ranks 8 1000 10000] [--rounds 3] [--kafka ADDRESS]

A real broker, `firstfault worker` in a process of its own, and a receiver of signed webhooks in this one.
Each round is a run of its own: 70 healthy iterations that lie there already, then one iteration a second, of
which each host of eight ranks sends its records as one Arrow message, as the relay of the probe does. In the
middle of one of them a rank has a loss that is NaN, or a checksum of its parameters that no replica has. The
clock starts when the broker has acknowledged that message, and stops when the receiver has the whole alert;
of the slowest round it is told how much of it passed until the incident was stored, and how much after.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import func, select

from service.errors import StoreError
from service.kafka_jars import BrokerUnavailable
from service.local_kafka import LocalKafka
from service.store import Store
from service.tables import incidents

TOPIC = "firstfault.telemetry"
HEALTHY = 70
"""Iterations that lie there: more than the 64 that a worker holds back, so that it has all it ever holds."""
LIVE = 3
"""Healthy iterations at a second each before the fault."""
HOST = 8
"""Ranks whose records come in one message."""
BULK = 500
"""Records of a message of those that lie there."""
LONGEST_S = 30.0
KINDS = ("nan", "checksum")


@dataclass(slots=True)
class Received:
    """When the receiver had the alert of each run."""

    at: dict[str, float] = field(default_factory=dict)


def main() -> int:
    """Print one line for each number of ranks and kind of fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 1000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kafka", help="a broker that runs already, as host:port; else one is started")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            address = given.kafka or stack.enter_context(LocalKafka(folder / "kafka")).address
        except BrokerUnavailable as error:
            print(f"alert latency: nothing measured, no broker: {error}")
            return 0
        port, received = stack.enter_context(receiver())
        stack.enter_context(a_worker(address, folder, port))
        for ranks in given.ranks:
            for kind in KINDS:
                report(address, folder, received, (ranks, kind, given.rounds))
    return 0


def report(address: str, folder: Path, received: Received, load: tuple[int, str, int]) -> None:
    """Some rounds of one kind of fault, and their times."""
    ranks, kind, rounds = load
    runs = [f"{kind}-{ranks}-{turn}" for turn in range(rounds)]
    measured = [one_round(address, folder, received, (run, ranks, kind)) for run in runs]
    times = [whole for whole, _ in measured]
    told = ", ".join(f"{one:.2f}" for one in times)
    slowest, stored = max(measured)
    print(
        f"alert of {kind:8} at {ranks:6} ranks: {sorted(times)[len(times) // 2]:.2f} s median of {told};"
        " from the broker's acknowledgement to the webhook;"
        f" of the slowest {stored:.2f} s until stored, {slowest - stored:.2f} s from there",
        flush=True,
    )


def one_round(
    address: str, folder: Path, received: Received, load: tuple[str, int, str]
) -> tuple[float, float]:
    """Seconds from the acknowledgement of the faulty message to its alert, and to its incident."""
    run, ranks, kind = load
    fault, odd = HEALTHY + LIVE, ranks // 3
    live = [
        list(messages(run, t, ranks, HOST, (odd, kind) if t >= fault else None))
        for t in range(HEALTHY, fault + 8)
    ]
    with Sending(address) as sending:
        for t in range(HEALTHY):
            sending.send(run, messages(run, t, ranks, BULK, None))
        wait_until(lambda: judged_to(folder, run) >= HEALTHY - 2, 120.0)
        acknowledged = threading.Event()
        at = [0.0]

        def note(_error: object, _message: object) -> None:
            at[0] = time.time()
            acknowledged.set()

        begin = time.monotonic()
        for number, values in enumerate(live):
            time.sleep(max(0.0, begin + number - time.monotonic()))
            if number == LIVE:
                sending.send(run, values[: odd // HOST])
                sending.send(run, values[odd // HOST : odd // HOST + 1], note)
                sending.send(run, values[odd // HOST + 1 :])
            else:
                sending.send(run, values)
            if run in received.at:
                break
        wait_until(lambda: run in received.at and acknowledged.is_set(), LONGEST_S)
    return received.at[run] - at[0], stored_at(folder, run) - at[0]


class Sending:
    """A producer, and a thread that hears of its acknowledgements as they come."""

    def __init__(self, address: str) -> None:
        from confluent_kafka import Producer

        queue = {"linger.ms": 2, "queue.buffering.max.messages": 1_000_000}
        self._producer = Producer({"bootstrap.servers": address, **queue})
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._hear, daemon=True)
        self._thread.start()

    def send(self, run: str, values: Any, note: Any = None) -> None:
        """Hand the messages over; ``note`` hears when a broker has them."""
        for value in values:
            self._producer.produce(TOPIC, value, key=run.encode(), on_delivery=note)

    def _hear(self) -> None:
        while not self._is_done.is_set():
            self._producer.poll(0.005)

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, *_: object) -> None:
        self._producer.flush(30)
        self._is_done.set()
        self._thread.join()


def messages(
    run: str, iteration: int, ranks: int, size: int, fault: tuple[int, str] | None
) -> Iterator[bytes]:
    """One iteration of all ranks as Arrow messages of ``size`` records."""
    rng = np.random.default_rng(iteration)
    loss = 2.0 + 3.0 / (1.0 + iteration / 50.0) + rng.normal(0.0, 0.05, ranks)
    sums = np.full(ranks, f"{iteration * 0x9E3779B97F4A7C15 % 2**64:016x}", dtype=object)
    if fault is not None and fault[1] == "nan":
        loss[fault[0]] = np.nan
    elif fault is not None:
        sums[fault[0]] = "00000000deadbeef"
    columns: dict[str, Any] = {
        "run": np.full(ranks, run, dtype=object),
        "rank": np.arange(ranks),
        "iteration": np.full(ranks, iteration),
        "time": np.full(ranks, 1.7e9 + iteration),
        "loss": loss,
        "local_grad_norm": rng.lognormal(0.0, 0.1, ranks),
        "grad_norm": np.full(ranks, 1.0 + 0.1 * np.sin(1e4 * np.sin(float(iteration)))),
        "step_time_s": rng.normal(1.0, 0.01, ranks),
        "param_checksum": sums,
    }
    whole = pa.RecordBatch.from_arrays([pa.array(one) for one in columns.values()], list(columns))
    for begin in range(0, ranks, size):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, whole.schema) as writer:
            writer.write_batch(whole.slice(begin, size))
        yield bytes(sink.getvalue())


@contextmanager
def receiver() -> Iterator[tuple[int, Received]]:
    """A webhook on the loopback address: its port, and what it got."""
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            received.at.setdefault(body["firstfault"]["run"], time.time())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def a_worker(address: str, folder: Path, port: int) -> Iterator[None]:
    """`firstfault worker` with a channel to the receiver, once it holds its partitions."""
    settings = folder / "firstfault.toml"
    settings.write_text(
        "[alerts.channels.bench]\n"
        f'kind = "webhook"\nurl = "http://127.0.0.1:{port}/"\nsecret_env = "BENCH_SECRET"\n'
        'allow_private = true\ncool_down_s = 0\nmin_certainty = "suspected"\n'
    )
    secret = "whsec_" + base64.b64encode(os.urandom(24)).decode()
    command = [sys.executable, "-m", "service.cli", "worker", "--kafka", address, "--data", str(folder)]
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--config", str(settings)],
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, "BENCH_SECRET": secret},
        )
        try:
            wait_until(lambda: b"parts claimed" in (folder / "worker.log").read_bytes(), 120.0)
            yield
        finally:
            process.terminate()
            process.wait(30)


def judged_to(folder: Path, run: str) -> int:
    """How far the worker has judged a run; -1 before anything."""
    with suppress(StoreError):
        store = Store(folder, read_only=True)
        try:
            found = store.canonical_of(run)
        finally:
            store.close()
        reached = None if found is None else json.loads(found)["judged_to_iteration"]
        return -1 if reached is None else int(reached)
    return -1


def stored_at(folder: Path, run: str) -> float:
    """When the first incident of a run was stored."""
    store = Store(folder, read_only=True)
    try:
        with store.database.read() as db:
            wanted = select(func.min(incidents.c.opened_at)).where(incidents.c.run == run)
            return float(db.execute(wanted).scalar_one())
    finally:
        store.close()


def wait_until(is_true: Any, timeout_s: float) -> None:
    """Wait for something to become true."""
    give_up_s = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > give_up_s:
            raise TimeoutError(f"it did not come true within {timeout_s:g} s")
        time.sleep(0.02)


if __name__ == "__main__":
    raise SystemExit(main())
