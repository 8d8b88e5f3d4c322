"""What kafka-python clients of ours have in common; how they are made, training jobs know too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault.emitters.kafka_clients import close_now, make_client

from .errors import UnreadableInput

__all__ = ["check_settings", "close_now", "free_the_line", "make_client"]


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
