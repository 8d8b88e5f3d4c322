"""The reduction itself: what came out of it must be the sum of what went in.

``grad_sketch_in`` and ``grad_sketch_out`` (also per bucket, ``grad_sketch_in/<bucket>``) are linear
checksums of the gradient before and behind its reduction. Axes: T positions, R ranks, N members of a group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from firstfault.telemetry import EventKind, Kind, contract_of
from ingest.blocks import IterationBlock, Ranks

from .base import State
from .evidence import Check, CheckState, Finding
from .groups import fingerprint, summing_groups
from .linear_evidence import Place, evidence_of
from .linear_fit import LEARNED_CHECKS, Given, Sums
from .linear_rates import LinearChecksumConfig
from .linear_rows import Reductions, agreed_at, columns_of, memberships, uneven
from .linear_stream import LinearStream

OUT, IN = "grad_sketch_out", "grad_sketch_in"
MAX_BUCKETS = 4096
"""Buckets watched: a large model has about 2000 layers; more are names with a number in them."""


@dataclass(slots=True, eq=False)
class _Bucket:
    """The reductions of one bucket: a stream per group of ranks."""

    streams: dict[int, LinearStream] = field(default_factory=dict)
    """By the least rank of the group."""
    generation: int = 0
    """Raised where a group without a layout changes: it learns anew."""
    known_N: Ranks = field(default_factory=lambda: np.empty(0, np.int32))
    """Without a layout: the ranks that reported so far, which must all be there."""
    complete: int = 0
    """Checks in which no member was missing."""
    shares: dict[int, list[int]] = field(default_factory=dict)
    """By the least rank of the group: its checks, and those to which ranks gave unlike numbers of tokens."""


class LinearChecksum:
    """Names the ranks whose result of a reduction is wrong, or the rank whose contribution is not in it.

    The factor (sum or mean), whether every rank gets the whole result or a shard, and the rounding noise
    are learned from the first 32 checks, or given by the ``run_start`` (`Given`). A check is void where a
    member is missing, a step was skipped, or a value is not finite (`Nonfinite` owns those). Where the
    same wrong result came out on all ranks and no single contribution explains it, all of the group are a
    tie set: the collective. A wrong sum that was there from the first check on has no relation to learn,
    and coverage says so.
    """

    name: ClassVar[str] = "linear_checksum"

    def __init__(self, config: LinearChecksumConfig | None = None) -> None:
        self._config = config or LinearChecksumConfig()
        self._buckets: dict[str, _Bucket] = {}
        self._layout_mark = ""
        self._epoch = 0
        self._has_begun = False
        self._given = Given()
        self._world_size = 0

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        mark = fingerprint(block.layout)
        if mark != self._layout_mark:
            self._buckets, self._layout_mark = {}, mark
            self._epoch += int(self._has_begun)
        self._has_begun = self._has_begun or len(block) > 0
        findings: list[Finding] = []
        buckets = sorted({_bucket_of(metric) for metric in block.numbers if _is_sketch(block, metric)})
        for start, stop in self._parts(block):
            for bucket in buckets:
                reductions = Reductions.of(block, IN + bucket, OUT + bucket)
                findings += self._feed(block, reductions, start, stop)
        return findings

    def finish(self) -> list[Finding]:
        """Nothing waits for what comes next."""
        return []

    def check(self) -> Check:
        """Ran when a reduction was held against the relation it had shown before."""
        checked = [
            metric
            for metric, bucket in self._buckets.items()
            if any(stream.checked for stream in bucket.streams.values())
        ]
        if checked:
            return Check(name=self.name, state=CheckState.RAN, metrics=tuple(sorted(checked)))
        return Check(
            name=self.name, state=CheckState.NOT_RUN, why=self._why(), metrics=tuple(sorted(self._buckets))
        )

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "buckets": {
                metric: {
                    "streams": [[least, one.snapshot()] for least, one in bucket.streams.items()],
                    "generation": bucket.generation,
                    "known": bucket.known_N.copy(),
                    "complete": bucket.complete,
                    "shares": [[least, *counts] for least, counts in bucket.shares.items()],
                }
                for metric, bucket in self._buckets.items()
            },
            "layout_mark": self._layout_mark,
            "epoch": self._epoch,
            "has_begun": self._has_begun,
            "reduction": self._given.reduction,
            "collective": None if self._given.collective is None else self._given.collective.value,
            "world_size": self._world_size,
        }

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._buckets = {
            metric: _Bucket(
                streams={least: LinearStream.restored(one, self._config) for least, one in held["streams"]},
                generation=held["generation"],
                known_N=np.array(held["known"], np.int32),
                complete=held["complete"],
                shares={least: list(counts) for least, *counts in held["shares"]},
            )
            for metric, held in state["buckets"].items()
        }
        self._layout_mark, self._epoch = state["layout_mark"], state["epoch"]
        self._has_begun, self._world_size = state["has_begun"], state["world_size"]
        given = {"grad_reduction": state["reduction"], "grad_collective": state["collective"]}
        self._given = Given.of(given)

    def _parts(self, block: IterationBlock) -> Iterator[tuple[int, int]]:
        """The rows between launches, each launch taken in before its part."""
        start = 0
        launches = [event for event in block.events if event.kind is EventKind.RUN_START]
        for event in sorted(launches, key=lambda one: one.iteration):
            stop = max(start, int(np.searchsorted(block.iteration_T, event.iteration)))
            if stop > start:
                yield start, stop
                start = stop
            self._given = Given.of(event.fields)
            size = event.fields.get("world_size")
            self._world_size = size if isinstance(size, int) and not isinstance(size, bool) else 0
        if len(block) > start:
            yield start, len(block)

    def _feed(
        self, block: IterationBlock, reductions: Reductions, start: int, stop: int
    ) -> Iterator[Finding]:
        if reductions.metric not in self._buckets and len(self._buckets) >= MAX_BUCKETS:
            return
        bucket = self._buckets.setdefault(reductions.metric, _Bucket())
        if block.layout is not None:
            for members_N in summing_groups(contract_of(reductions.metric), block.layout):
                if len(members_N) >= 2 and columns_of(members_N, block.ranks_R) is not None:
                    yield from self._run(block, reductions, bucket, members_N, (start, stop))
            return
        for first, last, members_N in memberships(bucket.known_N, block.ranks_R, reductions, start, stop):
            if len(members_N) > len(bucket.known_N):
                bucket.known_N, bucket.streams = members_N, {}
                bucket.generation += 1
            if len(members_N) >= max(2, self._world_size):
                yield from self._run(block, reductions, bucket, members_N, (first, last))

    def _run(
        self,
        block: IterationBlock,
        reductions: Reductions,
        bucket: _Bucket,
        members_N: Ranks,
        rows: tuple[int, int],
    ) -> Iterator[Finding]:
        """Feed the checks of one group that are complete in a range of rows."""
        least = int(members_N[0])
        if least not in bucket.streams:
            bucket.streams[least] = LinearStream(members_N, config=self._config)
        stream = bucket.streams[least]
        group = f"{self._epoch}:{bucket.generation}:{least}"
        place = Place(self.name, block.attempt, reductions.metric, group)
        is_uneven_T = uneven(block, members_N)
        for t, in_N, out_N in reductions.complete(members_N, *rows):
            bucket.complete += 1
            if _is_void(bucket.shares.setdefault(least, [0, 0]), bool(is_uneven_T[t])):
                continue
            sums = Sums.of(
                int(block.iteration_T[t]),
                in_N,
                out_N,
                norm=agreed_at(block, "grad_norm", t, members_N),
                loss_scale=agreed_at(block, "loss_scale", t, members_N),
            )
            for episode in stream.feed(sums, int(block.microbatch_T[t]), in_N, out_N, self._given):
                yield evidence_of(place, stream, episode)

    def _why(self) -> str:
        if not self._buckets:
            return f"no {IN} and {OUT} were reported"
        streams = [one for bucket in self._buckets.values() for one in bucket.streams.values()]
        if any(one.is_unfit for one in streams):
            return "what comes out is no multiple of the sum of what goes in, from the start"
        if any(bucket.complete for bucket in self._buckets.values()):
            return f"fewer than {LEARNED_CHECKS + 1} reductions were reported by all ranks of a group"
        return f"no reduction was reported by all ranks of a group, both {IN} and {OUT}"


def _is_void(shares: list[int], is_uneven: bool) -> bool:
    """Whether ranks had shares of unequal size, which is rare here: averages by the token weigh them so."""
    shares[0] += 1
    shares[1] += int(is_uneven)
    return is_uneven and 2 * shares[1] <= shares[0]


def _is_sketch(block: IterationBlock, metric: str) -> bool:
    base = metric.partition("/")[0]
    return base in (IN, OUT) and block.contracts.of(metric).kind is Kind.SKETCH


def _bucket_of(metric: str) -> str:
    """The slash and what comes after it: ``/3`` of ``grad_sketch_in/3``, nothing without a bucket."""
    _, slash, bucket = metric.partition("/")
    return slash + bucket
