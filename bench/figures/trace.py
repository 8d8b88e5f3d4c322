"""A detector watched at work: iteration by iteration, with the numbers it holds after each.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import copy
import gzip
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from detectors.base import Detector
from detectors.evidence import Annotation, Certainty, Evidence, Finding
from ingest.blocks import IterationBlock
from ingest.decode import Decoder, RawMessage
from service.pipeline import Pipeline
from tests.block_builders import cut

from .svg import Mark

ROOT = Path(__file__).parent.parent.parent
Reading = Mapping[str, float]
_SURENESS = (Certainty.CONFIRMED, Certainty.SUSPECTED, Certainty.RECOVERED)


@dataclass(slots=True)
class Trace:
    """What a detector said, and what it held after each iteration."""

    iterations: list[int] = field(default_factory=list)
    columns: dict[str, list[float]] = field(default_factory=dict)
    findings: dict[tuple[str, str], Finding] = field(default_factory=dict)
    said: list[tuple[int, Finding]] = field(default_factory=list)
    """(iteration at which it was said, finding), everything in order."""

    @property
    def evidence(self) -> list[Evidence]:
        """The last evidence of each key that can open an incident, the most certain and earliest first."""
        every = [one for one in self.findings.values() if isinstance(one, Evidence) and not one.supporting]
        return sorted(every, key=lambda one: (_SURENESS.index(one.certainty), one.alarm_iteration, one.key))

    @property
    def annotations(self) -> list[Annotation]:
        """The last annotation of each key."""
        return [one for one in self.findings.values() if isinstance(one, Annotation)]

    def first_said(self, evidence: Evidence, certainty: Certainty) -> int | None:
        """Where it was said with that certainty first."""
        said = (
            at
            for at, one in self.said
            if isinstance(one, Evidence) and one.key == evidence.key and one.certainty is certainty
        )
        return next(said, None)

    def keep(self, at: int, findings: Iterable[Finding]) -> None:
        """Note what was said at iteration ``at``."""
        for one in findings:
            kind = "evidence" if isinstance(one, Evidence) else one.kind
            self.findings[kind, one.key] = one
            self.said.append((at, one))


def watch(
    detector: Detector,
    blocks: Iterable[IterationBlock],
    read: Callable[[IterationBlock], Reading],
    *,
    is_asked_each_time: bool = False,
) -> Trace:
    """Give the blocks to the detector iteration by iteration, and ``read`` what it holds after each.

    ``is_asked_each_time``: a copy is asked what it would say if this were the end, as live verdicts do.
    """
    trace = Trace()
    for block in blocks:
        for piece in cut(block, range(len(block))):
            at = int(piece.iteration_T[-1])
            trace.keep(at, detector.update(piece))
            if is_asked_each_time:
                trace.keep(at, copy.deepcopy(detector).finish())
            trace.iterations.append(at)
            for name, value in read(piece).items():
                trace.columns.setdefault(name, []).append(float(value))
    if trace.iterations:
        trace.keep(trace.iterations[-1], detector.finish())
    return trace


def log_lines(name: str) -> list[bytes]:
    """The lines of a recorded sample log."""
    return gzip.decompress((ROOT / "sample_logs" / f"{name}.jsonl.gz").read_bytes()).splitlines()


@lru_cache(maxsize=4)
def sample(name: str) -> tuple[IterationBlock, ...]:
    """The settled blocks of a recorded sample log, by the product's own path."""
    blocks: list[IterationBlock] = []
    pipeline = Pipeline(on_block=blocks.append)
    pipeline.feed(Decoder().decode([RawMessage("sample", 0, b"\n".join(log_lines(name)))]))
    for run in pipeline.runs:
        for aligner in pipeline.aligners(run):
            blocks += aligner.pending()
    return tuple(sorted(blocks, key=lambda block: block.attempt))


def only(blocks: Iterable[IterationBlock], *metrics: str, attempt: int | None = None) -> list[IterationBlock]:
    """The blocks with the named metrics alone: what a detector does not read costs time to cut."""
    return [
        replace(
            block,
            numbers={name: column for name, column in block.numbers.items() if name in metrics},
            checksums={name: column for name, column in block.checksums.items() if name in metrics},
        )
        for block in blocks
        if attempt is None or block.attempt == attempt
    ]


def describe(trace: Trace) -> str:
    """In a sentence or two what the detector said, with its numbers."""
    words = []
    for one in trace.evidence[:2]:
        since = "the start" if one.last_clean is None else f"{one.last_clean}"
        who = f" of rank {', '.join(map(str, one.ranks))}" if one.ranks else ""
        confirmed = trace.first_said(one, Certainty.CONFIRMED)
        late = f", confirmed at {confirmed}" if confirmed not in (None, one.alarm_iteration) else ""
        words.append(
            f"{one.certainty.value.capitalize()}: {one.pattern.value}{who} in {one.metric}, "
            f"alarm at iteration {one.alarm_iteration}{late}; began in ({since}, {one.first_bad}]; "
            f"statistic {one.statistic:.3g} over threshold {one.threshold:.3g}."
        )
    if not words:
        words.append("No evidence.")
    kinds: dict[str, int] = {}
    for note in trace.annotations:
        kinds[note.kind] = kinds.get(note.kind, 0) + 1
    if kinds:
        told = ", ".join(
            f"{kind}" + (f" ({count} times)" if count > 1 else "") for kind, count in sorted(kinds.items())
        )
        words.append(f"Annotated: {told}.")
    return " ".join(words)


def marks_of(trace: Trace, true_onset: int | None = None) -> tuple[list[Mark], tuple[float, float] | None]:
    """The onset, the alarm and the confirmation of the first evidence, and the interval it gives."""
    marks = [] if true_onset is None else [Mark(x=true_onset, role="onset", word=f"fault {true_onset}")]
    if not trace.evidence:
        return marks, None
    one = trace.evidence[0]
    is_taken_back = one.certainty is Certainty.RECOVERED
    first = "suspected" if is_taken_back else "alarm"
    marks.append(Mark(x=one.alarm_iteration, role="alarm", word=f"{first} {one.alarm_iteration}"))
    settled = trace.first_said(one, one.certainty)
    if settled is not None and settled != one.alarm_iteration:
        then = "taken back" if is_taken_back else one.certainty.value
        marks.append(Mark(x=settled, role="alarm", word=f"{then} {settled}"))
    low = trace.iterations[0] if one.last_clean is None else one.last_clean
    return marks, (float(low), float(one.first_bad))
