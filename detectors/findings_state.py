"""Findings as plain data and back, for a checkpoint of a judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from firstfault.telemetry import Phase

from .evidence import Annotation, Certainty, Direction, Evidence, Finding, Pattern, Sight


def findings_to_plain(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Each finding as a dictionary of numbers, text, lists and arrays."""
    return [_to_plain(finding) for finding in findings]


def findings_from_plain(plain: Sequence[dict[str, Any]]) -> list[Finding]:
    """The findings that `findings_to_plain` gave."""
    return [_from_plain(dict(fields)) for fields in plain]


def _to_plain(finding: Finding) -> dict[str, Any]:
    fields = {field.name: getattr(finding, field.name) for field in dataclasses.fields(finding)}
    fields["detail"] = dict(finding.detail)
    if isinstance(finding, Evidence):
        fields["ranks"] = list(finding.ranks)
        fields["later_ranks"] = [list(pair) for pair in finding.later_ranks]
        fields["sights"] = [
            {field.name: getattr(sight, field.name) for field in dataclasses.fields(sight)}
            for sight in finding.sights
        ]
    return {"type": type(finding).__name__, **fields}


def _from_plain(fields: dict[str, Any]) -> Finding:
    if fields.pop("type") == "Annotation":
        return Annotation(**fields)
    fields["pattern"] = Pattern(fields["pattern"])
    fields["certainty"] = Certainty(fields["certainty"])
    fields["direction"] = Direction(fields["direction"])
    fields["phase"] = None if fields["phase"] is None else Phase(fields["phase"])
    fields["ranks"] = tuple(fields["ranks"])
    fields["later_ranks"] = tuple((iteration, rank) for iteration, rank in fields["later_ranks"])
    fields["sights"] = tuple(_sight(dict(sight)) for sight in fields["sights"])
    return Evidence(**fields)


def _sight(fields: dict[str, Any]) -> Sight:
    for flags in ("bad_R", "clean_R"):
        fields[flags] = np.asarray(fields[flags], np.bool_)
    fields["ranks_R"] = np.asarray(fields["ranks_R"], np.int32)
    fields["phase"] = None if fields["phase"] is None else Phase(fields["phase"])
    return Sight(**fields)
