"""The words that a record, a metric and an event are made of; everything else speaks in them.

A *record* is what one rank reports at one iteration: a flat set of metrics. A *metric* has a
*contract*: the phase of the iteration in which it is taken, and how its values relate along each
axis of the device mesh (must they be equal, or does each rank have its own noise?).
Standard library only: this module is imported inside training jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import Any

WIRE_VERSION = 1
"""The value of the reserved key ``v`` that this release writes and understands."""

RESERVED_KEYS = frozenset({"run", "attempt", "rank", "iteration", "microbatch", "time", "event", "v"})
KEY_ALIASES: Mapping[str, str] = {"step": "iteration", "global_step": "iteration", "learning_rate": "lr"}

MAX_RUN_BYTES = 256
MAX_METRIC_NAME_BYTES = 256
MAX_LABEL_BYTES = 1024
MAX_ITERATION = 2**53 - 1
"""Greatest iteration: every integer up to it survives a double, so JSON in any language keeps it."""
MAX_RANK = 2**20 - 1
"""Greatest rank: a million ranks, ten times the largest job the service is sized for."""
MAX_ATTEMPT = 2**31 - 1
MAX_MICROBATCH = 2**15 - 1
UNNAMED_RANK = -1
"""Stands for the one rank of a log that does not name ranks; verdicts then list no ranks."""
WHOLE_ITERATION = MAX_MICROBATCH + 1
"""Microbatch number of a record about the whole iteration: it sorts after all microbatches."""


class Phase(IntEnum):
    """Where inside an iteration a value is taken, in causal order on one rank."""

    GATHER = 0
    DATA = 1
    FORWARD = 2
    BACKWARD = 3
    REDUCE_IN = 4
    REDUCE_OUT = 5
    OPTIMIZER = 6
    STATE = 7

    @property
    def label(self) -> str:
        """The name on the wire and in a verdict: ``reduce_in``."""
        return self.name.lower()


class Relation(StrEnum):
    """How the values of one metric on ranks that differ only along one mesh axis relate."""

    EQUAL = "equal"
    NOISE = "noise"
    SUM = "sum"
    DISTINCT = "distinct"
    NONE = "none"


class Kind(StrEnum):
    """What sort of value a metric holds, which decides the detectors that may watch it."""

    CURVE = "curve"
    """A number that is watched over time: loss, norms."""
    AGREED = "agreed"
    """A number that was reduced or broadcast: all ranks of its group must report the same."""
    CHECKSUM = "checksum"
    """Compared only for equality between ranks."""
    REPEAT = "repeat"
    """A checksum of a repeated computation: a rank is compared with itself."""
    NONFINITE_COUNT = "nonfinite_count"
    SKETCH = "sketch"
    CONTEXT = "context"
    """Explains other metrics (lr, tokens, flags); never evidence by itself."""
    SUPPORTING = "supporting"
    """Neither built in nor declared: shown, summarised, never opens an incident."""


AXES = ("pp", "dp", "cp", "ep", "tp")
_MODEL_AXES_EQUAL = {"tp": Relation.EQUAL, "pp": Relation.NONE, "cp": Relation.NOISE, "ep": Relation.NOISE}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricContract:
    """What may be concluded from one metric.

    ``relations`` maps a mesh axis to the relation of ranks that differ along it; an axis that is
    not named has relation ``none`` and is never compared.
    """

    name: str
    kind: Kind
    phase: Phase
    relations: Mapping[str, Relation] = field(default_factory=dict)
    is_built_in: bool = True

    @property
    def declared_phase(self) -> Phase | None:
        """The phase, where a run declares it; None where the name alone tells it."""
        return None if self.is_built_in or self.kind is Kind.SUPPORTING else self.phase

    def axes(self, relation: Relation) -> frozenset[str]:
        """The mesh axes along which this metric has ``relation``."""
        return frozenset(axis for axis, has in self.relations.items() if has is relation)


def _everywhere(relation: Relation) -> Mapping[str, Relation]:
    return dict.fromkeys(AXES, relation)


_DP_NOISE: Mapping[str, Relation] = {"dp": Relation.NOISE}
_REPLICATED: Mapping[str, Relation] = {"dp": Relation.EQUAL, "cp": Relation.EQUAL, "ep": Relation.EQUAL}
_SUMMED: Mapping[str, Relation] = {"dp": Relation.SUM, "cp": Relation.SUM, "ep": Relation.SUM}
_CONTRACTS: Mapping[str, tuple[Kind, Phase, Mapping[str, Relation]]] = {
    "loss": (Kind.CURVE, Phase.FORWARD, {"dp": Relation.NOISE, **_MODEL_AXES_EQUAL}),
    "local_grad_norm": (Kind.CURVE, Phase.REDUCE_IN, _DP_NOISE),
    "grad_absmax": (Kind.CURVE, Phase.REDUCE_IN, _DP_NOISE),
    "act_grad_norm": (Kind.CURVE, Phase.BACKWARD, _DP_NOISE),
    "grad_norm": (Kind.AGREED, Phase.REDUCE_OUT, _everywhere(Relation.EQUAL)),
    "global_loss": (Kind.AGREED, Phase.REDUCE_OUT, _everywhere(Relation.EQUAL)),
    "lr": (Kind.CONTEXT, Phase.REDUCE_OUT, _everywhere(Relation.EQUAL)),
    "loss_scale": (Kind.CONTEXT, Phase.REDUCE_OUT, _everywhere(Relation.EQUAL)),
    "param_checksum": (Kind.CHECKSUM, Phase.STATE, _REPLICATED),
    "optim_checksum": (Kind.CHECKSUM, Phase.STATE, _REPLICATED),
    "grad_checksum": (Kind.CHECKSUM, Phase.REDUCE_OUT, _REPLICATED),
    "canary_checksum": (Kind.CHECKSUM, Phase.BACKWARD, {"dp": Relation.EQUAL}),
    "canary_loss": (Kind.CURVE, Phase.BACKWARD, {"dp": Relation.EQUAL}),
    "collective_checksum": (Kind.CHECKSUM, Phase.REDUCE_OUT, _everywhere(Relation.EQUAL)),
    "repeat_checksum": (Kind.REPEAT, Phase.BACKWARD, {}),
    "data_checksum": (
        Kind.CHECKSUM,
        Phase.DATA,
        {"tp": Relation.EQUAL, "pp": Relation.EQUAL, "dp": Relation.DISTINCT},
    ),
    "nonfinite_input": (Kind.NONFINITE_COUNT, Phase.DATA, {}),
    "nonfinite_logits": (Kind.NONFINITE_COUNT, Phase.FORWARD, {}),
    "nonfinite_loss": (Kind.NONFINITE_COUNT, Phase.FORWARD, {}),
    "nonfinite_act": (Kind.NONFINITE_COUNT, Phase.FORWARD, {}),
    "nonfinite_grad": (Kind.NONFINITE_COUNT, Phase.REDUCE_IN, {}),
    "nonfinite_reduced": (Kind.NONFINITE_COUNT, Phase.REDUCE_OUT, {}),
    "nonfinite_param": (Kind.NONFINITE_COUNT, Phase.STATE, {}),
    "nonfinite_send": (Kind.NONFINITE_COUNT, Phase.FORWARD, {}),
    "grad_sketch_in": (Kind.SKETCH, Phase.REDUCE_IN, _SUMMED),
    "grad_sketch_out": (Kind.SKETCH, Phase.REDUCE_OUT, _SUMMED),
    "skipped": (Kind.CONTEXT, Phase.OPTIMIZER, {}),
    "tokens": (Kind.CONTEXT, Phase.DATA, {}),
    "step_time_s": (Kind.CONTEXT, Phase.STATE, {}),
    "probe_dropped": (Kind.CONTEXT, Phase.STATE, {}),
    "probe_errors": (Kind.CONTEXT, Phase.STATE, {}),
}
# The part after the slash changes the group: experts are replicated along expert-dp only, norms and
# routers along tp too, tied embeddings between the first and the last stage.
_SCOPED: Mapping[str, Mapping[str, Relation]] = {
    "expert": {"dp": Relation.EQUAL, "cp": Relation.EQUAL},
    "tp_replicated": {**_REPLICATED, "tp": Relation.EQUAL},
    "tied": {**_REPLICATED, "pp": Relation.EQUAL},
}


@lru_cache(maxsize=4096)
def built_in_metrics() -> tuple[str, ...]:
    """The names of metrics that have a contract."""
    return tuple(_CONTRACTS)


def contract_of(metric: str) -> MetricContract:
    """The built-in contract of ``metric``; one without an entry is supporting evidence only.

    >>> contract_of("param_checksum/expert").axes(Relation.EQUAL) == {"dp", "cp"}
    True
    >>> contract_of("num_zeros").kind
    <Kind.SUPPORTING: 'supporting'>
    """
    base, _, scope = metric.partition("/")
    if base in _CONTRACTS:
        kind, phase, relations = _CONTRACTS[base]
        if scope.split("/")[0] in _SCOPED and kind is Kind.CHECKSUM:
            relations = _SCOPED[scope.split("/")[0]]
        if kind is Kind.SKETCH and scope.split("/")[0] == "expert":
            relations = {"dp": Relation.SUM, "cp": Relation.SUM}
        return MetricContract(name=metric, kind=kind, phase=phase, relations=relations)
    if is_checksum(metric):
        return MetricContract(name=metric, kind=Kind.SUPPORTING, phase=Phase.STATE, is_built_in=False)
    return MetricContract(name=metric, kind=Kind.SUPPORTING, phase=Phase.STATE, is_built_in=False)


def is_checksum(metric: str) -> bool:
    """Whether values under this name are read as checksums: ``param_checksum``, ``x_checksum/y``."""
    return metric.partition("/")[0].endswith("_checksum")


MAX_CHECKSUM_BITS = 512
FOLDED_BITS = 128


def fold_checksum(value: int) -> int:
    """A checksum of up to 512 bits as the 128 bits that are kept and compared.

    Up to 128 bits are kept as they are, so hexadecimal text and a 64-bit integer of the same value
    agree; longer ones are hashed (BLAKE2b), since cutting would lose a difference in the upper bits.

    >>> fold_checksum(0x9F3A)
    40762
    """
    if value < 1 << FOLDED_BITS:
        return value
    digest = hashlib.blake2b(value.to_bytes(MAX_CHECKSUM_BITS // 8, "big"), digest_size=FOLDED_BITS // 8)
    return int.from_bytes(digest.digest(), "big")


class Checksum(int):
    """A folded checksum: an integer of at most 128 bits that is never a number to compute with."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Checksum(0x{self:x})"


