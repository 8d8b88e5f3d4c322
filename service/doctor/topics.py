"""The cluster behind the addresses: its brokers, our topics, and what the account may do."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingest.kafka_clients import make_client
from ingest.kafka_config import KafkaSourceConfig
from ingest.kafka_damage import describe

from .finding import Finding, Wrong, fail, ok, warn

_UNKNOWN_TOPIC, _NO_RIGHT = 3, 29
"""Errors of a topic in the answer to a request for metadata."""
_NO_LEADER = -1
_WANTED: Mapping[str, Sequence[str]] = {
    "telemetry": ("READ", "WRITE"),
    "verdicts": ("WRITE",),
    "dead_letter": ("WRITE",),
}
"""What the service does with each of its topics."""


def look_at_cluster(config: KafkaSourceConfig) -> Iterator[Finding]:
    """Brokers, topics and rights, as an administrator's client sees them."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    timeout_ms = int(config.connect_timeout_s * 1000)
    settings = {
        "bootstrap_servers": list(config.bootstrap),
        "bootstrap_timeout_ms": timeout_ms,
        "request_timeout_ms": timeout_ms,
    }
    try:
        admin = make_client(KafkaAdminClient, settings, config.client)
    except KafkaError as error:
        yield fail("brokers", f"no cluster: {describe(error)}", "look at the log of the broker")
        return
    try:
        cluster = admin.describe_cluster()
        yield _brokers(cluster["brokers"], config.connect_timeout_s)
        described = {one["name"]: one for one in admin.describe_topics(sorted(config.topics.settings()))}
        yield from (_topic(described[name], config) for name in sorted(described))
        yield from _rights(cluster, described, config)
        yield _group(admin, config.group, config.connect_timeout_s)
    except Wrong as wrong:
        yield wrong.finding
    except KafkaError as error:
        yield fail("topic", f"the cluster does not say: {describe(error)}", "look at the log of the broker")
    finally:
        admin.close()


def _brokers(brokers: Sequence[Mapping[str, Any]], timeout_s: float) -> Finding:
    """Clients go on at the addresses that brokers give for themselves, whatever they began with."""
    for broker in brokers:
        address = f"{broker['host']}:{broker['port']}"
        try:
            socket.create_connection((broker["host"], broker["port"]), timeout=timeout_s).close()
        except OSError as error:
            told = f"broker {broker['broker_id']} calls itself {address}: {error.strerror or error}"
            cure = "correct its advertised.listeners, or let this machine know the name"
            raise Wrong(fail("brokers", told, cure)) from error
    addresses = ", ".join(f"{broker['host']}:{broker['port']}" for broker in brokers)
    return ok("brokers", f"the cluster is {addresses}")


def _topic(described: Mapping[str, Any], config: KafkaSourceConfig) -> Finding:
    name, error = described["name"], described["error_code"]
    partitions = described["partitions"]
    if error == _NO_RIGHT:
        wanted = " and ".join(_WANTED[_role(name, config)])
        return fail("topic", f"{name}: no right to look at it", _grant(wanted.title(), f"topic {name}"))
    if error == _UNKNOWN_TOPIC and config.create_topics:
        count = config.topics.settings()[name]["num_partitions"]
        return warn("topic", f"{name} is missing", f"the worker will make it, partitions: {count}")
    if error == _UNKNOWN_TOPIC:
        return fail("topic", f"{name} is missing", "create it, or set kafka.create_topics = true")
    if error:
        return fail(
            "topic", f"{name}: the cluster answers with error {error}", "look at the log of the broker"
        )
    headless = sorted(one["partition_index"] for one in partitions if one["leader_id"] == _NO_LEADER)
    if headless:
        told = f"{name}: no leader for partition {', '.join(map(str, headless))}"
        return fail("topic", told, "start the brokers that hold it")
    return ok("topic", f"{name} is there, partitions: {len(partitions)}")


def _role(name: str, config: KafkaSourceConfig) -> str:
    return next(role for role in _WANTED if getattr(config.topics, role) == name)


def _rights(
    cluster: Mapping[str, Any], described: Mapping[str, Mapping[str, Any]], config: KafkaSourceConfig
) -> Iterator[Finding]:
    """What worker and intake do with each topic; of a missing one its making."""
    for name, topic in sorted(described.items()):
        has = _operations(topic)
        is_missing = topic["error_code"] == _UNKNOWN_TOPIC
        if topic["error_code"] == _NO_RIGHT or (is_missing and not config.create_topics):
            continue  # told of already
        if is_missing and "CREATE" not in has | _operations(cluster):
            yield fail("rights", f"{name} may not be made", _grant("Create", f"topic {name}"))
            continue
        wanted = _WANTED[_role(name, config)]
        lacking = [one for one in wanted if one not in has]
        words = " and ".join(lacking)
        told, cure = f"{name}: no right to {words.lower()}", _grant(words.title(), f"topic {name}")
        if not lacking:
            yield ok("rights", f"{name}: {' and '.join(wanted).lower()}")
        elif lacking == ["WRITE"] and name == config.topics.telemetry:
            yield warn("rights", f"{told}, which only telemetry over HTTP needs", cure)
        else:
            yield fail("rights", told, cure)


def _group(admin: Any, group: str, timeout_s: float) -> Finding:
    from kafka.errors import GroupAuthorizationFailedError, GroupIdNotFoundError, KafkaError

    try:
        described = _described_group(admin, group, timeout_s)
    except GroupAuthorizationFailedError:
        described = {"error": f"[Error {GroupAuthorizationFailedError.errno}]"}
    except KafkaError as error:
        return fail("rights", f"group {group}: {describe(error)}", "look at the log of the broker")
    number = _error_of(described)
    if number == GroupIdNotFoundError.errno:
        # Only to join it would tell, which takes partitions from those who are in it.
        return ok("rights", f"group {group}: not used yet, may be looked at")
    if number not in (0, GroupAuthorizationFailedError.errno):
        return fail("rights", f"group {group}: {described['error']}", "look at the log of the broker")
    if number or "READ" not in _operations(described):
        return fail("rights", f"group {group}: no right to read", _grant("Read", f"group {group}"))
    return ok("rights", f"group {group}: read")


def _described_group(admin: Any, group: str, timeout_s: float) -> Mapping[str, Any]:
    """What the cluster says of the group; one that never had any makes the place for them only now."""
    from kafka.errors import CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError

    passing = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)
    give_up_s = time.monotonic() + timeout_s
    while True:
        is_late = time.monotonic() > give_up_s
        try:
            described: Mapping[str, Any] = admin.describe_groups([group])[group]
            if is_late or _error_of(described) not in [one.errno for one in passing]:
                return described
        except passing:
            if is_late:
                raise
        time.sleep(0.1)


def _error_of(described: Mapping[str, Any]) -> int:
    """kafka-python gives the error of a group as text; 0 for none."""
    number = re.match(r"\[Error (\d+)\]", described.get("error") or "")
    return int(number[1]) if number else 0


def _operations(described: Mapping[str, Any]) -> frozenset[str]:
    return frozenset(described.get("authorized_operations") or ())


def _grant(operations: str, thing: str) -> str:
    return f"give the account the right: {operations} on {thing}"
