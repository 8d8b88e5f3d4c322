"""Verdicts and dead letters leave for Kafka without ever holding the loop up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ingest.blocks import Rejected
from ingest.kafka_topics import TopicsConfig, create_topics
from service import publish
from service.local_kafka import LocalKafka
from service.publish import Publisher, PublisherConfig

from .conftest import NewTopic

pytestmark = pytest.mark.kafka
REFUSED = Rejected("rank", "must be >= 0", "-1", True, source="telemetry:2", offset=41, raw=b'{"rank":-1}')


def a_publisher(
    address: str, verdicts: str = "verdicts", dead_letter: str = "letters", **settings: Any
) -> Publisher:
    topics = TopicsConfig(verdicts=verdicts, dead_letter=dead_letter)
    return Publisher(PublisherConfig(bootstrap=(address,), topics=topics, **{"retry_s": 0.5, **settings}))


def consumed(address: str, topic: str, is_enough: Callable[[list[Any]], bool]) -> list[Any]:
    """The messages of a topic of one partition from its start until they are enough."""
    from kafka import KafkaConsumer
    from kafka.structs import TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=[address])
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek(TopicPartition(topic, 0), 0)
    messages: list[Any] = []
    give_up = time.monotonic() + 20
    while not is_enough(messages) and time.monotonic() < give_up:
        messages += [message for part in consumer.poll(200).values() for message in part]
    consumer.close()
    return messages


def test_a_verdict_goes_out_under_the_id_of_its_incident(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    publisher = a_publisher(broker.address, verdicts=topic)
    publisher.publish_verdict(1, "incident-1", b'{"label":"nan"}')
    assert publisher.flush(20)
    (message,) = consumed(broker.address, topic, lambda came: len(came) == 1)
    assert (message.key, message.value) == (b"incident-1", b'{"label":"nan"}')
    publisher.close()
    assert publisher.counts.sent == 1


def test_a_dead_letter_is_the_line_as_it_came_with_why_and_whence(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    publisher = a_publisher(broker.address, dead_letter=topic, dead_letter_bytes=20)
    publisher.dead_letters(
        [REFUSED, Rejected("line", "must be JSON", "x…", True, "telemetry:0", 3, b"x" * 50)]
    )
    assert publisher.flush(20)
    first, second = consumed(broker.address, topic, lambda came: len(came) == 2)
    assert first.value == b'{"rank":-1}'
    assert dict(first.headers) == {
        "reason": b"rank must be >= 0, got -1",
        "field": b"rank",
        "rule": b"must be >= 0",
        "source_topic": b"telemetry",
        "source_partition": b"2",
        "source_offset": b"41",
    }
    assert second.value == b"x" * 20
    assert dict(second.headers)["cut_from_bytes"] == b"50"
    publisher.close()


def test_a_broker_that_is_away_costs_the_loop_no_time_and_drops_are_counted() -> None:
    publisher = a_publisher("127.0.0.1:1", waiting_verdicts=2, waiting_dead_letters=3)
    began = time.monotonic()
    for number in range(5):
        publisher.publish_verdict(number, f"incident-{number}", b"{}")
        publisher.publish_verdict(9, "incident-0", b'{"newer":1}')
    publisher.dead_letters([REFUSED] * 10)
    assert time.monotonic() - began < 0.2
    assert not publisher.flush(0.1)
    assert (publisher.counts.dropped_verdicts, publisher.counts.dropped_dead_letters) == (3, 7)
    began = time.monotonic()
    publisher.close(timeout_s=0.5)
    assert time.monotonic() - began < 3
    assert (publisher.counts.dropped_verdicts, publisher.counts.dropped_dead_letters) == (5, 10)


def test_a_missing_dead_letter_topic_does_not_hold_verdicts_back(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    topic = new_topic(1)
    publisher = a_publisher(broker.address, verdicts=topic, dead_letter="no-such-topic")
    publisher.dead_letters([REFUSED] * 100)
    publisher.publish_verdict(1, "incident-1", b"{}")
    assert [message.key for message in consumed(broker.address, topic, lambda came: len(came) == 1)] == [
        b"incident-1"
    ]
    publisher.close(timeout_s=0.5)


def test_the_last_verdict_of_an_outage_arrives_after_it(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    publisher = a_publisher(broker.address, verdicts=topic)
    publisher.publish_verdict(1, "incident-1", b"1")
    assert publisher.flush(20)
    broker.stop()
    for revision in (b"2", b"3"):
        publisher.publish_verdict(1, "incident-1", revision)
    broker.start()
    assert publisher.flush(30)
    messages = consumed(broker.address, topic, lambda came: [m.value for m in came][-1:] == [b"3"])
    assert (messages[0].value, messages[-1].value) == (b"1", b"3")
    publisher.close()


class Sent:
    """A future, and the hands that settle it."""

    def add_callback(self, callback: Callable[[object], None]) -> None:
        self.arrive = callback

    def add_errback(self, callback: Callable[[Exception], None]) -> None:
        self.fail = callback


class Producer:
    """Keeps what is sent, each with its future."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, Sent]] = []

    def send(self, **message: Any) -> Sent:
        self.sent.append((message["value"], Sent()))
        return self.sent[-1][1]


