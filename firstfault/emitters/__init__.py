"""Where telemetry goes: a file, HTTP or Kafka, from one thread that training never waits for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path

from ..launch import Launch
from ..telemetry import Event, Record
from .config import EmitterConfig
from .counts import Counts
from .emitter import Emitter
from .file_sink import FileSink, path_of_rank
from .relay import RelayServer, RelaySink, socket_path
from .sink import Sink, bare
from .spill import Spill

__all__ = ["Counts", "Emitter", "EmitterConfig", "open_emitter"]


def open_emitter(
    sink: str,
    config: EmitterConfig,
    launch: Launch,
    *,
    each_round: Callable[[], Iterable[Record | Event]] = tuple,
) -> Emitter:
    """An emitter to ``sink``: ``file.jsonl``, ``http(s)://host:port`` or ``kafka://host:port/topic``.

    Raises:
        ValueError: an address that is none, or one that needs what is not installed.
    """
    open_sink = _sink_opener(sink, config, launch)
    meeting = socket_path(launch, sink) if _shares(sink, config, launch) else None
    if meeting is not None and launch.local_rank:
        open_sink = _relayed(open_sink, meeting)

    def open_spill() -> Spill | None:
        if _is_file(sink) or not config.max_spill_bytes:
            return None  # a file on a full disk does not wait on the same disk
        owner = f"{launch.run}\n{launch.rank}"
        return Spill(config.spill_dir, sink, owner, config.max_spill_bytes, adopts=launch.local_rank == 0)

    emitter = Emitter(open_sink, config, open_spill=open_spill, each_round=each_round)
    if meeting is not None and not launch.local_rank:
        with contextlib.suppress(OSError):  # then the others send for themselves
            emitter.server = RelayServer(meeting, emitter.relay)
    return emitter


def _shares(sink: str, config: EmitterConfig, launch: Launch) -> bool:
    """Whether there are others on this host to send for."""
    is_alone = launch.local_size == 1 or (launch.world_size or 1) <= 1
    return config.relay and not is_alone and not _is_file(sink)


def _relayed(open_sink: Callable[[], Sink], meeting: Path) -> Callable[[], Sink]:
    return lambda: RelaySink(meeting, open_sink())


def _sink_opener(sink: str, config: EmitterConfig, launch: Launch) -> Callable[[], Sink]:
    if _is_file(sink):
        path = path_of_rank(Path(sink.removeprefix("file://")), launch.rank, launch.world_size)
        return lambda: FileSink(path)
    if sink.startswith("kafka://"):
        from .kafka_sink import KafkaSink

        return lambda: KafkaSink(sink, config)
    if sink.startswith(("http://", "https://")):
        from .http_sink import HttpSink

        return lambda: HttpSink(sink, config)
    raise ValueError(f"sink must be a file, http://…, https://… or kafka://…, got {bare(sink)!r}")


def _is_file(sink: str) -> bool:
    return "://" not in sink or sink.startswith("file://")
