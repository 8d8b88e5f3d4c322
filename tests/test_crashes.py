"""Law 5: kill the worker anywhere, start it again: the store is that of one that was never killed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ingest.spool import Spool
from service.crash_points import UNALERTED, CrashPoint, arm
from service.local_kafka import LocalKafka
from service.store_config import StoreConfig

from .conftest import NewTopic
from .crash_harness import (
    Kept,
    Setup,
    Tally,
    append_to_spool,
    finish,
    freeze,
    health,
    is_done,
    kept,
    kill_over_and_over,
    mixed_lines,
    offsets,
    on_kafka,
    owners,
    spooling,
    start,
    thaw,
    wait_until,
)
from .kafka_builders import dead_letters, newest_by_key, produce_keyed

LINES = mixed_lines()
POINTS = [point for point in UNALERTED if point is not CrashPoint.AFTER_PUBLISH]
"""A spool has nobody to publish to."""


@pytest.fixture(scope="module")
def never_killed(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    setup = spooling(tmp_path_factory.mktemp("never-killed"))
    append_to_spool(setup, LINES)
    return finish(setup, end_of(setup))


def end_of(setup: Setup) -> int:
    spool = Spool(setup.data)
    end = spool.next_seq()
    spool.close()
    return end


def feeding(slices: int, send: Callable[[list[bytes]], None]) -> Callable[[], bool]:
    """Sends one of ``slices`` parts of the lines at each call; False once all were sent."""
    size = -(-len(LINES) // slices)
    parts: Iterator[list[bytes]] = (LINES[at : at + size] for at in range(0, len(LINES), size))

    def feed() -> bool:
        part = next(parts, None)
        if part is not None:
            send(part)
        return part is not None

    return feed


def test_the_store_knows_both_faults_before_anything_is_killed(never_killed: Kept) -> None:
    assert sorted(never_killed.verdicts) == ["bad", "good", "nan"]
    assert b'"label":"silent_drift"' in never_killed.verdicts["bad"]
    assert b'"label":"nan"' in never_killed.verdicts["nan"]
    assert sum(never_killed.rejected.values()) == len(LINES) - 3 * 960
    assert never_killed.arrivals == dict.fromkeys(("bad", "good", "nan"), (960, 0, 0, 0))


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_killed_at_each_place_leaves_the_store_of_one_never_killed(
    tmp_path: Path, never_killed: Kept, point: CrashPoint
) -> None:
    setup, tally = spooling(tmp_path), Tally()
    feed = feeding(2, lambda part: append_to_spool(setup, part))
    kill_over_and_over(setup, feed, random.Random(0), tally, [point])
    assert finish(setup, end_of(setup)) == never_killed
    assert tally.kills == 2


def test_a_worker_killed_at_random_leaves_the_store_of_one_never_killed(
    tmp_path: Path, never_killed: Kept
) -> None:
    setup, tally = spooling(tmp_path), Tally()
    feed = feeding(8, lambda part: append_to_spool(setup, part))
    kill_over_and_over(setup, feed, random.Random(1), tally, POINTS)
    assert finish(setup, end_of(setup)) == never_killed
    assert tally.kills == 8


@pytest.mark.postgres
def test_the_same_holds_for_a_store_in_postgresql(
    tmp_path: Path, never_killed: Kept, new_database: str
) -> None:
    setup, tally = spooling(tmp_path, StoreConfig(url=new_database)), Tally()
    feed = feeding(4, lambda part: append_to_spool(setup, part))
    kill_over_and_over(setup, feed, random.Random(2), tally, POINTS)
    assert finish(setup, end_of(setup)) == never_killed


@pytest.mark.kafka
def test_the_same_holds_on_a_real_broker_with_partitions(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, tally = new_topic(2), Tally()
    setup = on_kafka(tmp_path / "killed", broker.address, topic)
    feed = feeding(6, lambda part: produce_keyed(broker.address, topic, part))
    kill_over_and_over(setup, feed, random.Random(3), tally, UNALERTED)
    never_killed = finish(on_kafka(tmp_path / "never-killed", broker.address, topic), len(LINES))
    assert finish(setup, len(LINES)) == never_killed
    assert sum(never_killed.rejected.values()) == len(LINES) - 3 * 960
    refused = {line for line in LINES if b'"rank":-1' in line}
    assert dead_letters(broker.address, f"{topic}.d") == refused
    published = newest_by_key(broker.address, f"{topic}.v")
    stored = {run: verdict for run, verdict in never_killed.verdicts.items() if run != "good"}
    assert {json.loads(value)["run"]: value for value in published.values()} == stored
    assert sorted(published) == sorted(name for name, _ in never_killed.incidents)


@pytest.mark.kafka
def test_a_worker_that_was_stopped_replaced_and_woken_writes_nothing_and_joins_again(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    setup = on_kafka(tmp_path / "shared", broker.address, topic, group=f"group-of-{topic}")
    produce_keyed(broker.address, topic, LINES[:1200])
    zombie = start(setup)
    wait_until(lambda: offsets(setup) > 0)
    freeze(setup, zombie)
    other = start(setup)
    produce_keyed(broker.address, topic, LINES[1200:2000])
    wait_until(lambda: offsets(setup) == 2000)
    thaw(zombie)
    produce_keyed(broker.address, topic, LINES[2000:])
    wait_until(lambda: is_done(setup, len(LINES)))
    assert zombie.is_alive()  # it joined again
    for process in (zombie, other):
        process.terminate()
        process.join(20)
    never_killed = finish(on_kafka(tmp_path / "never-killed", broker.address, topic), len(LINES))
    assert kept(setup) == never_killed


@pytest.mark.kafka
def test_of_two_workers_in_one_group_one_is_killed_and_the_other_goes_on(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    setup = on_kafka(tmp_path / "shared", broker.address, topic, group=f"group-of-{topic}")
    workers = [start(setup), start(setup)]
    wait_until(lambda: owners(setup) == 2)
    produce_keyed(broker.address, topic, LINES[:1500])
    wait_until(lambda: offsets(setup) > 700)
    workers[0].kill()
    workers[0].join()
    produce_keyed(broker.address, topic, LINES[1500:])
    wait_until(lambda: is_done(setup, len(LINES)))
    workers[1].terminate()
    workers[1].join(20)
    assert workers[1].exitcode == 0
    never_killed = finish(on_kafka(tmp_path / "never-killed", broker.address, topic), len(LINES))
    assert kept(setup) == never_killed


@pytest.mark.kafka
def test_a_broker_restarted_in_the_middle_costs_nothing_and_is_told(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(2)
    setup = on_kafka(tmp_path / "restarted", broker.address, topic)
    produce_keyed(broker.address, topic, LINES[:1500])
    worker = start(setup)
    wait_until(lambda: offsets(setup) == 1500)
    broker.stop()
    wait_until(lambda: any(body["unavailable_since"] for body in health(setup)))
    broker.start()
    produce_keyed(broker.address, topic, LINES[1500:])
    wait_until(lambda: is_done(setup, len(LINES)))
    wait_until(lambda: all(body["unavailable_since"] is None for body in health(setup)))
    worker.terminate()
    worker.join(20)
    assert worker.exitcode == 0
    never_killed = finish(on_kafka(tmp_path / "never", broker.address, topic), len(LINES))
    assert kept(setup) == never_killed


@pytest.mark.parametrize("text", ["nowhere", "in_verdict:0", "in_verdict:x"])
def test_a_crash_point_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="FIRSTFAULT_CRASHPOINT must"):
        arm(text)
