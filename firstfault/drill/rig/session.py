"""A job on its way: where it stands, its attempts, its checkpoints, and what it says in their order.

Axes: none; rows of a state are ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...telemetry import Event, EventKind, Record
from .clock import EPOCH_S, RESTART_S, step_times
from .faults import Faults
from .links import Link, OneProcess
from .observing import Columns
from .opening import device, host, run_start
from .restoring import forget_moments
from .spec import Fault, Job, data_parallel
from .state import State
from .strategies import make_strategy
from .training import Restart

_LABELS_EVERY = 50
"""Iterations between reports of host and device: they rarely change."""
_FIRST_IN_A_LINE = ("loss", "local_grad_norm", "grad_norm", "lr")
"""The curves first: a person who reads the log sees them at once."""


class Session:
    """One job, iteration by iteration."""

    def __init__(self, job: Job, link: Link, fault: Fault | None) -> None:
        self.job = job
        self.iteration = 0
        """The next one to execute."""
        self._attempt = 0
        self._first = 0
        """First iteration of the attempt."""
        self._now_s = EPOCH_S
        self._restarts: list[Restart] = list(job.training.restarts)
        self._faults = Faults(job, link.ranks_here)
        self._faults.arm(fault)
        self._enter(job, link)
        self._saved: tuple[int, State] = (-1, self._strategy.state.clone())

    def arm(self, fault: Fault | None) -> None:
        """From now on this fault may act."""
        self._faults.arm(fault)

    def fork(self) -> Session:
        """Another session that stands where this one does and shares nothing that changes.

        No fault may have acted yet: what one has done to the job is copied, what it remembers is not.
        """
        other = Session(self._job_here, self._link, None)
        other.job = self.job
        other.iteration, other._attempt, other._first = self.iteration, self._attempt, self._first
        other._now_s = self._now_s
        other._restarts = list(self._restarts)
        other._saved = self._saved
        other._strategy.state.become(self._strategy.state)
        return other

    def start(self) -> Iterator[Record | Event]:
        """The first word."""
        yield from self._event(EventKind.RUN_START, 0, self._run_start())

    def advance(self) -> Iterator[Record | Event]:
        """One iteration, with a restart before it where one is due."""
        if self._restarts and self.iteration == self._restarts[0].iteration:
            yield from self._restart(self._restarts.pop(0))
        iteration = self.iteration
        yield from self._changes(iteration)
        columns = self._link.gather(self._strategy.iterate(iteration, self._attempt))
        yield from self._records(iteration, columns)
        self.iteration += 1
        if self.iteration % self.job.watch.checkpoint == 0:
            self._saved = (iteration, self._strategy.state.clone())
            saved: dict[str, object] = {"path": _path(iteration), "complete": True}
            yield from self._event(EventKind.CHECKPOINT, iteration, saved)

    def end(self, status: str) -> Iterator[Record | Event]:
        """The last word."""
        yield from self._event(EventKind.RUN_END, self.iteration - 1, {"status": status})

    def is_lost(self) -> bool:
        """Whether every rank's parameters are not finite, and no restart will bring others back."""
        return not self._restarts and self._strategy.state.is_lost()

    def _enter(self, job: Job, link: Link) -> None:
        """Begin an attempt: ``job`` has the world size that it has now."""
        self._job_here = job
        self._link = link
        self._is_writer = 0 in link.ranks_here
        self._strategy = make_strategy(job, link, self._faults)

    def _restart(self, restart: Restart) -> Iterator[Record | Event]:
        last, saved = self._saved
        self._faults.die(restart.iteration)
        if restart.ranks is not None and restart.ranks != self._job_here.layout.ranks:
            layout = data_parallel(restart.ranks)
            job, link = replace(self._job_here, layout=layout), OneProcess(restart.ranks)
            self._faults.move(job, link.ranks_here)
            self._enter(job, link)
        world = len(self._strategy.state.steps)
        if len(saved.steps) != world:  # the checkpoint is of another world size
            saved = saved.rows([row % len(saved.steps) for row in range(world)])
        self._attempt += 1
        self._strategy.restore(saved)
        if restart.is_spiking:
            forget_moments(self._strategy.state, list(range(len(saved.steps))))
        self._now_s += RESTART_S
        self.iteration = self._first = last + 1
        yield from self._event(EventKind.RUN_START, self.iteration, self._run_start())
        known: dict[str, object] = {"checkpoint": _path(last)} if last >= 0 else {}
        yield from self._event(EventKind.RESUME, self.iteration, known)

    def _changes(self, iteration: int) -> Iterator[Record | Event]:
        """What the job says of a change that it makes on purpose."""
        training, samples = self.job.training, self.job.model.samples * self._job_here.layout.ranks
        now = training.microbatches(iteration)
        if iteration and now != training.microbatches(iteration - 1):
            yield from self._event(EventKind.BATCH_SIZE, iteration, {"batch_size": now * samples})
        if training.data_switch == iteration:
            yield from self._event(EventKind.DATA_CHANGE, iteration, {"data": "mixture 2"})
        epoch = training.epoch_iterations
        if epoch and iteration and iteration % epoch == 0:
            yield from self._event(EventKind.DATA_CHANGE, iteration, {"epoch": iteration // epoch})

    def _records(self, iteration: int, columns: Columns) -> Iterator[Record]:
        ranks = self._job_here.layout.ranks
        steps_s = step_times(self.job, self._attempt, iteration, ranks)
        if self._is_writer and iteration % self.job.training.log_every == 0:
            is_labelled = iteration == self._first or iteration % _LABELS_EVERY == 0
            names = [*_FIRST_IN_A_LINE, *(name for name in columns if name not in _FIRST_IN_A_LINE)]
            for rank, step_s in enumerate(steps_s):
                metrics = {name: columns[name][rank] for name in names if name in columns}
                reported = {name: value for name, value in metrics.items() if value is not None}
                yield Record(
                    run=self.job.run,
                    attempt=self._attempt,
                    rank=rank,
                    iteration=iteration,
                    time=round(self._now_s + step_s, 3),
                    metrics=reported | {"step_time_s": step_s},
                    labels={"host": host(rank), "device": device(self.job, rank)} if is_labelled else {},
                )
        self._now_s += max(steps_s)

    def _run_start(self) -> dict[str, object]:
        fields = run_start(self._job_here) | self._strategy.run_start()
        if self._attempt:
            parent = {"run": self.job.run, "attempt": self._attempt - 1, "iteration": self._first - 1}
            fields["parent"] = parent
        return fields

    def _event(self, kind: EventKind, iteration: int, fields: dict[str, object]) -> Iterator[Event]:
        if self._is_writer:
            yield Event(
                kind=kind,
                run=self.job.run,
                rank=0,
                iteration=iteration,
                attempt=self._attempt,
                time=round(self._now_s, 3),
                fields=fields,
            )


def _path(iteration: int) -> str:
    return f"checkpoints/iter_{iteration:06d}"
