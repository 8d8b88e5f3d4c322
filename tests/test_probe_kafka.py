"""The probe and a real broker: what it sends is read, and a broker that dies costs the training nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import firstfault
from ingest.decode import Decoder
from service.local_kafka import LocalKafka

from .conftest import NewTopic
from .kafka_builders import a_source, read_until
from .probe_builders import quick, wait_until

pytestmark = pytest.mark.kafka


def iterations_of(broker: LocalKafka, topic: str, least: int) -> Counter[int]:
    """How often each iteration that has a loss was read, once there are ``least`` of them."""
    source = a_source(broker.address, topic)
    seen: Counter[int] = Counter()

    def is_enough(batches: list[Any]) -> bool:
        seen.clear()
        for batch in batches:
            assert batch.rejected == ()
            loss = batch.numbers.get("loss")
            if loss is not None:
                seen.update(batch.iteration_N[loss.present_N].tolist())
        return len(seen) >= least

    read_until(source, is_enough)
    source.close()
    return seen


@pytest.mark.parametrize("arrow_from_records", [8, 1 << 20])
def test_what_is_logged_is_read_by_the_service(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path, arrow_from_records: int
) -> None:
    topic = new_topic(2)
    config = quick(tmp_path, arrow_from_records=arrow_from_records)
    sink = f"kafka://{broker.address}/{topic}"
    with firstfault.Probe(run="r", rank=3, sink=sink, config=config) as probe:
        for _ in range(100):
            probe.step(float("nan"), param_checksum="9f3ab1c204d7e655")
        wait_until(lambda: probe.counts.sent > 100)
    assert iterations_of(broker, topic, 100) == Counter(range(100))
    assert probe.counts.dropped == probe.errors == 0


def test_a_broker_that_dies_and_comes_back_costs_no_record_and_no_time(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    config = quick(tmp_path, send_timeout_s=2.0, connect_timeout_s=1.0)
    sink = f"kafka://{broker.address}/{topic}"
    slowest_s = 0.0
    with firstfault.Probe(run="r", rank=0, sink=sink, config=config) as probe:
        probe.step(1.0)
        wait_until(lambda: probe.counts.sent > 1)
        broker.stop()
        try:
            for _ in range(200):
                begun_s = time.thread_time()
                probe.step(1.0)
                slowest_s = max(slowest_s, time.thread_time() - begun_s)
            wait_until(lambda: probe.counts.is_spilled and not probe.counts.waiting)
        finally:
            broker.start()
        probe.step(1.0)
        wait_until(lambda: not probe.counts.is_spilled and not probe.counts.waiting, 60.0)
    assert slowest_s < 0.05
    assert probe.counts.dropped == 0
    assert set(iterations_of(broker, topic, 202)) == set(range(202))


def test_a_broker_that_was_never_there_costs_a_second_at_the_end(tmp_path: Path) -> None:
    probe = firstfault.Probe(run="r", rank=0, sink="kafka://127.0.0.1:9/t", config=quick(tmp_path))
    for _ in range(50):
        probe.step(1.0)
    begun_s = time.monotonic()
    probe.close()
    assert time.monotonic() - begun_s < 5.0  # one second, on a machine that does much else
    kept = Decoder().decode_lines(b"".join(path.read_bytes() for path in tmp_path.rglob("*.jsonl")), "", 1)
    assert kept.rejected == ()
    assert set(kept.iteration_N.tolist()) == set(range(50))
    # no test after this one has a thread beside it that still looks for a broker
    wait_until(lambda: "firstfault-probe" not in {thread.name for thread in threading.enumerate()})
