"""The job: replicas, the reduction, attempts, and the lines of the log in the order they are written.

The clock is synthetic (a fixed start and a seeded pace), so that the same command writes the same bytes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import torch

from ..telemetry import Event, EventKind, Record
from .cluster import Cluster
from .corpus import Corpus
from .heartbeats import beats, waiting
from .plans import Plan
from .replica import Metrics, Replica, Snapshot
from .scenarios import FaultKind
from .training import Cadence

_EPOCH_S = 1_764_500_000.0
"""Start of every drill's clock: an ordinary date, the same for all."""
_PACE_S = 0.35
"""Usual duration of an iteration, that of a small job; each rank deviates by a few percent."""
_RESTART_S = 240.0
"""Time a launcher takes to notice a dead job and to start it again."""
RANKS_PER_HOST = 4
_SKETCHES = ("grad_sketch_in", "grad_sketch_out")
_LABELS_EVERY = 50
"""Iterations between reports of host and device: they rarely change."""


def run_job(plan: Plan, cluster: Cluster) -> Iterator[Record | Event]:
    """Train, and yield the records and events of all ranks (on the first process), by iteration.

    In the crash scenario the first attempt ends without a word, and a second one follows from its
    last checkpoint; a job that hangs never ends.
    """
    settle_torch()
    corpus = Corpus(plan.seed)
    job = _Job(plan, cluster, [Replica(plan, rank, corpus) for rank in cluster.ranks_here])
    if plan.fault is FaultKind.CRASH and plan.fault_iteration is not None:
        yield from job.attempt(0, 0, plan.fault_iteration)
        first = job.resume([Replica(plan, rank, corpus) for rank in cluster.ranks_here])
        yield from job.attempt(1, first, plan.stop)
    else:
        yield from job.attempt(0, 0, plan.stop)
    if plan.fault is FaultKind.HANG:
        yield from job.hang()
    else:
        yield from job.end()


def settle_torch() -> None:
    """One thread and deterministic kernels: the same seed gives the same bits."""
    torch.set_num_threads(1)
    # what use_deterministic_algorithms sets, without the compiler that it imports: a second of every start
    torch.set_deterministic_debug_mode("error")


class _Job:
    """Replicas that train together, and the clock they share."""

    def __init__(self, plan: Plan, cluster: Cluster, replicas: list[Replica]) -> None:
        self._plan = plan
        self._cluster = cluster
        self._replicas = replicas
        self._saved: list[Snapshot] = [replica.save(-1) for replica in replicas]
        self._clock = _Clock(plan)
        self._number = 0
        self._is_writer = 0 in cluster.ranks_here

    def attempt(self, number: int, first: int, stop: int) -> Iterator[Record | Event]:
        """Iterations [first, stop) as one attempt."""
        self._number = number
        yield from self._event(EventKind.RUN_START, first, _run_start(self._plan, number, first))
        if number:
            yield from self._event(EventKind.RESUME, first, {"checkpoint": _path(first - 1)} if first else {})
        for iteration in range(first, stop):
            if self._is_lr_changed(iteration):
                lr = float(f"{self._replicas[0].lr(iteration):.7g}")
                yield from self._event(EventKind.LR_CHANGE, iteration, {"lr": lr})
            yield from self._iteration(iteration, iteration == first)
            cadence = self._plan.scenario.cadence
            if self._is_writer and cadence.heartbeat and iteration % cadence.heartbeat == 0:
                yield from beats(self._plan, number, iteration, self._clock.now_s)
            if (iteration + 1) % cadence.checkpoint == 0:
                self._saved = [replica.save(iteration) for replica in self._replicas]
                saved: dict[str, object] = {"path": _path(iteration), "complete": True}
                yield from self._event(EventKind.CHECKPOINT, iteration, saved)

    def resume(self, replicas: list[Replica]) -> int:
        """Go on with new replicas from the last checkpoint: the first iteration to execute."""
        for replica, snapshot in zip(replicas, self._saved, strict=True):
            replica.load(snapshot)
        self._replicas = replicas
        self._clock.wait(_RESTART_S)
        return self._saved[0].iteration + 1

    def hang(self) -> Iterator[Record | Event]:
        """One rank does not come to the reduction; the log ends while the others wait."""
        if self._is_writer:
            yield from waiting(self._plan, self._number, self._plan.stop, self._clock.now_s)

    def end(self) -> Iterator[Record | Event]:
        """The job's last word."""
        status = "completed" if self._plan.stop == self._plan.iterations else "stopped"
        yield from self._event(EventKind.RUN_END, self._plan.stop - 1, {"status": status})

    def _is_lr_changed(self, iteration: int) -> bool:
        """Whether the learning rate leaves its schedule here, or comes back to it."""
        is_high, was_high = (self._plan.is_struck(at) for at in (iteration, iteration - 1))
        return self._plan.fault is FaultKind.HIGH_LR and iteration > 0 and is_high != was_high

    def _iteration(self, iteration: int, is_first: bool) -> Iterator[Record | Event]:
        halves = [replica.compute(iteration) for replica in self._replicas]
        reduced = self._cluster.reduce([grad_P for grad_P, _ in halves])
        metrics_here = [
            metrics | replica.update(iteration, grad_P)
            for replica, grad_P, (_, metrics) in zip(self._replicas, reduced, halves, strict=True)
        ]
        times = self._clock.tick(iteration, self._number)
        for rank, metrics in enumerate(self._cluster.gather(metrics_here)):
            time, step_time_s = times[rank]
            labels: dict[str, str] = {}
            if is_first or iteration % _LABELS_EVERY == 0:
                labels = {"host": _host(rank), "device": _device(self._plan, rank)}
            yield Record(
                run=self._plan.run,
                attempt=self._number,
                rank=rank,
                iteration=iteration,
                time=time,
                metrics=_ordered(metrics) | {"step_time_s": step_time_s},
                labels=labels,
            )

    def _event(self, kind: EventKind, iteration: int, fields: dict[str, object]) -> Iterator[Event]:
        if self._is_writer:
            time = round(self._clock.now_s, 3)
            run, attempt = self._plan.run, self._number
            yield Event(
                kind=kind, run=run, rank=0, iteration=iteration, attempt=attempt, time=time, fields=fields
            )


