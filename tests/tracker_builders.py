"""Builders of the files of experiment trackers, byte by byte."""

from __future__ import annotations

import math
import sqlite3
import struct
import sys
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from crc32c import crc32c

TIME_S = 1_764_470_000.0
Scalar = tuple[str, int, float]
"""(tag, step, value)."""


def varint(number: int) -> bytes:
    """An integer as protocol buffers write it; negative ones in two's complement of 64 bits."""
    number &= (1 << 64) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def bytes_field(number: int, data: bytes) -> bytes:
    """A field that holds bytes, text or a message."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def float_field(number: int, value: float) -> bytes:
    return varint(number << 3 | 5) + struct.pack("<f", value)


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def framed(data: bytes) -> bytes:
    """One record of an event file."""
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def simple(value: float) -> bytes:
    """A value as old writers write it."""
    return float_field(2, value)


def tensor(value: float) -> bytes:
    """A value as TensorFlow 2 writes it: a float32 tensor of no dimensions, its bytes in one piece."""
    return bytes_field(8, varint_field(1, 1) + bytes_field(2, b"") + bytes_field(4, struct.pack("<f", value)))


def event(step: int, values: Iterable[tuple[str, bytes]], time_s: float = TIME_S) -> bytes:
    """One record with a summary of (tag, value as a field)."""
    summary = b"".join(bytes_field(1, bytes_field(1, tag.encode()) + value) for tag, value in values)
    return framed(double_field(1, time_s) + varint_field(2, step) + bytes_field(5, summary))


def version(time_s: float = TIME_S) -> bytes:
    """The record that every event file begins with."""
    return framed(double_field(1, time_s) + bytes_field(3, b"brain.Event:2"))


def event_file(scalars: Iterable[Scalar], *, step_time_s: float = 1.0, at: float = TIME_S) -> bytes:
    """An event file with one record for each scalar, ``step_time_s`` apart."""
    records = [
        event(step, [(tag, simple(value))], at + count * step_time_s)
        for count, (tag, step, value) in enumerate(scalars)
    ]
    return version(at) + b"".join(records)


def write_events(
    folder: Path, scalars: Iterable[Scalar], *, at: int = int(TIME_S), host: str = "host"
) -> Path:
    """An event file with the usual name in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{at}.{host}.4242.0"
    path.write_bytes(event_file(scalars, at=float(at)))
    return path


def write_mlflow_run(folder: Path, metrics: dict[str, Sequence[tuple[int, str]]], name: str = "") -> Path:
    """The folder of an MLflow run: per metric (step, value as text)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "meta.yaml").write_text(f"artifact_uri: x\nrun_id: {folder.name}\nrun_name: {name}\n")
    for metric, lines in metrics.items():
        path = folder / "metrics" / metric
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = (f"{int(TIME_S * 1000) + step * 1000} {value} {step}\n" for step, value in lines)
        path.write_text("".join(rows))
    return folder


def wandb_item(key: str, value_json: str) -> bytes:
    """One value of a history row; a key with dots is written in parts."""
    parts = key.split(".")
    name = (
        bytes_field(1, key.encode())
        if len(parts) == 1
        else b"".join(bytes_field(2, p.encode()) for p in parts)
    )
    return bytes_field(1, name + bytes_field(16, value_json.encode()))


def wandb_history(step: int, row: dict[str, str]) -> bytes:
    """A record of one history row with its values as JSON."""
    values = {"_timestamp": str(TIME_S + step), **row}
    items = b"".join(wandb_item(key, value) for key, value in values.items())
    return varint_field(1, step) + bytes_field(2, items + bytes_field(2, varint_field(1, step)))


def wandb_run(name: str) -> bytes:
    """A record that names the run."""
    return bytes_field(17, bytes_field(1, b"abc123") + bytes_field(8, name.encode()))


def wandb_file(records: Iterable[bytes]) -> bytes:
    """The records in blocks of 32 KiB, cut into fragments where they do not fit."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for data in records:
        rest, is_first = data, True
        while is_first or rest:
            room = (1 << 15) - len(out) % (1 << 15)
            if room < 7:
                out += bytes(room)
                continue
            piece, rest = rest[: room - 7], rest[room - 7 :]
            kind = (1 if not rest else 2) if is_first else (4 if not rest else 3)
            body = bytes([kind]) + piece
            out += struct.pack("<IH", zlib.crc32(body), len(piece)) + body
            is_first = False
    return bytes(out)


def write_mlflow_database(path: Path, runs: dict[str, Sequence[tuple[str, int, float]]]) -> Path:
    """A database with runs by name, each with (metric, step, value), kept as MLflow keeps it."""
    with sqlite3.connect(path) as database:
        database.execute(
            "create table runs (run_uuid text, name text, start_time integer, lifecycle_stage text)"
        )
        database.execute(
            "create table metrics"
            " (key text, value real, timestamp integer, run_uuid text, step integer, is_nan boolean)"
        )
        for at, (name, metrics) in enumerate(runs.items()):
            run = f"{at:032x}"
            database.execute("insert into runs values (?, ?, ?, 'active')", (run, name, at))
            for key, step, value in metrics:
                kept = 0.0 if math.isnan(value) else max(min(value, sys.float_info.max), -sys.float_info.max)
                time_ms = int(TIME_S * 1000) + step * 1000
                row = (key, kept, time_ms, run, step, math.isnan(value))
                database.execute("insert into metrics values (?, ?, ?, ?, ?, ?)", row)
    database.close()
    return path
