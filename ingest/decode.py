"""Bytes become columns: whatever the transport, whatever the form.

A message is one JSON record, many as lines, or an Arrow stream. Nothing in it can make this raise:
what is not understood is in the batch's ``rejected``, and everything else is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firstfault.wire import Defaults

from .blocks import RecordBatch

__all__ = ["DecodeConfig", "Decoder", "Defaults", "RawMessage"]

ARROW_CONTENT_TYPE = "application/vnd.apache.arrow.stream"


@dataclass(frozen=True, slots=True)
class RawMessage:
    """One message as it came: ``source`` names topic and partition (or the file), ``offset`` its place."""

    source: str
    offset: int
    value: bytes
    content_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeConfig:
    """What one message or line may ask of us; beyond a limit it is rejected, and its neighbours kept."""

    max_line_bytes: int = 1 << 20
    """1 MiB: a record of 4096 metrics with long names is a fifth of that."""
    max_message_bytes: int = 64 << 20
    """64 MiB: a whole HTTP body or a very large Kafka message; brokers default to 1 MiB."""
    max_message_rows: int = 1 << 20
    """About a million records in one message; an Arrow column of nulls has no bytes to bound it."""
    max_keys: int = 4096
    """Keys of one record; a record of all layers of a large model has about 2000."""
    max_cells: int = 1 << 25
    """Rows times distinct metrics of one batch: 300 MB as columns. Reached only by made-up names."""
    max_decompressed_bytes: int = 256 << 20
    """Sum of the bodies of a compressed Arrow message once unpacked."""


class Decoder:
    """Decodes messages or lines to batches; learns the shape of the lines to decode the next faster."""

    def __init__(self, config: DecodeConfig = DecodeConfig(), defaults: Defaults = Defaults()) -> None:  # noqa: B008
        self._config = config
        self._defaults = defaults

    def decode(self, messages: Sequence[RawMessage]) -> RecordBatch:
        """All records of the messages, in order, as one batch.

        A `Rejected` carries the source and offset of its message. Never raises on any bytes.
        """
        raise NotImplementedError

    def decode_lines(self, data: bytes, source: str, first_offset: int) -> RecordBatch:
        """The records of a piece of a file that ends on a line border (or at the end of the file).

        ``first_offset`` is the number of lines before it; a `Rejected` carries its line's number.
        """
        raise NotImplementedError
