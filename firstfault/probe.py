"""What a trainer uses: three lines, and nothing that can hurt the training.

    probe = firstfault.Probe(run="llama-7b", sink="http://host:8080")
    probe.watch(model, optimizer)
    probe.step(loss)            # in the loop, after optimizer.step()

No method raises into the trainer or waits for anything: what goes wrong is counted, logged once and sent, so
that the verdict's coverage shows it. Where ``FIRSTFAULT=off`` is set, every method returns at once.

In a forked child (a worker that loads data) the probe says nothing by itself; what is logged there is sent.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from types import TracebackType
from typing import Any

from . import forks
from .emitters import Counts, Emitter, open_emitter
from .last_words import ExceptionHooks, SigtermHandler, ending, is_on_purpose, on_its_way
from .launch import Launch
from .probe_checks import checked_iteration, checked_launch, checked_model, checked_sink
from .probe_config import ProbeConfig
from .probe_edge import OFF, Guarded, harmless, log
from .probe_news import News
from .probe_values import captured_all
from .run_facts import labels_of, start_facts
from .telemetry import EventKind, Phase


class Probe(Guarded):
    """Sends what one rank of a training job measures.

    ``run``, ``rank``, ``world_size`` and ``attempt`` are what the launcher says (torchrun, Slurm, MPI) unless
    given; ``sink`` is ``file.jsonl``, ``http://host:8080`` or ``kafka://host:9092``, or in FIRSTFAULT_SINK.
    ``mesh`` is an ordered list of [axis, size], slowest first, or a mapping of ranks to coordinates.
    What else is ``declared`` becomes part of the ``run_start`` event, ``sharding="zero1"`` for instance.
    ``strict``, or FIRSTFAULT=strict: what cannot start raises, here and never later.

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
        sink: str | os.PathLike[str] | None = None,
        *,
        attempt: int | None = None,
        world_size: int | None = None,
        mesh: Sequence[Sequence[object]] | Mapping[str, Mapping[str, int]] | None = None,
        config: ProbeConfig | None = None,
        strict: bool = False,
        **declared: object,
    ) -> None:
        super().__init__()
        self.launch = Launch(run="run")
        self._labels: dict[str, str] = {}
        self._watch: Any = None
        self._next_iteration = 0
        self._stepped_s: float | None = None
        self._is_child = self._has_crashed = self._has_told_unmeasured = False
        self._handled = on_its_way()
        self._ended_by: BaseException | None = None  # what was on its way when the probe was closed
        self._hooks: ExceptionHooks | None = None
        self._sigterm: SigtermHandler | None = None
        self._news = News(self.launch, 1.0, lambda: (0, 0))
        told = os.environ.get("FIRSTFAULT", "").lower()
        if told in OFF:
            return  # nothing was started, and `is_on` is False
        try:
            self.launch = checked_launch(run=run, rank=rank, world_size=world_size, attempt=attempt)
            self.config = config or ProbeConfig()
            self._open(checked_sink(os.fspath(sink or os.environ.get("FIRSTFAULT_SINK", ""))))
            self._given = {"world_size": self.launch.world_size, "mesh": mesh, **declared}
            self._declare_start()
        except Exception as error:  # the outer edge of the probe: a job of a thousand ranks starts without it
            self.is_on = False
            if strict or told == "strict":
                raise
            self.note_error("start", error)
            log.error("firstfault: NO TELEMETRY of rank %d is sent (strict=True raises here)", self.rank)

    @property
    def rank(self) -> int:
        """The global rank of this process."""
        return self.launch.rank

    @property
    def world_size(self) -> int:
        """Ranks of the job; 1 where nobody says how many."""
        return self.launch.world_size or 1

    @property
    def iteration(self) -> int:
        """The iteration that is being trained: that of the next `step`."""
        return self._next_iteration

    @property
    def counts(self) -> Counts:
        """What became of all that was said so far."""
        return self._emitter.counts if hasattr(self, "_emitter") else Counts()

    @property
    def watching(self) -> Any:
        """What `watch` made, None before it."""
        return self._watch

    @harmless
    def log(self, /, *, iteration: int, microbatch: int | None = None, **metrics: Any) -> None:
        """Send values of ``iteration``: numbers, text, checksums under names that end in ``_checksum``."""
        at = checked_iteration(iteration)
        self._emitter.put(self._news.record(at, microbatch, self._captured(metrics)))

    @harmless
    def event(self, /, kind: str, *, iteration: int | None = None, **details: object) -> None:
        """Send an event: ``checkpoint`` (the last iteration in it), ``resume`` (the first to come), …"""
        at = self._news.place[0] if iteration is None else checked_iteration(iteration)
        if iteration is not None and kind == EventKind.RESUME.value:
            self._next_iteration = at
        self._emitter.put(self._news.event(EventKind(kind), at, details))

    @harmless
    def declare(self, /, **fields: object) -> None:
        """Say more of the run (layout, contracts of metrics, …); what was given to `Probe` stays as it is."""
        news = {name: value for name, value in fields.items() if self._given.get(name) is None}
        if self.rank:
            news.pop("mesh", None)  # one rank tells the layout: reading it a thousand times takes minutes
        if news:
            if "sharding" in news and not self.rank and self._given.get("mesh") is not None:
                news["mesh"] = self._given["mesh"]  # a layout is read from one event
            self._emitter.put(self._news.event(EventKind.RUN_START, 0, news))

    def at(self, phase: str, iteration: int) -> None:
        """Say where the trainer is (``forward``, ``reduce_in``, …); heartbeats tell it."""
        self._news.place = (iteration, phase)

    @harmless
    def watch(self, /, model: Any, optimizer: Any = None, **options: Any) -> None:
        """Measure ``model`` and ``optimizer`` from now on; ``options`` are those of `torch_metrics.Watch`.

        One model at a time: the one before is let go of. For several, watch a module that holds them all;
        several optimizers of a model are given as a list.
        """
        checked_model(model)
        if self._watch is not None:
            self._watch.detach()
            log.warning("firstfault: another model is watched from now on, and the one before no more")
        try:
            layouts = import_module("firstfault.integrations.layouts")
            self.declare(**layouts.declared_layout(model, optimizer, options.get("mesh")))
        except Exception as error:  # an unknown layout is learned from the values
            self.note_error("layout", error)
        options = {"mesh": self._given.get("mesh"), **options}
        watch_of = import_module("firstfault.torch_metrics").Watch
        self._watch = watch_of(self, model, optimizer, **{"iteration": self._next_iteration, **options})
        self._watch.add(import_module("firstfault.torch_metrics.forward_mark").ForwardMark())

    @harmless
    def step(self, /, loss: Any = None, *, iteration: int | None = None, **metrics: Any) -> None:
        """The end of an iteration, after ``optimizer.step()``; iterations are counted where none is given."""
        iteration = self._next_iteration if iteration is None else checked_iteration(iteration)
        self._next_iteration = iteration + 1
        self._news.place = (iteration, Phase.STATE.label)
        now_s = time.monotonic()
        if self._stepped_s is not None:
            metrics.setdefault("step_time_s", now_s - self._stepped_s)
        self._stepped_s = now_s
        if self._watch is not None:
            self._watch.at_step(iteration, loss, metrics)
            self._tell_unmeasured()
            return
        if loss is not None:
            metrics["loss"] = loss
        if metrics:
            self.log(iteration=iteration, **metrics)

    def close(self, timeout_s: float = 1.0) -> None:
        """Send what waits, for at most about ``timeout_s``, and end; also done when the interpreter exits."""
        if not self.is_on:
            return
        until_s = time.monotonic() + timeout_s
        self._ended_by = on_its_way(since=self._handled)
        self._end(timeout_s / 2)
        self.is_on = False
        try:
            self._emitter.close(max(until_s - time.monotonic(), timeout_s / 4), self._news.last)
        except Exception as error:  # the outer edge of the probe: the job ends as it would without it
            self.note_error("close", error)

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not is_on_purpose(error):
            self._say_last_words("exception", error, "")
        self.close()

    def become_child(self) -> None:
        """In a forked child: nothing is said by itself. Called by `forks`."""
        self._is_child = True
        self._watch = None

    def _open(self, sink: str) -> None:
        self._news = News(self.launch, self.config.heartbeat_s, self._losses)
        self._open_emitter = partial(open_emitter, sink, self.config.emitter, self.launch)
        self._emitter: Emitter = self._open_emitter(each_round=self._each_round)
        self.is_on = True
        if self.config.last_words:
            self._hooks = ExceptionHooks(self._say_last_words)
        if self.config.on_sigterm:
            self._sigterm = SigtermHandler.install(self._on_sigterm)
        forks.remember(self)
        forks.at_exit(self.close)

    def _declare_start(self) -> None:
        """Say who trains on what, with what."""
        known: dict[str, object] = {
            **start_facts(self.rank, self.launch.host),
            "heartbeat_s": self.config.heartbeat_s,
            **self._given,
        }
        self._labels = labels_of(known, self.rank)
        if self.rank:
            known["mesh"] = None  # see `declare`
        said = {name: value for name, value in known.items() if value is not None}
        self._emitter.put(self._news.event(EventKind.RUN_START, 0, said))

    def _tell_unmeasured(self) -> None:
        """What the watch left out, once, while the run's start may still be described."""
        if not self.rank and not self._has_told_unmeasured and self._watch.coverage:
            self._has_told_unmeasured = True
            self.declare(not_measured=dict(self._watch.coverage))

    def _captured(self, metrics: Mapping[str, object]) -> dict[str, Any]:
        """The values as plain ones; what cannot be read is left out and counted."""
        kept = captured_all(metrics, self.note_error)
        if self._labels:
            kept, self._labels = {**self._labels, **kept}, {}  # with the first record alone: a label stays
        return kept

    def _losses(self) -> tuple[int, int]:
        return self.counts.dropped, self.counts.errors + self.errors

    def _each_round(self) -> Any:
        if self._sigterm is not None:
            self._sigterm.look()
        return self._news.each_round() if hasattr(self, "_emitter") else ()

    @harmless
    def _end(self, /, timeout_s: float) -> None:
        atexit.unregister(self.close)
        if self._is_child:
            return
        if self._hooks is not None and self._ended_by is None:
            self._hooks.remove()
        if self._sigterm is not None:
            self._sigterm.remove()
        if self._watch is not None:
            watch, self._watch = self._watch, None
            watch.close(timeout_s)
        # of one rank alone: whoever is done before the others must not end their run
        is_whole = not self._has_crashed and self._ended_by is None and not self.rank
        self._news.end(max(self._next_iteration - 1, 0), is_whole=is_whole)

    def _say_last_words(self, kind: str, error: BaseException | None, where: str) -> None:
        """An event of what ends this process, or a thread of it."""
        is_late = not self.is_on and error is not None and error is self._ended_by and not self._has_crashed
        if self._is_child or not (self.is_on or is_late):
            return
        self._has_crashed = self._has_crashed or kind == "signal" or not where
        iteration, phase = self._news.place
        details = ending(kind, error, where, phase, self.rank)
        fields = {**details, "host": self.launch.host}
        emitter = self._open_emitter() if is_late else self._emitter
        emitter.put(self._news.event(EventKind.HARDWARE, iteration, fields))
        if is_late:
            emitter.close(1.0)

    def _on_sigterm(self) -> None:
        self._say_last_words("signal", None, "SIGTERM")
        self.close()
