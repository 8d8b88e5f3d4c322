"""Who can have been the first with a non-finite value: what an oracle concludes from the same telemetry.

It plays every possible origin (a rank, and a point inside the iteration) through the layout's exchanges and
keeps the ranks whose play gives just the bad and clean sites that were reported. Written apart from the
detectors, and without their shortcuts: it is what they are held against. Axes: R ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum

import numpy as np

from .effects import first_true
from .recording import Flags, Recording

Node = tuple[int, int]
"""A rank and a point inside the iteration."""


class Point(IntEnum):
    """Points inside an iteration, in program order on one rank."""

    DATA = 0
    SEND = 1
    """What it hands to its tensor, context or expert peers, before the exchange."""
    ACT = 2
    LOGITS = 3
    LOSS = 4
    BACKWARD = 5
    REDUCE_IN = 6
    REDUCE_OUT = 7
    NORM = 8
    """The global norm, which all ranks share."""
    STATE = 9


_POINTS = {
    "nonfinite_input": Point.DATA,
    "nonfinite_send": Point.SEND,
    "nonfinite_act": Point.ACT,
    "nonfinite_logits": Point.LOGITS,
    "nonfinite_loss": Point.LOSS,
    "loss": Point.LOSS,
    "act_grad_norm": Point.BACKWARD,
    "local_grad_norm": Point.REDUCE_IN,
    "grad_absmax": Point.REDUCE_IN,
    "nonfinite_grad": Point.REDUCE_IN,
    "nonfinite_reduced": Point.REDUCE_OUT,
    "grad_norm": Point.NORM,
    "nonfinite_param": Point.STATE,
}
_EXCHANGING = ("tp", "cp", "ep")
_REDUCING = ("dp", "cp", "ep")
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
    """The ranks that can have caused the non-finite values of one position, ascending.

    Where nothing fits (a value that was masked on its way), the ranks bad at the earliest point.
    """
    seen: dict[Node, bool] = {}
    for metric in watched(run):
        point = _POINTS[metric.partition("/")[0]]
        for column in np.flatnonzero(run.present[metric][position]):
            node = (int(column), int(point))
            seen[node] = seen.get(node, False) or bool(nonfinite_flags(run, metric)[position, column])
    bad = {node for node, is_bad in seen.items() if is_bad}
    if not bad:
        return ()
    edges = _edges(run, {rank for rank, point in seen if point == Point.LOSS})
    found = [
        column
        for column in range(len(run.ranks_R))
        if any(_reached((column, int(point)), edges) & seen.keys() == bad for point in Point)
    ]
    earliest = min(point for _, point in bad)
    found = found or [rank for rank, point in bad if point == earliest]
    return tuple(sorted(int(run.ranks_R[column]) for column in found))


def first_nonfinite(run: Recording, twin: Recording) -> int | None:
    """The first position with a non-finite value that the twin does not have."""
    found = [
        first_true(nonfinite_flags(run, metric) & ~nonfinite_flags(twin, metric))
        for metric in watched(run)
        if metric in twin.numbers
    ]
    return min((at for at in found if at is not None), default=None)


def _edges(run: Recording, with_loss: set[int]) -> dict[Node, list[Node]]:
    edges: dict[Node, list[Node]] = {}
    for tail, head in _all_edges(run, with_loss):
        edges.setdefault(tail, []).append(head)
    return edges


def _all_edges(run: Recording, with_loss: set[int]) -> Iterator[tuple[Node, Node]]:
    ranks = range(len(run.ranks_R))
    for rank in ranks:
        has_loss = rank in with_loss
        for point in Point:
            if point < Point.STATE and not (point in (Point.ACT, Point.LOGITS, Point.LOSS) and not has_loss):
                yield (rank, int(point)), (rank, int(point) + 1)
        if not has_loss:  # an earlier pipeline stage: its activations still enter its own gradients
            yield (rank, int(Point.ACT)), (rank, int(Point.BACKWARD))
    for one in ranks:
        for other in ranks:
            if one == other:
                continue
            yield (one, int(Point.NORM)), (other, int(Point.STATE))
            yield (one, int(Point.REDUCE_OUT)), (other, int(Point.NORM))
            differ = _differing_axes(run, one, other)
            if differ <= set(_EXCHANGING):
                yield (one, int(Point.SEND)), (other, int(Point.ACT))
                yield (one, int(Point.ACT)), (other, int(Point.ACT))
                yield (one, int(Point.BACKWARD)), (other, int(Point.BACKWARD))
            if differ <= set(_REDUCING):
                yield (one, int(Point.REDUCE_IN)), (other, int(Point.REDUCE_OUT))
                if run.layout is not None and run.layout.sharding != "none":
                    yield (one, int(Point.STATE)), (other, int(Point.STATE))
            if differ == {_STAGES} and _stage(run, other) == _stage(run, one) + 1:
                yield (one, int(Point.ACT)), (other, int(Point.ACT))
                yield (other, int(Point.BACKWARD)), (one, int(Point.BACKWARD))


def _differing_axes(run: Recording, one: int, other: int) -> set[str]:
    """The mesh axes along which two ranks differ; plain data parallel without a mesh."""
    places = (
        [run.layout.coordinates.get(int(run.ranks_R[at])) for at in (one, other)]
        if run.layout
        else [None, None]
    )
    if run.layout is None or places[0] is None or places[1] is None:
        return {"dp"}
    return {axis for axis, a, b in zip(run.layout.axes, places[0], places[1], strict=True) if a != b}


def _stage(run: Recording, column: int) -> int:
    assert run.layout is not None, "pipeline stages come from a mesh"
    return run.layout.coordinates[int(run.ranks_R[column])][run.layout.axes.index(_STAGES)]


def _reached(origin: Node, edges: dict[Node, list[Node]]) -> set[Node]:
    """Every node that a non-finite value at ``origin`` gets to, itself included."""
    found, waiting = {origin}, [origin]
    while waiting:
        for node in edges.get(waiting.pop(), ()):
            if node not in found:
                found.add(node)
                waiting.append(node)
    return found
