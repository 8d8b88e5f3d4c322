"""The verdict: what is concluded of a run, and its one JSON form.

The *canonical* part (`canonical_bytes`) is a pure function of settled records, equal byte for byte
however they came. What people and the store add (``revision``, the person's ``state``) and the counts
of how the records came are an envelope that `to_json` puts around it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from importlib import resources
from typing import Any

from .evidence import Annotation, Check, Json, Label
from .incident import Advice, Cause, EvidenceItem, First, Incident, LastGood

SCHEMA_VERSION = 1
"""The value of ``schema``; it changes only when a reader of the old shape would read wrong."""
ARRIVAL_COUNTS = frozenset({"records", "late", "duplicates", "conflicts", "padding"})
"""Keys of ``coverage`` that tell how the records came, not what they said."""
SIGNIFICANT_DIGITS = 6
"""Statistics are rounded to this: far finer than any threshold, coarser than a last-bit difference."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptVerdict:
    """The label of one attempt and the iterations it was judged over; None when it has none."""

    attempt: int
    label: Label
    first_iteration: int | None = None
    last_iteration: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What was looked at, what was not, and what this telemetry can never show."""

    ranks: int = 0
    metrics: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    records: int = 0
    rejected: int = 0
    rejected_by: Mapping[str, int] = field(default_factory=dict)
    late: int = 0
    duplicates: int = 0
    conflicts: int = 0
    padding: int = 0
    silent_ranks: tuple[int, ...] = ()
    silent_rank_count: int = 0
    silent_since: tuple[int, ...] = ()
    """Of each listed silent rank the iteration that it reported last: nothing is known of it from then on."""
    notes: tuple[str, ...] = ()
    blind_to: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is concluded of one run up to ``judged_to_iteration``.

    ``incidents`` are the confirmed ones by first position, the first of them the root, then those
    suspected, then those recovered.
    """

    run: str
    label: Label
    judged_to_iteration: int | None = None
    attempts: tuple[AttemptVerdict, ...] = ()
    incidents: tuple[Incident, ...] = ()
    annotations: tuple[Annotation, ...] = ()
    coverage: Coverage = field(default_factory=Coverage)


def incident_id(run: str, attempt: int, ordinal: int) -> str:
    """The id of the ``ordinal``-th incident of an attempt: 32 hexadecimal digits.

    >>> incident_id("llama-7b", 0, 0) == incident_id("llama-7b", 0, 0) != incident_id("llama-7b", 0, 1)
    True
    """
    digest = blake2b(digest_size=16, person=b"incident")
    # Length first: a run name that ends in digits must not run into the numbers behind it.
    name = run.encode("utf-8", "surrogatepass")
    digest.update(f"{len(name)}:".encode() + name + f"/{attempt}/{ordinal}".encode())
    return digest.hexdigest()


def to_json(
    verdict: Verdict, *, revision: int | None = None, states: Mapping[str, str] | None = None
) -> dict[str, Json]:
    """The verdict as a JSON object that holds no non-finite number, in its fixed order of keys.

    ``revision`` and ``states`` (incident id to what the person made of it; ``open`` where it has none)
    are the envelope: without them the object is the canonical part alone.
    """
    node: dict[str, Json] = {"schema": SCHEMA_VERSION, "run": verdict.run, "label": verdict.label.value}
    node["judged_to_iteration"] = verdict.judged_to_iteration
    node["attempts"] = [
        {
            "attempt": one.attempt,
            "label": one.label.value,
            "from": one.first_iteration,
            "to": one.last_iteration,
        }
        for one in verdict.attempts
    ]
    if revision is not None:
        node["revision"] = revision
    node["incidents"] = [_incident(one, states) for one in verdict.incidents]
    node["annotations"] = [
        {"kind": one.kind, "attempt": one.attempt, "iteration": one.iteration, "detail": plain(one.detail)}
        for one in verdict.annotations
    ]
    node["coverage"] = _coverage(verdict.coverage)
    return node


