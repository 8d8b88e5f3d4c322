"""Happens-before inside one iteration: which value can have made which other value bad.

A node is (stage, rank); an edge says that a value passes from one node to another. Some surely pass a
non-finite number on, so that a clean value behind them clears what is before; others may (a layer that is
not the last one, routing to experts), and clear nothing. Stages are the phases of an iteration, cut finer
where ranks exchange: what a rank *sends* is observable apart from what it has after the exchange. The first
stages are of the iteration before, whose update everybody computes with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

from firstfault.telemetry import Phase, contract_of

from .roles import Role


class Stage(IntEnum):
    """Where a value is, in causal order; finer than `Phase` where ranks exchange."""

    PRIOR_IN = 0
    """A rank's own gradient of the iteration before."""
    PRIOR_REDUCED = 1
    PRIOR_NORM = 2
    PRIOR_UPDATE = 3
    PRIOR = 4
    """A rank's own state after the iteration before."""
    GATHER = 5
    DATA = 6
    COMPUTE = 7
    """What a rank computes in the layers of its forward from its own inputs."""
    SEND = 8
    """What it sends inside a tp, cp or ep collective."""
    ACTIVATION = 9
    """What it has after the exchange, and hands to the next layer or the next pipeline stage."""
    LOGITS = 10
    """Its own part of the logits."""
    PARTIAL_LOSS = 11
    """What it sends for the loss that the ranks of a tp group compute together."""
    OUTPUT = 12
    """The loss."""
    MEAN_LOSS = 13
    """The loss reduced over all ranks: a side branch that nothing depends on."""
    BACKPROP = 14
    """What a rank computes in its backward."""
    ACTIVATION_GRAD = 15
    """The gradient between its layers."""
    HANDOVER = 16
    """The gradient of its input, which the pipeline stage before goes on with."""
    REDUCE_IN = 17
    EXPERT_IN = 18
    """The gradient of its expert where it is told apart: what others sent goes into it, and back to them."""
    SENT = 19
    """What it hands to a reduction into shards: no other rank's clean shard vouches for it."""
    REDUCED = 20
    """Its copy, or its shard, of the reduced gradient."""
    NORM = 21
    """The norm over all of the reduced gradient, and whatever else is reduced with it."""
    OPTIMIZER = 22
    STATE = 23


class Via(IntEnum):
    """Between which ranks an edge runs."""

    OWN = 0
    TENSOR = 1
    """Every input to every output of a tp collective: a sum, which passes everything on."""
    EXCHANGE = 2
    """The same over tp, cp and ep: attention over other tokens, experts elsewhere."""
    NEXT = 3
    """To the rank in the same place of the next pipeline stage."""
    PREVIOUS = 4
    NEXT_ANY = 5
    """To all tp ranks of the next pipeline stage: some implementations send each a slice."""
    PREVIOUS_ANY = 6
    TWINS = 7
    """All ranks that hold the same parameters, experts included."""
    SHARD = 8
    """All ranks along dp, cp and ep."""
    REPLICA = 9
    """All ranks of one replica of the model."""
    EVERY = 10


class Pass(IntEnum):
    """Whether a bad source makes the target bad."""

    MAY = 0
    MUST = 1


class Where(IntEnum):
    """On the ranks of which pipeline stages an edge begins."""

    ANY = 0
    FIRST = 1
    LAST = 2


@dataclass(frozen=True, slots=True)
class Edge:
    """From ``source`` on a rank to ``target`` on the ranks that ``via`` says."""

    source: Stage
    target: Stage
    via: Via = Via.OWN
    passes: Pass = Pass.MUST
    where: Where = Where.ANY


@dataclass(frozen=True, slots=True)
class Plan:
    """What of a job no record tells, and the layout leaves open."""

    sharding: str = "none"
    clips: bool = True
    """Whether the norm scales every gradient, so that a bad one spoils all of them."""
    skips: bool = True
    """Whether a step with a bad gradient is left out."""
    routes: bool = False
    """Whether ranks compute on what others sent them (ep, cp): then the result need not show at home."""


