"""What a trainer uses: three lines, and nothing that can hurt the training.

    probe = firstfault.Probe(run="llama-7b", sink="http://host:8080")
    probe.watch(model, optimizer)
    probe.step(loss)            # in the loop, after optimizer.step()

No method raises into the trainer or waits for anything: what goes wrong is counted, logged once and sent, so
that the verdict's coverage shows it. Where ``FIRSTFAULT=off`` is set, every method returns at once.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

from .emitters import Emitter, open_emitter
from .launch import Launch, launch_from
from .probe_config import ProbeConfig
from .probe_values import captured
from .telemetry import WHOLE_ITERATION, Event, EventKind, Phase, Record

log = logging.getLogger("firstfault.probe")

OFF = frozenset({"off", "0", "false", "no"})
_MAX_TOLD = 20
"""Different failures that are logged: after that many a further one helps nobody."""
P = ParamSpec("P")
R = TypeVar("R")


def _harmless(method: Callable[Concatenate[Probe, P], R]) -> Callable[Concatenate[Probe, P], R | None]:
    """``method`` so that nothing it raises reaches the trainer; nothing at all where the probe is off."""

    @functools.wraps(method)
    def run(self: Probe, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if not self.is_on:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # the outer edge of the probe: training goes on
            self._failed(method.__name__, error)
            return None

    return run


class Probe:
    """Sends what one rank of a training job measures.

    ``run``, ``rank``, ``world_size`` and ``attempt`` are what the launcher says (torchrun, Slurm, MPI) unless
    given; ``sink`` is ``file.jsonl``, ``http://host:8080`` or ``kafka://host:9092``, or in FIRSTFAULT_SINK.
    ``mesh`` is an ordered list of [axis, size], slowest first, or a mapping of ranks to coordinates.
    What else is ``declared`` becomes part of the ``run_start`` event, ``sharding="zero1"`` for instance.

    >>> import tempfile, pathlib
    >>> log = pathlib.Path(tempfile.mkdtemp()) / "run.jsonl"
    >>> with Probe(run="r", rank=0, sink=str(log)) as probe:
    ...     probe.log(iteration=0, loss=float("nan"))
    >>> '"loss":"NaN"' in log.read_text()
    True
    """

    def __init__(
        self,
        run: str | None = None,
        rank: int | None = None,
        sink: str | None = None,
        *,
        attempt: int | None = None,
        world_size: int | None = None,
        mesh: Sequence[Sequence[object]] | Mapping[str, Mapping[str, int]] | None = None,
        config: ProbeConfig | None = None,
        **declared: object,
    ) -> None:
        self.is_on = False
        self.errors = 0
        """Failures inside the probe so far."""
        self._place = (0, Phase.GATHER.label)
        self._told: set[str] = set()
        self._watch: Any = None
        self._next_iteration = 0
        self._stepped_s: float | None = None
        self._beat_s = 0.0
        self._owner = os.getpid()
        if os.environ.get("FIRSTFAULT", "").lower() in OFF:
            return
        try:
            self.launch = _launch(run=run, rank=rank, world_size=world_size, attempt=attempt)
            self.config = config or ProbeConfig()
            self._open(sink or os.environ.get("FIRSTFAULT_SINK", ""))
            self._declare_start(mesh, declared)
        except Exception as error:  # the outer edge of the probe: a job of a thousand ranks starts without it
            self.is_on = False
            self._failed("start", error)

    @_harmless
    def log(self, /, *, iteration: int, microbatch: int | None = None, **metrics: Any) -> None:
        """Send values of ``iteration``: numbers, text, checksums under names that end in ``_checksum``."""
        kept = self._captured(metrics)
        self._emitter.put(
            Record(
                run=self.launch.run,
                rank=self.launch.rank,
                iteration=iteration,
                attempt=self.launch.attempt,
                microbatch=WHOLE_ITERATION if microbatch is None else microbatch,
                time=time.time(),
                metrics=kept,
            )
        )

    @_harmless
    def event(self, /, kind: str, *, iteration: int | None = None, **details: object) -> None:
        """Send an event: ``checkpoint``, ``resume``, ``data_change`` and what else the wire knows."""
        if iteration is None:
            iteration = self._place[0]
        elif kind == EventKind.RESUME.value:
            self._next_iteration = iteration
        self._put_event(EventKind(kind), iteration, details)

    def at(self, phase: str, iteration: int) -> None:
        """Say where the trainer is (``forward``, ``reduce_in``, …); heartbeats tell it."""
        self._place = (iteration, phase)

    @_harmless
    def watch(self, /, model: Any, optimizer: Any = None, **options: Any) -> None:
        """Measure ``model`` and ``optimizer`` from now on; ``options`` are those of `torch_metrics.Watch`."""
        from importlib import import_module

        if self._watch is not None:
            self._watch.detach()
        watch_of = import_module("firstfault.torch_metrics").Watch
        self._watch = watch_of(self, model, optimizer, **options)

    @_harmless
    def step(self, /, loss: Any = None, *, iteration: int | None = None, **metrics: Any) -> None:
        """The end of an iteration, after ``optimizer.step()``; iterations are counted where none is given."""
        iteration = self._next_iteration if iteration is None else iteration
        self._next_iteration = iteration + 1
        self._place = (iteration, Phase.STATE.label)
        now_s = time.monotonic()
        if self._stepped_s is not None:
            metrics.setdefault("step_time_s", now_s - self._stepped_s)
        self._stepped_s = now_s
        if self._watch is not None:
            self._watch.at_step(iteration, loss)
        elif loss is not None:
            metrics["loss"] = loss
        if metrics:
            self.log(iteration=iteration, **metrics)

    def close(self, timeout_s: float = 1.0) -> None:
        """Send what waits, for at most about ``timeout_s``, and end; also done when the interpreter exits."""
        if not self.is_on or os.getpid() != self._owner:
            return
        self._end()
        self.is_on = False
        try:
            self._emitter.close(timeout_s)
        except Exception as error:  # the outer edge of the probe: the job ends as it would without it
            self._failed("close", error)
        atexit.unregister(self.close)

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self, sink: str) -> None:
        if not sink:
            raise ValueError("sink must be a file, http://… or kafka://…, or FIRSTFAULT_SINK must say it")
        self._emitter: Emitter = open_emitter(
            sink, self.config.emitter, self.launch, each_round=self._said_by_itself
        )
        self.is_on = True
        atexit.register(self.close)

    def _declare_start(self, mesh: object, declared: Mapping[str, object]) -> None:
        fields = {"world_size": self.launch.world_size, "mesh": mesh, **declared}
        known = {name: value for name, value in fields.items() if value is not None}
        self._put_event(EventKind.RUN_START, 0, {**known, "hosts": {str(self.launch.rank): self.launch.host}})

    def _captured(self, metrics: Mapping[str, object]) -> dict[str, Any]:
        """The values as plain ones; what cannot be read is left out and counted."""
        kept = {}
        for name, value in metrics.items():
            try:
                kept[name] = captured(value)
            except Exception as error:  # the value is the user's object, whose methods may raise anything
                self._failed(f"value {name!r:.80}", error)
        return kept

    @_harmless
    def _end(self, /) -> None:
        if self._watch is not None:
            self._watch.detach()
        self._put_event(EventKind.RUN_END, max(self._next_iteration - 1, 0), {})

    def _put_event(self, kind: EventKind, iteration: int, details: Mapping[str, object]) -> None:
        self._emitter.put(
            Event(
                kind=kind,
                run=self.launch.run,
                rank=self.launch.rank,
                iteration=iteration,
                attempt=self.launch.attempt,
                time=time.time(),
                fields=details,
            )
        )

    def _said_by_itself(self) -> Iterator[Record | Event]:
        """Heartbeats; called on the sending thread."""
        now_s = time.monotonic()
        if now_s - self._beat_s >= self.config.heartbeat_s:
            self._beat_s = now_s
            iteration, phase = self._place
            yield Event(
                kind=EventKind.HEARTBEAT,
                run=self.launch.run,
                rank=self.launch.rank,
                iteration=iteration,
                attempt=self.launch.attempt,
                time=time.time(),
                fields={"phase": phase},
            )

    def _failed(self, where: str, error: Exception) -> None:
        """Count a failure and log it, each once."""
        self.errors += 1
        told = f"{where}: {type(error).__name__}: {error}"[:500]
        if told not in self._told and len(self._told) < _MAX_TOLD:
            self._told.add(told)
            log.warning("the probe failed in %s", told)


def _launch(**given: Any) -> Launch:
    """What the launcher says, less what is given."""
    return replace(launch_from(os.environ), **{name: it for name, it in given.items() if it is not None})
