"""Happens-before inside one iteration: which computation on which rank can have made which value bad.

A node is (stage, rank); an edge says that a value passes from one node to another. Three passes over
the edges answer everything: what a bad value explains (`spread`), what a clean value clears
(`clear`), and who can have caused a bad value (`causes_of`). Stages are the phases of an iteration,
the forward and the backward cut finer where ranks exchange: what a rank *sends* is observable apart
from what it has after the exchange.

Axes: R ranks of the universe, ascending.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from firstfault.telemetry import Phase, contract_of
from ingest.blocks import Flags

from .rank_groups import Groups, Ids, any_in_group
from .roles import Role


class Stage(IntEnum):
    """Where a value is, in causal order; finer than `Phase` where ranks exchange."""

    PRIOR = 0
    """A rank's own state after the iteration before."""
    GATHER = 1
    DATA = 2
    COMPUTE = 3
    """What a rank computes in its forward from its own inputs."""
    SEND = 4
    """What it sends inside a tp, cp or ep collective."""
    ACTIVATION = 5
    """What it has after the exchange, and hands to the next pipeline stage."""
    OUTPUT = 6
    """Logits and loss."""
    MEAN_LOSS = 7
    """The loss reduced over all ranks: a side branch that nothing depends on."""
    BACKPROP = 8
    ACTIVATION_GRAD = 9
    REDUCE_IN = 10
    REDUCE_OUT = 11
    OPTIMIZER = 12
    STATE = 13


class Via(IntEnum):
    """Between which ranks an edge runs."""

    OWN = 0
    GROUP = 1
    """Every input to every output of a tp, cp, ep collective."""
    NEXT = 2
    """Pipeline stage s to s + 1."""
    PREVIOUS = 3
    """Pipeline stage s + 1 to s."""
    EVERY = 4
    """All ranks to all ranks: the gradient norm and the clipping it drives join every group."""


Edge = tuple[Stage, Stage, Via]

EDGES: tuple[Edge, ...] = (
    (Stage.PRIOR, Stage.GATHER, Via.OWN),
    (Stage.GATHER, Stage.COMPUTE, Via.OWN),
    (Stage.DATA, Stage.COMPUTE, Via.OWN),
    (Stage.ACTIVATION, Stage.COMPUTE, Via.NEXT),
    (Stage.COMPUTE, Stage.SEND, Via.OWN),
    (Stage.COMPUTE, Stage.ACTIVATION, Via.OWN),
    (Stage.SEND, Stage.ACTIVATION, Via.GROUP),
    (Stage.ACTIVATION, Stage.OUTPUT, Via.OWN),
    (Stage.SEND, Stage.OUTPUT, Via.GROUP),
    (Stage.OUTPUT, Stage.MEAN_LOSS, Via.EVERY),
    (Stage.OUTPUT, Stage.BACKPROP, Via.OWN),
    (Stage.ACTIVATION_GRAD, Stage.BACKPROP, Via.PREVIOUS),
    (Stage.BACKPROP, Stage.ACTIVATION_GRAD, Via.GROUP),
    (Stage.ACTIVATION_GRAD, Stage.REDUCE_IN, Via.OWN),
    (Stage.REDUCE_IN, Stage.REDUCE_OUT, Via.EVERY),
    (Stage.REDUCE_OUT, Stage.OPTIMIZER, Via.OWN),
    (Stage.OPTIMIZER, Stage.STATE, Via.OWN),
)
_SHARDED_UPDATE: Edge = (Stage.OPTIMIZER, Stage.STATE, Via.EVERY)
"""Under ZeRO-1 and 2 the owner's update is gathered by everybody."""
_LATE_EXCHANGE: Edge = (Stage.ACTIVATION, Stage.OUTPUT, Via.GROUP)
"""A bad activation explains a bad loss on its peers (they exchange again after it). Only for what a
bad value explains: what a rank *sends* late is in `Stage.SEND`, so this edge accuses nobody."""

