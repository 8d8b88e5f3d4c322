"""Weights & Biases' offline files (``.wandb``): the history of one run.

The file is a log in blocks of 32 KiB, as LevelDB writes it, behind a header of seven bytes: records are cut
in fragments (checksum, length, type), and each record is a protocol buffer of which the history items, the
run's name and its host are read. It is an internal format: an unknown version is refused by its number.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from google.protobuf.message import DecodeError
from pydantic_core import from_json

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .errors import UnreadableInput
from .log_reader import FileConfig, Understood
from .proto_messages import message_classes
from .scalar_names import names_of, recounted
from .scalar_points import Points, assemble, batches
from .sniff_binary import WANDB_MARK

MAX_RECORD_BYTES = 1 << 26
"""A record beyond it is damage: 64 MiB, a thousand times a history row of ten thousand metrics."""
HEAVY_SHARE = 20
"""One record of so many that is damaged makes a run too little to judge: a NaN may have stood there."""
MAX_SEARCHES = 4096
"""Damaged places behind which the next fragment is searched inside its block; then the next block is next."""
STEP, TIME = "_step", "_timestamp"

_BLOCK_BYTES = 1 << 15
_HEADER = struct.Struct("<4sHB")
_MAGIC, _VERSION = 0xBEE1, 0
_FRAGMENT = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_OWN_KEYS = frozenset({STEP, TIME, "_runtime", "_wandb"})
_NONFINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_MAX_DEPTH = 8
"""Nested dictionaries are metrics with dots in their names; deeper ones are configuration."""
_MAX_ROW_METRICS = 1 << 14
"""Values of one history row: more are a table, logged by mistake."""
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Record": {"history": (2, "History"), "run": (17, "Run")},
    "History": {"item": (1, "*Item"), "step": (2, "Step")},
    "Step": {"num": (1, "int64")},
    "Item": {
        "key": (1, "bytes"),
        "nested_key": (2, "*bytes"),
        "boolean": (4, "bool"),
        "integer": (5, "sint64"),
        "number": (6, "double"),
        "value_json": (16, "bytes"),
    },
    "Run": {"run_id": (1, "bytes"), "display_name": (8, "bytes"), "host": (13, "bytes")},
}


@dataclass(slots=True)
class _State:
    """What was read so far beside the points."""

    bad: int = 0
    lost_bytes: int = 0
    read_bytes: int = 0
    searches: int = 0
    """How often the next fragment was looked for behind damage."""
    is_cut: bool = False
    rows: int = 0
    name: str = ""
    points: Points = field(default_factory=Points)

    def remarks(self) -> Iterator[str]:
        """Sentences for a person."""
        if self.name:
            yield f"the run is called {self.name!r}"
        if self.is_cut:
            yield "it ends inside a record (its run was killed?); what came before is judged"
        if self.bad:
            yield f"{self.bad} damaged records were passed over"

    @property
    def doubt(self) -> str:
        """Why what is left does not show how the run went; empty where next to all could be read."""
        is_heavy = self.bad * HEAVY_SHARE > self.rows or self.lost_bytes * HEAVY_SHARE > self.read_bytes
        return f"{self.bad} damaged records beside {self.rows} that could be read" if is_heavy else ""


def read(path: Path, defaults: Defaults, config: FileConfig) -> Iterator[tuple[RecordBatch, Understood]]:
    """The history of the run in the file ``path``.

    Raises:
        UnreadableInput: it is of another version, or holds no history.
    """
    state = _State()
    try:
        with path.open("rb") as stream:
            _check_header(stream.read(_HEADER.size), path)
            for data in _records(stream, state):
                _take(data, state)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    points = state.points
    if not len(points):
        raise UnreadableInput(f"{path}: {'; '.join(['holds no history of metrics', *state.remarks()])}")
    named = names_of(points, config.columns, STEP, may_recount=True)
    steps = None if named.counter is None else recounted(points, named.counter)
    assembled = assemble(points, named.counter or STEP, steps)
    understood = Understood(
        format="W&B offline run",
        counter=assembled.counter,
        columns=named.columns,
        lines=state.rows,
        used_lines=state.rows,
        remarks=(*named.remarks, *assembled.remarks, *state.remarks()),
        doubt=state.doubt,
    )
    for batch in batches(points, assembled, named, defaults, source=str(path)):
        yield batch, understood


def _check_header(header: bytes, path: Path) -> None:
    if len(header) < _HEADER.size or not header.startswith(WANDB_MARK):
        raise UnreadableInput(f"{path}: a W&B file must begin with {WANDB_MARK.decode()}, got {header[:8]!r}")
    _, magic, version = _HEADER.unpack(header)
    if (magic, version) != (_MAGIC, _VERSION):
        raise UnreadableInput(f"{path}: a W&B file must be of version {_VERSION}, got {version}")


def _records(stream: BinaryIO, state: _State) -> Iterator[bytes]:
    """The whole records. A damaged fragment costs its record; the next block begins with a fragment again."""
    parts: list[bytes] = []
    at = _HEADER.size  # the header is part of the first block
    while block := stream.read(wanted := _BLOCK_BYTES - at % _BLOCK_BYTES):
        at += len(block)
        state.read_bytes += len(block)
        for kind, data in _fragments(block, state, is_last=len(block) < wanted):
            if kind in (_FULL, _FIRST):
                state.bad += bool(parts)
                parts = []
            if kind == 0 or (kind in (_MIDDLE, _LAST) and not parts):
                state.bad += 1
                parts = []
                continue
            parts.append(data)
            if sum(map(len, parts)) > MAX_RECORD_BYTES:
                state.bad += 1
                parts = []
            elif kind in (_FULL, _LAST):
                yield b"".join(parts)
                parts = []
    state.is_cut = state.is_cut or bool(parts)


def _fragments(block: bytes, state: _State, *, is_last: bool) -> Iterator[tuple[int, bytes]]:
    """The fragments of one block with their types; type 0 stands for damage."""
    at = 0
    while len(block) - at >= _FRAGMENT.size:
        _, size, _ = _FRAGMENT.unpack_from(block, at)
        end = at + _FRAGMENT.size + size
        if _is_fragment(block, at):
            yield block[at + _FRAGMENT.size - 1], block[at + _FRAGMENT.size : end]
            at = end
            continue
        if is_last and not block[at:].strip(b"\0"):
            return  # space that was never written
        following = _next_fragment(block, at, state)
        if is_last and following is None and end > len(block):
            state.is_cut = True
            return
        yield 0, b""
        state.lost_bytes += (len(block) if following is None else following) - at
        if following is None:
            return
        at = following


def _is_fragment(block: bytes, at: int) -> bool:
    """Whether a whole fragment begins at a place."""
    crc, size, kind = _FRAGMENT.unpack_from(block, at)
    end = at + _FRAGMENT.size + size
    is_possible = kind in (_FULL, _FIRST, _MIDDLE, _LAST) and end <= len(block)
    return is_possible and zlib.crc32(block[at + _FRAGMENT.size - 1 : end]) == crc


def _next_fragment(block: bytes, at: int, state: _State) -> int | None:
    """Where the next whole fragment begins behind a damaged one."""
    state.searches += 1
    if state.searches > MAX_SEARCHES:
        return None
    places = range(at + 1, len(block) - _FRAGMENT.size + 1)
    return next((place for place in places if _is_fragment(block, place)), None)


def _take(data: bytes, state: _State) -> None:
    try:
        record = _record_class().FromString(data)
    except DecodeError:
        state.bad += 1
        return
    if record.HasField("run"):
        name = record.run.display_name or record.run.run_id
        state.name = name.decode("utf-8", "replace")[:200] or state.name
    if record.HasField("history"):
        _take_row(record.history, state)


def _take_row(history: Any, state: _State) -> None:
    row: dict[str, float] = {}
    for item in history.item:
        name = ".".join(part.decode("utf-8", "replace") for part in (item.nested_key or [item.key]))
        _flatten(name, _value(item), row, 0)
    state.rows += 1
    step = history.step.num if history.HasField("step") else row.get(STEP, -1.0)
    time = row.get(TIME, float("nan"))
    for name, value in row.items():
        if name not in _OWN_KEYS:
            state.points.add(name, int(step) if abs(step) < 1 << 62 else -1, time, value)


def _value(item: Any) -> object:
    if item.value_json:
        try:
            return from_json(item.value_json, allow_inf_nan=True)
        except ValueError:
            return None
    for kind in ("number", "integer", "boolean"):
        if item.HasField(kind):
            return getattr(item, kind)
    return None


def _flatten(name: str, value: object, row: dict[str, float], depth: int) -> None:
    """Puts the numbers of a value into the row; words for what is not finite are numbers too."""
    if isinstance(value, dict):
        # media, tables and histograms say what they are
        if depth < _MAX_DEPTH and "_type" not in value:
            for key, inner in value.items():
                _flatten(f"{name}.{key}", inner, row, depth + 1)
        return
    number = _NONFINITE.get(value) if isinstance(value, str) else value
    if isinstance(number, int | float) and len(row) < _MAX_ROW_METRICS:
        try:
            row[name] = float(number)
        except OverflowError:  # an integer beyond any float
            row[name] = float("inf") if number > 0 else float("-inf")


@cache
def _record_class() -> Any:
    return message_classes("firstfault.wandb", _MESSAGES)["Record"]
