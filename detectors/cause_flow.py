"""Walks the graph of causes over arrays: what is cleared, what is explained, who can have caused what.

A node holds a word of 64 bits, one for each value that is asked about, so that the causes of 64 values are
found in one walk over all ranks. Axes: R ranks of the universe, ascending.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Flags

from .cause_graph import EITHER, Edge, Pass, Stage, Via, Where
from .rank_groups import Groups, Ids

Bits = NDArray[np.uint64]
WORD = 64
_ONE = np.uint64(1)
_HEAD = (Stage.LOGITS, Stage.PARTIAL_LOSS, Stage.OUTPUT)


class CauseFlow:
    """The edges of one plan over a universe of ranks.

    ``chunks`` is the number of model chunks per pipeline stage: with more than one the stages are
    visited in turn again and again (interleaved), so the last stage also feeds the first.
    """

    def __init__(self, groups: Groups, edges: Sequence[Edge], *, chunks: int = 1) -> None:
        self._groups = groups
        self._links = _Links(groups, is_ring=chunks > 1)
        self._into: dict[Stage, list[Edge]] = {stage: [] for stage in Stage}
        self._from: dict[Stage, list[Edge]] = {stage: [] for stage in Stage}
        for edge in edges:
            self._into[edge.target].append(edge)
            self._from[edge.source].append(edge)

    def existing(self, seen: Sequence[Flags]) -> list[Flags]:
        """Which nodes there are: only the ends of the pipeline read data, only the last has logits.

        The gradient of an expert is one where it is told apart from the rest.
        """
        is_last_R = self._groups.stage_R == self._groups.stages - 1
        is_end_R = is_last_R | (self._groups.stage_R == 0)
        every_R = np.ones_like(is_last_R)
        exists = [every_R] * len(Stage)
        exists[Stage.DATA] = is_end_R | seen[Stage.DATA]
        exists[Stage.EXPERT_IN] = seen[Stage.EXPERT_IN]
        has_head_R = is_last_R | np.logical_or.reduce([seen[stage] for stage in _HEAD])
        for stage in _HEAD:
            exists[stage] = has_head_R
        return exists

    def clear(self, clean: Sequence[Flags], bad: Sequence[Flags], exists: Sequence[Flags]) -> list[Flags]:
        """All nodes that must be clean, given the observed ones; an observed bad node never is."""
        known = [clean_R & ~bad_R for clean_R, bad_R in zip(clean, bad, strict=True)]
        waiting = {stage for stage in Stage if known[stage].any()}
        while waiting:
            target = max(waiting)
            waiting.discard(target)
            for edge in self._into[target]:
                if edge.passes is Pass.MUST:
                    from_R = (known[target] & exists[target]).astype(np.uint64)
                    self._learn(known, waiting, edge.source, self._back(edge, from_R) > 0, bad)
            for source, targets in EITHER:
                if target in targets:
                    all_R = np.logical_and.reduce([known[one] | ~exists[one] for one in targets])
                    self._learn(known, waiting, source, all_R, bad)
        return known

    def spread(self, start: Sequence[Flags], open_nodes: Sequence[Flags]) -> list[Flags]:
        """All nodes that bad ones explain by at least one edge; nothing passes a node that is not open."""
        reached = [np.zeros_like(flags) for flags in start]
        waiting = {stage for stage in Stage if start[stage].any()}
        while waiting:
            source = min(waiting)
            waiting.discard(source)
            bits_R = ((start[source] | reached[source]) & open_nodes[source]).astype(np.uint64)
            for edge in self._from[source]:
                new_R = (self._forth(edge, bits_R) > 0) & open_nodes[edge.target] & ~reached[edge.target]
                if new_R.any():
                    reached[edge.target] = reached[edge.target] | new_R
                    waiting.add(edge.target)
        return reached

    def causes(self, targets: Sequence[tuple[Stage, int]], open_nodes: Sequence[Flags]) -> Bits:
        """For each rank which of up to 64 ``targets`` something on it can have caused, a bit each."""
        words = [np.zeros(len(self._groups.ranks_R), np.uint64) for _ in Stage]
        for bit, (stage, at) in enumerate(targets):
            words[stage][at] |= _ONE << np.uint64(bit)
        waiting = {stage for stage, _ in targets}
        while waiting:
            target = max(waiting)
            waiting.discard(target)
            for edge in self._into[target]:
                bits_R = np.where(open_nodes[edge.source], self._back(edge, words[target]), np.uint64(0))
                if (bits_R & ~words[edge.source]).any():
                    words[edge.source] |= bits_R
                    waiting.add(edge.source)
        found: Bits = np.bitwise_or.reduce(words)
        return found

    def _learn(
        self, known: list[Flags], waiting: set[Stage], source: Stage, flags_R: Flags, bad: Sequence[Flags]
    ) -> None:
        new_R = flags_R & ~bad[source] & ~known[source]
        if new_R.any():
            known[source] = known[source] | new_R
            waiting.add(source)

    def _forth(self, edge: Edge, bits_R: Bits) -> Bits:
        return self._links.forth(edge.via, self._begins(edge, bits_R))

    def _back(self, edge: Edge, bits_R: Bits) -> Bits:
        return self._begins(edge, self._links.back(edge.via, bits_R))

    def _begins(self, edge: Edge, bits_R: Bits) -> Bits:
        """Without the ranks on which the edge does not begin."""
        if edge.where is Where.ANY or self._groups.stages == 1:
            return bits_R
        stage = 0 if edge.where is Where.FIRST else self._groups.stages - 1
        return np.where(self._groups.stage_R == stage, bits_R, np.uint64(0))


class _Links:
    """Which ranks an edge joins, either way."""

    def __init__(self, groups: Groups, *, is_ring: bool) -> None:
        self._joined = {
            Via.TENSOR: _Joined(groups.tensor_R),
            Via.EXCHANGE: _Joined(groups.collective_R),
            Via.TWINS: _Joined(groups.twin_R),
            Via.SHARD: _Joined(groups.shard_R),
            Via.REPLICA: _Joined(groups.replica_R),
            Via.EVERY: _Joined(np.zeros_like(groups.shard_R)),
        }
        self._next_R, self._previous_R = groups.shifted(1), groups.shifted(-1)
        self._next_any_R = groups.shifted(1, is_ring=is_ring)
        self._previous_any_R = groups.shifted(-1, is_ring=is_ring)

    def forth(self, via: Via, bits_R: Bits) -> Bits:
        """What arrives at each rank of what is sent from each."""
        match via:
            case Via.OWN:
                return bits_R
            case Via.NEXT:
                return _taken(bits_R, self._previous_R)
            case Via.PREVIOUS:
                return _taken(bits_R, self._next_R)
            case Via.NEXT_ANY:
                return self._joined[Via.TENSOR].united(_taken(bits_R, self._previous_any_R))
            case Via.PREVIOUS_ANY:
                return self._joined[Via.TENSOR].united(_taken(bits_R, self._next_any_R))
        return self._joined[via].united(bits_R)

    def back(self, via: Via, bits_R: Bits) -> Bits:
        """What each rank has sent of what arrived at each."""
        opposite = {
            Via.NEXT: Via.PREVIOUS,
            Via.PREVIOUS: Via.NEXT,
            Via.NEXT_ANY: Via.PREVIOUS_ANY,
            Via.PREVIOUS_ANY: Via.NEXT_ANY,
        }
        return self.forth(opposite.get(via, via), bits_R)


class _Joined:
    """Ranks joined in groups: what one of them has, all have."""

    def __init__(self, group_R: Ids) -> None:
        self._order_R = np.argsort(group_R, kind="stable")
        starts = np.flatnonzero(np.diff(group_R[self._order_R], prepend=-1))
        self._starts_G = starts
        self._sizes_G = np.diff(starts, append=len(group_R))

    def united(self, bits_R: Bits) -> Bits:
        if len(self._starts_G) == len(bits_R) or not bits_R.any():
            return bits_R
        if len(self._starts_G) == 1:
            return np.full_like(bits_R, np.bitwise_or.reduce(bits_R))
        found_R = np.empty_like(bits_R)
        united_G = np.bitwise_or.reduceat(bits_R[self._order_R], self._starts_G)
        found_R[self._order_R] = np.repeat(united_G, self._sizes_G)
        return found_R


def _taken(bits_R: Bits, at_R: Ids) -> Bits:
    """The bits at the given positions; none where there is no such position."""
    return np.where(at_R >= 0, bits_R[at_R], np.uint64(0))
