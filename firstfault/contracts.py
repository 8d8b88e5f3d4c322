"""The contracts that hold for a run: the built-in ones, and those its ``run_start`` declares.

    {"event": "run_start", …, "metrics": {
        "router_checksum": {"kind": "checksum", "phase": "state", "relations": {"dp": "equal"}},
        "nonfinite_router": {"kind": "nonfinite_count", "phase": "forward"}}}

A metric that is neither built in nor declared is supporting evidence only. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from .telemetry import (
    AXES,
    MAX_METRIC_NAME_BYTES,
    Event,
    EventKind,
    Kind,
    MetricContract,
    Phase,
    Relation,
    contract_of,
    is_checksum,
)

DECLARABLE = (Kind.CURVE, Kind.AGREED, Kind.CHECKSUM, Kind.NONFINITE_COUNT, Kind.CONTEXT)
"""Kinds that a run may declare; the others have a meaning that a name alone cannot give."""
MAX_DECLARED = 4096
"""Metrics that the events of one attempt may declare: all layers of a large model have about 2000."""
T = TypeVar("T")
_PHASES = {phase.label: phase for phase in Phase}


class ContractError(ValueError):
    """A declared contract that cannot be: names the metric, the rule and the value."""


@dataclass(frozen=True, slots=True)
class Contracts:
    """Looks contracts up by metric; ``declared`` ones win over those that are built in."""

    declared: Mapping[str, MetricContract] = field(default_factory=dict)

    def of(self, metric: str) -> MetricContract:
        """The contract of ``metric``: declared, built in, or that of supporting evidence.

        >>> Contracts().of("loss").kind
        <Kind.CURVE: 'curve'>
        """
        return self.declared.get(metric) or contract_of(metric)

    def joined(self, more: Mapping[str, MetricContract]) -> Contracts:
        """With ``more`` declared on top; itself where that says nothing new."""
        is_new = any(self.declared.get(name) != contract for name, contract in more.items())
        return Contracts({**self.declared, **more}) if is_new else self

    def to_plain(self) -> dict[str, Any]:
        """All of it as plain data, in the form in which it is declared."""
        return {
            name: {
                "kind": contract.kind.value,
                "phase": contract.phase.label,
                "relations": {axis: relation.value for axis, relation in contract.relations.items()},
            }
            for name, contract in self.declared.items()
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Contracts:
        """The contracts that `to_plain` gave."""
        return cls({name: contract_from(name, fields) for name, fields in plain.items()})


BUILT_IN = Contracts()


def declared_by(event: Event) -> Iterator[MetricContract | ContractError]:
    """What the ``metrics`` of a ``run_start`` declare, one by one; an impossible one as its error."""
    metrics = event.fields.get("metrics") if event.kind is EventKind.RUN_START else None
    if metrics is None:
        return
    if not isinstance(metrics, Mapping):
        yield ContractError(f"metrics must map names to contracts, got {_short(metrics)}")
        return
    for name, fields in metrics.items():
        try:
            yield contract_from(str(name), fields)
        except ContractError as error:
            yield error


def contract_from(name: str, fields: object) -> MetricContract:
    """The contract that ``fields`` (kind, phase, relations by mesh axis) declare for ``name``.

    Raises:
        ContractError: an unknown kind, phase, axis or relation, or a kind that the name rules out.
    """
    if len(name.encode("utf-8", "replace")) > MAX_METRIC_NAME_BYTES:
        raise ContractError(
            f"metrics: names must be at most {MAX_METRIC_NAME_BYTES} bytes, got {_short(name)}"
        )
    if not isinstance(fields, Mapping):
        raise ContractError(f"metrics.{name} must have kind, phase and relations, got {_short(fields)}")
    unknown = sorted(set(map(str, fields)) - {"kind", "phase", "relations"})
    if unknown:
        raise ContractError(f"metrics.{name} has kind, phase and relations only, got {_short(unknown[0])}")
    kind = _chosen(f"metrics.{name}.kind", fields.get("kind"), {kind.value: kind for kind in DECLARABLE})
    if (kind is Kind.CHECKSUM) != is_checksum(name):
        raise ContractError(f"metrics.{name}: a checksum's name ends in _checksum, and no other's does")
    phase = _chosen(f"metrics.{name}.phase", fields.get("phase", "state"), _PHASES)
    relations = fields.get("relations", {})
    if not isinstance(relations, Mapping):
        raise ContractError(f"metrics.{name}.relations must map axes to relations, got {_short(relations)}")
    known = {relation.value: relation for relation in Relation}
    for axis in relations:
        _chosen(f"metrics.{name}.relations", axis, {axis: axis for axis in AXES})
    return MetricContract(
        name=name,
        kind=kind,
        phase=phase,
        relations={
            axis: _chosen(f"metrics.{name}.relations.{axis}", relation, known)
            for axis, relation in relations.items()
        },
        is_built_in=False,
    )


def _chosen(key: str, value: object, known: Mapping[str, T]) -> T:
    if not isinstance(value, str) or value not in known:
        raise ContractError(f"{key} must be one of {', '.join(known)}, got {_short(value)}")
    return known[value]


def _short(value: object) -> str:
    return repr(str(value)[:40])