_S, _V = Stage, Via
_FORWARD = (
    Edge(_S.GATHER, _S.COMPUTE, passes=Pass.MAY),
    Edge(_S.GATHER, _S.LOGITS, passes=Pass.MAY),
    Edge(_S.DATA, _S.COMPUTE, where=Where.FIRST),
    Edge(_S.DATA, _S.OUTPUT, where=Where.LAST),  # labels
    Edge(_S.ACTIVATION, _S.COMPUTE, _V.NEXT),
    Edge(_S.ACTIVATION, _S.ACTIVATION, _V.NEXT),  # past the layers, by the residual
    Edge(_S.ACTIVATION, _S.COMPUTE, _V.NEXT_ANY, Pass.MAY),
    Edge(_S.ACTIVATION, _S.COMPUTE, passes=Pass.MAY),  # the next layer; the last one has none
    Edge(_S.COMPUTE, _S.SEND),
    Edge(_S.COMPUTE, _S.ACTIVATION),
    Edge(_S.SEND, _S.ACTIVATION, _V.TENSOR),
    Edge(_S.SEND, _S.ACTIVATION, _V.EXCHANGE, Pass.MAY),
    Edge(_S.ACTIVATION, _S.LOGITS, where=Where.LAST),
    Edge(_S.LOGITS, _S.PARTIAL_LOSS),
    Edge(_S.PARTIAL_LOSS, _S.OUTPUT, _V.TENSOR),
    Edge(_S.PARTIAL_LOSS, _S.OUTPUT, _V.EXCHANGE, Pass.MAY),
    Edge(_S.OUTPUT, _S.MEAN_LOSS, _V.EVERY),
)
_BACKWARD = (
    Edge(_S.OUTPUT, _S.BACKPROP),
    Edge(_S.OUTPUT, _S.REDUCE_IN),
    Edge(_S.HANDOVER, _S.BACKPROP, _V.PREVIOUS),
    Edge(_S.HANDOVER, _S.ACTIVATION_GRAD, _V.PREVIOUS, Pass.MAY),
    Edge(_S.HANDOVER, _S.HANDOVER, _V.PREVIOUS),
    Edge(_S.HANDOVER, _S.REDUCE_IN, _V.PREVIOUS),
    Edge(_S.HANDOVER, _S.BACKPROP, _V.PREVIOUS_ANY, Pass.MAY),
    Edge(_S.ACTIVATION_GRAD, _S.BACKPROP, passes=Pass.MAY),
    Edge(_S.BACKPROP, _S.ACTIVATION_GRAD, _V.EXCHANGE, Pass.MAY),
    Edge(_S.BACKPROP, _S.HANDOVER, _V.TENSOR),
    Edge(_S.BACKPROP, _S.HANDOVER, _V.EXCHANGE, Pass.MAY),
    Edge(_S.ACTIVATION_GRAD, _S.HANDOVER),
    Edge(_S.ACTIVATION_GRAD, _S.REDUCE_IN),
    Edge(_S.HANDOVER, _S.REDUCE_IN, where=Where.FIRST),  # of the embedding
)
_ROUTED = tuple(
    Edge(source, target, via, Pass.MAY)
    for source, target, via in (
        (_S.SEND, _S.COMPUTE, _V.EXCHANGE),  # an expert computes on what was sent to it, and answers
        (_S.ACTIVATION, _S.SEND, _V.OWN),
        (_S.ACTIVATION, _S.REDUCE_IN, _V.OWN),
        (_S.COMPUTE, _S.REDUCE_IN, _V.OWN),
        (_S.BACKPROP, _S.REDUCE_IN, _V.EXCHANGE),
        (_S.ACTIVATION, _S.EXPERT_IN, _V.OWN),
        (_S.COMPUTE, _S.EXPERT_IN, _V.OWN),
        (_S.ACTIVATION_GRAD, _S.EXPERT_IN, _V.EXCHANGE),
        (_S.HANDOVER, _S.EXPERT_IN, _V.EXCHANGE),
    )
)
"""What ranks do for each other's tokens, which need not show in their own."""
EITHER: tuple[tuple[Stage, tuple[Stage, ...]], ...] = ((_S.GATHER, (_S.COMPUTE, _S.LOGITS)),)
"""What a bad source makes bad in at least one place: where all of them are clean, it was clean."""


