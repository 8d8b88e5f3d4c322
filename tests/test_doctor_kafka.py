"""The doctor before a real broker with TLS, accounts and rights: each refusal is told as what it is."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from ingest.kafka_config import KafkaSourceConfig
from ingest.kafka_topics import TopicsConfig, create_topics
from service.doctor.endpoint import look_at
from service.doctor.finding import Finding, State
from service.doctor.topics import look_at_cluster
from service.doctor_command import DoctorRequest, run_doctor
from service.edge import Exit
from service.kafka_jars import BrokerUnavailable
from service.local_kafka import LocalKafka

from .secured_kafka import PASSWORD, SecuredKafka, give_account, secured_kafka
from .service_builders import log_lines
from .test_serve import QUICK, serving, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    try:
        with secured_kafka(tmp_path_factory.mktemp("secured")) as one:
            yield one
    except BrokerUnavailable as error:
        pytest.skip(f"no Kafka broker: {error}")


def account(
    protocol: str, mechanism: str, password: str = PASSWORD, name: str = "worker"
) -> dict[str, object]:
    return {
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": name,
        "sasl_plain_password": password,
    }


def told(findings: Iterator[Finding], state: State) -> list[str]:
    return [f"{one.check}: {one.found}" for one in findings if one.state is state]


TLS = {"security_protocol": "SSL"}
TRUSTING = {**TLS, "ssl_cafile": "the authority"}
NOBODY = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}


@pytest.mark.parametrize(
    ("port", "client", "refusal", "cure"),
    [
        ("TLS", {}, "kafka: {} wants TLS", "SSL or SASL_SSL"),
        ("ACCOUNTS", {}, "sasl: {} wants an account: PLAIN, SCRAM-SHA-256", "SASL_PLAINTEXT or SASL_SSL"),
        ("OPEN", TLS, "tls: {}: no TLS there", "PLAINTEXT"),
        ("TLS", TLS, "tls: {}: its certificate is not accepted: self-signed", "ssl_cafile"),
        ("OTHER_NAME", TRUSTING, "tls: {}: its certificate is not accepted: IP address", "name the broker"),
        ("OPEN", account("SASL_PLAINTEXT", "PLAIN"), "sasl: {} has no accounts", "PLAINTEXT or SSL"),
        ("ACCOUNTS", account("SASL_PLAINTEXT", "PLAIN", "wrong"), "sasl: {} refuses", "PASSWORD"),
        ("ACCOUNTS", account("SASL_PLAINTEXT", "SCRAM-SHA-256", "wrong"), "sasl: {} refuses", "PASSWORD"),
        ("ACCOUNTS", account("SASL_PLAINTEXT", "SCRAM-SHA-512"), "sasl: {} does not know", "SCRAM-SHA-256"),
        ("ACCOUNTS", NOBODY, "sasl: PLAIN cannot begin", "USERNAME"),
    ],
)
def test_each_refusal_is_told_as_what_it_is(
    port: str, client: dict[str, object], refusal: str, cure: str, secured: SecuredKafka
) -> None:
    if "ssl_cafile" in client:
        client = {**client, "ssl_cafile": str(secured.authority)}
    address = secured.addresses[port]
    *fine, last = look_at(address, client, 5.0)
    assert {one.state for one in fine} == {State.OK}
    assert last.state is State.FAIL
    assert f"{last.check}: {last.found}".startswith(refusal.format(address))
    assert cure in last.cure
    assert PASSWORD not in last.line()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_an_account_is_taken_over_tls_and_a_certificate_that_ends_soon_is_told(
    mechanism: str, secured: SecuredKafka
) -> None:
    client = {**account("SASL_SSL", mechanism), "ssl_cafile": str(secured.authority)}
    found = list(look_at(secured.addresses["ENDING"], client, 5.0))
    assert [one.check for one in found] == ["dns", "tcp", "tls", "kafka", "sasl"]
    assert [one.check for one in found if one.state is not State.OK] == ["tls"]
    assert "renew" in found[2].cure


def test_rights_that_an_account_lacks_are_named_one_by_one(secured: SecuredKafka) -> None:
    address, client = secured.addresses["ACCOUNTS"], account("SASL_PLAINTEXT", "PLAIN")
    config = KafkaSourceConfig(bootstrap=(address,), client=client)
    found = list(look_at_cluster(config))
    assert told(iter(found), State.OK) == [
        f"brokers: the cluster is {address}",
        "topic: firstfault.telemetry is there, partitions: 2",
        "rights: firstfault.verdicts: write",
        "rights: group firstfault: not used yet, may be looked at",
    ]
    assert told(iter(found), State.WARN) == [
        "topic: firstfault.verdicts is missing",
        "rights: firstfault.telemetry: no right to write, which only telemetry over HTTP needs",
    ]
    assert told(iter(found), State.FAIL) == ["topic: firstfault.dead-letter: no right to look at it"]


def test_an_account_without_any_right_reads_no_group(secured: SecuredKafka) -> None:
    client = account("SASL_PLAINTEXT", "PLAIN", name="guest")
    config = KafkaSourceConfig(bootstrap=(secured.addresses["ACCOUNTS"],), client=client)
    assert told(look_at_cluster(config), State.FAIL) == [
        "topic: firstfault.dead-letter: no right to look at it",
        "topic: firstfault.telemetry: no right to look at it",
        "topic: firstfault.verdicts: no right to look at it",
        "rights: group firstfault: no right to read",
    ]


def test_topics_that_may_not_be_made_must_be_there(broker: LocalKafka) -> None:
    topics = TopicsConfig(telemetry="doctor-t", verdicts="doctor-v", dead_letter="doctor-d")
    config = KafkaSourceConfig(bootstrap=(broker.address,), topics=topics, create_topics=False)
    assert told(look_at_cluster(config), State.FAIL) == [
        f"topic: doctor-{role} is missing" for role in ("d", "t", "v")
    ]
    create_topics(config.bootstrap, topics, {})
    assert told(look_at_cluster(config), State.OK)[1:] == [
        "topic: doctor-d is there, partitions: 1",
        "topic: doctor-t is there, partitions: 4",
        "topic: doctor-v is there, partitions: 1",
        "rights: doctor-d: write",
        "rights: doctor-t: read and write",
        "rights: doctor-v: write",
        "rights: group firstfault: not used yet, may be looked at",
    ]


def test_the_exit_status_says_whether_all_works(
    broker: LocalKafka, secured: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_doctor(DoctorRequest(data=tmp_path, kafka=broker.address)) == Exit.HEALTHY
    checks = [line.split()[1] for line in capsys.readouterr().out.splitlines()]
    in_order = [
        "settings",
        "dns",
        "tcp",
        "kafka",
        "brokers",
        "topic",
        "rights",
        "codecs",
        "store",
        "disk",
        "clock",
        "alerts",
    ]
    assert list(dict.fromkeys(checks)) == in_order
    assert run_doctor(DoctorRequest(data=tmp_path, kafka=secured.addresses["TLS"])) == Exit.FAILED
    assert "skipped topic" in capsys.readouterr().out


RIGHTS = (
    ("TOPIC", "s.telemetry", "READ"),
    ("TOPIC", "s.telemetry", "WRITE"),
    ("GROUP", "s.judges", "READ"),
    ("TOPIC", "s.verdicts", "WRITE"),
    ("TOPIC", "s.verdicts", "CREATE"),
    ("TOPIC", "s.dead-letter", "WRITE"),
    ("TOPIC", "s.dead-letter", "CREATE"),
)
"""Those that docs/operations.md names, and no more."""
SECURED = f"""
[kafka.topics]
telemetry = "s.telemetry"
verdicts = "s.verdicts"
dead_letter = "s.dead-letter"
[kafka.client]
security_protocol = "SASL_SSL"
sasl_mechanism = "SCRAM-SHA-256"
sasl_plain_username = "judge"
sasl_plain_password = "{PASSWORD}"
ssl_cafile = "{{authority}}"
"""


def test_records_go_in_and_a_verdict_comes_out_over_tls_with_accounts(
    secured: SecuredKafka, tmp_path: Path
) -> None:
    make_topic(secured, "s.telemetry")
    give_account(secured, "judge", RIGHTS)
    give_account(secured, "trainer", [("TOPIC", "s.telemetry", "WRITE")])
    address, authority = secured.addresses["ENDING"], str(secured.authority)
    first = f'[kafka]\nbootstrap = ["{address}"]\ngroup = "s.judges"\n'
    settings = QUICK.replace("[kafka]\n", first) + SECURED.format(authority=authority)
    trainer = {**account("SASL_SSL", "SCRAM-SHA-256", name="trainer"), "ssl_cafile": authority}
    lines = log_lines("secured", odd_rank=3)
    half = len(lines) // 2
    with serving(tmp_path, settings=settings) as service:
        send(address, trainer, [*lines[:half], b"no record"])
        assert service.post(lines[half:]) == 202
        wait_until(lambda: b'"judged_to_iteration":119' in service.verdict("secured"))
        (incident,) = service.client.get("/v1/incidents").json()["items"]
        assert (incident["label"], incident["first"]["ranks"]) == ("silent_drift", [3])
        verdict = service.verdict("secured")
        came = coming(secured, "s.verdicts", "s.dead-letter")
        wait_until(lambda: next(came) >= {("s.verdicts", verdict), ("s.dead-letter", b"no record")})
        came.close()
    assert PASSWORD not in service.log.read_text()


def make_topic(secured: SecuredKafka, name: str) -> None:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=[secured.addresses["OPEN"]])
    admin.create_topics({name: {"num_partitions": 1}}, wait_for_metadata=True)
    admin.close()


def send(address: str, client: dict[str, object], lines: list[bytes]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=[address], **client)
    for line in lines:
        producer.send("s.telemetry", key=b"secured", value=line)
    producer.flush()
    producer.close()


def coming(secured: SecuredKafka, *topics: str) -> Generator[set[tuple[str, bytes]]]:
    """All that has come into the topics so far, at each look."""
    from kafka import KafkaConsumer, TopicPartition

    reader = KafkaConsumer(bootstrap_servers=[secured.addresses["OPEN"]], group_id=None)
    parts = [TopicPartition(topic, 0) for topic in topics]
    reader.assign(parts)
    reader.seek_to_beginning(*parts)
    came: set[tuple[str, bytes]] = set()
    try:
        while True:
            for part, messages in reader.poll(500).items():
                came |= {(part.topic, one.value) for one in messages}
            yield came
    finally:
        reader.close()
