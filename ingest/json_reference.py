"""The reference decoder of JSON lines: one line after the other, the meaning by `firstfault.wire`.

It is slower than the columnar reader of `json_fast`, understands everything, and is what that reader
must agree with. A line is what stands between two ``\\n``: U+2028 and its like are no line ends.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

from firstfault.telemetry import Event, Record
from firstfault.wire import Defaults, Rejection, interpret
from firstfault.wire_values import describe

from .blocks import Rejected
from .columns import BatchBuilder

BOM = b"\xef\xbb\xbf"
RULE_JSON = "must be JSON"
RULE_FRAMED = "must be JSON: this is framed by a schema registry, send plain JSON without its serializer"
_BARE_WORD = re.compile(
    rb'"(?:[^"\\]|\\.)*+"|(?P<sign>[+-]?)(?:(?P<nan>nan(?:\(\w*\))?)|(?P<inf>inf(?:inity)?))(?=\s*[,}\]])'
    rb"|(?P<none>\b(?:none|undefined)\b)(?=\s*[,}\]])",
    re.IGNORECASE,
)
_FRAME_BYTES = 5  # Confluent wire format: a zero byte and a schema id of four


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLimits:
    """What one line may ask of us."""

    max_line_bytes: int
    max_keys: int


class Places(Protocol):
    """Tells where a line came from."""

    def of(self, line: int) -> tuple[str, int]:
        """Source and offset of a line, counted from 0 in the decoded bytes."""
        ...


class LinePlaces(Places, Protocol):
    """The same for lines that may come from several sources."""

    @property
    def is_mixed(self) -> bool:
        """Whether the lines come from several sources."""
        ...

    def sources(self, line_N: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
        """All sources, and which of them each line is from."""
        ...


class Message(Protocol):
    """What of a message is needed to say where a line came from."""

    @property
    def source(self) -> str: ...
    @property
    def offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class FilePlaces:
    """Lines of a file: the offset is the line's number."""

    source: str
    first_offset: int

    @property
    def is_mixed(self) -> bool:
        """Whether the lines come from several sources."""
        return False

    def of(self, line: int) -> tuple[str, int]:
        """Source and offset of a line, counted from 0 in the decoded bytes."""
        return self.source, self.first_offset + line

    def sources(self, line_N: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
        """All sources, and which of them each line is from."""
        return [self.source], np.zeros(len(line_N), np.int64)


class MessagePlaces:
    """Lines of joined messages: the offset is the message's. Counted only when first asked for.

    Axes: M messages, N lines.

    ``values`` are the bytes of each message as they were joined.
    """

    def __init__(self, messages: Sequence[Message], values: Sequence[bytes]) -> None:
        self.is_mixed = any(message.source != messages[0].source for message in messages)
        self._messages = messages
        self._values = values
        self._ends: list[int] = []

    def of(self, line: int) -> tuple[str, int]:
        """Source and offset of a line, counted from 0 in the decoded bytes."""
        message = self._messages[bisect_right(self._line_ends(), line)]
        return message.source, message.offset

    def sources(self, line_N: NDArray[np.int64]) -> tuple[list[str], NDArray[np.int64]]:
        """All sources, and which of them each line is from."""
        names = {name: at for at, name in enumerate(dict.fromkeys(one.source for one in self._messages))}
        source_M = np.array([names[one.source] for one in self._messages], np.int64)
        return list(names), source_M[np.searchsorted(self._line_ends(), line_N, side="right")]

    def _line_ends(self) -> list[int]:
        if not self._ends:
            self._ends = list(accumulate(value.count(b"\n") + 1 for value in self._values))
        return self._ends


def plain_line_ends(data: bytes) -> bytes:
    """``data`` with every ``\\r\\n`` as ``\\n``."""
    return data.replace(b"\r\n", b"\n") if b"\r" in data else data


class ReferenceDecoder:
    """Decodes lines one at a time into a builder."""

    def __init__(self, limits: LineLimits, defaults: Defaults) -> None:
        self._limits = limits
        self._defaults = defaults

    def decode(
        self, data: bytes, first_line: int, places: LinePlaces, builder: BatchBuilder
    ) -> list[Mapping[str, object]]:
        """Add every line of ``data`` to the builder; the objects of clean records, to learn from."""
        clean: list[Mapping[str, object]] = []
        for number, raw in enumerate(plain_line_ends(data).split(b"\n"), first_line):
            if not raw or raw.isspace():
                continue
            result = self.decode_line(raw, number, places, builder)
            if result is not None:
                clean.append(result)
        return clean

    def decode_line(
        self, raw: bytes, number: int, places: LinePlaces, builder: BatchBuilder
    ) -> Mapping[str, object] | None:
        """Add one line to the builder; its object if it is a record of which nothing was rejected."""
        line, rejections = self._parse(raw)
        result: Record | Event | None = None
        if not rejections:
            interpreted = interpret(line, self._defaults)
            result, rejections = interpreted.result, interpreted.rejections
            if result is not None:
                builder.add(result, places.of(number)[0] if places.is_mixed else None)
        if rejections:
            source, offset = places.of(number)
            kept = raw[: self._limits.max_line_bytes]
            for why in rejections:
                builder.reject(rejected(why, source, offset, kept))
            return None
        return line if isinstance(result, Record) and isinstance(line, Mapping) else None

    def _parse(self, raw: bytes) -> tuple[object, tuple[Rejection, ...]]:
        """The JSON value of a line, or why it has none."""
        if len(raw) > self._limits.max_line_bytes:
            rule = f"must be at most {self._limits.max_line_bytes} bytes"
            return None, (Rejection("line", rule, f"{len(raw)} bytes: {describe(raw[:40])}"),)
        if raw.startswith(BOM):
            raw = raw[len(BOM) :]
        try:
            line = parsed(raw)
        except ValueError as error:
            rule = RULE_FRAMED if raw[:1] == b"\0" and len(raw) > _FRAME_BYTES else RULE_JSON
            return None, (Rejection("line", rule, f"{describe(raw[:120])} ({error})"),)
        if isinstance(line, dict) and len(line) > self._limits.max_keys:
            rule = f"must have at most {self._limits.max_keys} keys"
            return None, (Rejection("line", rule, f"{len(line)} keys"),)
        return line, ()


def parsed(raw: bytes) -> object:
    """The value of a line of JSON, in which numbers that JSON has not may stand as programs print them.

    >>> parsed(b'{"loss": -nan, "lr": None, "note": "a: nan, b"}')
    {'loss': nan, 'lr': None, 'note': 'a: nan, b'}

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return from_json(raw)
    except ValueError:
        plain = _BARE_WORD.sub(_plain_word, raw)
        if plain == raw:
            raise
        return from_json(plain)


def _plain_word(word: re.Match[bytes]) -> bytes:
    """What stands for a bare word; texts are taken whole, so that nothing in them is one."""
    if word["nan"]:
        return b"NaN"
    if word["inf"]:
        return b"-Infinity" if word["sign"] == b"-" else b"Infinity"
    return b"null" if word["none"] else word[0]


def rejected(why: Rejection, source: str, offset: int, raw: bytes) -> Rejected:
    """A rejection with the place it came from and the bytes as they came."""
    return Rejected(why.field, why.rule, why.value, why.is_whole, source, offset, raw)