class _Clock:
    """A synthetic clock: a pace for the job and a little noise for each rank."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.now_s = _EPOCH_S

    def wait(self, duration_s: float) -> None:
        """Let time pass between attempts."""
        self.now_s += duration_s

    def tick(self, iteration: int, attempt: int) -> list[tuple[float, float]]:
        """(time, step_time_s) of each rank; the iteration lasts as long as its slowest rank."""
        rng = random.Random(f"{self._plan.seed}/{attempt}/{iteration}")
        steps = [
            _PACE_S * rng.lognormvariate(0.0, 0.03) * self._slowness(iteration, rank)
            for rank in range(self._plan.ranks)
        ]
        times = [(round(self.now_s + step, 3), round(step, 4)) for step in steps]
        self.now_s += max(steps)
        return times

    def _slowness(self, iteration: int, rank: int) -> float:
        """By how much longer a rank takes than it would; a faulty one does not wait for the others' clock."""
        is_slow = self._plan.fault is FaultKind.SLOW_RANK and self._plan.is_struck(iteration, rank)
        return self._plan.scenario.magnitude if is_slow else 1.0


_FIRST_IN_A_LINE = ("loss", "local_grad_norm", "grad_norm", "lr")


def _ordered(metrics: Metrics) -> Metrics:
    """The curves first: a person who reads the log sees them at once."""
    return {name: metrics[name] for name in _FIRST_IN_A_LINE} | metrics


def _run_start(plan: Plan, attempt: int, first: int) -> dict[str, object]:
    training = plan.scenario.training
    scaler = None
    if training.is_fp16:
        scaler = {
            "kind": "dynamic",
            "initial_scale": training.initial_scale,
            "growth_interval": training.scale_growth_iterations,
        }
    fields: dict[str, object] = {
        "world_size": plan.ranks,
        "mesh": [["dp", plan.ranks]],
        "sharding": "none",
        "hosts": [_host(rank) for rank in range(plan.ranks)],
        "device_models": ["virtual-cpu"] * plan.ranks,
        "device_ids": [_device(plan, rank) for rank in range(plan.ranks)],
        "precision": "fp16" if training.is_fp16 else "fp32",
        "scaler": scaler,
        "microbatches": 1,
        "loss_convention": "local mean over tokens, nats",
        "norm_convention": "L2, unscaled, before clipping",
        "clip_norm": training.clip_norm,
        "cadence": _cadence(plan.scenario.cadence),
        "deterministic": True,
        "software": f"torch {torch.__version__.partition('+')[0]}",
        "checkpoint_directory": "checkpoints",
    }
    if attempt:
        fields["parent"] = {"run": plan.run, "attempt": attempt - 1, "iteration": first - 1}
    return {name: value for name, value in fields.items() if value is not None}


def _cadence(cadence: Cadence) -> dict[str, int]:
    """Every how many iterations a metric is reported that is not in every record."""
    every = {
        "param_checksum": cadence.param_checksum,
        "optim_checksum": cadence.optim_checksum,
        "canary_checksum": cadence.canary,
        "canary_loss": cadence.canary,
        "repeat_checksum/canary": cadence.canary,
        **dict.fromkeys(_SKETCHES, cadence.grad_sketch),
        "local_grad_norm/bucket0": cadence.bucket_norm,
    }
    return {name: iterations for name, iterations in every.items() if iterations}


def _path(iteration: int) -> str:
    return f"checkpoints/iter_{iteration:06d}"


def _host(rank: int) -> str:
    return f"node-{rank // RANKS_PER_HOST:02d}"


def _device(plan: Plan, rank: int) -> str:
    return f"dev-{random.Random(f'{plan.seed}/device/{rank}').getrandbits(32):08x}"
