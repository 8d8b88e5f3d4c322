"""Slowdown: one rank that takes longer for its steps than its peers, or a run that takes longer than it did.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from firstfault.telemetry import MetricContract, contract_of
from ingest.blocks import Floats, IterationBlock, NumberBlock
from ingest.bounds import check_bounds

from . import pace_fold as pace
from . import peer_rows as on_rows
from . import peer_tests as on_tests
from .base import State
from .curve import Marks, median_of_ranks
from .evidence import Certainty, Check, CheckState, Direction, Evidence, Finding, Pattern
from .groups import fingerprint
from .peer_episode import Episode, evidence_of, go_on, open_episode
from .peer_gates import gates_of
from .peer_metric import PeerMetric, Report
from .peer_outlier import MAX_EPISODES, resets_of
from .slowdown_short import ShortPace

METRIC = "step_time_s"
WEIGHT = "tokens"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownConfig:
    """How much longer steps must take, and for how long."""

    peer_factor: float = 1.25
    """Step time of a rank over that of its peers, against what it was before, that counts: a device that
    throttles loses a fifth to a half of its clock; below lies what placement and data explain."""
    peer_points: int = 128
    """Steps for which a suspected rank must stay slow: evaluations, checkpoints of one rank and page caches
    that fill pass sooner."""
    run_factor: float = 1.5
    """Step time of the whole run over its own baseline that counts: sequences of another length, which no
    event tells of, change it by up to that."""
    sigmas: float = 6.0
    """The rise of mini-blocks in standard deviations of their noise that is needed besides; four of them in
    a row past it never happen by chance, also where step times have heavy tails."""
    iterations_per_alarm: float = 100_000.0
    """Healthy iterations to one false suspicion of a rank, all ranks together."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)

    def knobs(self) -> Floats:
        """The thresholds as the fold of peers takes them: upward only, and no single step counts."""
        knobs = np.zeros(on_tests.KNOBS)
        knobs[on_tests.LEAST_SHIFT] = math.log(self.peer_factor)
        knobs[on_tests.IS_UPWARD] = 1.0
        knobs[on_tests.HOLD_LEAST] = self.peer_points
        return knobs


_BOUNDS = {
    "peer_factor": (1.01, 100.0),
    "peer_points": (4, 10_000),
    "run_factor": (1.01, 100.0),
    "sigmas": (1.0, 1000.0),
    "iterations_per_alarm": (100.0, 1e12),
}


