"""Where bodies go: a spool or a topic, durable before the answer; what is away is told at once."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingest.decode import Decoder
from ingest.errors import SpoolUnusable, UnreadableInput
from ingest.kafka_config import KafkaSourceConfig
from ingest.kafka_topics import TopicsConfig
from ingest.spool import SPOOL, Spool, SpoolConfig
from ingest.spool_source import SpoolSource
from service.intake import IntakeCounts
from service.intake_config import IntakeConfig
from service.intake_lines import IntakeMessage
from service.intake_metrics import IntakeCollector
from service.intake_sinks import KafkaSink, SinkRefused, SinkUnavailable, SpoolSink
from service.local_kafka import LocalKafka

from .intake_builders import ARROW, ListSink, arrow, client_of, lines, post, record
from .kafka_builders import a_source, claiming, read_until

KEEP_NONE = SpoolConfig(keep_bytes=0)


def a_message(run: str, iteration: int) -> ListSink:
    """A sink that holds what a body of one record became."""
    sink = ListSink()
    assert post(client_of(sink), lines(record(iteration, run))).status_code == 202
    return sink


def test_what_is_spooled_comes_to_the_worker_in_both_forms(tmp_path: Path) -> None:
    sink = SpoolSink(tmp_path, KEEP_NONE)
    client = client_of(sink)
    assert post(client, lines(record(0), b"{oops", record(1))).status_code == 202
    columns = {"run": ["job"] * 2, "rank": [0, 0], "iteration": [2, 3], "loss": [1.0, 2.0]}
    assert post(client, arrow(columns), ARROW).status_code == 202

    spool = Spool(tmp_path, KEEP_NONE)
    (batch,) = SpoolSource(spool, Decoder(), claiming({})).poll(0.0)
    assert batch.iteration_N.tolist() == [0, 1, 2, 3]
    assert [one.field for one in batch.rejected] == ["line"]
    sink.close()
    spool.close()


def test_a_full_spool_is_503_until_the_worker_has_pruned(tmp_path: Path) -> None:
    sink = SpoolSink(tmp_path, SpoolConfig(max_rows=2, keep_bytes=0))
    client = client_of(sink)
    statuses = [post(client, lines(record(at))).status_code for at in range(3)]
    assert statuses == [202, 202, 503]
    reply = post(client, lines(record(9)))
    assert (reply.headers["retry-after"], reply.json()["acknowledged"]) == ("5", 0)
    assert "must hold at most 2 bodies" in reply.json()["detail"]

    worker = Spool(tmp_path, KEEP_NONE)
    assert worker.prune(before_seq=2) == 1
    assert post(client, lines(record(2))).status_code == 202
    assert [one.seq for one in worker.read(1, 10, 1 << 20)] == [2, 3]
    worker.close()
    sink.close()


def test_a_spool_of_something_else_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / SPOOL).write_bytes(b"not a database, but a file of somebody")
    with pytest.raises(SpoolUnusable, match=SPOOL):
        SpoolSink(tmp_path, KEEP_NONE)


# -- Kafka


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address that refuses connections for as long as the test runs."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{holder.getsockname()[1]}"


def a_kafka_sink(address: str, topic: str = "t", **settings: object) -> KafkaSink:
    kafka = KafkaSourceConfig(
        bootstrap=(address,),
        topics=TopicsConfig(telemetry=topic, verdicts=f"{topic}-v", dead_letter=f"{topic}-d"),
        connect_timeout_s=2.0,
        create_topics=bool(settings.pop("create_topics", True)),
    )
    return KafkaSink(kafka, IntakeConfig(ack_timeout_s=4.0, **settings))  # type: ignore[arg-type]  # checked there


def test_a_broker_that_is_away_is_told_at_once_and_the_start_does_not_need_it(closed_port: str) -> None:
    sink = a_kafka_sink(closed_port)
    client = client_of(sink)
    for _ in range(2):
        reply = post(client, lines(record(0)))
        assert (reply.status_code, reply.json()["acknowledged"]) == (503, 0)
        assert "Connection refused" in reply.json()["detail"]
    sink.close()
    with pytest.raises(SinkUnavailable, match="the service is stopping"):
        sink.send(a_message("a", 0).messages)


def test_a_setting_that_the_client_does_not_know_stops_the_start() -> None:
    with pytest.raises(UnreadableInput, match=r"kafka\.client\.sasl_pasword is no setting"):
        KafkaSink(KafkaSourceConfig(client={"sasl_pasword": "x"}), IntakeConfig())


@pytest.mark.kafka
def test_the_topic_is_made_and_a_run_stays_in_one_partition(
    broker: LocalKafka, topic_numbers: Iterator[int]
) -> None:
    topic = f"intake-{next(topic_numbers)}"
    sink = a_kafka_sink(broker.address, topic)
    client = client_of(sink)
    for at in range(20):
        body = lines(record(at, "a"), b"{oops", record(at, "b"), record(at, "c"))
        assert post(client, body).json()["accepted"] == 3
    columns = {"run": ["a"] * 2, "rank": [0, 0], "iteration": [20, 21], "loss": [1.0, 2.0]}
    assert post(client, arrow(columns), ARROW).json()["accepted"] == 2
    sink.close()

    source = a_source(broker.address, topic)
    batches = read_until(source, lambda came: sum(map(len, came)) >= 62)
    assert sum(len(batch.rejected) for batch in batches) == 20
    for run, expected in (("a", 22), ("b", 20), ("c", 20)):
        read = [
            int(iteration)
            for batch in batches
            for code, iteration in zip(batch.run_N, batch.iteration_N, strict=True)
            if batch.runs[code] == run
        ]
        assert read == list(range(expected))
    assert len(source.position()) == 4
    source.close()


@pytest.mark.kafka
def test_a_topic_that_may_not_be_made_is_503_within_the_time_for_acknowledgements(broker: LocalKafka) -> None:
    sink = a_kafka_sink(broker.address, "never-made", create_topics=False)
    reply = post(client_of(sink), lines(record(0)))
    assert (reply.status_code, reply.json()["acknowledged"]) == (503, 0)
    sink.close()


@pytest.mark.kafka
def test_what_was_acknowledged_before_a_refusal_is_counted(
    broker: LocalKafka, topic_numbers: Iterator[int]
) -> None:
    from kafka import KafkaAdminClient

    topic = f"intake-{next(topic_numbers)}"
    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    how = {"num_partitions": 1, "configs": {"max.message.bytes": "2000"}}
    admin.create_topics({topic: how}, wait_for_metadata=True)
    admin.close()
    sink = a_kafka_sink(broker.address, topic)
    noise = random.Random(3).randbytes(9000).hex()  # nothing that could be packed
    values: dict[str, Any] = {f"m{at}": noise[900 * at :][:900] for at in range(20)}
    small = a_message("a", 0).messages
    too_large = [replace(small[0], value=lines(record(1, "b", **values)))]
    with pytest.raises(SinkRefused, match="takes no message of this size") as caught:
        sink.send([*small, *too_large])
    assert caught.value.acknowledged == 1
    sink.send(small)  # it goes on
    sink.close()


@pytest.mark.kafka
def test_a_broker_that_comes_back_takes_the_body_that_is_sent_again(
    broker: LocalKafka, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(2)
    sink = a_kafka_sink(broker.address, topic)
    client = client_of(sink)
    assert post(client, lines(record(0))).status_code == 202
    broker.stop()
    try:
        reply = post(client, lines(record(1)))
    finally:
        broker.start()
    assert (reply.status_code, reply.json()["acknowledged"]) == (503, 0)
    give_up_s = time.monotonic() + 60.0
    while (status := post(client, lines(record(1))).status_code) == 503:
        assert time.monotonic() < give_up_s
        time.sleep(0.2)
    assert status == 202
    sink.close()

    source = a_source(broker.address, topic)
    read = read_until(source, lambda came: 1 in [int(at) for one in came for at in one.iteration_N])
    assert {int(at) for one in read for at in one.iteration_N} == {0, 1}
    source.close()


def test_figures_tell_how_full_the_spool_is_and_nothing_where_it_cannot_be_read(tmp_path: Path) -> None:
    sink = SpoolSink(tmp_path, SpoolConfig(max_bytes=1 << 20))
    sink.send([IntakeMessage("run", b"x" * 100, None, 1)])
    collector = IntakeCollector(IntakeCounts(), sink.fill)
    assert spool_figures(collector) == {"firstfault_spool_bytes": 100, "firstfault_spool_max_bytes": 1 << 20}
    sink.close()
    assert spool_figures(collector) == {}
    assert spool_figures(IntakeCollector(IntakeCounts())) == {}


def spool_figures(collector: IntakeCollector) -> dict[str, float]:
    found = (one for family in collector.collect() for one in family.samples)
    return {one.name: one.value for one in found if "spool" in one.name}
