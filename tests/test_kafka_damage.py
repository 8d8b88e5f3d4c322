"""Batches that cannot be read: their range is told, what follows is read, and nothing hangs."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator

import pytest

from ingest.blocks import RecordBatch

from .kafka_builders import a_source, line, produce, read_until, rejections
from .mock_kafka import CLIENT, MockKafka

LIMIT_BYTES = 100_000
"""Above the ten records of a batch, below the bomb: kafka-python sends what does not shrink unpacked."""


@pytest.fixture(scope="module")
def mock() -> Iterator[MockKafka]:
    with MockKafka() as cluster:
        yield cluster


def test_a_batch_with_a_wrong_crc_is_passed_over(mock: MockKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong_crc(data: bytes | memoryview) -> int:
        return 1

    topic = mock.create_topic("crc")
    _produce(mock, topic, 0)
    with monkeypatch.context() as patch:
        patch.setattr("kafka.record.default_records.calc_crc32c", wrong_crc)
        _produce(mock, topic, 10)
    _produce(mock, topic, 20)
    assert_only_the_middle_is_lost(mock, topic)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("cut", lambda packed: packed[: len(packed) // 2]),
        ("junk", lambda _: b"no gzip at all"),
        ("bomb", lambda _: gzip.compress(bytes(3 * LIMIT_BYTES))),
        ("empty", lambda _: gzip.compress(b"")),
        ("torn", lambda packed: gzip.compress(gzip.decompress(packed)[:-20])),
    ],
    ids=["cut", "junk", "bomb", "empty", "torn"],
)
def test_a_batch_that_does_not_unpack_is_passed_over(
    mock: MockKafka, monkeypatch: pytest.MonkeyPatch, name: str, damage: Callable[[bytes], bytes]
) -> None:
    from kafka.codec import gzip_encode

    topic = mock.create_topic(name)
    _produce(mock, topic, 0)
    with monkeypatch.context() as patch:
        patch.setattr("kafka.record.default_records.gzip_encode", lambda data: damage(gzip_encode(data)))
        _produce(mock, topic, 10, compression_type="gzip")
    _produce(mock, topic, 20)
    assert_only_the_middle_is_lost(mock, topic)


def _produce(mock: MockKafka, topic: str, first: int, **settings: object) -> None:
    """Ten records in one batch."""
    values = [line(i) for i in range(first, first + 10)]
    produce(mock.address, topic, values, linger_ms=200, enable_idempotence=False, **CLIENT, **settings)


def assert_only_the_middle_is_lost(mock: MockKafka, topic: str) -> None:
    source = a_source(mock.address, topic, client=CLIENT, max_batch_bytes=LIMIT_BYTES)

    def has_the_last(came: list[RecordBatch]) -> bool:
        return any(29 in batch.iteration_N for batch in came)

    batches = read_until(source, has_the_last)
    iterations = [int(i) for batch in batches for i in batch.iteration_N]
    readable = [i for i in iterations if i < 10 or i >= 20]
    assert readable == [*range(10), *range(20, 30)]
    lost = rejections(batches)
    assert len(lost) == 1
    assert lost[0].source == f"{topic}:0"
    assert lost[0].value == f"offsets {lost[0].offset} to 19"
    assert lost[0].offset == 10 + len(iterations) - len(readable)
    assert source.health().skipped_messages == 30 - len(iterations)
    assert source.position() == {f"{topic}:0": 30}
    source.close()