class Slowdown:
    """Watches ``step_time_s``, per token where ``tokens`` comes with the first step time.

    Ranks that wait for each other in a collective all take as long as the slowest: then the run is slow,
    and no rank is named.

    >>> rng = np.random.default_rng(0)
    >>> time_TR = 0.5 * np.exp(rng.normal(0.0, 0.03, (500, 8)))
    >>> time_TR[200:, 6] *= 1.4
    >>> block = IterationBlock(
    ...     run="r", attempt=0, iteration_T=np.arange(500), microbatch_T=np.zeros(500, np.int32),
    ...     ranks_R=np.arange(8, dtype=np.int32),
    ...     numbers={"step_time_s": NumberBlock(time_TR, np.ones((500, 8), np.bool_))})
    >>> found = Slowdown().update(block)[-1]
    >>> (str(found.pattern), str(found.certainty), found.ranks, found.iteration)
    ('utilization_drop', 'confirmed', (6,), 200)
    """

    name: ClassVar[str] = "slowdown"

    def __init__(self, config: SlowdownConfig | None = None) -> None:
        self.config = config or SlowdownConfig()
        self._knobs = np.array([math.log(self.config.run_factor), self.config.sigmas])
        self._ranks = PeerMetric(self.config.knobs())
        self._episodes: dict[int, Episode] = {}
        self._pace = pace.make_state()
        self._pace_alarm, self._pace_ordinal = 0, -1
        self._marks = Marks()
        self._is_per_token: bool | None = None
        self._layout_mark = ""
        self._epoch = 0
        self._attempt = 0
        self._short = ShortPace()

    def update(self, block: IterationBlock) -> list[Finding]:
        """Fold the step times of the block: of each rank among all, then of the run."""
        if not len(block):
            return []
        self._attempt = block.attempt
        marked_T = resets_of(block, self._marks)
        self._notice_layout(block)
        numbers = self._times(block)
        if numbers is None:
            self._ranks.miss(marked_T)
            return []
        findings: list[Finding] = []
        contract = contract_of(METRIC)
        # Whatever the mesh: a step ends for all ranks together, so that all are peers.
        column_R = self._ranks.meet(block.ranks_R, np.zeros(len(block.ranks_R), np.int64))
        counts_T = self._ranks.counts(numbers, column_R)
        self._ranks.fold(
            block,
            numbers,
            column_R,
            gates=gates_of(counts_T, self.config.iterations_per_alarm),
            marked_T=marked_T,
            on_report=lambda report: findings.extend(self._of_rank(contract, block.attempt, report)),
        )
        level_T = median_of_ranks(numbers.values_TR, numbers.present_TR)
        self._short.take(level_T, block.iteration_T, marked_T)
        log_T = np.log(np.where(level_T > 0, level_T, np.nan))
        pace.FOLD.run(
            (log_T, block.iteration_T, marked_T),
            (*self._pace, self._knobs),
            lambda code: findings.append(self._of_run(code, contract, block)),
        )
        return findings

    def finish(self) -> list[Finding]:
        """What a log too short to know its pace shows; a suspicion stays one, since it may be a pause."""
        return self._short.slower(self._attempt)

    def check(self) -> Check:
        """Whether step times were reported for long enough to know the pace."""
        points = int(self._pace[0][pace.POINTS])
        if points == 0:
            return Check(name=self.name, state=CheckState.NOT_RUN, why=f"no {METRIC} was reported")
        if points < pace.WARM * pace.MINI and not self._ranks.has_judged:
            why = f"{points} step times: the pace is known after {pace.WARM * pace.MINI}"
            return Check(name=self.name, state=CheckState.NOT_RUN, why=why, metrics=(METRIC,))
        return Check(name=self.name, state=CheckState.RAN, metrics=(METRIC,))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "ranks": self._ranks.snapshot(),
            "episodes": {str(rank): dict(episode) for rank, episode in self._episodes.items()},
            "pace": [array.copy() for array in self._pace],
            "pace_alarm": self._pace_alarm,
            "pace_ordinal": self._pace_ordinal,
            "marks": self._marks.snapshot(),
            "is_per_token": self._is_per_token,
            "layout_mark": self._layout_mark,
            "epoch": self._epoch,
            "attempt": self._attempt,
            "short": self._short.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Continue from what `snapshot` gave."""
        self._ranks = PeerMetric(self.config.knobs())
        self._ranks.restore(state["ranks"])
        self._episodes = {int(rank): dict(episode) for rank, episode in state["episodes"].items()}
        self._pace = tuple(array.copy() for array in state["pace"])
        self._pace_alarm, self._pace_ordinal = state["pace_alarm"], state["pace_ordinal"]
        self._marks.restore(state["marks"])
        self._is_per_token = state["is_per_token"]
        self._layout_mark, self._epoch = state["layout_mark"], state["epoch"]
        self._attempt, self._short = state["attempt"], ShortPace.restored(state["short"])

    def _notice_layout(self, block: IterationBlock) -> None:
        """Another layout has another pace."""
        mark = fingerprint(block.layout)
        if mark != self._layout_mark:
            self._epoch += int(self._pace[0][pace.POINTS] > 0)
            self._ranks, self._episodes = PeerMetric(self.config.knobs()), {}
            self._pace, self._pace_ordinal, self._layout_mark = pace.make_state(), -1, mark
            self._short = ShortPace()

    def _times(self, block: IterationBlock) -> NumberBlock | None:
        """Step times, by the token where tokens came with the first of them; non-finite ones left out."""
        times, weights = block.numbers.get(METRIC), block.numbers.get(WEIGHT)
        if times is None or not times.present_TR.any():
            return None
        usable_TR = times.present_TR & np.isfinite(times.values_TR)
        if self._is_per_token is None:
            first = int(times.present_TR.any(axis=1).argmax())
            self._is_per_token = weights is not None and bool(weights.present_TR[first].any())
        if not self._is_per_token:
            return NumberBlock(times.values_TR, usable_TR)
        if weights is None:
            return NumberBlock(times.values_TR, np.zeros_like(usable_TR))
        usable_TR &= weights.present_TR & np.isfinite(weights.values_TR) & (weights.values_TR > 0)
        per_TR = np.where(usable_TR, times.values_TR / np.where(usable_TR, weights.values_TR, 1.0), np.nan)
        return NumberBlock(per_TR, usable_TR)

    def _of_rank(self, contract: MetricContract, attempt: int, report: Report) -> list[Finding]:
        if report.code == on_rows.MOVED_TOGETHER:
            return []  # all of them: that is the run's pace
        if report.code == on_rows.SUSPECTED:
            before = self._episodes.get(report.rank)
            ordinal = 0 if before is None else before["ordinal"] + 1
            opened = open_episode(report, self._ranks, min(ordinal, MAX_EPISODES - 1))
            # A pair is no tie here: the other one did not get faster.
            self._episodes[report.rank] = {**opened, "ranks": [report.rank]}
        episode = self._episodes[report.rank]
        go_on(report, self._ranks, episode)
        key = f"{METRIC}:{self._epoch}:{report.rank}:{episode['ordinal']}"
        pattern = Pattern.UTILIZATION_DROP
        return [evidence_of(episode, contract, detector=self.name, attempt=attempt, key=key, pattern=pattern)]

    def _of_run(self, code: int, contract: MetricContract, block: IterationBlock) -> Evidence:
        ints, floats = self._pace[0], self._pace[1]
        now = int(block.iteration_T[int(ints[pace.CURSOR]) - 1])
        if code == pace.SUSPECTED:
            self._pace_ordinal, self._pace_alarm = min(self._pace_ordinal + 1, MAX_EPISODES - 1), now
        certainty = {
            pace.SUSPECTED: Certainty.SUSPECTED,
            pace.CONFIRMED: Certainty.CONFIRMED,
            pace.RECOVERED: Certainty.RECOVERED,
        }[code]
        rise = math.exp(float(floats[pace.LEVEL] - floats[pace.SHOWN_BASE]))
        detail: dict[str, Any] = {
            "kind": "run",
            "relative_shift": rise - 1.0,
            "per": "token" if self._is_per_token else "step",
            "baseline_s": math.exp(float(floats[pace.SHOWN_BASE])),
            "judged_at": now,
        }
        return Evidence(
            detector=self.name,
            key=f"{METRIC}:{self._epoch}:run:{self._pace_ordinal}",
            pattern=Pattern.UTILIZATION_DROP,
            certainty=certainty,
            metric=contract.name,
            attempt=block.attempt,
            iteration=int(ints[pace.FIRST_HIGH]),
            first_bad=int(ints[pace.LAST_HIGH]),
            last_clean=int(ints[pace.LAST_CLEAN]),
            alarm_iteration=self._pace_alarm,
            statistic=rise,
            threshold=self.config.run_factor,
            direction=Direction.UP,
            detail=detail,
        )
