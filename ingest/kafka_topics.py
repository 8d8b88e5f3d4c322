"""The topics of the service, and whether a broker is there at all."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firstfault.wire_values import TELEMETRY_TOPIC

from .bounds import check_bounds
from .errors import SourceUnavailable

log = logging.getLogger(__name__)

VERDICTS_TOPIC = "firstfault.verdicts"
DEAD_LETTER_TOPIC = "firstfault.dead-letter"
_LEGAL_NAME = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""What Kafka itself allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsConfig:
    """Names of the three topics, and how they are made where they are missing."""

    telemetry: str = TELEMETRY_TOPIC
    verdicts: str = VERDICTS_TOPIC
    dead_letter: str = DEAD_LETTER_TOPIC
    telemetry_partitions: int = 4
    """Partitions share out runs between workers; more can be added later, fewer never."""

    def __post_init__(self) -> None:
        names = {key: getattr(self, key) for key in ("telemetry", "verdicts", "dead_letter")}
        for key, name in names.items():
            if not _LEGAL_NAME.fullmatch(name):
                raise ValueError(f"{key} must be 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', got {name!r}")
        if len(set(names.values())) < len(names):
            # what the worker writes would come back to it as telemetry
            raise ValueError(f"telemetry, verdicts and dead_letter must be three topics, got {names}")
        check_bounds(self, {"telemetry_partitions": (1, 100_000)})

    def settings(self) -> Mapping[str, Mapping[str, object]]:
        """Per topic what it is created with; the broker's defaults decide replication and retention."""
        return {
            self.telemetry: {"num_partitions": self.telemetry_partitions},
            # one key per incident: compaction keeps the last word on each
            self.verdicts: {"num_partitions": 1, "configs": {"cleanup.policy": "compact"}},
            self.dead_letter: {"num_partitions": 1},
        }


def create_topics(
    bootstrap: Sequence[str], config: TopicsConfig, client: Mapping[str, object], timeout_s: float = 10.0
) -> tuple[str, ...]:
    """Create the topics that do not exist; gives the names created.

    One that the broker refuses (no right to, a bad name) is logged and left out: the others may be all
    that is needed, and a missing telemetry topic shows in the source's health.

    Raises:
        SourceUnavailable: the broker does not answer.
    """
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    from .kafka_clients import make_client  # settings load without the client

    timeout_ms = int(timeout_s * 1000)
    try:
        settings = {"bootstrap_servers": list(bootstrap), "bootstrap_timeout_ms": timeout_ms}
        admin = make_client(KafkaAdminClient, settings, client)
        try:
            missing = set(config.settings()) - set(admin.list_topics())
            return tuple(name for name in sorted(missing) if _create(admin, name, config, timeout_ms))
        finally:
            admin.close()
    except KafkaError as error:
        raise SourceUnavailable(f"topics cannot be listed on {', '.join(bootstrap)}: {error}") from error


def _create(admin: Any, name: str, config: TopicsConfig, timeout_ms: int) -> bool:
    from kafka.errors import BrokerResponseError, TopicAlreadyExistsError

    try:
        how = dict(config.settings()[name])
        admin.create_topics({name: how}, timeout_ms=timeout_ms, wait_for_metadata=True)
    except TopicAlreadyExistsError:
        return False  # another worker was faster
    except BrokerResponseError as error:
        log.warning("topic cannot be created", extra={"topic": name, "reason": str(error)})
        return False
    return True


def unreachable(bootstrap: Sequence[str], timeout_s: float) -> str | None:
    """Why no bootstrap address accepts a connection; None when one does.

    kafka-python has one message for every failure, so the plain connection is tried first.
    """
    import socket  # settings alone do not need it

    reasons = []
    for address in bootstrap:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s).close()
        except ValueError:
            reasons.append(f"{address} is no host:port")
        except OSError as error:
            reasons.append(f"{address}: {error.strerror or error}")
        else:
            return None
    return "; ".join(reasons) or "no bootstrap address is given"