def canonical_bytes(verdict: Verdict) -> bytes:
    """The canonical part as one line of ASCII JSON without a line end: equal verdicts, equal bytes.

    How often records came, and how many came too late, is left out: the same records in another
    order or twice are the same verdict.
    """
    node = to_json(verdict)
    node["coverage"] = {
        key: value for key, value in _coverage(verdict.coverage).items() if key not in ARRIVAL_COUNTS
    }
    return json.dumps(node, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The published JSON Schema (draft 2020-12) of `to_json`'s result, with or without the envelope."""
    text = resources.files(__package__).joinpath("verdict.schema.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def plain(value: object) -> Json:
    """A tree of numbers and text as JSON can hold it: floats rounded, non-finite ones as text, keys sorted.

    >>> plain({"b": 1.23456789, "a": [float("nan"), float("-inf"), 2.0]})
    {'a': ['NaN', '-Infinity', 2], 'b': 1.23457}
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, Sequence):
        return [plain(one) for one in value]
    if isinstance(value, int):
        return int(value)
    return _number(float(value))  # type: ignore[arg-type]  # what is left is a float, numpy's included


def _number(value: float) -> Json:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    rounded = float(f"{value:.{SIGNIFICANT_DIGITS}g}")
    # 2**53: whole numbers up to it are written without a point, as the same in every language.
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def _incident(one: Incident, states: Mapping[str, str] | None) -> Json:
    node: dict[str, Json] = {"id": one.id, "label": one.label.value, "pattern": one.pattern.value}
    if states is not None:
        node["state"] = states.get(one.id, "open")
    node["certainty"] = one.certainty.value
    node["severity"] = one.severity.value
    node["first"] = _first(one.first)
    node["detected_at_iteration"] = one.detected_at_iteration
    node["chain"] = [{"label": link.label.value, "iteration": link.iteration} for link in one.chain]
    node["causes"] = [_cause(cause) for cause in one.causes]
    node["last_good"] = _last_good(one.last_good)
    node["cost"] = {
        "iterations_since_onset": list(one.cost.iterations_since_onset),
        "iterations_to_redo": one.cost.iterations_to_redo,
        "device_hours": plain(one.cost.device_hours),
    }
    node["evidence"] = [_evidence(item) for item in one.evidence]
    node["evidence_count"] = one.evidence_count
    node["advice"] = [_advice(step) for step in one.advice]
    return node


def _first(first: First) -> Json:
    return {
        "attempt": first.attempt,
        "ranks": list(first.ranks),
        "rank_count": first.rank_count,
        "scope": first.scope.value,
        "tie": first.tie,
        "iteration": first.iteration,
        "interval": list(first.interval),
        "phase": first.phase,
        "metric": first.metric,
        "suspects": [
            {"rank": one.rank, "host": one.host, "device": one.device, "why": one.why}
            for one in first.suspects
        ],
        "victims": list(first.victims),
        "victim_count": first.victim_count,
        "note": first.note,
    }


def _cause(cause: Cause) -> Json:
    return {
        "kind": cause.kind.value,
        "stage": cause.stage,
        "confidence": plain(cause.confidence),
        "because": list(cause.because),
    }


def _last_good(good: LastGood) -> Json:
    return {
        "iteration": good.iteration,
        "checkpoint": good.checkpoint,
        "checkpoint_iteration": good.checkpoint_iteration,
        "basis": good.basis.value,
    }


def _evidence(item: EvidenceItem) -> Json:
    return {
        "detector": item.detector,
        "metric": item.metric,
        "pattern": item.pattern.value,
        "certainty": item.certainty.value,
        "phase": item.phase,
        "ranks": list(item.ranks),
        "rank_count": item.rank_count,
        "iteration": item.iteration,
        "interval": list(item.interval),
        "statistic": plain(item.statistic),
        "threshold": plain(item.threshold),
        "direction": item.direction.value,
        "detail": plain(item.detail),
    }


def _advice(step: Advice) -> Json:
    return {"action": step.action, "target": step.target, "command": step.command}


def _coverage(coverage: Coverage) -> dict[str, Json]:
    return {
        "ranks": coverage.ranks,
        "metrics": list(coverage.metrics),
        "checks": [
            {"name": check.name, "state": check.state.value, "why": check.why, "metrics": list(check.metrics)}
            for check in coverage.checks
        ],
        "records": coverage.records,
        "rejected": coverage.rejected,
        "rejected_by": plain(coverage.rejected_by),
        "late": coverage.late,
        "duplicates": coverage.duplicates,
        "conflicts": coverage.conflicts,
        "padding": coverage.padding,
        "silent_ranks": list(coverage.silent_ranks),
        "silent_rank_count": coverage.silent_rank_count,
        "silent_since": list(coverage.silent_since),
        "notes": list(coverage.notes),
        "blind_to": list(coverage.blind_to),
    }
