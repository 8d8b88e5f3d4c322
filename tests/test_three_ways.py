"""A faulty run pushed by HTTP, by kafka-python and by librdkafka, as kcat does: the same incident."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.local_kafka import LocalKafka

from .kafka_builders import produce_keyed
from .service_builders import log_lines
from .test_serve import QUICK, Service, serving, wait_until

pytestmark = pytest.mark.kafka

ENVELOPE = {"id", "run", "run_id", "opened_at", "updated_at"}
"""What tells the incidents of equal runs apart."""


def incident_of(service: Service, run: str) -> dict[str, Any]:
    """The one incident of a run once it is confirmed, without what names the run and its times."""

    def found() -> list[dict[str, Any]]:
        items = service.client.get("/v1/incidents", params={"run": run}).json()["items"]
        return [one for one in items if one["certainty"] == "confirmed"]

    wait_until(lambda: found() != [])
    (listed,) = found()
    whole = service.client.get(f"/v1/incidents/{listed['id']}").json()
    assert isinstance(whole, dict)
    return {key: value for key, value in whole["incident"].items() if key not in ENVELOPE}


def test_the_same_run_by_three_ways_gives_the_same_incident(
    broker: LocalKafka, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    topic = new_topic(3)
    names = f'[kafka.topics]\ntelemetry = "{topic}"\nverdicts = "{topic}-v"\ndead_letter = "{topic}-d"\n'
    with serving(tmp_path, "--kafka", broker.address, settings=QUICK + names) as service:
        assert service.post(log_lines("by-http", odd_rank=3)) == 202
        produce_keyed(broker.address, topic, log_lines("by-py", odd_rank=3))
        producer = Producer({"bootstrap.servers": broker.address, "enable.idempotence": True})
        for line in log_lines("by-c", odd_rank=3):
            producer.produce(topic, line, key=b"by-c")
        assert producer.flush(30) == 0
        by_http, by_python, by_c = (incident_of(service, run) for run in ("by-http", "by-py", "by-c"))
    assert by_http["first"]["ranks"] == [3]
    assert by_http["first"]["iteration"] == 80
    assert by_http == by_python == by_c