# What a clean value clears: only where a bad input would surely have shown. An expert or context
# parallel exchange may route a bad value elsewhere, so clearing goes along tp alone; a clean state
# clears nothing, since a skipped step keeps it clean beside bad gradients.
_CLEARS: tuple[Edge, ...] = (
    (Stage.REDUCE_IN, Stage.REDUCE_OUT, Via.EVERY),
    (Stage.ACTIVATION_GRAD, Stage.REDUCE_IN, Via.OWN),
    (Stage.BACKPROP, Stage.ACTIVATION_GRAD, Via.GROUP),
    (Stage.ACTIVATION_GRAD, Stage.BACKPROP, Via.PREVIOUS),
    (Stage.OUTPUT, Stage.BACKPROP, Via.OWN),
    (Stage.OUTPUT, Stage.MEAN_LOSS, Via.EVERY),
    (Stage.SEND, Stage.OUTPUT, Via.GROUP),
    (Stage.ACTIVATION, Stage.OUTPUT, Via.OWN),
    (Stage.SEND, Stage.ACTIVATION, Via.OWN),
    (Stage.COMPUTE, Stage.ACTIVATION, Via.OWN),
    (Stage.COMPUTE, Stage.SEND, Via.OWN),
    (Stage.ACTIVATION, Stage.COMPUTE, Via.NEXT),
    (Stage.DATA, Stage.COMPUTE, Via.OWN),
    (Stage.GATHER, Stage.COMPUTE, Via.OWN),
    (Stage.PRIOR, Stage.GATHER, Via.OWN),
)

_STAGE_OF_METRIC = {
    "nonfinite_send": Stage.SEND,
    "nonfinite_act": Stage.ACTIVATION,
    "global_loss": Stage.MEAN_LOSS,
}
_STAGE_OF_PHASE = {
    Phase.GATHER: Stage.GATHER,
    Phase.DATA: Stage.DATA,
    Phase.FORWARD: Stage.OUTPUT,
    Phase.BACKWARD: Stage.ACTIVATION_GRAD,
    Phase.REDUCE_IN: Stage.REDUCE_IN,
    Phase.REDUCE_OUT: Stage.REDUCE_OUT,
    Phase.OPTIMIZER: Stage.OPTIMIZER,
    Phase.STATE: Stage.STATE,
}


def phase_of(metric: str, role: Role = Role.AS_NAMED, declared: Phase | None = None) -> Phase:
    """The phase in which ``metric`` is taken, given what it turned out to be.

    A phase that the run declares wins over what the name tells.

    >>> phase_of("grad_norm").label, phase_of("grad_norm", Role.LOCAL).label
    ('reduce_out', 'reduce_in')
    """
    phase = contract_of(metric).phase if declared is None else declared
    if role is Role.LOCAL and phase is Phase.REDUCE_OUT:
        # A local value under an agreed name: the loss of this rank, or its gradient before the reduction.
        return Phase.FORWARD if metric.partition("/")[0] == "global_loss" else Phase.REDUCE_IN
    if role is Role.GLOBAL and phase < Phase.REDUCE_OUT:
        return Phase.REDUCE_OUT
    return phase


def stage_of(metric: str, role: Role = Role.AS_NAMED, declared: Phase | None = None) -> Stage:
    """The stage at which ``metric`` observes its rank."""
    base, _, scope = metric.partition("/")
    if role is Role.GLOBAL and base == "loss":
        return Stage.MEAN_LOSS
    if base == "nonfinite_send" and scope.split("/")[0] == "pp":
        return Stage.ACTIVATION
    if role is Role.AS_NAMED and declared is None and base in _STAGE_OF_METRIC:
        return _STAGE_OF_METRIC[base]
    return _STAGE_OF_PHASE[phase_of(metric, role, declared)]


