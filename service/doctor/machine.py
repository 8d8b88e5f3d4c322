"""This machine: what unpacks batches, the store, the disk below the data folder, and the clock."""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import ServiceError, StoreBusy, StoreFull
from ..store_config import DATABASE, StoreConfig
from .finding import Finding, fail, ok, skipped, warn

LEAST_FREE_BYTES = 256 << 20
"""Below this SQLite's log and a checkpoint may not fit any more."""
ROOM_BYTES = 2 << 30
"""Below this a day of telemetry over HTTP or of history may not fit."""
MOST_SKEW_S = 2.0
"""Times of two machines that differ by more are told of: records of ranks then show in the wrong order on a
page, while verdicts, which read no clock, stay the same."""
_SAMPLE = b"firstfault " * 100
_ADJTIMEX_BYTES = 512
"""More than the structure of any system has."""
_UNSYNCHRONIZED = 5
"""What adjtimex says of a clock that nobody corrects."""


def look_at_codecs(limit_bytes: int) -> Iterator[Finding]:
    """Whether batches of each compression can be unpacked, and never beyond the limit."""
    from ingest.errors import UnreadableInput
    from ingest.kafka_codecs import bound_codecs, bounded_decoders

    try:
        bound_codecs(limit_bytes)
    except (UnreadableInput, ImportError) as error:
        yield fail("codecs", str(error), "install the kafka-python that firstfault asks for")
        return
    decoders = bounded_decoders(limit_bytes)
    lacking = []
    for name, pack in _packers().items():
        try:
            works = decoders[f"{name}_decode"](pack(_SAMPLE)) == _SAMPLE
        except ImportError:
            works = False
        if not works:
            lacking.append(name)
    if lacking:
        told = f"{', '.join(lacking)} cannot be unpacked"
        yield fail("codecs", told, "install firstfault with all its dependencies: lz4, zstandard, pyarrow")
    else:
        yield ok("codecs", f"{', '.join(_packers())} are unpacked")


def _packers() -> dict[str, Callable[[bytes], bytes]]:
    def gzip(data: bytes) -> bytes:
        import gzip

        return gzip.compress(data)

    def lz4(data: bytes) -> bytes:
        import lz4.frame

        return bytes(lz4.frame.compress(data))

    def snappy(data: bytes) -> bytes:
        import pyarrow

        return bytes(pyarrow.Codec("snappy").compress(data, asbytes=True))

    def zstd(data: bytes) -> bytes:
        import zstandard

        return zstandard.compress(data)

    return {"gzip": gzip, "snappy": snappy, "lz4": lz4, "zstd": zstd}


def look_at_store(data: Path, config: StoreConfig) -> Iterator[Finding]:
    """Whether the store can be opened and written, and is of this release; nothing in it is changed."""
    from ..database import Database
    from ..migrations import NEWEST, schema_of

    if not config.url and not (data / DATABASE).exists():
        yield _place_of_store(data)
        return
    try:
        database = Database(data, config)
        try:
            with database.write() as db:
                found = schema_of(db)
        finally:
            database.close()
    except ServiceError as error:
        yield fail("store", str(error), _cure_of_store(error, config))
        return
    place = f"{database.place}, schema {found}"
    if found > NEWEST:
        yield fail("store", f"{place} is of a newer release, ours is {NEWEST}", "install that release again")
    elif found < NEWEST:
        yield warn("store", f"{place} is of an older release", f"the service will bring it to {NEWEST}")
    else:
        yield ok("store", f"{place} can be written")


def _place_of_store(data: Path) -> Finding:
    folder = _existing(data)
    if os.access(folder, os.W_OK | os.X_OK) and folder.is_dir():
        return ok("store", f"{data / DATABASE} is not there yet and can be made")
    cure = f"let this account write in {folder}, or give another --data"
    return fail("store", f"{data / DATABASE} cannot be made", cure)


def _cure_of_store(error: ServiceError, config: StoreConfig) -> str:
    if isinstance(error, StoreFull):
        return "make room on the disk, or raise store.max_megabytes"
    if config.url:
        return "correct store.url, FIRSTFAULT_STORE_PASSWORD, or the server's own rules"
    if isinstance(error, StoreBusy):
        return "end what holds it: a shell of SQLite, a copy being made"
    return "let this account write it, or give another --data; damaged: put back a copy"


def look_at_disk(data: Path) -> Iterator[Finding]:
    """Room below the data folder."""
    folder = _existing(data)
    room = shutil.disk_usage(folder)
    entries = os.statvfs(folder)
    told = f"{folder}: {_bytes(room.free)} free of {_bytes(room.total)}"
    cure = "make room, or give another --data"
    if room.free < LEAST_FREE_BYTES:
        yield fail("disk", told, cure)
    elif entries.f_files and entries.f_favail < 1000:
        yield fail("disk", f"{folder}: room for {entries.f_favail} more files", cure)
    elif room.free < ROOM_BYTES:
        yield warn("disk", told, cure)
    else:
        yield ok("disk", told)


def look_at_clock(config: StoreConfig) -> Iterator[Finding]:
    """Whether somebody corrects this clock, and what the server of the store says of it."""
    state = _clock_state()
    if state is None:
        yield skipped("clock", "this system does not say whether somebody corrects its clock")
    elif state == _UNSYNCHRONIZED:
        yield warn("clock", "nobody corrects the clock of this machine", "run chronyd or systemd-timesyncd")
    else:
        yield ok("clock", "is corrected")
    if config.url:
        yield from _beside_server(config)


def _beside_server(config: StoreConfig) -> Iterator[Finding]:
    from sqlalchemy import text

    from ..database import Database

    try:
        database = Database(Path(), config)
        try:
            with database.read() as db:
                before_s = time.time()
                there_s = float(db.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
                now_s = (before_s + time.time()) / 2
        finally:
            database.close()
    except ServiceError:
        return  # told of already, as the store
    skew_s = there_s - now_s
    told = f"{skew_s:+.1f} s at the server of the store"
    if abs(skew_s) > MOST_SKEW_S:
        yield warn("clock", told, "have both corrected from one source of time")
    else:
        yield ok("clock", told)


def _clock_state() -> int | None:
    """What the kernel says of its clock; None where it cannot be asked."""
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
    except (AttributeError, OSError):
        return None
    state = int(adjtimex(ctypes.create_string_buffer(_ADJTIMEX_BYTES)))  # all zero: only to be read
    return state if state >= 0 else None


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _bytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB"
