"""Making kafka-python clients that leave nothing behind when the broker does not answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import UnreadableInput

_SENDER_END_S = 1.0
"""Wait for a producer's thread that was told to stop; it looks up from its sockets many times a second."""


def make_client(client_class: Any, settings: Mapping[str, object], shared: Mapping[str, object]) -> Any:
    """A consumer, producer or admin client.

    Of the ``shared`` settings, which one table of ours gives to all three classes, those are used that
    this class knows: each refuses the others. A constructor that cannot bootstrap keeps its thread and
    sockets for ever, one set per attempt, so the network client is made here and closed for it.

    Raises:
        kafka.errors.KafkaError: no bootstrap within ``bootstrap_timeout_ms``.
    """
    made: list[Any] = []
    make_network = client_class.DEFAULT_CONFIG["kafka_client"]

    def network(*args: Any, **settings: Any) -> Any:
        made.append(make_network(*args, **settings))
        return made[-1]

    known = {name: value for name, value in shared.items() if name in client_class.DEFAULT_CONFIG}
    try:
        return client_class(**{**settings, **known, "kafka_client": network})
    except BaseException:
        for client in made:
            client.close()
        raise


def check_settings(shared: Mapping[str, object]) -> None:
    """Refuse shared settings that no class knows: a misspelt one would be left out without a word.

    Raises:
        UnreadableInput: names the setting.
    """
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

    known = {name for one in (KafkaConsumer, KafkaProducer, KafkaAdminClient) for name in one.DEFAULT_CONFIG}
    for name in sorted(set(shared) - known):
        raise UnreadableInput(f"kafka.client.{name} is no setting of kafka-python")


def free_the_line(consumer: Any) -> None:
    """Let a consumer go on with a partition that was paused while records of it were buffered.

    kafka-python parks such records, and takes them up again after `resume` only when no other
    partition is in line (``_next_partition_records is None``, kafka-python 3.0.12). An exhausted one
    stays in line until the next fetch brings something: with the other partitions empty that is never,
    and the parked records are neither handed out nor fetched again. To be called before each poll, by
    the polling thread, which alone uses that field.
    """
    fetcher = consumer._fetcher
    if not getattr(fetcher, "_next_partition_records", True):
        fetcher._next_partition_records = None


def close_now(producer: Any) -> None:
    """Close a producer without waiting: whoever waits for a message of it is told that it failed.

    ``close`` begins with ``flush``, whose timeout is an error that leaves the producer open, with its
    threads (kafka-python 3.0.12), so that there must be nothing to flush.
    """
    producer.flush = lambda *_, **__: None
    sender = producer._sender
    producer.close(timeout=0)
    sender.join(_SENDER_END_S)  # its sockets are closed as it ends