class CauseGraph:
    """The edges of one iteration over a universe of ranks.

    ``chunks`` is the number of model chunks per pipeline stage: with more than one the stages are
    visited in turn again and again (interleaved), so the last stage also feeds the first.
    """

    def __init__(self, groups: Groups, *, sharding: str = "none", chunks: int = 1) -> None:
        self.groups = groups
        self._is_ring = chunks > 1
        self._edges = EDGES + ((_SHARDED_UPDATE,) if sharding in ("zero1", "zero2") else ())
        # One pass settles everything but the pipeline, which moves a stage per pass.
        # What a rank sent came back to itself in a tp sum; experts and context may have sent it away.
        self._is_echoed_R = (
            np.bincount(groups.collective_R)[groups.collective_R]
            == (np.bincount(groups.tensor_R)[groups.tensor_R])
        )
        self._passes = groups.stages * max(chunks, 1) + 1

    def blank(self) -> list[Flags]:
        """One flag per stage and rank, all off."""
        return [np.zeros(len(self.groups.ranks_R), dtype=np.bool_) for _ in Stage]

    def clear(self, clean: list[Flags], bad: list[Flags]) -> list[Flags]:
        """All nodes that must be clean, given the observed ones; an observed bad node never is."""
        known = [clean_R & ~bad_R for clean_R, bad_R in zip(clean, bad, strict=True)]
        for _ in range(self._passes):
            before = sum(int(flags.sum()) for flags in known)
            for source, target, via in _CLEARS:
                along_R = self._back(known[target], via, exact=True)
                if source is Stage.SEND:
                    along_R = along_R & self._is_echoed_R
                known[source] |= along_R & ~bad[source]
            if sum(int(flags.sum()) for flags in known) == before:
                break
        return known

    def spread(self, bad: list[Flags], clean: list[Flags]) -> list[Flags]:
        """All nodes that a bad value upstream explains; a clean node passes nothing on."""
        reached = self.blank()
        for _ in range(self._passes):
            before = sum(int(flags.sum()) for flags in reached)
            for source, target, via in (*self._edges, _LATE_EXCHANGE):
                reached[target] |= self._forth((bad[source] | reached[source]) & ~clean[source], via)
            if sum(int(flags.sum()) for flags in reached) == before:
                break
        return reached

    def causes_of(self, targets: list[Flags], clean: list[Flags]) -> list[Flags]:
        """All nodes, the targets included, from which a bad value can have reached a target."""
        open_nodes = [flags.copy() for flags in targets]
        for _ in range(self._passes):
            before = sum(int(flags.sum()) for flags in open_nodes)
            for source, target, via in reversed(self._edges):
                open_nodes[source] |= self._back(open_nodes[target], via) & ~clean[source]
            if sum(int(flags.sum()) for flags in open_nodes) == before:
                break
        return open_nodes

    def _forth(self, from_R: Flags, via: Via) -> Flags:
        match via:
            case Via.OWN:
                return from_R
            case Via.EVERY:
                return np.full_like(from_R, from_R.any())
            case Via.GROUP:
                return any_in_group(from_R, self.groups.collective_R)
            case Via.NEXT:
                return self._shift(from_R, self.groups.replica_R, 1)
            case Via.PREVIOUS:
                return self._shift(from_R, self.groups.replica_R, -1)

    def _back(self, to_R: Flags, via: Via, *, exact: bool = False) -> Flags:
        """From which ranks ``to_R`` has inputs; ``exact``: only those whose input must show in it."""
        match via:
            case Via.OWN:
                return to_R
            case Via.EVERY:
                return np.full_like(to_R, to_R.any())
            case Via.GROUP:
                return any_in_group(to_R, self.groups.tensor_R if exact else self.groups.collective_R)
            case Via.NEXT:
                return self._shift(
                    to_R, self.groups.line_R if exact else self.groups.replica_R, -1, exact=exact
                )
            case Via.PREVIOUS:
                return self._shift(
                    to_R, self.groups.line_R if exact else self.groups.replica_R, 1, exact=exact
                )

    def _shift(self, flags_R: Flags, group_R: Ids, by: int, *, exact: bool = False) -> Flags:
        """Which ranks lie ``by`` pipeline stages after a flagged rank of their group.

        Only some chunks of interleaved stages pass from the last stage to the first, so ``exact``
        does not go round.
        """
        stages = self.groups.stages
        if stages == 1:
            return np.zeros_like(flags_R)
        hit = np.zeros((int(group_R.max()) + 1, stages), dtype=np.bool_)
        hit[group_R[flags_R], self.groups.stage_R[flags_R]] = True
        source_R = self.groups.stage_R - by
        inside_R = np.full_like(flags_R, self._is_ring and not exact) | (
            (source_R >= 0) & (source_R < stages)
        )
        return np.asarray(hit[group_R, source_R % stages] & inside_R)
