"""One case: runs drawn from seeds, with the truth of each, and what a detector makes of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench.quality.intervals import exact_share
from detectors.base import Detector
from detectors.evidence import Certainty, Evidence, Finding
from ingest.blocks import IterationBlock
from tests.block_builders import cut

FIRST_SEED = 500_000
"""With the name of the case, which is part of the seed, nothing else draws these runs; the benchmark's seeds
begin at a million."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One drawn run. ``onset`` is None where nothing is wrong, ``ranks`` are those at fault, if any are."""

    block: IterationBlock
    onset: int | None = None
    ranks: tuple[int, ...] = ()
    lines: tuple[bytes, ...] = ()
    """The run as a log, where one block is not enough to hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kind of run for one detector. ``expected`` says what chance allows, where that is known."""

    name: str
    make: Callable[[], Detector] | None = None
    draw: Callable[[np.random.Generator], Run]
    runs: int = 100
    is_live: bool = False
    """Ask after each iteration from the onset on, where evidence does not note when it was confirmed."""
    expected: float | None = None
    judge: Callable[[Run], Sequence[tuple[int, Finding]]] | None = None
    """In the place of a detector: what is said of a run, each at its iteration."""

    def said(self, run: Run) -> Sequence[tuple[int, Finding]]:
        """What is said of ``run``."""
        if self.judge is not None:
            return self.judge(run)
        assert self.make is not None, "a case has a detector or a judge"
        return said_live(self.make(), run) if self.is_live else said_of(self.make(), run.block)


@dataclass(slots=True)
class Score:
    """What became of the runs of a case."""

    runs: int = 0
    faulty: int = 0
    suspected: list[int] = field(default_factory=list)
    confirmed: list[int] = field(default_factory=list)
    asked: int = 0
    right: int = 0
    inside: int = 0
    false: int = 0
    false_suspected: int = 0
    healthy_iterations: int = 0

    def take(self, run: Run, said: Sequence[tuple[int, Finding]]) -> None:
        """Judge what was said, each at its iteration, of one run."""
        self.runs += 1
        start = int(run.block.iteration_T[0])
        end = int(run.block.iteration_T[-1]) + 1
        self.healthy_iterations += (end if run.onset is None else run.onset) - start
        told = [(at, one) for at, one in said if isinstance(one, Evidence) and not one.supporting]
        false = [one for _, one in told if run.onset is None or one.alarm_iteration < run.onset]
        self.false_suspected += len({one.key for one in false})
        # who is told of an incident is not helped by its being taken back later
        self.false += len({one.key for one in false if one.certainty is Certainty.CONFIRMED})
        if run.onset is None:
            return
        self.faulty += 1
        true = [(at, one) for at, one in told if one.alarm_iteration >= run.onset]
        if true:
            self.suspected.append(min(one.alarm_iteration for _, one in true) - run.onset)
        sure = [(at, one) for at, one in true if one.certainty is Certainty.CONFIRMED]
        if not sure:
            return
        at, first = sure[0]
        self.confirmed.append(at - run.onset)
        self.inside += (
            (start - 1 if first.last_clean is None else first.last_clean) < run.onset <= first.first_bad
        )
        if run.ranks:
            self.asked += 1
            self.right += tuple(first.ranks) == run.ranks

    def to_plain(self, case: Case) -> dict[str, Any]:
        """As strict JSON."""
        plain: dict[str, Any] = {
            "case": case.name,
            "runs": self.runs,
            "false_confirmed": self.false,
            "false_suspected": self.false_suspected,
            "healthy_iterations": self.healthy_iterations,
        }
        if self.faulty:
            plain["found"] = share(len(self.confirmed), self.faulty)
            plain["suspected"] = share(len(self.suspected), self.faulty)
            if self.confirmed:
                plain["delay_confirmed"] = float(np.median(self.confirmed))
                plain["inside"] = share(self.inside, len(self.confirmed))
            if self.suspected:
                plain["delay_suspected"] = float(np.median(self.suspected))
            if self.asked:
                plain["rank_right"] = share(self.right, self.asked)
        if case.expected is not None:
            plain["expected"] = case.expected
        return plain


def share(hits: int, cases: int) -> dict[str, float]:
    """A share with its exact 95 % interval, as JSON."""
    low, high = exact_share(hits, cases)
    return {"value": round(hits / cases, 4), "low": round(low, 4), "high": round(high, 4)}


def score(case: Case, runs: int) -> Score:
    """Draw the runs of a case and judge each."""
    total = Score()
    for seed in range(runs):
        run = case.draw(np.random.default_rng([FIRST_SEED + seed, *case.name.encode()]))
        total.take(run, case.said(run))
    return total


def said_of(detector: Detector, block: IterationBlock) -> list[tuple[int, Finding]]:
    """What a detector says of one block, each at the iteration that it notes."""
    end = int(block.iteration_T[-1])
    return [(_judged_at(one, end), one) for one in [*detector.update(block), *detector.finish()]]


def said_live(detector: Detector, run: Run) -> list[tuple[int, Finding]]:
    """What a live verdict would have had, asked after each iteration from the onset on until it is sure."""
    start = len(run.block) if run.onset is None else int(np.searchsorted(run.block.iteration_T, run.onset))
    told: list[tuple[int, Finding]] = []
    for piece in cut(run.block, range(start, len(run.block))):
        at = int(piece.iteration_T[-1])
        told += [(at, one) for one in detector.update(piece)]
        told += [(at, one) for one in copy.deepcopy(detector).finish()]
        if any(isinstance(one, Evidence) and one.certainty is Certainty.CONFIRMED for _, one in told):
            break
    return told


def _judged_at(finding: Finding, end: int) -> int:
    """Where it was said: detectors that need more points note it, the others are sure where they alarm."""
    if not isinstance(finding, Evidence):
        return end
    judged = finding.detail.get("judged_at")
    return judged if isinstance(judged, int) else finding.alarm_iteration
