"""TensorBoard event files: the scalars of one file, or of a folder that holds the files of one run.

A file is a row of framed records (length, checksum, `Event`, checksum). The checksums are verified with
crc32c and events parsed with protobuf, the libraries below TensorBoard's own reader: that one would
bring a web server, gRPC and an imaging library along, and repeats a damaged record for ever.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from google.protobuf.message import DecodeError

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .errors import UnreadableInput
from .folders import event_files
from .log_reader import FileConfig, Understood
from .proto_messages import message_classes
from .scalar_names import names_of
from .scalar_points import Points, assemble, batches
from .scalar_steps import lanes_of
from .tensor_scalar import TENSOR, scalar_of

MAX_RECORD_BYTES = 1 << 28
"""A record beyond it is damage: 256 MiB. Graphs and images, which are passed over, are below."""

_LENGTH, _CRC = struct.Struct("<Q"), struct.Struct("<I")
_HEADER_BYTES = _LENGTH.size + _CRC.size
_MESSAGES = {
    "Event": {"wall_time": (1, "double"), "step": (2, "int64"), "summary": (5, "Summary")},
    "Summary": {"value": (1, "*Value")},
    "Value": {
        "tag": (1, "bytes"),
        "simple_value": (2, "float"),
        "tensor": (8, "Tensor"),
    },
    **TENSOR,
}


@dataclass(slots=True)
class _Damage:
    """What was wrong with the records of one file."""

    is_cut: bool = False
    bad: int = 0
    stopped_at: int | None = None

    def remarks(self, name: str) -> Iterator[str]:
        """Sentences for a person."""
        if self.is_cut:
            yield f"{name} ends inside its last record; what came before is judged"
        if self.bad:
            yield f"{name}: {self.bad} records with a wrong checksum were passed over"
        if self.stopped_at is not None:
            yield f"{name} is damaged at byte {self.stopped_at}; what came before is judged"


def read(path: Path, defaults: Defaults, config: FileConfig) -> Iterator[tuple[RecordBatch, Understood]]:
    """The scalars of the event file ``path``, or of all event files in the folder ``path``.

    Raises:
        UnreadableInput: it cannot be opened, or holds no scalar.
    """
    files = event_files(path) if path.is_dir() else [path]
    points = Points()
    remarks: list[str] = []
    for part, file in enumerate(files):
        remarks += _read_file(file, points, part)
    if not len(points):
        raise UnreadableInput(f"{path}: {'; '.join(['holds no scalar', *remarks])}")
    lanes = lanes_of(*(np.array(each) for each in (points.name_P, points.part_P, points.time_P)))
    if len(lanes) > 1:
        remarks.append(f"event files were written at the same time: judged as {len(lanes)} runs of their own")
    elif len(files) > 1:
        remarks.append(f"{len(files)} event files of one folder are read as one run")
    for at, lane in enumerate(lanes):
        own = points if len(lanes) == 1 else points.of_parts(lane)
        run = f"{defaults.run}-{at + 1}" if len(lanes) > 1 else defaults.run
        yield from _of_run(own, replace(defaults, run=run), config, remarks, path)


def _of_run(
    points: Points, defaults: Defaults, config: FileConfig, remarks: Sequence[str], path: Path
) -> Iterator[tuple[RecordBatch, Understood]]:
    named = names_of(points, config.columns, "step")
    assembled = assemble(points)
    understood = Understood(
        format="TensorBoard events",
        counter=assembled.counter,
        columns=named.columns,
        remarks=(*named.remarks, *assembled.remarks, *remarks),
    )
    for batch in batches(points, assembled, named, defaults, source=str(path)):
        yield batch, understood


def _read_file(path: Path, points: Points, part: int) -> list[str]:
    """Adds the scalars of one file; sentences about damage."""
    damage = _Damage()
    event_class = _event_class()
    try:
        with path.open("rb") as stream:
            for data in _records(stream, damage):
                _take(event_class, data, points, part, damage)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    return list(damage.remarks(path.name))


def _take(event_class: Any, data: bytes, points: Points, part: int, damage: _Damage) -> None:
    try:
        event = event_class.FromString(data)
    except DecodeError:
        damage.bad += 1
        return
    for value in event.summary.value:
        number = value.simple_value if value.HasField("simple_value") else scalar_of(value.tensor)
        if number is not None:
            points.add(value.tag.decode("utf-8", "replace"), event.step, event.wall_time, number, part)


def _records(stream: BinaryIO, damage: _Damage) -> Iterator[bytes]:
    """The records whose checksums hold; a wrong length ends the file, since nothing after it has a place."""
    from crc32c import crc32c

    while header := stream.read(_HEADER_BYTES):
        if len(header) < _HEADER_BYTES:
            damage.is_cut = bool(header.strip(b"\0"))
            return
        (size,), (crc,) = _LENGTH.unpack_from(header), _CRC.unpack_from(header, _LENGTH.size)
        if crc != _masked(crc32c(header[: _LENGTH.size])) or size > MAX_RECORD_BYTES:
            # A file that was given its space before it was written ends in zeros.
            damage.stopped_at = None if not header.strip(b"\0") else stream.tell() - _HEADER_BYTES
            return
        data = stream.read(size + _CRC.size)
        if len(data) < size + _CRC.size:
            damage.is_cut = True
            return
        if _CRC.unpack_from(data, size)[0] == _masked(crc32c(data[:size])):
            yield data[:size]
        else:
            damage.bad += 1


def _masked(crc: int) -> int:
    """A checksum as it is stored: turned and shifted, so that checksums of checksums tell something."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _event_class() -> Any:
    return message_classes("firstfault.tensorboard", _MESSAGES)["Event"]
