"""The two files that a single-node KRaft broker is started with: server.properties and its logging."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

READY_LINE = "Kafka Server started"
"""What the broker logs, at the level that `write_logging` sets, when it takes requests."""


def write_server_properties(
    data_dir: Path, host: str, port: int, controller_port: int, further: Mapping[str, str]
) -> Path:
    """Write server.properties of one node that is broker and controller; ``further`` lines win."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{host}:{controller_port}",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{host}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir / "log"),
        "auto.create.topics.enable": "false",
        "num.partitions": "1",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        # 50 partitions of group offsets by default: each costs files and start time.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A broker that was killed may register again once its old session ended: 9 s by default.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "500",
        # A group of one need not wait 3 s for others to join.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # 128 MB of the heap by default, for one small compacted topic.
        "log.cleaner.dedupe.buffer.size": "4194304",
    }
    path = data_dir / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in {**settings, **further}.items()))
    return path


def write_logging(data_dir: Path) -> Path:
    """Write the broker's logging set-up: warnings, and the one line that says it is ready."""
    path = data_dir / "log4j2.properties"
    path.write_text(_LOG4J)
    return path


_LOG4J = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c{1})%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = info
"""