def edges_of(plan: Plan) -> tuple[Edge, ...]:
    """All edges, for one way in which the job may work.

    >>> late = Edge(Stage.NORM, Stage.OPTIMIZER)
    >>> late in edges_of(Plan(skips=True)), late in edges_of(Plan(skips=False))
    (False, True)
    """
    prior = (_S.PRIOR_IN, _S.PRIOR_REDUCED, _S.PRIOR_NORM, _S.PRIOR_UPDATE, _S.PRIOR)
    now = (_S.REDUCE_IN, _S.REDUCED, _S.NORM, _S.OPTIMIZER, _S.STATE)
    return (
        *_update(plan, prior, is_applied=True),
        *_gather(plan),
        *(_routed(edge) if plan.routes else edge for edge in (*_FORWARD, *_BACKWARD)),
        *(_ROUTED if plan.routes else ()),
        *(_of_experts(plan) if plan.routes else ()),
        *_update(plan, now, is_applied=not plan.skips),
    )


def _of_experts(plan: Plan) -> tuple[Edge, ...]:
    """From the gradient of an expert to its reduction, among the ranks that hold the same one."""
    if plan.sharding == "none":
        return (Edge(_S.EXPERT_IN, _S.REDUCED, _V.TWINS),)
    return (Edge(_S.EXPERT_IN, _S.SENT),)


def _routed(edge: Edge) -> Edge:
    """The edge where a rank computes for others: what goes away need not come back."""
    goes_away = ((_S.COMPUTE, _S.ACTIVATION), (_S.SEND, _S.ACTIVATION), (_S.BACKPROP, _S.HANDOVER))
    is_away = (edge.source, edge.target) in goes_away
    return replace(edge, passes=Pass.MAY) if is_away else edge


def _update(plan: Plan, at: tuple[Stage, ...], *, is_applied: bool) -> tuple[Edge, ...]:
    own, reduced, norm, update, state = at
    if plan.sharding == "none":
        edges = [Edge(own, reduced, _V.TWINS), Edge(own, reduced, _V.SHARD, Pass.MAY)]
        edges += [Edge(reduced, norm, _V.REPLICA)]
    else:  # reduced in shards: a bad element is in one of them, and in the norm over all
        sent = _S.SENT if own is _S.REDUCE_IN else own
        edges = [Edge(sent, reduced, _V.SHARD, Pass.MAY), Edge(sent, norm, _V.EVERY)]
        edges += [Edge(reduced, norm, _V.EVERY)] + ([Edge(own, sent)] if sent is not own else [])
    if is_applied:
        edges += [Edge(reduced, update)]
        edges += [Edge(norm, update)] if plan.clips else []
    gathered = plan.sharding in ("zero1", "zero2")
    return (*edges, Edge(update, state, _V.SHARD if gathered else _V.OWN))


def _gather(plan: Plan) -> tuple[Edge, ...]:
    match plan.sharding:
        case "zero3":
            return (Edge(_S.PRIOR, _S.GATHER, _V.SHARD),)
        case "hsdp":  # which part of the ranks gathers from which is not said
            return (Edge(_S.PRIOR, _S.GATHER), Edge(_S.PRIOR, _S.GATHER, _V.SHARD, Pass.MAY))
    return (Edge(_S.PRIOR, _S.GATHER),)


_STAGE_OF_METRIC = {
    "nonfinite_send": Stage.SEND,
    "nonfinite_act": Stage.ACTIVATION,
    "nonfinite_logits": Stage.LOGITS,
    "global_loss": Stage.MEAN_LOSS,
    "nonfinite_reduced": Stage.REDUCED,
    "grad_sketch_out": Stage.REDUCED,
}
_STAGE_OF_PHASE = {
    Phase.GATHER: Stage.GATHER,
    Phase.DATA: Stage.DATA,
    Phase.FORWARD: Stage.OUTPUT,
    Phase.BACKWARD: Stage.HANDOVER,
    Phase.REDUCE_IN: Stage.REDUCE_IN,
    Phase.REDUCE_OUT: Stage.NORM,
    Phase.OPTIMIZER: Stage.OPTIMIZER,
    Phase.STATE: Stage.STATE,
}
PRIOR_OF = {
    Stage.REDUCE_IN: Stage.PRIOR_IN,
    Stage.REDUCED: Stage.PRIOR_REDUCED,
    Stage.NORM: Stage.PRIOR_NORM,
    Stage.OPTIMIZER: Stage.PRIOR_UPDATE,
    Stage.STATE: Stage.PRIOR,
}
"""The same stage of the iteration before."""


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