Value = float | Checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one rank reports at one iteration.

    ``metrics`` maps a name to a float (which may be non-finite) or a `Checksum`; what was not
    reported is not in it. ``labels`` holds text (host, device). ``time`` is in seconds since 1970.
    """

    run: str
    rank: int
    iteration: int
    attempt: int = 0
    microbatch: int = WHOLE_ITERATION
    time: float | None = None
    metrics: Mapping[str, Value] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


class EventKind(StrEnum):
    """What an event says; everything beyond run, rank and iteration only improves the verdict."""

    RUN_START = "run_start"
    MEMBERSHIP = "membership"
    CHECKPOINT = "checkpoint"
    RESUME = "resume"
    LOSS_SCALE = "loss_scale"
    LR_CHANGE = "lr_change"
    BATCH_SIZE = "batch_size"
    DATA_CHANGE = "data_change"
    HARDWARE = "hardware"
    HEARTBEAT = "heartbeat"
    RUN_END = "run_end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a run, at an iteration. ``fields`` is the JSON object as it came."""

    kind: EventKind
    run: str
    rank: int
    iteration: int
    attempt: int = 0
    time: float | None = None
    fields: Mapping[str, object] = field(default_factory=dict)

    def to_plain(self) -> dict[str, object]:
        """All of it as plain data, for a snapshot."""
        return {
            "kind": self.kind.value,
            "run": self.run,
            "rank": self.rank,
            "iteration": self.iteration,
            "attempt": self.attempt,
            "time": self.time,
            "fields": dict(self.fields),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Event:
        """The event that `to_plain` gave."""
        return cls(**{**plain, "kind": EventKind(plain["kind"])})
