"""Bytes become columns: whatever the transport, whatever the form.

A message is one JSON record, many as lines, or an Arrow stream. Nothing in it can make this raise:
what is not understood is in the batch's ``rejected``, and everything else is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from firstfault.wire import Defaults, Rejection

from .arrow_frames import CONTINUATION
from .blocks import RecordBatch
from .columns import BatchBuilder
from .decode_config import DecodeConfig
from .joining import concatenate, joined
from .json_fast import FastDecoder
from .json_reference import FilePlaces, LineLimits, LinePlaces, MessagePlaces, ReferenceDecoder, rejected

__all__ = ["DecodeConfig", "Decoder", "Defaults", "RawMessage"]

ARROW_CONTENT_TYPE = "application/vnd.apache.arrow.stream"
RULE_EMPTY = "must not be empty"
ALL_REQUIRED = Defaults()
_DEFAULT_CONFIG = DecodeConfig()
_OPENING, _UNDECLARED = {b"{"}, {None}


class _Form(Enum):
    """How a message is to be read."""

    LINES = "lines"
    ARROW = "arrow"
    REFUSED = "refused"


class RawMessage(NamedTuple):
    """One message as it came: ``source`` names topic and partition (or the file), ``offset`` its place.

    A tuple: a frozen dataclass takes five times as long to make, and there is one for each record.
    """

    source: str
    offset: int
    value: bytes
    content_type: str | None = None


class Decoder:
    """Decodes messages or lines to batches; learns the shape of the lines to decode the next faster.

    ``is_fast`` False leaves every line to the reference; the result is the same.
    """

    def __init__(
        self,
        config: DecodeConfig = _DEFAULT_CONFIG,
        defaults: Defaults = ALL_REQUIRED,
        *,
        is_fast: bool = True,
    ) -> None:
        limits = LineLimits(max_line_bytes=config.max_line_bytes, max_keys=config.max_keys)
        self._config = config
        self._defaults = defaults
        self._reference = ReferenceDecoder(limits, defaults)
        self._fast = FastDecoder(limits, defaults) if is_fast else None

    def decode(self, messages: Sequence[RawMessage]) -> RecordBatch:
        """All records of the messages, in order, as one batch.

        A `Rejected` carries the source and offset of its message, ``origins`` say which run came from
        which source. Never raises on any bytes.
        """
        return concatenate(self.decode_each(messages), self._config.max_cells)

    def decode_each(self, messages: Sequence[RawMessage]) -> list[RecordBatch]:
        """The same as several batches where one would have more cells than it may: what one message makes
        up in names costs no other message a value."""
        batches = joined(self._parts(messages), self._config.max_cells)
        # None would mean that the source has no parts
        return [replace(one, origins=one.origins or frozenset()) for one in batches]

    def _parts(self, messages: Sequence[RawMessage]) -> list[RecordBatch]:
        """The messages in stretches of one form; each part knows where its runs came from."""
        if self._are_plain_lines(messages):
            return list(self._decode_joined(messages))
        parts: list[RecordBatch] = []
        for form, group in groupby(messages, self._form):
            match form:
                case _Form.LINES:
                    parts.extend(self._decode_joined(list(group)))
                case _Form.ARROW:
                    from .arrow_stream import batches_from_arrow_messages

                    for source, own in groupby(group, attrgetter("source")):
                        batches = batches_from_arrow_messages(list(own), self._config, self._defaults)
                        parts += [_of_source(batch, source) for batch in batches]
                case _Form.REFUSED:
                    parts.append(self._refuse(group))
        return parts

    def decode_lines(self, data: bytes, source: str, first_offset: int) -> RecordBatch:
        """The records of a piece of a file that ends on a line border (or at the end of the file).

        ``first_offset`` is the number of lines before it; a `Rejected` carries its line's number.
        """
        if data and not data.endswith(b"\n"):
            data += b"\n"
        return concatenate(
            list(self._decode_data(data, FilePlaces(source, first_offset))), self._config.max_cells
        )

    def _are_plain_lines(self, messages: Sequence[RawMessage]) -> bool:
        """Whether it is clear at a glance that each is read as lines, as most are: `_form` takes longer."""
        return (
            {message.value[:1] for message in messages} == _OPENING
            and {message.content_type for message in messages} == _UNDECLARED
            and max(len(message.value) for message in messages) <= self._config.max_message_bytes
        )

    def _form(self, message: RawMessage) -> _Form:
        value = message.value
        if not 0 < len(value) <= self._config.max_message_bytes or value.isspace():
            return _Form.REFUSED
        if value.startswith(CONTINUATION):
            return _Form.ARROW
        is_declared = (
            message.content_type is not None and _media_type(message.content_type) == ARROW_CONTENT_TYPE
        )
        if is_declared:
            return _Form.ARROW
        return _Form.REFUSED if self._has_too_many_lines(value) else _Form.LINES

    def _has_too_many_lines(self, value: bytes) -> bool:
        limit = self._config.max_message_lines
        return len(value) > limit and value.count(b"\n") > limit

    def _refuse(self, messages: Iterable[RawMessage]) -> RecordBatch:
        builder = BatchBuilder()
        for message in messages:
            kept = message.value[: self._config.max_line_bytes]
            builder.reject(rejected(self._why_refused(message.value), message.source, message.offset, kept))
        return builder.build()

    def _why_refused(self, value: bytes) -> Rejection:
        size, limit = len(value), self._config.max_message_bytes
        if size > limit:
            return Rejection("message", f"must be at most {limit} bytes", f"{size} bytes")
        if not value or value.isspace():
            return Rejection("message", RULE_EMPTY, f"{size} bytes")
        lines = value.count(b"\n")
        return Rejection(
            "message", f"must be at most {self._config.max_message_lines} lines", f"{lines} lines"
        )

    def _decode_joined(self, messages: Sequence[RawMessage]) -> Iterator[RecordBatch]:
        """JSON messages joined as lines, so that one pass serves all of a poll."""
        values = [message.value for message in messages]
        if any(value[-1:] == b"\n" for value in values):
            values = [value.rstrip(b"\r\n") for value in values]  # else blank lines would cost the fast path
        places = MessagePlaces(messages, values)
        for batch in self._decode_data(b"\n".join(values) + b"\n", places):
            yield batch if places.is_mixed else _of_source(batch, messages[0].source)

    def _decode_data(self, data: bytes, places: LinePlaces) -> Iterator[RecordBatch]:
        """Lines of any number, piece by piece."""
        line = 0
        for piece in line_pieces(data, self._config.piece_bytes):
            yield from self._decode_piece(piece, line, places)
            line += piece.count(b"\n")

    def _decode_piece(self, piece: bytes, first_line: int, places: LinePlaces) -> Iterator[RecordBatch]:
        """One piece fast, else cut into smaller ones, each fast or by the reference."""
        if (batch := self._try_fast(piece, first_line, places)) is not None:
            yield batch
            return
        if len(piece) <= self._config.fallback_bytes:
            yield self._by_reference(piece, first_line, places)
            return
        # An eighth at a time, so that one odd line costs a few tries and 64 KiB of the reference.
        size = max(self._config.fallback_bytes, len(piece) // 8)
        for part in line_pieces(piece, size):
            if len(part) < len(piece):
                yield from self._decode_piece(part, first_line, places)
            else:  # a single line
                yield self._by_reference(part, first_line, places)
            first_line += part.count(b"\n")

    def _try_fast(self, piece: bytes, first_line: int, places: LinePlaces) -> RecordBatch | None:
        if self._fast is None or not self._fast.has_learned or len(piece) < self._config.min_fast_bytes:
            return None
        return self._fast.decode(piece, first_line, places)

    def _by_reference(self, piece: bytes, first_line: int, places: LinePlaces) -> RecordBatch:
        builder = BatchBuilder(self._config.max_cells)
        clean = self._reference.decode(piece, first_line, places, builder)
        if self._fast is not None:
            self._fast.learn(clean)
        return builder.build()


def _of_source(batch: RecordBatch, source: str) -> RecordBatch:
    """The batch, all of whose runs came from ``source``."""
    runs = {*batch.runs, *(event.run for _, event in batch.events)}
    return replace(batch, origins=frozenset((run, source) for run in runs))


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def line_pieces(data: bytes, size: int) -> Iterator[bytes]:
    """``data``, which ends with a line end, cut at line ends into pieces of about ``size`` bytes."""
    start = 0
    while len(data) - start > size:
        cut = data.rfind(b"\n", start, start + size) + 1 or data.index(b"\n", start + size) + 1
        yield data[start:cut]
        start = cut
    if start < len(data):
        yield data[start:]