def test_a_verdict_that_fails_after_a_newer_one_went_out_is_not_sent_behind_it() -> None:
    def wait_for(count: int) -> None:
        while len(producer.sent) < count:
            time.sleep(0.001)

    producer = Producer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Publisher, "_connected", lambda self: producer)
        patch.setattr(publish, "close_now", lambda _: None)
        publisher = a_publisher("127.0.0.1:1")
        publisher.publish_verdict(1, "a", b"old")
        wait_for(1)
        publisher.publish_verdict(2, "a", b"new")
        wait_for(2)
        producer.sent[1][1].arrive(None)
        producer.sent[0][1].fail(TimeoutError("not acknowledged"))
        publisher.publish_verdict(3, "b", b"other")
        wait_for(3)
        producer.sent[2][1].fail(TimeoutError("not acknowledged"))  # there is no newer one: again
        wait_for(4)
        producer.sent[3][1].arrive(None)
        assert publisher.flush(5)
        publisher.close()
    assert [value for value, _ in producer.sent] == [b"old", b"new", b"other", b"other"]
    assert publisher.acknowledged() == [2, 3]


def test_what_cannot_arrive_any_more_is_dropped_at_the_end_and_leaves_no_thread(
    broker: LocalKafka, new_topic: NewTopic
) -> None:
    publisher = a_publisher(broker.address, verdicts=new_topic(1))
    publisher.publish_verdict(1, "a1", b"{}")
    assert publisher.flush(30)
    broker.stop()
    try:
        publisher.publish_verdict(2, "a1", b"{}")
        publisher.close(timeout_s=2.0)
    finally:
        broker.start()
    assert (publisher.counts.sent, publisher.counts.dropped_verdicts) == (1, 1)
    assert [one.name for one in threading.enumerate() if one.name == "publisher"] == []


def test_topics_are_created_once_and_verdicts_are_compacted(broker: LocalKafka) -> None:
    from kafka import KafkaAdminClient

    names = TopicsConfig(telemetry="made.t", verdicts="made.v", dead_letter="made.d", telemetry_partitions=3)
    assert sorted(create_topics([broker.address], names, {})) == ["made.d", "made.t", "made.v"]
    assert create_topics([broker.address], names, {}) == ()
    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    (described,) = admin.describe_topics(["made.t"])
    assert len(described["partitions"]) == 3
    admin.close()


def test_a_topic_that_the_broker_refuses_does_not_hold_up_the_others(broker: LocalKafka) -> None:
    names = TopicsConfig(telemetry="kept.t", verdicts="kept_t", dead_letter="kept.d")  # . and _ collide
    settings = {"max_poll_records": 7}  # of consumers only: the admin client does not know it
    assert create_topics([broker.address], names, settings) == ("kept.d", "kept.t")


def test_a_flood_of_rejected_lines_all_arrives(broker: LocalKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1)
    publisher = a_publisher(broker.address, dead_letter=topic)
    publisher.dead_letters([REFUSED] * 5000)
    assert publisher.flush(30)
    publisher.close()
    assert len(consumed(broker.address, topic, lambda came: len(came) >= 5000)) == 5000
    assert publisher.counts.dropped_dead_letters == 0


def test_lines_that_wait_are_bounded_by_their_bytes_too() -> None:
    publisher = a_publisher("127.0.0.1:1", waiting_dead_letter_bytes=3 * len(REFUSED.raw))
    publisher.dead_letters([REFUSED] * 5)
    publisher.close(0.1)
    assert publisher.counts.dropped_dead_letters == 5
