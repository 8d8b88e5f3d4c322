"""The topic of verdicts carries what a scheduler acts on, and the example acts on it as it should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ingest.kafka_topics import TopicsConfig
from service.local_kafka import LocalKafka
from service.message_headers import verdict_headers
from service.publish import Publisher, PublisherConfig
from service.resumption import publish_unsent
from service.store import Store

from .conftest import NewTopic
from .service_builders import Json, a_verdict, an_incident
from .test_kafka_publish import consumed

EXAMPLE = Path(__file__).parent.parent / "examples" / "cordon.py"


def canonical(verdict: Json) -> bytes:
    return json.dumps(verdict, separators=(",", ":")).encode()


def accusing(host: str, name: str = "a1", **changes: Any) -> Json:
    suspects = [{"rank": 3, "host": host, "device": None, "why": "the odd one"}]
    return an_incident(id=name, first={"suspects": suspects, **changes.pop("first", {})}, **changes)


def test_a_name_in_telemetry_is_not_taken_for_the_id_of_an_incident() -> None:
    verdict = canonical(a_verdict('run "id":"a1"'))
    assert dict(verdict_headers("a1", verdict))["incident-state"] == b"withdrawn"


@pytest.mark.kafka
def test_a_withdrawn_incident_is_told_also_by_a_worker_that_did_not_see_it(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    store = Store(tmp_path)
    tenure = store.claim("kafka:t", ("t:0",)).tenure
    for verdict in (a_verdict("job", accusing("node-07")), a_verdict("job", judged_to_iteration=1900)):
        store.save_verdict(tenure, ("t:0",), verdict, canonical(verdict))
    publisher = a_publisher(broker, topic)
    publish_unsent(store, publisher)
    assert publisher.flush(20)
    publisher.close()
    store.close()
    (message,) = consumed(broker.address, topic, lambda came: len(came) == 1)
    assert (message.key, dict(message.headers)) == (
        b"a1",
        {
            "content-type": b"application/json",
            "schema": b"1",
            "incident-id": b"a1",
            "incident-state": b"withdrawn",
        },
    )


@pytest.mark.kafka
def test_the_example_cordons_an_accused_host_and_lets_it_back(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    publisher = a_publisher(broker, topic)
    told = [
        ("a1", a_verdict("job", accusing("node-07"))),
        ("a1", a_verdict("job", accusing("node-07", detected_at_iteration=1300))),
        ("b2", a_verdict("other", accusing("node-07", "b2"))),
        ("a1", a_verdict("job")),  # another incident still accuses the host
        ("c3", a_verdict("third", accusing("node-09", "c3", certainty="suspected"))),
        ("d4", a_verdict("tied", accusing("node-10", "d4", first={"tie": True}))),
        ("e5", a_verdict("evil", accusing("x; rm -rf /", "e5"))),
        ("b2", a_verdict("other")),
    ]
    for seq, (name, verdict) in enumerate(told):
        publisher.publish_verdict(seq, name, canonical(verdict))
        assert publisher.flush(20)
    publisher.close()
    command = [sys.executable, str(EXAMPLE), "--kafka", broker.address, "--topic", topic, "--once"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["kubectl cordon node-07", "kubectl uncordon node-07"]
    assert json.loads((tmp_path / "cordons.json").read_text()) == {}


def a_publisher(broker: LocalKafka, topic: str) -> Publisher:
    topics = TopicsConfig(verdicts=topic)
    return Publisher(PublisherConfig(bootstrap=(broker.address,), topics=topics))
