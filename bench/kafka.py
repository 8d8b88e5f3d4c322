"""From a real broker to the verdict, against kafka-python's bare poll loop over the very same topic.

    python -m bench.kafka [--records 1] [--ranks 8 1000 10000] [--form json arrow256 arrow8] [--kafka ADDRESS]

Ours is all that `firstfault worker` does: poll, decode, align, every detector, history, verdicts and
checkpoints in a store on the disk. Bare is ``KafkaConsumer.poll`` with the client settings of our source,
which looks at nothing. Both read the topic several times, turn by turn, and the best of each counts: so the
ratio does not depend on how busy the machine is. The clock starts with the first records, when the
connection stands. ``--records 10`` reads ten times as many.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from detectors.kernels import compile_at_first_use
from ingest.blocks import RecordBatch
from ingest.decode import Decoder
from ingest.kafka_config import KafkaSourceConfig
from ingest.kafka_source import KafkaSource
from ingest.kafka_topics import TopicsConfig
from service.config import Settings
from service.history_writer import HistoryWriter
from service.kafka_jars import BrokerUnavailable
from service.local_kafka import LocalKafka
from service.pipeline import Pipeline
from service.store import Store
from service.warm_up import load
from service.worker import Worker

FORMS: Mapping[str, tuple[int, int]] = {
    "json": (1, 60_000),
    "arrow8": (8, 80_000),
    "arrow256": (256, 512_000),
}
"""Records a message, and records in all: some seconds of work each on two busy cores."""
ROUNDS = 2
NAMES = ("loss", "local_grad_norm", "grad_norm", "step_time_s")


@dataclass(frozen=True, slots=True)
class Timed:
    """Seconds on the clock and seconds of processor time that some records took."""

    wall_s: float
    cpu_s: float
    records: int


def main() -> int:
    """Print one line for each form and number of ranks."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=float, default=1.0, help="so many times the usual records")
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 1000, 10_000])
    parser.add_argument("--form", nargs="+", choices=tuple(FORMS), default=list(FORMS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--kafka", help="a broker that runs already, as host:port; else one is started")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        try:
            address = given.kafka or stack.enter_context(LocalKafka(folder / "kafka")).address
        except BrokerUnavailable as error:
            print(f"kafka: nothing measured, no broker: {error}")
            return 0
        warm_up(address, folder)
        for form in given.form:
            for ranks in given.ranks:
                size, records = FORMS[form]
                count = max(size, int(records * given.records) // size * size)
                report(address, folder / f"{form}-{ranks}", (form, ranks, count), given.rounds)
    return 0


def warm_up(address: str, folder: Path) -> None:
    """Load the libraries and compile the loops, as a worker has them some seconds after its start."""
    compile_at_first_use()
    load()
    for form in FORMS:
        topic = f"warm-{form}"
        fill(address, topic, messages(form, 8, 20_480))
        ours(address, topic, folder / topic, 20_480)


def report(address: str, folder: Path, load: tuple[str, int, int], rounds: int) -> None:
    """Read one topic both ways, turn by turn: ``load`` is the form, the ranks and the records."""
    form, ranks, count = load
    topic, size = folder.name, FORMS[form][0]
    fill(address, topic, messages(form, ranks, count))
    times: dict[str, list[Timed]] = {"bare": [], "ours": []}
    for turn in range(rounds):
        times["bare"].append(bare(address, topic, count // size, size))
        times["ours"].append(ours(address, topic, folder / str(turn), count))
    plain, whole = (min(times[side], key=lambda one: one.wall_s / one.records) for side in ("bare", "ours"))
    rate, least = whole.records / whole.wall_s, plain.records / plain.wall_s
    cpu = min(1e6 * one.cpu_s / one.records for one in times["ours"])
    print(
        f"kafka {form:8} {ranks:6} ranks: {rate / 1e3:7.0f} k records/s, {rate / least:.2f} x of the bare"
        f" poll loop's {least / 1e3:.0f} k; {cpu:.2f} µs of processor time a record",
        flush=True,
    )


def bare(address: str, topic: str, count: int, size: int) -> Timed:
    """Poll ``count`` messages of ``size`` records and drop them."""
    from kafka import KafkaConsumer, TopicPartition

    config = KafkaSourceConfig()
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=[address],
        enable_auto_commit=False,
        fetch_max_bytes=config.fetch_bytes,
        max_partition_fetch_bytes=config.fetch_bytes // 4,
    )
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)

    def polls() -> Iterator[int]:
        while True:
            found = consumer.poll(500, max_records=config.max_poll_messages)
            yield sum(map(len, found.values())) * size

    try:
        return timed(polls(), count * size)
    finally:
        consumer.close()


def timed(polls: Iterator[int], count: int) -> Timed:
    """From the first records until ``count`` have come, which the first ones then do not count among."""
    first = next(one for one in polls if one)
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    left = count - first
    while left > 0:
        left -= next(polls)
    return Timed(time.perf_counter() - wall_s, time.process_time() - cpu_s, count - first)


def ours(address: str, topic: str, folder: Path, count: int) -> Timed:
    """The worker over a topic from its first record to its last, the end included."""
    with ExitStack() as stack:
        config = KafkaSourceConfig(
            bootstrap=(address,),
            group=f"{topic}-by-{folder.name}",
            topics=TopicsConfig(telemetry=topic),
            create_topics=False,
        )
        store = Store(folder)
        stack.callback(store.close)
        settings = Settings()
        history = HistoryWriter(folder / "history", settings.history, is_open=store.is_open)
        stack.callback(history.close)
        worker = Worker(
            store,
            lambda: Pipeline(settings.pipeline, settings.detectors, on_block=history.update),
            name=f"kafka:{topic}",
            config=settings.worker,
            history=history,
            say=_unheard,
        )
        source = KafkaSource(config, Decoder(), worker.claim)
        stack.callback(source.close)
        stop = threading.Event()
        clocked = Clocked(source, count, stop)
        worker.run(clocked, stop)
        taken = clocked.taken()
        (verdict,) = store.verdicts()
        assert b'"label":"healthy"' in verdict.canonical, verdict.canonical[:200]
        return taken


def _unheard(_sentence: str) -> None:
    """What a worker prints would stand between the figures."""


class Clocked:
    """A source that starts a clock with the first records and sets ``stop`` with the last."""

    def __init__(self, source: KafkaSource, count: int, stop: threading.Event) -> None:
        self._source, self._left, self._stop = source, count, stop
        self._records, self._begin = 0, (0.0, 0.0)
        self.position, self.disown, self.close = source.position, source.disown, source.close

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches."""
        batches = self._source.poll(timeout_s)
        came = sum(map(len, batches))
        if came and self._begin == (0.0, 0.0):
            self._begin, self._records = (time.perf_counter(), time.process_time()), self._left - came
        self._left -= came
        if self._left <= 0:
            self._stop.set()
        return batches

    @property
    def is_exhausted(self) -> bool:
        """Never: a topic can always grow."""
        return self._source.is_exhausted

    def taken(self) -> Timed:
        """What the records after the first ones took until now."""
        wall_s, cpu_s = self._begin
        return Timed(time.perf_counter() - wall_s, time.process_time() - cpu_s, self._records)


def fill(address: str, topic: str, values: Iterator[bytes]) -> None:
    """Write the messages to a topic of one partition."""
    from confluent_kafka import Producer
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=[address])
    admin.create_topics({topic: {"num_partitions": 1}}, wait_for_metadata=True)
    admin.close()
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    )
    for value in values:
        producer.produce(topic, value, key=b"bench", partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0


def messages(form: str, ranks: int, count: int) -> Iterator[bytes]:
    """``count`` records of a healthy run, in iteration order, as messages of one form."""
    size = FORMS[form][0]
    rng = np.random.default_rng(0)
    step = 1 << 15
    for begin in range(0, count, step):
        at_N = np.arange(begin, min(begin + step, count))
        columns = made(rng, at_N, ranks)
        if form == "json":
            yield from lines(columns)
        else:
            for start in range(0, len(at_N), size):
                yield stream({name: values_N[start : start + size] for name, values_N in columns.items()})


def made(rng: np.random.Generator, at_N: np.ndarray[Any, Any], ranks: int) -> dict[str, np.ndarray[Any, Any]]:
    """Independent noise for what is each rank's own, and the same for all where ranks must agree."""
    iteration_N = at_N // ranks
    shared_N = 1.0 + 0.1 * np.sin(1e4 * np.sin(iteration_N.astype(np.float64)))
    return {
        "rank": at_N % ranks,
        "iteration": iteration_N,
        "time": 1.7e9 + iteration_N,
        "loss": 2.0 + 3.0 / (1.0 + iteration_N / 50.0) + rng.normal(0.0, 0.05, len(at_N)),
        "local_grad_norm": rng.lognormal(0.0, 0.1, len(at_N)),
        "grad_norm": shared_N,
        "step_time_s": rng.normal(1.0, 0.01, len(at_N)),
        "param_checksum": iteration_N.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15),
    }


def lines(columns: Mapping[str, np.ndarray[Any, Any]]) -> Iterator[bytes]:
    """One JSON record a message, of about 200 bytes."""
    for rank, iteration, at, *values, sum_ in zip(*(one.tolist() for one in columns.values()), strict=True):
        numbers = ",".join(f'"{name}":{value!r}' for name, value in zip(NAMES, values, strict=True))
        yield (
            f'{{"run":"bench","rank":{rank},"iteration":{iteration},"time":{at!r},{numbers}'
            f',"param_checksum":"{sum_:016x}"}}'
        ).encode()


def stream(columns: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """The records of one message as an Arrow stream."""
    size = len(columns["rank"])
    runs = pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, np.int32)), pa.array(["bench"]))
    batch = pa.RecordBatch.from_arrays([runs, *map(pa.array, columns.values())], ["run", *columns])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


if __name__ == "__main__":
    raise SystemExit(main())
