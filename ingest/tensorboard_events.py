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

HEAVY_SHARE = 20
"""One part of so many that is lost makes a run too little to judge: a NaN may have stood there."""
SEARCHED_BYTES = 1 << 25
"""How far behind damage the next record is looked for: 32 MiB, beyond any record but a large image's."""

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
    read_bytes: int = 0
    lost_bytes: int = 0

    def remarks(self, name: str) -> Iterator[str]:
        """Sentences for a person."""
        if self.is_cut:
            yield f"{name} ends inside its last record; what came before is judged"
        if self.bad:
            yield f"{name}: {self.bad} records with a wrong checksum were passed over"
        if self.stopped_at is not None:
            yield f"{name} is damaged at byte {self.stopped_at}; what came before is judged"

    @property
    def is_heavy(self) -> bool:
        """Whether so much was lost that what is left does not show how the run went."""
        return self.stopped_at is not None or self.lost_bytes * HEAVY_SHARE > self.read_bytes


def read(path: Path, defaults: Defaults, config: FileConfig) -> Iterator[tuple[RecordBatch, Understood]]:
    """The scalars of the event file ``path``, or of all event files in the folder ``path``.

    Raises:
        UnreadableInput: it cannot be opened, or holds no scalar.
    """
    files = event_files(path) if path.is_dir() else [path]
    points = Points()
    remarks: list[str] = []
    doubt = ""
    for part, file in enumerate(files):
        damage = _read_file(file, points, part)
        remarks += damage.remarks(file.name)
        doubt = f"a part of {file.name} is damaged and could not be read" if damage.is_heavy else doubt
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
        for batch, understood in _of_run(own, replace(defaults, run=run), config, remarks, path):
            yield batch, replace(understood, doubt=doubt)


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


def _read_file(path: Path, points: Points, part: int) -> _Damage:
    """Adds the scalars of one file; what was damaged."""
    damage = _Damage()
    event_class = _event_class()
    try:
        with path.open("rb") as stream:
            for data in _records(stream, damage):
                _take(event_class, data, points, part, damage)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error
    return damage


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
    """The records whose checksums hold; behind a wrong length the next one is searched by its checksum."""
    from crc32c import crc32c

    while header := stream.read(_HEADER_BYTES):
        if len(header) < _HEADER_BYTES:
            damage.is_cut = bool(header.strip(b"\0"))
            return
        if not _is_header(header):
            if not _seek_record(stream, header, damage):
                return
            continue
        (size,) = _LENGTH.unpack_from(header)
        damage.read_bytes += size
        data = stream.read(size + _CRC.size)
        if len(data) < size + _CRC.size:
            damage.is_cut = True
            return
        if _CRC.unpack_from(data, size)[0] == _masked(crc32c(data[:size])):
            yield data[:size]
        else:
            damage.bad += 1
            damage.lost_bytes += size


def _is_header(header: bytes) -> bool:
    """Whether a length is one that was written: its checksum holds, and a record may have it."""
    from crc32c import crc32c

    (size,), (crc,) = _LENGTH.unpack_from(header), _CRC.unpack_from(header, _LENGTH.size)
    return bool(crc == _masked(crc32c(header[: _LENGTH.size])) and size <= MAX_RECORD_BYTES)


def _seek_record(stream: BinaryIO, header: bytes, damage: _Damage) -> bool:
    """Go to the next record behind damage that begins with ``header``; whether there is one."""
    start = stream.tell() - len(header)
    window = header + stream.read(SEARCHED_BYTES)
    bytes_N = np.frombuffer(window, np.uint8)
    if not bytes_N.any():
        return False  # a file that was given its space before it was written ends in zeros
    lengths_N = bytes_N[: max(len(bytes_N) - _HEADER_BYTES + 1, 0)]
    # A length is below 2**32, so that its upper half is zeros, and it is not 0.
    is_zero_N = np.convolve(bytes_N == 0, np.ones(4, np.int8))[3 : 3 + len(bytes_N)] == 4
    is_length_N = is_zero_N[4 : 4 + len(lengths_N)] & ~is_zero_N[: len(lengths_N)]
    for at in np.flatnonzero(is_length_N).tolist():
        if at and _is_header(window[at : at + _HEADER_BYTES]):
            damage.bad += 1
            damage.lost_bytes += at
            damage.read_bytes += at
            stream.seek(start + at)
            return True
    damage.stopped_at = start
    return False


def _masked(crc: int) -> int:
    """A checksum as it is stored: turned and shifted, so that checksums of checksums tell something."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@cache
def _event_class() -> Any:
    return message_classes("firstfault.tensorboard", _MESSAGES)["Event"]
