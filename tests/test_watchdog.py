"""A call that never returns ends the process, and says where it hangs."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from ingest.watchdog import STUCK_STATUS, Watchdog

WEDGE = """
from ingest.kafka_source import KafkaSource
from tests.kafka_builders import a_source, line, produce
from tests.mock_kafka import CLIENT, MockKafka
import kafka.record.default_records as records

calc_crc32c, records.calc_crc32c = records.calc_crc32c, lambda data: 1
with MockKafka() as mock:
    topic = mock.create_topic("wedge")
    produce(mock.address, topic, [line(0)], enable_idempotence=False, **CLIENT)
    records.calc_crc32c = calc_crc32c
    KafkaSource._pass_over = lambda self, damage, timeout_ms, taken: print("left in place", flush=True)
    source = a_source(mock.address, topic, client=CLIENT, connect_timeout_s=0.5, watchdog_s=2.0)
    while True:
        source.poll(0.1)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_loop_without_end_exits_with_the_stacks_of_all_threads() -> None:
    program = (
        "from ingest.watchdog import Watchdog\n"
        "def spins_for_ever():\n"
        "    while True: pass\n"
        "with Watchdog(0.2).watching(): spins_for_ever()\n"
    )
    ended = run(program)
    assert ended.returncode == STUCK_STATUS
    assert "spins_for_ever" in ended.stderr


@pytest.mark.kafka
def test_the_endless_poll_of_kafka_python_is_real_and_is_ended() -> None:
    ended = run(WEDGE)
    assert ended.stdout.count("left in place") == 1, "the poll after the one that raised never returns"
    assert ended.returncode == STUCK_STATUS, ended.stderr
    assert "fetched_records" in ended.stderr


def test_many_short_blocks_in_a_row_are_not_one_long_one() -> None:
    stuck = threading.Event()
    watchdog = Watchdog(0.2, stuck.set)
    until = time.monotonic() + 0.6
    while time.monotonic() < until:
        with watchdog.watching():
            time.sleep(0.01)
    watchdog.stop()
    assert not stuck.is_set()


def test_nothing_happens_outside_a_block() -> None:
    stuck = threading.Event()
    watchdog = Watchdog(0.1, stuck.set)
    with watchdog.watching():
        pass
    assert not stuck.wait(0.3)
    watchdog.stop()
    watchdog.stop()


def test_a_long_block_is_noticed_once() -> None:
    calls: list[float] = []
    watchdog = Watchdog(0.1, lambda: calls.append(time.monotonic()))
    began = time.monotonic()
    with watchdog.watching():
        time.sleep(0.5)
    watchdog.stop()
    assert len(calls) == 1
    assert calls[0] - began >= 0.1
