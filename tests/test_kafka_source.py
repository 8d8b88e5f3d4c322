"""Reading a real topic: nothing lost, nothing twice, whatever breaks in between."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ingest.errors import SourceUnavailable
from ingest.kafka_clients import free_the_line
from service.local_kafka import LocalKafka, LocalKafkaConfig

from .conftest import NewTopic
from .kafka_builders import (
    a_source,
    line,
    produce,
    produce_elsewhere,
    produce_spread,
    read_records,
    read_until,
    rejections,
)

pytestmark = pytest.mark.kafka


def test_the_first_read_starts_at_the_earliest_offset(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    produce(broker.address, topic, [line(i) for i in range(5)])
    source = a_source(broker.address, topic)
    assert read_records(source, 5) == [0, 1, 2, 3, 4]
    assert source.position() == {f"{topic}:0": 5}
    assert not source.is_exhausted
    source.close()


def test_a_new_source_goes_on_at_the_given_position_and_not_at_the_one_in_kafka(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    produce(broker.address, topic, [line(i) for i in range(6)])
    first = a_source(broker.address, topic, commit_interval_s=0.0)
    read_records(first, 6)
    first.poll(0.1)
    first.close()
    again = a_source(broker.address, topic, positions={f"{topic}:0": 2})
    assert read_records(again, 4) == [2, 3, 4, 5]
    again.close()


def test_clients_with_other_partitioners_are_read_from_all_partitions(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(3)
    produce(broker.address, topic, [line(i) for i in range(10)])
    produce_elsewhere(broker.address, topic, [line(i) for i in range(10, 20)])
    source = a_source(broker.address, topic)
    assert sorted(read_records(source, 20)) == list(range(20))
    assert sorted(source.position()) == [f"{topic}:{partition}" for partition in range(3)]
    assert sum(source.position().values()) == 20
    source.close()


def test_a_run_spread_over_partitions_comes_in_step_when_caught_up_on(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(4)
    produce_spread(broker.address, topic, iterations=4000, partitions=4)
    source = a_source(broker.address, topic, longest_hold_s=60.0)  # however slow a machine is
    batches = read_until(source, lambda came: sum(map(len, came)) >= 16_000)
    iterations = np.concatenate([batch.iteration_N for batch in batches])
    ranks = np.concatenate([batch.rank_N for batch in batches])
    furthest = np.maximum.accumulate(iterations)
    assert len(iterations) == 16_000
    assert (furthest - iterations).max() < 64, "no record is later than alignment allows"
    assert all((np.diff(iterations[ranks == rank]) == 1).all() for rank in range(4))
    source.close()


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_batches_compressed_by_kafka_python_are_read(
    broker: LocalKafka, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic(1)
    produce(broker.address, topic, [line(i) for i in range(50)], compression_type=codec, linger_ms=50)
    source = a_source(broker.address, topic)
    assert read_records(source, 50) == list(range(50))
    source.close()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_batches_compressed_by_librdkafka_are_read(
    broker: LocalKafka, new_topic: NewTopic, codec: str
) -> None:
    topic = new_topic(1)
    settings = {"compression.type": codec, "linger.ms": 50}
    produce_elsewhere(broker.address, topic, [line(i) for i in range(50)], **settings)
    source = a_source(broker.address, topic)
    assert read_records(source, 50) == list(range(50))
    source.close()


def test_a_poisonous_value_is_rejected_alone_with_its_place(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    values = [line(0), b"\xff\xfe garbage", None, b"[" * 1000, line(1)]
    produce(broker.address, topic, values)
    source = a_source(broker.address, topic)
    batches = read_until(source, lambda came: sum(map(len, came)) >= 2)
    assert [int(i) for batch in batches for i in batch.iteration_N] == [0, 1]
    refused = rejections(batches)
    assert sorted((bad.source, bad.offset) for bad in refused) == [
        (f"{topic}:0", offset) for offset in (1, 2, 3)
    ]
    assert b"\xff\xfe garbage" in [bad.raw for bad in refused]
    source.close()


def test_a_value_beyond_the_size_limit_is_rejected_unread(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    produce(broker.address, topic, [line(0), b"x" * 3000, line(1)])
    source = a_source(broker.address, topic, max_value_bytes=2000)
    batches = read_until(source, lambda came: sum(map(len, came)) >= 2)
    (refused,) = rejections(batches)
    assert (refused.rule, refused.value, refused.offset) == ("must have at most 2000 bytes", "3000 bytes", 1)
    source.close()


def test_a_restart_of_the_broker_loses_and_repeats_nothing(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    produce(broker.address, topic, [line(i) for i in range(10)])
    source = a_source(broker.address, topic)
    came = read_records(source, 10)
    broker.stop()
    read_until(source, lambda _: source.health().unavailable_since is not None)
    assert source.health().unavailable_since is not None
    assert source.health().reason
    broker.start()
    produce(broker.address, topic, [line(i) for i in range(10, 20)])
    came += read_records(source, 10)
    assert sorted(came) == list(range(20))
    assert source.health().unavailable_since is None
    source.close()


def test_a_broker_that_comes_late_is_waited_for(tmp_path: Path) -> None:
    late = LocalKafka(tmp_path, port=_closed_port())
    source = a_source(late.address, "late", create_topics=True)
    with pytest.raises(SourceUnavailable, match="refused"):
        source.poll(0.1)
    assert source.poll(0.0) == [], "between two attempts a poll is empty"
    with late:
        read_until(source, lambda _: bool(source.position()))
        assert source.position() == {f"late:{partition}": 0 for partition in range(4)}
        assert source.health().unavailable_since is None
        source.close()


def test_an_offset_that_retention_removed_is_told(broker: LocalKafka, new_topic: NewTopic) -> None:
    from kafka import KafkaAdminClient
    from kafka.structs import TopicPartition

    topic = new_topic(1)
    produce(broker.address, topic, [line(i) for i in range(8)])
    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    admin.delete_records({TopicPartition(topic, 0): 5})
    admin.close()
    source = a_source(broker.address, topic, positions={f"{topic}:0": 2})
    batches = read_until(source, lambda came: sum(map(len, came)) >= 3)
    assert [int(i) for batch in batches for i in batch.iteration_N] == [5, 6, 7]
    (lost,) = rejections(batches)
    assert (lost.value, lost.offset, lost.source) == ("offsets 2 to 4", 2, f"{topic}:0")
    assert source.health().skipped_messages == 3
    source.close()


def test_an_offset_beyond_the_end_reads_the_topic_anew(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    produce(broker.address, topic, [line(i) for i in range(3)])
    source = a_source(broker.address, topic, positions={f"{topic}:0": 1000})
    batches = read_until(source, lambda came: sum(map(len, came)) >= 3)
    assert [int(i) for batch in batches for i in batch.iteration_N] == [0, 1, 2]
    assert [bad.value for bad in rejections(batches)] == ["offset 1000, now reading from 0"]
    source.close()


def test_the_end_marker_of_a_transaction_is_no_lag(broker: LocalKafka, new_topic: NewTopic) -> None:
    from kafka import KafkaProducer

    topic = new_topic(1)
    producer = KafkaProducer(bootstrap_servers=[broker.address], transactional_id=f"on-{topic}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, line(0))
    producer.commit_transaction()
    producer.close()
    source = a_source(broker.address, topic)
    assert read_records(source, 1) == [0]
    read_until(source, lambda _: source.health().lag_messages == 0, timeout_s=10)
    assert source.health().lag_messages == 0
    source.close()


def test_something_that_is_no_kafka_is_told_apart_from_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        source = a_source(f"127.0.0.1:{silent.getsockname()[1]}", "any", connect_timeout_s=0.5)
        threads = threading.active_count()
        with pytest.raises(SourceUnavailable, match="accepts connections but does not answer as Kafka"):
            source.poll(0.1)
        assert threading.active_count() == threads, "an attempt leaves no thread behind"
        source.close()


def test_a_topic_that_does_not_exist_is_named_and_read_once_it_does(broker: LocalKafka) -> None:
    from kafka import KafkaAdminClient

    source = a_source(broker.address, "later", client={"metadata_max_age_ms": 500})
    read_until(source, lambda _: bool(source.health().reason), timeout_s=10)
    assert source.health().reason == "topic later does not exist"
    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    admin.create_topics({"later": {"num_partitions": 1}}, wait_for_metadata=True)
    admin.close()
    produce(broker.address, "later", [line(0)])
    assert read_records(source, 1) == [0]
    # what waits is asked of the broker with a poll of its own, once the topic is ours
    read_until(source, lambda _: source.health().lag_messages is not None, timeout_s=10)
    assert source.health().reason == ""
    assert source.health().lag_messages == 0
    source.close()


def test_two_sources_of_one_group_share_the_partitions_without_loss(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(4)
    one = a_source(broker.address, topic)
    read_until(one, lambda _: len(one.position()) == 4)
    two = a_source(broker.address, topic)
    give_up = time.monotonic() + 30
    while time.monotonic() < give_up and not (len(one.position()) == len(two.position()) == 2):
        assert one.poll(0.1) == two.poll(0.1) == []
    assert sorted([*one.position(), *two.position()]) == [f"{topic}:{partition}" for partition in range(4)]
    produce_elsewhere(broker.address, topic, [line(i) for i in range(4)])
    produce(broker.address, topic, [line(i) for i in range(4, 8)])
    came: list[int] = []
    while time.monotonic() < give_up and len(came) < 8:
        came += [int(i) for source in (one, two) for batch in source.poll(0.1) for i in batch.iteration_N]
    assert sorted(came) == list(range(8))
    one.close()
    two.close()


def test_a_broker_that_cannot_start_says_why_with_the_end_of_its_log(tmp_path: Path) -> None:
    from service.kafka_jars import BrokerUnavailable

    wrong = LocalKafkaConfig(properties=(("log.retention.check.interval.ms", "soon"),))
    with pytest.raises(BrokerUnavailable, match=r"log\.retention\.check\.interval\.ms"):
        LocalKafka(tmp_path, config=wrong).start()


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_partition_is_read_to_its_end_beside_an_empty_one_while_it_grows(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    from kafka import KafkaProducer

    # Messages that arrive between two polls are buffered, then held, and the partition paused meanwhile.
    for _ in range(3):
        topic = new_topic(2)
        source = a_source(broker.address, topic)
        producer = KafkaProducer(bootstrap_servers=[broker.address], linger_ms=20)
        read = 0
        give_up_s = time.monotonic() + 60.0
        for begin in range(0, 9000, 3000):
            for iteration in range(begin, begin + 3000):
                producer.send(topic, partition=1, value=line(iteration))
            read += sum(len(batch) for batch in source.poll(0.5))
        while read < 9000 and time.monotonic() < give_up_s:
            read += sum(len(batch) for batch in source.poll(0.5))
        producer.close()
        source.close()
        assert read == 9000


def test_an_exhausted_partition_does_not_stay_in_line() -> None:
    class Fetcher:
        _next_partition_records: list[int] | None = []  # noqa: RUF012  # as kafka-python leaves it behind

    class Consumer:
        _fetcher = Fetcher()

    free_the_line(Consumer)
    assert Consumer._fetcher._next_partition_records is None
    Consumer._fetcher._next_partition_records = [1]
    free_the_line(Consumer)
    assert Consumer._fetcher._next_partition_records == [1]
