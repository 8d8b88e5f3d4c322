"""A run read from its topic once more, and judged under two settings at a time.

A consumer of its own, in no group: it moves no offset of the worker's. It reads every partition from its
first record to where it ended when asked, and refuses where the topic has let go of what may be the run's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from detectors.verdict import Verdict
from ingest.blocks import RecordBatch
from ingest.columns import select_rows
from ingest.decode import Decoder, RawMessage
from ingest.errors import SourceUnavailable, UnreadableInput
from ingest.kafka_clients import make_client
from ingest.kafka_codecs import bound_codecs
from ingest.kafka_topics import unreachable

from .pipeline import Pipeline

if TYPE_CHECKING:
    from ingest.kafka_config import KafkaSourceConfig

    from .config import Settings

_POLL_MS = 1000
_SILENT_POLLS = 30
"""Polls that bring nothing before the broker is taken to be away, half a minute."""


def judged_from_topic(run: str, before: Settings, after: Settings) -> tuple[Verdict, Verdict]:
    """The verdicts of a run under both settings.

    Raises:
        SourceUnavailable: the broker does not answer.
        UnreadableInput: the topic has no record of the run, or has let go of its first ones.
    """
    pipelines = [Pipeline(one.pipeline, one.detectors) for one in (before, after)]
    parts: set[str] = set()
    with _Topic(before.kafka) as topic:
        for batch in _of_run(run, topic.batches(Decoder(before.decode))):
            parts.update(part for name, part in batch.origins or () if name == run)
            for pipeline in pipelines:
                pipeline.feed(batch)
        cut = {part: first for part, first in topic.first.items() if part in parts and first > 0}
    if run not in pipelines[0].runs:
        raise UnreadableInput(f"topic {before.kafka.topics.telemetry}: no record of a run {run!r}")
    if cut:
        part, first = min(cut.items())
        raise UnreadableInput(
            f"{part} begins at offset {first}: the topic has let go of records that may be of this run"
        )
    one, other = (pipeline.verdict(run) for pipeline in pipelines)
    return one, other


def _of_run(run: str, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
    """What the batches hold of one run."""
    for batch in batches:
        mine = [at for at, name in enumerate(batch.runs) if name == run]
        keep_N = batch.run_N == (mine[0] if mine else -1)
        events = tuple(one for one in batch.events if one[1].run == run)
        if keep_N.any() or events:
            yield select_rows(replace(batch, events=events), keep_N)


class _Topic:
    """The telemetry topic from its beginning to where it ends now."""

    def __init__(self, config: KafkaSourceConfig) -> None:
        self._config = config
        self.first: dict[str, int] = {}
        """The first offset that each partition still has, by name."""

    def __enter__(self) -> _Topic:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        config = self._config
        why = unreachable(config.bootstrap, config.connect_timeout_s)
        if why is not None:
            raise SourceUnavailable(f"Kafka is unavailable: {why}")
        bound_codecs(config.max_batch_bytes)
        try:
            self._consumer = make_client(KafkaConsumer, self._settings(), config.client)
        except KafkaError as error:
            raise SourceUnavailable(f"Kafka is unavailable: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close(autocommit=False)

    def batches(self, decoder: Decoder) -> Iterator[RecordBatch]:
        """All records up to the end as it was at the start."""
        from kafka import TopicPartition

        topic = self._config.topics.telemetry
        numbers = self._consumer.partitions_for_topic(topic)
        if not numbers:
            raise UnreadableInput(f"there is no topic {topic}")
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        first = self._consumer.beginning_offsets(partitions)
        open_ = {one: end for one, end in self._consumer.end_offsets(partitions).items() if end > first[one]}
        self.first = {_name(one): offset for one, offset in first.items()}
        self._consumer.assign(list(open_))
        for one in open_:
            self._consumer.seek(one, first[one])
        silent = 0
        while open_:
            found: dict[Any, list[Any]] = self._consumer.poll(_POLL_MS)
            silent = 0 if found else silent + 1
            if silent > _SILENT_POLLS:
                raise SourceUnavailable(f"topic {topic}: the broker has stopped answering")
            for one, messages in found.items():
                yield decoder.decode(
                    [_raw(one, message) for message in messages if message.offset < open_[one]]
                )
            for one in [one for one, end in open_.items() if self._consumer.position(one) >= end]:
                del open_[one]
                self._consumer.pause(one)

    def _settings(self) -> dict[str, Any]:
        config = self._config
        return {
            "bootstrap_servers": list(config.bootstrap),
            "group_id": None,
            "auto_offset_reset": "none",
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
            "bootstrap_timeout_ms": int(config.connect_timeout_s * 1000),
            "fetch_max_bytes": config.fetch_bytes,
            "max_partition_fetch_bytes": config.fetch_bytes // 4,
        }


def _raw(partition: Any, message: Any) -> RawMessage:
    kinds = [value for name, value in message.headers or () if name.lower() == "content-type" and value]
    kind = kinds[0].decode("ascii", "replace") if kinds else None
    return RawMessage(_name(partition), message.offset, message.value or b"", kind)


def _name(partition: Any) -> str:
    return f"{partition.topic}:{partition.partition}"
