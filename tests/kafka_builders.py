"""Sources, producers and payloads for the tests that need Kafka."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ingest.blocks import RecordBatch, Rejected
from ingest.decode import Decoder
from ingest.kafka_source import KafkaSource, KafkaSourceConfig
from ingest.kafka_topics import TopicsConfig
from ingest.source import ClaimParts


def line(iteration: int, rank: int = 0, run: str = "job", **metrics: float) -> bytes:
    """One record as a message value."""
    record = {"run": run, "rank": rank, "iteration": iteration, "loss": 1.0, **metrics}
    return json.dumps(record).encode()


def a_source(
    address: str,
    topic: str,
    positions: Mapping[str, int] | None = None,
    group: str | None = None,
    **settings: object,
) -> KafkaSource:
    """A source over one existing topic, in a group of its own, quick to notice and to retry."""
    config = KafkaSourceConfig(
        bootstrap=(address,),
        group=group or f"group-of-{topic}",
        topics=TopicsConfig(telemetry=topic),
        **{  # type: ignore[arg-type]  # settings are checked by the dataclass's users
            "create_topics": False,
            "session_timeout_s": 6.0,
            "connect_timeout_s": 2.0,
            "backoff_max_s": 0.5,
            "probe_interval_s": 0.5,
            **settings,
        },
    )
    return KafkaSource(config, Decoder(), claiming(positions or {}))


def claiming(positions: Mapping[str, int]) -> ClaimParts:
    """Lets a source have whatever it asks for, from these positions on."""
    return lambda _parts: positions


def read_until(
    source: KafkaSource, is_enough: Callable[[list[RecordBatch]], bool], timeout_s: float = 30.0
) -> list[RecordBatch]:
    """Poll until what came is enough; fails by returning what there is when time is up."""
    from ingest.errors import SourceUnavailable

    batches: list[RecordBatch] = []
    give_up = time.monotonic() + timeout_s
    while time.monotonic() < give_up and not is_enough(batches):
        try:
            batches += source.poll(0.2)
        except SourceUnavailable:
            continue
    return batches


def read_records(source: KafkaSource, count: int, timeout_s: float = 30.0) -> list[int]:
    """Iterations of the next ``count`` records, in the order they came."""
    batches = read_until(source, lambda came: sum(map(len, came)) >= count, timeout_s)
    return [int(iteration) for batch in batches for iteration in batch.iteration_N]


def rejections(batches: Iterable[RecordBatch]) -> list[Rejected]:
    return [rejected for batch in batches for rejected in batch.rejected]


def produce(address: str, topic: str, values: Sequence[bytes | None], **settings: object) -> None:
    """Send by kafka-python, all with the key ``job``, and wait for the acknowledgements."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=[address], **settings)
    for value in values:
        producer.send(topic, value, key=b"job")
    producer.flush()
    producer.close()


def produce_elsewhere(address: str, topic: str, values: Sequence[bytes], **settings: object) -> None:
    """The same by confluent-kafka, whose partitioner hashes keys differently."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": address, **settings})
    for value in values:
        producer.produce(topic, value, key=b"job")
    assert producer.flush(30) == 0


def produce_spread(address: str, topic: str, *, iterations: int, partitions: int) -> None:
    """A run whose ranks write to a partition each, one iteration every ten milliseconds."""
    from confluent_kafka import Producer

    # Stamps end about now: a broker deletes what is older than its retention, within seconds.
    begin_ms = int(time.time() * 1000) - 10 * iterations
    # Without idempotence a retry, likely on a new topic, puts batches of one partition out of order.
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for iteration in range(iterations):
        for rank in range(partitions):
            stamp_ms = begin_ms + 10 * iteration
            producer.produce(topic, line(iteration, rank), partition=rank, timestamp=stamp_ms)
    assert producer.flush(30) == 0


def produce_keyed(address: str, topic: str, lines: Sequence[bytes]) -> None:
    """Send lines under the key of their run, as a trainer would, and wait for the acknowledgements."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=[address], linger_ms=5)
    for one in lines:
        producer.send(topic, one, key=json.loads(one)["run"].encode())
    producer.flush()
    producer.close()


def newest_by_key(address: str, topic: str) -> dict[str, bytes]:
    """The newest value of each key of a topic with one partition."""
    return {message.key.decode(): message.value for message in _all_messages(address, topic)}


def dead_letters(address: str, topic: str) -> set[bytes]:
    """The values of a dead-letter topic with one partition, each of which must say why and whence."""
    found = _all_messages(address, topic)
    for message in found:
        assert {"reason", "source_topic", "source_offset"} <= {name for name, _ in message.headers}
    return {message.value for message in found}


def _all_messages(address: str, topic: str) -> list[Any]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=[address], enable_auto_commit=False)
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    end = consumer.end_offsets([partition])[partition]
    consumer.seek(partition, consumer.beginning_offsets([partition])[partition])
    found: list[Any] = []
    while consumer.position(partition) < end:
        found += [message for messages in consumer.poll(500).values() for message in messages]
    consumer.close()
    return found
