"""A stored run judged again under other settings, out of what the flight recorder still holds of it.

Twice: under the settings of the service first. Only if that gives what the stored verdict says is the other
worth comparing; else history lacks what the verdict was made of, and the answer is a refusal that says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detectors.facts import InputFacts
from detectors.fuse import fuse
from detectors.judge import AttemptJudge
from detectors.registry import DetectorsConfig
from detectors.verdict import canonical_bytes
from ingest.blocks import IterationBlock

from .history_reader import HistoryReader
from .history_replay import TooManyValuesError
from .sentence import what_happened
from .verdict_difference import essence

MAX_VALUES = 4 << 20
"""Values judged at once, 4 M: some ten seconds of one core twice over, in a process of its own."""

# Any: a verdict's JSON, whose shape detectors/verdict.schema.json fixes.
Json = Mapping[str, Any]


class CannotRejudge(Exception):  # a refusal, in words for a person
    """Why a run cannot be judged again from its history."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A run, its stored verdict, and the settings before and after."""

    folder: Path
    run_id: str
    verdict: Json
    before: DetectorsConfig
    after: DetectorsConfig
    lateness_iterations: int
    max_values: int = MAX_VALUES


def rejudged(question: Question) -> Json:
    """The verdict under the settings after.

    Raises:
        CannotRejudge: history does not hold the run whole, or not all that its verdict rests on.
    """
    recorded = _recorded(question)
    again = _judged(question, recorded, question.before)
    if essence(again) != essence(question.verdict) or again["label"] != question.verdict["label"]:
        raise CannotRejudge(
            "under its present settings the stored history gives another verdict than the one that is stored"
            f" ({what_happened(again)!r} where that says {what_happened(question.verdict)!r}): events, times"
            " of records or other settings had a part in it; ask with --kafka, or of a log"
        )
    return _judged(question, recorded, question.after)


def _recorded(question: Question) -> Mapping[int, Sequence[IterationBlock]]:
    """The blocks of every attempt, each whole."""
    reader, run = HistoryReader(question.folder), str(question.verdict["run"])
    found: dict[int, Sequence[IterationBlock]] = {}
    for attempt in question.verdict["attempts"]:
        number = int(attempt["attempt"])
        try:
            kept = reader.recorded(question.run_id, number, run, max_cells=question.max_values)
        except TooManyValuesError as error:
            raise CannotRejudge(f"attempt {number} is too large to be judged again here: {error}") from error
        first, last = attempt["from"], attempt["to"]
        if first is None or last is None:
            continue
        if kept is None:
            raise CannotRejudge(f"no values of single ranks are kept of attempt {number}")
        if kept.first > first or kept.last < last:
            raise CannotRejudge(
                f"of attempt {number} (iterations {first} to {last}) values of single ranks are kept of"
                f" {kept.first} to {kept.last} alone: history.recorder_bytes and history.recorder_iterations"
                " say how much is; ask with --kafka, or of a log"
            )
        found[number] = kept.blocks
    if not found:
        raise CannotRejudge("nothing of it has been judged yet")
    return found


def _judged(
    question: Question, recorded: Mapping[int, Sequence[IterationBlock]], config: DetectorsConfig
) -> dict[str, Any]:
    findings = []
    for attempt, blocks in sorted(recorded.items()):
        judge = AttemptJudge(attempt, question.lateness_iterations, config)
        for block in blocks:
            judge.update(block)
        findings.append(judge.findings((), {}))
    records = InputFacts(records=int(question.verdict["coverage"].get("records", 0)))
    verdict = fuse(str(question.verdict["run"]), findings, records)
    told: dict[str, Any] = json.loads(canonical_bytes(verdict))
    return told
