"""The same records through a real topic and through a file give the same canonical bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from detectors.verdict import canonical_bytes
from ingest.arrow_stream import arrow_from_batch
from ingest.decode import Decoder, RawMessage
from service.local_kafka import LocalKafka
from service.pipeline import Pipeline

from .conftest import NewTopic
from .kafka_builders import a_source, read_until
from .sample_builders import doubled, lines_of, manifest, shuffled, verdict_bytes

pytestmark = pytest.mark.kafka

LOGS = [log for log in manifest() if log.name in ("drift_param", "nan_activation", "restart")]
LINES = [lines_of(log.file) for log in LOGS]
PARTITIONS = 3


def in_turn() -> list[bytes]:
    """The lines of the three runs, iteration by iteration, as three jobs write at the same time."""
    placed = [
        (at / len(lines), number, line) for number, lines in enumerate(LINES) for at, line in enumerate(lines)
    ]
    return [line for *_, line in sorted(placed)]


def verdicts_of_topic(broker: LocalKafka, topic: str, records: int) -> dict[str, bytes]:
    """What is concluded of a topic once ``records`` lines of it were read."""
    source, pipeline = a_source(broker.address, topic), Pipeline()
    batches = read_until(source, lambda came: sum(len(b) + len(b.events) for b in came) >= records, 60.0)
    source.close()
    for batch in batches:
        pipeline.feed(batch)
    assert not any(pipeline.rejected.values())
    return {name: canonical_bytes(pipeline.verdict(name)) for name in pipeline.runs}


def verdicts_of_files() -> dict[str, bytes]:
    return {log.name: verdict_bytes([lines])[0] for log, lines in zip(LOGS, LINES, strict=True)}


def test_keyed_by_kafka_python_shuffled_and_doubled(broker: LocalKafka, new_topic: NewTopic) -> None:
    from kafka import KafkaProducer

    topic, rng = new_topic(PARTITIONS), random.Random(4)
    arranged = [(log.name, shuffled(doubled(x, rng), rng)) for log, x in zip(LOGS, LINES, strict=True)]
    producer = KafkaProducer(bootstrap_servers=[broker.address], linger_ms=20, compression_type="lz4")
    for run, lines in arranged:
        for line in lines:
            producer.send(topic, key=run.encode(), value=line)
    producer.flush()
    producer.close()

    found = verdicts_of_topic(broker, topic, sum(len(lines) for _, lines in arranged))

    assert found == verdicts_of_files()


def test_spread_over_partitions_by_another_client(broker: LocalKafka, new_topic: NewTopic) -> None:
    from confluent_kafka import Producer

    topic, lines = new_topic(PARTITIONS), in_turn()
    settings = {"bootstrap.servers": broker.address, "enable.idempotence": True, "compression.type": "zstd"}
    producer = Producer(settings)
    for at, line in enumerate(lines):
        # Each third message has a key; the rest goes wherever the client likes.
        producer.produce(topic, line, key=json.loads(line)["run"] if at % 3 == 0 else None)
        if at % 1000 == 0:
            producer.flush(30)
    assert producer.flush(30) == 0

    assert verdicts_of_topic(broker, topic, len(lines)) == verdicts_of_files()


def test_as_arrow_and_as_several_lines_a_message(broker: LocalKafka, new_topic: NewTopic) -> None:
    from kafka import KafkaProducer

    topic = new_topic(1)
    producer = KafkaProducer(bootstrap_servers=[broker.address], linger_ms=20)
    for value in packed(in_turn(), 250):
        producer.send(topic, value=value)
    producer.flush()
    producer.close()

    assert verdicts_of_topic(broker, topic, sum(map(len, LINES))) == verdicts_of_files()


def packed(lines: Sequence[bytes], size: int) -> Iterator[bytes]:
    """Messages of many records: in turn columns (events apart, as lines) and lines."""
    decoder = Decoder()
    for number, begin in enumerate(range(0, len(lines), size)):
        piece = lines[begin : begin + size]
        if number % 2:
            yield b"\n".join(piece)
            continue
        batch = decoder.decode([RawMessage("sample", number, b"\n".join(piece))])
        yield arrow_from_batch(replace(batch, events=()))
        events = [line for line in piece if b'"event"' in line]
        if events:
            yield b"\n".join(events)
