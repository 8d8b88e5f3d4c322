"""A textbook oracle of non-finite values: layer by layer, rank by rank, one node for every tensor.

It knows nothing of the product's stages: tensors of a small transformer on a mesh are nodes, a value that
passes from one to another is an edge, and who can have been first is answered by walking the graph from
every rank. An edge either surely passes a NaN on (``MUST``) or may (routing, skipped steps, clipping).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

Node = tuple[str, int, int]
"""(tensor, layer, rank); tensors of the iteration before carry a ``'``."""
LAYERS = 2
EMBEDDING, HEAD = -1, LAYERS
"""The layer numbers of what the first and the last stage have besides."""

OBSERVED: Mapping[str, tuple[str, ...]] = {
    "nonfinite_input": ("data",),
    "nonfinite_act": ("compute", "send", "act"),
    "nonfinite_send/tp": ("send", "sent_loss"),
    "nonfinite_logits": ("logits",),
    "loss": ("loss",),
    "act_grad_norm": ("agrad",),
    "local_grad_norm": ("wgrad",),
    "nonfinite_reduced": ("red",),
    "grad_norm": ("norm",),
    "nonfinite_param": ("state",),
}
"""Which tensors of its rank a metric looks at: bad where one of them is."""


@dataclass(slots=True)
class Machine:
    """All tensors of iteration t, and of the end of the one before it."""

    axes: Sequence[tuple[str, int]]
    sharding: str = "none"
    clips: bool = True
    """Whether the norm over all gradients scales every gradient, so that a bad one spoils all."""
    skips: bool = False
    """Whether a step with a bad gradient is left out."""
    must: dict[Node, set[Node]] = field(default_factory=dict)
    may: dict[Node, set[Node]] = field(default_factory=dict)
    places: list[dict[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = [range(size) for _, size in self.axes]
        self.places = [dict(zip((name for name, _ in self.axes), at, strict=True)) for at in product(*sizes)]
        for rank in self.ranks:
            self._forward(rank)
            self._backward(rank)
            self._update(rank, "'")
            self._update(rank, "")
            self._load(rank)

    @property
    def ranks(self) -> range:
        return range(len(self.places))

    @property
    def routes(self) -> bool:
        """Whether ranks compute on each other's tokens: what comes back to them is received, not computed."""
        return not {"cp", "ep"}.isdisjoint(dict(self.axes))

    @property
    def stages(self) -> int:
        return dict(self.axes).get("pp", 1)

    def stage(self, rank: int) -> int:
        return self.places[rank].get("pp", 0)

    def is_last(self, rank: int) -> bool:
        return self.stage(rank) == self.stages - 1

    def group(self, rank: int, *along: str, by: int = 0) -> list[int]:
        """The ranks that differ from ``rank`` along some axes only, ``by`` pipeline stages further on."""
        here = self.places[rank]
        wanted = {axis: at for axis, at in here.items() if axis not in along}
        if by:
            wanted["pp"] = self.stage(rank) + by
        return [r for r in self.ranks if all(self.places[r][axis] == at for axis, at in wanted.items())]

    def nodes_of(self, metric: str, rank: int) -> list[Node]:
        layers = range(EMBEDDING, HEAD + 1)
        names = ("compute",) if self.routes and metric == "nonfinite_act" else OBSERVED[metric]
        return [(name, layer, rank) for name in names for layer in layers]

    def _edge(self, source: Node, target: Node, *, sure: bool = True) -> None:
        (self.must if sure else self.may).setdefault(source, set()).add(target)

    def _exchange(self, source: str, target: str, layer: int, rank: int) -> None:
        """What a rank sends in a collective inside the layer; only a sum over tp surely spreads it."""
        routes = self.routes and source != "sent_loss"
        for other in [] if routes else self.group(rank, "tp"):
            self._edge((source, layer, rank), (target, layer, other))
        for other in self.group(rank, "tp", "cp", "ep"):
            self._edge((source, layer, rank), (target, layer, other), sure=False)
            if routes and source == "send":  # an expert computes on what it was sent
                self._edge((source, layer, rank), ("compute", layer, other), sure=False)
            if routes and source == "back":
                self._edge((source, layer, rank), ("wgrad", layer, other), sure=False)

    def _forward(self, rank: int) -> None:
        into: list[Node] = [("data", 0, rank)] if self.stage(rank) == 0 else []
        if self.stage(rank):
            (before,) = self.group(rank, by=-1)
            into = [("act", LAYERS - 1, before)]
        for layer in range(LAYERS):
            for node in into:
                self._edge(node, ("compute", layer, rank))
                self._edge(node, ("act", layer, rank))  # past the layer, by the residual
            self._edge(("param", layer, rank), ("compute", layer, rank))
            self._edge(("compute", layer, rank), ("send", layer, rank))
            self._exchange("send", "act", layer, rank)
            into = [("act", layer, rank)]
            if self.routes:
                self._edge(("act", layer, rank), ("wgrad", layer, rank), sure=False)
                self._edge(("compute", layer, rank), ("wgrad", layer, rank), sure=False)
                self._edge(("act", layer, rank), ("send", layer + 1, rank), sure=False)
        if self.is_last(rank):
            self._edge(into[0], ("logits", HEAD, rank))
            self._edge(("param", HEAD, rank), ("logits", HEAD, rank))
            self._edge(("logits", HEAD, rank), ("sent_loss", HEAD, rank))
            self._exchange("sent_loss", "loss", HEAD, rank)
            self._edge(("data", 0, rank), ("loss", HEAD, rank))  # the labels

    def _backward(self, rank: int) -> None:
        into: Node
        if self.is_last(rank):
            self._edge(("loss", HEAD, rank), ("back", HEAD, rank))
            self._edge(("loss", HEAD, rank), ("wgrad", HEAD, rank))
            self._exchange("back", "agrad", HEAD, rank)
            into = ("agrad", HEAD, rank)
        else:
            (after,) = self.group(rank, by=1)
            into = ("agrad", 0, after)
        for layer in reversed(range(LAYERS)):
            self._edge(into, ("back", layer, rank))
            self._edge(into, ("wgrad", layer, rank))
            self._edge(into, ("agrad", layer, rank))  # past the layer, by the residual
            self._exchange("back", "agrad", layer, rank)
            into = ("agrad", layer, rank)
        if self.stage(rank) == 0:
            self._edge(into, ("wgrad", EMBEDDING, rank))

    def _update(self, rank: int, mark: str) -> None:
        # A norm goes over all that the rank's replica holds, and over all shards where there are any.
        counted = self.group(rank, "tp", "pp", "ep") if self.sharding == "none" else self.ranks
        is_applied = mark == "'" or not self.skips
        for layer in range(EMBEDDING, HEAD + 1):
            red = (f"red{mark}", layer, rank)
            own = (f"wgrad{mark}", layer, rank)
            if self.sharding != "none" and not mark:  # handed over after it was seen
                self._edge(own, ("sent", layer, rank))
                own = ("sent", layer, rank)
            for other in self.group(rank, "dp", "cp", "ep"):
                is_expert = self.places[other].get("ep") != self.places[rank].get("ep")
                is_sure = self.sharding == "none" and not is_expert
                self._edge(own, (f"red{mark}", layer, other), sure=is_sure)
            if self.sharding != "none":  # one owner's shard of the reduced gradient, and the norm over all
                for other in self.ranks:
                    self._edge(own, (f"norm{mark}", 0, other))
            for other in counted:
                self._edge(red, (f"norm{mark}", 0, other))
            if is_applied:
                self._edge(red, (f"opt{mark}", layer, rank))
            if is_applied and self.clips:
                self._edge((f"norm{mark}", 0, rank), (f"opt{mark}", layer, rank))
            owned = self.group(rank, "dp", "cp", "ep") if self.sharding in ("zero1", "zero2") else [rank]
            for other in owned:
                self._edge((f"opt{mark}", layer, rank), (f"state{mark}", layer, other))

    def _load(self, rank: int) -> None:
        for layer in range(EMBEDDING, HEAD + 1):
            holders = self.group(rank, "dp", "cp", "ep") if self.sharding == "zero3" else [rank]
            for other in holders:
                self._edge(("state'", layer, rank), ("param", layer, other))
        if self.stage(rank) == 0:
            self._edge(("param", EMBEDDING, rank), ("compute", 0, rank))
            self._edge(("param", EMBEDDING, rank), ("act", 0, rank))

    def spread(self, origin: Node, rng: random.Random) -> set[Node]:
        """All that turns bad when ``origin`` does; edges that may pass it on do so by chance."""
        bad, waiting = {origin}, [origin]
        while waiting:
            node = waiting.pop()
            chance = sorted(other for other in self.may.get(node, ()) if rng.random() < 0.5)
            for other in [*sorted(self.must.get(node, ())), *chance]:
                if other not in bad:
                    bad.add(other)
                    waiting.append(other)
        return bad

    def suspects(self, bad: Iterable[tuple[str, int]], clean: Iterable[tuple[str, int]]) -> list[int]:
        """The ranks, each alone, on which something can have gone wrong that explains all and is seen nowhere
        where it must be: brute force. ``clean`` metrics with a ``'`` are of the iteration before.
        """
        cleared = self._cleared(clean)
        targets = [set(self.nodes_of(metric, rank)) - cleared for metric, rank in bad]
        return [rank for rank in self.ranks if self._explains(rank, targets, cleared)]

    def _cleared(self, clean: Iterable[tuple[str, int]]) -> set[Node]:
        """All that cannot have been bad, since something clean surely would be."""
        back: dict[Node, set[Node]] = {}
        for source, targets in self.must.items():
            for target in targets:
                back.setdefault(target, set()).add(source)
        waiting = []
        for metric, rank in clean:
            mark = "'" if metric.endswith("'") else ""
            waiting += [(name + mark, layer, r) for name, layer, r in self.nodes_of(metric.rstrip("'"), rank)]
        cleared = set(waiting)
        while waiting:
            for source in back.get(waiting.pop(), ()):
                if source not in cleared:
                    cleared.add(source)
                    waiting.append(source)
        return cleared

    def _explains(self, rank: int, targets: list[set[Node]], cleared: set[Node]) -> bool:
        every = {*self.must, *self.may, *(one for some in self.must.values() for one in some)}
        waiting = [node for node in every if node[2] == rank and node not in cleared]
        reached = set(waiting)
        while waiting:
            node = waiting.pop()
            for other in self.must.get(node, set()) | self.may.get(node, set()):
                if other not in cleared and other not in reached:
                    reached.add(other)
                    waiting.append(other)
        return all(target & reached for target in targets)


def suspects(
    axes: Sequence[tuple[str, int]],
    sharding: str,
    bad: Sequence[tuple[str, int]],
    clean: Sequence[tuple[str, int]],
) -> list[int]:
    """Who can have been first, whether or not the job clips gradients and skipped the step."""
    machines = [Machine(axes, sharding, clips, skips) for clips in (True, False) for skips in (True, False)]
    return sorted({rank for machine in machines for rank in machine.suspects(bad, clean)})
