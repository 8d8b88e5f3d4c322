"""A real Apache Kafka with accounts, rights and certificates: what a broker refuses, and how it says so.

Beside the open port, whose every client is an administrator, it has ports with TLS, with accounts, and with
both; one shows a certificate for another name, one a certificate that ends within the week.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from service.kafka_jars import BrokerUnavailable, find_java
from service.local_kafka import HOST, LocalKafka, LocalKafkaConfig, free_port

PASSWORD = "correct horse"
_STORE_PASSWORD = "changeit"
_LISTENERS = {
    "OPEN": "PLAINTEXT",
    "TLS": "SSL",
    "OTHER_NAME": "SSL",
    "ACCOUNTS": "SASL_PLAINTEXT",
    "ENDING": "SASL_SSL",
}
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


@dataclass(frozen=True)
class SecuredKafka:
    """The broker, the address of each of its ports, and the file of the authority to trust."""

    broker: LocalKafka
    addresses: Mapping[str, str]
    authority: Path


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Start one, with the accounts `worker` and `guest`; only `worker` has any right.

    Raises:
        BrokerUnavailable: no Java, no jars, or it does not start.
    """
    stores = {
        "TLS": _key_store(folder / "tls.p12", "IP:127.0.0.1", days=900),
        "OTHER_NAME": _key_store(folder / "other.p12", "DNS:elsewhere.example", days=900),
        "ENDING": _key_store(folder / "ending.p12", "IP:127.0.0.1", days=5),
    }
    free: set[int] = set()
    while len(free) <= len(_LISTENERS):
        free.add(free_port())
    ports = dict(zip((*_LISTENERS, "CONTROLLER"), free, strict=True))
    broker = LocalKafka(
        folder / "data", ports["OPEN"], LocalKafkaConfig(properties=_properties(ports, stores))
    )
    broker.start()
    try:
        authority = folder / "authorities.pem"
        authority.write_text("".join(map(_certificate, stores.values())))
        addresses = {name: f"{HOST}:{ports[name]}" for name in _LISTENERS}
        _make_accounts(broker.address)
        yield SecuredKafka(broker, addresses, authority)
    finally:
        broker.stop()


def _properties(ports: Mapping[str, int], stores: Mapping[str, Path]) -> tuple[tuple[str, str], ...]:
    places = ",".join(f"{name}://{HOST}:{ports[name]}" for name in _LISTENERS)
    kinds = ",".join(f"{name}:{kind}" for name, kind in {**_LISTENERS, "CONTROLLER": "PLAINTEXT"}.items())
    users = f'user_worker="{PASSWORD}" user_guest="{PASSWORD}"'
    found = {
        "listeners": f"{places},CONTROLLER://{HOST}:{ports['CONTROLLER']}",
        "advertised.listeners": places,
        "controller.quorum.voters": f"1@{HOST}:{ports['CONTROLLER']}",
        "listener.security.protocol.map": kinds,
        "inter.broker.listener.name": "OPEN",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    for name, kind in _LISTENERS.items():
        prefix = f"listener.name.{name.lower()}"
        if kind.startswith("SASL"):
            found[f"{prefix}.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256"
            found[f"{prefix}.plain.sasl.jaas.config"] = f"{_PLAIN} {users};"
            found[f"{prefix}.scram-sha-256.sasl.jaas.config"] = _SCRAM
        if kind.endswith("SSL"):
            found[f"{prefix}.ssl.keystore.type"] = "PKCS12"
            found[f"{prefix}.ssl.keystore.location"] = str(stores[name])
            found[f"{prefix}.ssl.keystore.password"] = _STORE_PASSWORD
            found[f"{prefix}.ssl.key.password"] = _STORE_PASSWORD
    return tuple(found.items())


def _make_accounts(address: str) -> None:
    from kafka import KafkaAdminClient
    from kafka.admin import (
        ACL,
        ACLOperation,
        ACLPermissionType,
        ResourcePattern,
        ResourceType,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = KafkaAdminClient(bootstrap_servers=[address])
    admin.create_topics({"firstfault.telemetry": {"num_partitions": 2}}, wait_for_metadata=True)
    rights = [
        (ResourceType.TOPIC, "firstfault.telemetry", ACLOperation.READ),
        (ResourceType.GROUP, "firstfault", ACLOperation.READ),
        (ResourceType.TOPIC, "firstfault.verdicts", ACLOperation.WRITE),
        (ResourceType.TOPIC, "firstfault.verdicts", ACLOperation.CREATE),
        (ResourceType.CLUSTER, "kafka-cluster", ACLOperation.DESCRIBE),
    ]
    admin.create_acls(
        [
            ACL("User:worker", "*", operation, ACLPermissionType.ALLOW, ResourcePattern(kind, name))
            for kind, name, operation in rights
        ]
    )
    admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("worker", ScramMechanism.SCRAM_SHA_256, PASSWORD, iterations=4096)]
    )
    admin.close()


def give_account(broker: SecuredKafka, name: str, rights: Sequence[tuple[str, str, str]]) -> None:
    """An account with exactly these rights: (kind of resource, its name, operation)."""
    from kafka import KafkaAdminClient
    from kafka.admin import (
        ACL,
        ACLOperation,
        ACLPermissionType,
        ResourcePattern,
        ResourceType,
        ScramMechanism,
        UserScramCredentialUpsertion,
    )

    admin = KafkaAdminClient(bootstrap_servers=[broker.broker.address])
    admin.create_acls(
        [
            ACL(
                f"User:{name}",
                "*",
                ACLOperation[operation],
                ACLPermissionType.ALLOW,
                ResourcePattern(ResourceType[kind], resource),
            )
            for kind, resource, operation in rights
        ]
    )
    admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(name, ScramMechanism.SCRAM_SHA_256, PASSWORD, iterations=4096)]
    )
    admin.close()


def _key_store(path: Path, name: str, *, days: int) -> Path:
    """A key with a certificate that it signs itself."""
    _keytool(path, "-genkeypair", "-keyalg", "EC", "-dname", f"CN={path.stem}", "-ext", f"san={name}",
             "-validity", str(days), "-storetype", "PKCS12")  # fmt: skip
    return path


def _certificate(path: Path) -> str:
    return _keytool(path, "-exportcert", "-rfc")


def _keytool(path: Path, *arguments: str) -> str:
    program = Path(find_java()).resolve().parent / "keytool"
    command = [
        str(program),
        *arguments,
        "-alias",
        "broker",
        "-keystore",
        str(path),
        "-storepass",
        _STORE_PASSWORD,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrokerUnavailable(f"keytool: {done.stdout} {done.stderr}")
    return done.stdout
