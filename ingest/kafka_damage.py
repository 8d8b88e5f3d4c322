"""What a kafka-python exception says about the log: which messages cannot be read, or are gone.

After an exception out of a batch the next `poll` never returns unless the partition is sought to
another offset, and only the text of one of the exceptions names the partition. The frames of the
traceback know both the partition and the batch; the fetcher's private attribute is the second source.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

_UNPACKING = "_unpack_records"
_PARSING = "_parse_fetched_data"


@dataclass(frozen=True, slots=True)
class Damage:
    """Messages of one partition that cannot be had: seek ``partition`` to ``stop`` to go on.

    ``stop`` None means that the end is not known: one offset on, or the earliest available.
    """

    partition: Any
    stop: int | None
    reason: str


def damaged_batch(error: Exception, consumer: Any) -> Damage | None:
    """The batch that made ``poll`` raise; None when ``error`` does not come from reading a batch."""
    from kafka.errors import CorruptRecordError, KafkaError

    for frame in _frames(error):
        if frame.f_code.co_name == _UNPACKING:
            partition = frame.f_locals.get("tp") or _partition_in_line(consumer)
            stop = getattr(frame.f_locals.get("batch"), "next_offset", None)
            return Damage(partition, stop, describe(error)) if partition is not None else None
        if frame.f_code.co_name == _PARSING:
            # Only what the batch is to blame for: KafkaError itself says that no record could be cut out.
            is_batch = isinstance(error, CorruptRecordError) or type(error) is KafkaError
            partition = frame.f_locals.get("tp")
            return Damage(partition, None, describe(error)) if is_batch and partition is not None else None
    return None


def missing_range(error: Exception) -> list[Damage]:
    """Partitions whose next offset the broker no longer has, or no longer agrees with; else empty."""
    from kafka.errors import LogTruncationError, OffsetOutOfRangeError

    if isinstance(error, OffsetOutOfRangeError) and error.args and isinstance(error.args[0], Mapping):
        return [Damage(partition, None, "the broker no longer has it") for partition in error.args[0]]
    if isinstance(error, LogTruncationError):
        return [
            Damage(partition, None if place is None else place.offset, "the broker's log was truncated")
            for partition, place in error.divergent_offsets.items()
        ]
    return []


def describe(error: Exception) -> str:
    """Kind and text of an exception, on one line of readable length."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def _frames(error: Exception) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _partition_in_line(consumer: Any) -> Any:
    fetcher = getattr(consumer, "_fetcher", None)
    return getattr(getattr(fetcher, "_next_partition_records", None), "topic_partition", None)
