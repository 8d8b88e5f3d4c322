"""Who can have been the first with a non-finite value: what an oracle concludes from the same telemetry.

Points inside an iteration are nodes, one set for each rank; an edge surely passes a non-finite value on
(``MUST``) or may (routing, shards, clipping, skipped steps). What is seen clean clears everything that would
surely have made it bad; a rank is a suspect if something of it that is not cleared reaches all that is bad.
Written apart from the detectors: it is what they are held against. Axes: R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np

from .recording import Flags, Recording

Node = tuple[int, int]
"""A rank, as its column, and a point inside the iteration."""
MUST, MAY = True, False


class Point(IntEnum):
    """Points inside an iteration, in program order on one rank."""

    PARAM = 0
    """The parameters as the forward pass reads them."""
    DATA = 1
    SEND = 2
    """What it hands to its tensor, context or expert peers, before the exchange."""
    ACT = 3
    HANDOVER = 4
    """The activation that the next pipeline stage gets."""
    LOGITS = 5
    LOSS = 6
    BACKWARD = 7
    SERVED = 8
    """What it computes in its backward for the tokens of others and hands back: nobody looks at it."""
    REDUCE_IN = 9
    EXPERT_IN = 10
    """The gradient of its expert, out of what others sent it."""
    COUNTED = 11
    """Both of them together."""
    CONTRIBUTION = 12
    """What reaches the reduction: nobody looks at it."""
    REDUCE_OUT = 13
    NORM = 14
    STATE = 15


_POINTS = {
    "nonfinite_input": Point.DATA,
    "nonfinite_act": Point.ACT,
    "nonfinite_logits": Point.LOGITS,
    "nonfinite_loss": Point.LOSS,
    "loss": Point.LOSS,
    "act_grad_norm": Point.BACKWARD,
    "local_grad_norm": Point.REDUCE_IN,
    "grad_absmax": Point.REDUCE_IN,
    "local_grad_norm/expert": Point.EXPERT_IN,
    "grad_absmax/expert": Point.EXPERT_IN,
    "nonfinite_grad": Point.COUNTED,
    "nonfinite_reduced": Point.REDUCE_OUT,
    "grad_norm": Point.NORM,
    "nonfinite_param": Point.STATE,
    "nonfinite_send": Point.SEND,
    "nonfinite_send/pp": Point.HANDOVER,
}
"""The point that a metric looks at; of messages those of the forward pass."""
_EXCHANGING = {"tp", "cp", "ep"}
_REDUCING = {"dp", "cp", "ep"}
_STAGES = "pp"


def nonfinite_flags(run: Recording, metric: str) -> Flags:
    """Where a metric reports a non-finite value, by a count or by being one."""
    values_TR, present_TR = run.numbers[metric], run.present[metric]
    is_bad_TR = values_TR > 0 if metric.startswith("nonfinite_") else ~np.isfinite(values_TR)
    return np.asarray(is_bad_TR & present_TR)


def watched(run: Recording) -> list[str]:
    """The metrics of a recording that can say non-finite, sorted."""
    return sorted(name for name in run.numbers if name.partition("/")[0] in _POINTS)


def suspects(run: Recording, position: int) -> tuple[int, ...]:
    """The ranks that can have caused the non-finite values of one position of one attempt, ascending.

    Where nothing explains them, the ranks that are bad at the earliest point.
    """
    graph = _Graph.of(run)
    bad: set[Node] = set()
    clean: set[Node] = set()
    for metric in watched(run):
        point = _POINTS.get(metric, _POINTS[metric.partition("/")[0]])
        for column in np.flatnonzero(run.present[metric][position]).tolist():
            is_bad = nonfinite_flags(run, metric)[position, column]
            (bad if is_bad else clean).add((column, int(point)))
    if not bad:
        return ()
    cleared = graph.before(clean - bad)  # of several metrics of one point, the one that says bad is right
    found = [column for column in graph.columns if graph.explains(column, bad, cleared)]
    if not found:
        earliest = min(point for _, point in bad)
        found = sorted(column for column, point in bad if point == earliest)
    return tuple(sorted(int(run.ranks_R[column]) for column in found))


@dataclass(slots=True)
class _Graph:
    """One iteration of a job on its mesh."""

    places: list[dict[str, int]]
    """Mesh coordinates of each column; plain data parallel without a mesh."""
    sharding: str
    must: dict[Node, set[Node]] = field(default_factory=dict)
    every: dict[Node, set[Node]] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Recording) -> _Graph:
        places = [{"dp": column} for column in range(len(run.ranks_R))]
        layout = run.layout
        if layout is not None and all(rank in layout.coordinates for rank in run.ranks_R.tolist()):
            known = (layout.coordinates[rank] for rank in run.ranks_R.tolist())
            places = [dict(zip(layout.axes, place, strict=True)) for place in known]
        graph = cls(places, layout.sharding if layout is not None else "none")
        for source, target, is_sure in graph._edges():
            graph.every.setdefault(source, set()).add(target)
            if is_sure:
                graph.must.setdefault(source, set()).add(target)
        return graph

    @property
    def columns(self) -> range:
        return range(len(self.places))

    def before(self, clean: set[Node]) -> set[Node]:
        """All that cannot have been bad, since something clean surely would be."""
        back: dict[Node, set[Node]] = {}
        for source, targets in self.must.items():
            for target in targets:
                back.setdefault(target, set()).add(source)
        return _closure(clean, back, set())

    def explains(self, column: int, bad: set[Node], cleared: set[Node]) -> bool:
        """Whether something on this rank can have made all that is bad."""
        own = {(column, int(point)) for point in Point} - cleared
        return bad <= _closure(own, self.every, cleared)

    def _last_stage(self) -> int:
        return max(place.get(_STAGES, 0) for place in self.places)

    def _edges(self) -> Iterator[tuple[Node, Node, bool]]:
        for one in self.columns:
            for source, target, is_sure in self._own(one):
                yield (one, int(source)), (one, int(target)), is_sure
            for other in self.columns:
                if other != one:
                    for source, target, is_sure in self._across(one, other):
                        yield (one, int(source)), (other, int(target)), is_sure

    def _own(self, column: int) -> Iterator[tuple[Point, Point, bool]]:
        """On one rank; where state is sharded, it gets back only a part of what it gave."""
        yield from ((point, Point.ACT, MUST) for point in (Point.PARAM, Point.DATA, Point.SEND))
        yield (Point.ACT, Point.SEND, MAY)  # of a later layer
        if self.places[column].get(_STAGES, 0) == self._last_stage():
            yield from ((Point.ACT, Point.LOGITS, MUST), (Point.LOGITS, Point.LOSS, MUST))
            yield from ((Point.DATA, Point.LOSS, MAY), (Point.LOSS, Point.BACKWARD, MUST))
        else:
            yield (Point.ACT, Point.HANDOVER, MUST)
        yield from ((point, Point.REDUCE_IN, MUST) for point in (Point.ACT, Point.BACKWARD))
        yield from ((point, Point.COUNTED, MUST) for point in (Point.REDUCE_IN, Point.EXPERT_IN))
        yield from ((point, Point.EXPERT_IN, MAY) for point in (Point.ACT, Point.BACKWARD))
        yield (Point.COUNTED, Point.CONTRIBUTION, MUST)
        yield (Point.CONTRIBUTION, Point.REDUCE_OUT, self.sharding == "none")
        yield (Point.REDUCE_OUT, Point.NORM, MUST)
        yield from ((point, Point.STATE, MAY) for point in (Point.REDUCE_OUT, Point.NORM))

    def _across(self, one: int, other: int) -> Iterator[tuple[Point, Point, bool]]:
        """From one rank to another."""
        differ = {axis for axis, at in self.places[one].items() if self.places[other].get(axis) != at}
        is_sharded = self.sharding != "none"
        if differ <= _EXCHANGING:
            is_summed = differ == {"tp"}
            # a sum goes into the next layer, which counts what it computes of it, or else is handed over
            is_last = self.places[other].get(_STAGES, 0) == self._last_stage()
            yield (Point.SEND, Point.LOGITS if is_last else Point.HANDOVER, is_summed)
            yield (Point.SEND, Point.ACT, MAY)
            yield (Point.LOGITS, Point.LOSS, is_summed)
            yield from ((point, point, MAY) for point in (Point.SEND, Point.ACT, Point.BACKWARD))
        if "ep" in differ <= _EXCHANGING:
            # what an expert hands back shows with those whose tokens they are, and not at home
            yield from ((Point.BACKWARD, there, MAY) for there in (Point.SERVED, Point.EXPERT_IN))
            yield from ((Point.SERVED, there, MAY) for there in (Point.BACKWARD, Point.REDUCE_IN))
        if differ == {_STAGES}:
            by = self.places[other][_STAGES] - self.places[one][_STAGES]
            yield from [(Point.HANDOVER, Point.ACT, MUST)] if by == 1 else []
            yield from [(Point.BACKWARD, Point.BACKWARD, MUST)] if by == -1 else []
        if differ <= _REDUCING:
            # experts and shards are reduced among some ranks only, which a metric does not tell apart
            yield (Point.CONTRIBUTION, Point.REDUCE_OUT, not is_sharded and "ep" not in differ)
            if is_sharded:
                yield (Point.PARAM, Point.PARAM, MAY)
            if self.sharding in ("zero1", "zero2"):
                yield (Point.STATE, Point.STATE, MUST)
        if is_sharded or "dp" not in differ:
            yield (Point.REDUCE_OUT, Point.NORM, MUST)


def _closure(start: set[Node], edges: dict[Node, set[Node]], barred: set[Node]) -> set[Node]:
    """All that is reached from ``start`` without passing through what is barred."""
    found, waiting = set(start), list(start)
    while waiting:
        for node in edges.get(waiting.pop(), ()):
            if node not in found and node not in barred:
                found.add(node)
                waiting.append(node)
    return found
