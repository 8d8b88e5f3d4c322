"""Cases of `reference`: an attempt that repeats the iterations of the one before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import numpy as np

from detectors.evidence import Finding
from detectors.reference import meet
from ingest.decode import Decoder, RawMessage
from service.pipeline import Pipeline
from tests.block_builders import block

from .case import Case, Run

RANKS, FIRST, STOP, AGAIN_FROM, AGAIN_STOP = 4, 0, 80, 40, 100
CHECK_EACH = 2
Draw = Callable[[np.random.Generator], Run]


def reference() -> list[Case]:
    """Repetitions that go wrong on all ranks or on one, and healthy restarts of two kinds of jobs."""
    return [
        Case(name="all replicas get another result, deterministic job", judge=met, draw=_again("all")),
        Case(name="one of 4 ranks does", judge=met, draw=_again("one")),
        Case(
            name="all do, a job that does not say it is deterministic",
            judge=met,
            draw=_again("all", says=False),
        ),
        Case(name="healthy, a restart", judge=met, draw=_again("")),
        Case(
            name="healthy, a restart of a job that is not deterministic",
            judge=met,
            draw=_again("", says=False),
        ),
    ]


def met(run: Run) -> list[tuple[int, Finding]]:
    """What the later attempt of a log shows beside the earlier one."""
    pipeline = Pipeline()
    pipeline.feed(Decoder().decode([RawMessage("rates", 0, b"\n".join(run.lines))]))
    (name,) = pipeline.runs
    earlier, later = (
        pipeline._findings(pipeline._runs[name], aligner, ended=True) for aligner in pipeline.aligners(name)
    )
    evidence = [one for one in meet(later, [earlier], []).evidence if one not in later.evidence]
    return [(one.alarm_iteration, one) for one in evidence]


def _again(fault: str, *, says: bool = True) -> Draw:
    """``says``: both launches declare themselves deterministic. Without, healthy attempts differ at once."""

    def draw(rng: np.random.Generator) -> Run:
        onset = int(rng.integers(AGAIN_FROM + 20, STOP - CHECK_EACH))
        rank = int(rng.integers(RANKS))
        wrong = frozenset(range(RANKS) if fault == "all" else [rank] if fault else [])
        is_repeatable = bool(fault) or says
        lines = tuple(_lines(rng, onset, wrong, says=says, is_repeatable=is_repeatable))
        repeated = np.arange(AGAIN_FROM, STOP)
        return Run(
            block=block(loss=np.ones(len(repeated)), iterations=repeated),
            onset=onset if fault else None,
            ranks=(rank,) if fault == "one" else (),
            lines=lines,
        )

    return draw


def _lines(
    rng: np.random.Generator, onset: int, wrong: frozenset[int], *, says: bool, is_repeatable: bool
) -> Iterator[bytes]:
    words = rng.integers(1, 1 << 60, AGAIN_STOP).tolist()
    for attempt, (start, stop) in enumerate(((FIRST, STOP), (AGAIN_FROM, AGAIN_STOP))):
        told = {"event": "run_start", "world_size": RANKS, **({"deterministic": True} if says else {})}
        yield _line(attempt, start, 0, **told)
        own = 0 if is_repeatable else attempt
        for iteration in range(start, stop, CHECK_EACH):
            for rank in range(RANKS):
                off = int(attempt == 1 and iteration >= onset and rank in wrong)
                yield _line(attempt, iteration, rank, param_checksum=f"{words[iteration] + own + off:016x}")


def _line(attempt: int, iteration: int, rank: int, **fields: object) -> bytes:
    place = {"run": "seeded", "attempt": attempt, "rank": rank, "iteration": iteration}
    return json.dumps({**place, **fields}).encode()
