"""Joint: a rank whose metrics no longer go together as they do on its peers, though each looks as ever.

Axes: T positions, R ranks of a block, M metrics, N vectors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from firstfault.telemetry import MetricContract
from ingest.blocks import Flags, Floats, Ints, IterationBlock, NumberBlock
from ingest.bounds import check_bounds

from . import peer_rows as on_rows
from . import peer_tests as on_tests
from .base import State
from .curve import Marks
from .evidence import JOINT, Check, CheckState, Finding
from .groups import fingerprint, peer_classes
from .joint_fit import fit
from .joint_model import Learned
from .peer_episode import Episode, evidence_of, go_on, open_episode
from .peer_gates import Gates, gates_of
from .peer_metric import PeerMetric, Report
from .peer_outlier import MAX_EPISODES, PeerOutlierConfig, is_noise, resets_of

MAX_METRICS = 8
"""Metrics that are looked at together, the first ones by name: the robust fit wants few."""
LISTEN = 256
FIT_POSITIONS = 192
"""Positions before the fit from which on metrics are scored, and how many of them must have scores: the
first 48 only teach what a score is. Before that nothing is computed."""
UNSURE = 8
"""Points before the onset that may be bad too: scores that have nothing to do with each other look as if they
had at every other point."""
VECTORS = 480
VECTORS_OF_ROW = 8
"""Vectors of scores that the fit is made of, and how many of them one position may give: so that they
come from 60 positions at least, and a job of ten thousand ranks holds no more of them than one of eight.
Above 500 the fit begins with parts of them, which takes ten times as long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointConfig:
    """When the metrics of a rank are suspected of no longer going together."""

    fit_after: int = 1024
    """Positions at which two metrics must have been reported before the fit is made, from the last 256 of
    them. It loads scikit-learn, which takes a second: short runs are judged without."""
    iterations_per_alarm: float = 1_000_000.0
    """Healthy iterations to one false suspicion, all ranks together: forty times as many as for a single
    metric, since a person cannot see it in any one curve."""
    hold_points: int = 96
    """Least points on which a suspicion must repeat itself before it is confirmed."""
    least_shift: float = 0.1
    """Rise of the cube root of the mean squared distance that counts: it is about 0.9 in health, and 1.5
    where two metrics that went together at a correlation of 0.9 go apart."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)

    def knobs(self) -> Floats:
        """The thresholds as the fold of peers takes them: only a greater distance is a fault."""
        knobs = np.zeros(on_tests.KNOBS)
        knobs[on_tests.LEAST_SHIFT] = self.least_shift
        knobs[on_tests.IS_UPWARD] = 1.0
        knobs[on_tests.HOLD_LEAST] = self.hold_points
        return knobs


_BOUNDS = {
    "fit_after": (LISTEN, 1_000_000),
    "iterations_per_alarm": (100.0, 1e12),
    "hold_points": (4, 10_000),
    "least_shift": (0.001, 10.0),
}


class Joint:
    """Compares the distances of ranks, each from what scores of all of them were seen to go together.

    The scores are those of `peer_fold`. Distances are compared among peers again, since what goes
    together changes over a run, but for all ranks alike.
    """

    name: ClassVar[str] = "joint"

    def __init__(self, config: JointConfig | None = None) -> None:
        self.config = config or JointConfig()
        self._begin_anew()
        self._marks = Marks()
        self._layout_mark = ""
        self._epoch = 0
        self._has_begun = False

    def _begin_anew(self) -> None:
        self._metrics: dict[str, PeerMetric] = {}
        self._chosen: list[str] = []
        self._vectors: list[Floats] = []
        self._heard = 0
        self._positions = 0
        self._learned: Learned | None = None
        self._distance = PeerMetric(self.config.knobs())
        self._episodes: dict[int, Episode] = {}

    def update(self, block: IterationBlock) -> list[Finding]:
        """Score every metric of the block, then every rank by all of them."""
        if not len(block):
            return []
        mark = fingerprint(block.layout)
        if mark != self._layout_mark:
            self._epoch += int(self._has_begun)
            self._layout_mark = mark
            self._begin_anew()
        self._has_begun = True
        marked_T = resets_of(block, self._marks)
        start = self._hear(block) if self._learned is None else 0
        if start >= len(block):
            return []
        block, marked_T = _rows_from(block, start), marked_T[start:]
        scores = dict(self._scores(block, marked_T))
        start = self._learn(scores, len(block)) if self._learned is None else 0
        if self._learned is None or len(self._learned.metrics) < 2 or start >= len(block):
            self._distance.miss(marked_T)
            return []
        return self._judge(block, scores, start, marked_T)

    def finish(self) -> list[Finding]:
        """Nothing more: a suspicion stays one, since it had too few points to repeat itself."""
        return []

    def check(self) -> Check:
        """Whether it is known what goes together, and ranks were compared by it."""
        metrics = tuple(self._learned.metrics if self._learned else sorted(self._metrics))
        if self._distance.has_judged:
            return Check(name=self.name, state=CheckState.RAN, metrics=metrics)
        if self._heard == 0:
            why = "fewer than two metrics of single ranks were reported"
        elif self._learned is not None and len(self._learned.metrics) < 2:
            why = "the metrics of a rank are all the same number"
        elif self._learned is not None:
            why = "no three peers reported all metrics for long enough"
        else:
            why = f"what goes together is learned from {self.config.fit_after} iterations with two metrics"
        return Check(name=self.name, state=CheckState.NOT_RUN, why=why, metrics=metrics)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "metrics": {name: metric.snapshot() for name, metric in self._metrics.items()},
            "chosen": list(self._chosen),
            "vectors": [vector_NM.copy() for vector_NM in self._vectors],
            "heard": self._heard,
            "positions": self._positions,
            "learned": self._learned and self._learned.snapshot(),
            "distance": self._distance.snapshot(),
            "episodes": {str(rank): dict(episode) for rank, episode in self._episodes.items()},
            "marks": self._marks.snapshot(),
            "layout_mark": self._layout_mark,
            "epoch": self._epoch,
            "has_begun": self._has_begun,
        }

    def restore(self, state: State) -> None:
        """Continue from what `snapshot` gave."""
        self._metrics = {}
        for name, kept in state["metrics"].items():
            self._metrics[name] = PeerMetric(PeerOutlierConfig().knobs())
            self._metrics[name].restore(kept)
        self._chosen = list(state["chosen"])
        self._vectors = [np.array(vector_NM) for vector_NM in state["vectors"]]
        self._heard, self._positions = state["heard"], state["positions"]
        self._learned = state["learned"] and Learned.of(state["learned"])
        self._distance.restore(state["distance"])
        self._episodes = {int(rank): dict(episode) for rank, episode in state["episodes"].items()}
        self._marks.restore(state["marks"])
        self._layout_mark, self._epoch = state["layout_mark"], state["epoch"]
        self._has_begun = state["has_begun"]

    def _hear(self, block: IterationBlock) -> int:
        """Count the positions with two metrics; the first one that is worth scoring."""
        count_T = np.zeros(len(block), np.int64)
        for name, numbers in block.numbers.items():
            if is_noise(block.contracts.of(name)):
                count_T += numbers.present_TR.any(axis=1)
        heard_T = self._heard + np.cumsum(count_T >= 2)
        self._heard = int(heard_T[-1])
        return int(np.searchsorted(heard_T, self.config.fit_after - LISTEN, side="right"))

    def _scores(self, block: IterationBlock, marked_T: Ints) -> Iterator[tuple[str, Floats]]:
        """The scores of each metric over the block, T × R; NaN where there is none."""
        never = Gates.never(len(block))  # single metrics alarm in peer outlier
        for name in sorted(self._metrics.keys() - block.numbers.keys()):
            self._metrics[name].miss(marked_T)
        for name, numbers in sorted(block.numbers.items()):
            contract = block.contracts.of(name)
            if not is_noise(contract) or (self._chosen and name not in self._chosen):
                continue
            metric = self._metrics.setdefault(name, PeerMetric(PeerOutlierConfig().knobs()))
            class_R = peer_classes(contract, block.ranks_R, block.layout)
            column_R = metric.meet(block.ranks_R, class_R)
            metric.first_reports(numbers, column_R)
            at_K, score_KC = metric.fold(block, numbers, column_R, gates=never, marked_T=marked_T)
            score_TR = np.full((len(block), len(block.ranks_R)), np.nan)
            if len(at_K):
                score_TR[at_K] = score_KC[:, column_R]
            yield name, score_TR

    def _learn(self, scores: dict[str, Floats], positions: int) -> int:
        """Gather vectors of scores until there are enough, then fit: the first position to judge."""
        if not scores:
            return positions
        has_score_T: dict[str, Flags] = {
            name: np.asarray((~np.isnan(score_TR)).any(axis=1)) for name, score_TR in scores.items()
        }
        count_T = np.array([has_T.astype(np.int64) for has_T in has_score_T.values()]).sum(axis=0)
        for t in np.flatnonzero(count_T >= 2).tolist():
            if not self._chosen:
                self._chosen = [name for name in sorted(scores) if has_score_T[name][t]][:MAX_METRICS]
            self._positions += 1
            if all(name in scores for name in self._chosen) and len(self._vectors) < VECTORS:
                vector_RM = np.stack([scores[name][t] for name in self._chosen], axis=1)
                whole_NM = vector_RM[~np.isnan(vector_RM).any(axis=1)][:VECTORS_OF_ROW]
                self._vectors.extend(whole_NM[: VECTORS - len(self._vectors)])
            if self._positions >= FIT_POSITIONS and len(self._vectors) >= VECTORS:
                kept, precision_MM = fit(np.array(self._vectors))
                self._learned = Learned([self._chosen[m] for m in kept], precision_MM)
                self._learned.centre_CM = np.zeros((0, len(kept)))
                self._vectors = []
                return int(t) + 1
        return positions

    def _judge(
        self, block: IterationBlock, scores: dict[str, Floats], start: int, marked_T: Ints
    ) -> list[Finding]:
        """Compare the distances of the ranks from position ``start`` on."""
        learned = self._learned
        assert learned is not None
        none_TR = np.full((len(block), len(block.ranks_R)), np.nan)
        score_TRM = np.stack([scores.get(name, none_TR) for name in learned.metrics], axis=2)
        score_TRM[:start] = np.nan
        far_TR = learned.distances(block.ranks_R, np.ascontiguousarray(score_TRM))
        numbers = NumberBlock(far_TR, ~np.isnan(far_TR))
        contract = learned.contract(block.contracts)
        column_R = self._distance.meet(block.ranks_R, learned.classes(block))
        counts_T = self._distance.counts(numbers, column_R)
        findings: list[Finding] = []
        self._distance.fold(
            block,
            numbers,
            column_R,
            gates=gates_of(counts_T, self.config.iterations_per_alarm),
            marked_T=marked_T,
            on_report=lambda report: findings.extend(self._of_rank(contract, block.attempt, report)),
        )
        return findings

    def _of_rank(self, contract: MetricContract, attempt: int, report: Report) -> list[Finding]:
        if report.code == on_rows.MOVED_TOGETHER:
            return []  # of all of them: another data mix has other correlations
        if report.code == on_rows.SUSPECTED:
            before = self._episodes.get(report.rank)
            ordinal = 0 if before is None else before["ordinal"] + 1
            ordinal = min(ordinal, MAX_EPISODES - 1)
            self._episodes[report.rank] = open_episode(report, self._distance, ordinal, unsure=UNSURE)
        episode = self._episodes[report.rank]
        go_on(report, self._distance, episode)
        assert self._learned is not None
        shown: dict[str, Any] = {"metrics": list(self._learned.metrics)}
        key = f"{JOINT}:{self._epoch}:{report.rank}:{episode['ordinal']}"
        return [evidence_of(episode, contract, detector=self.name, attempt=attempt, key=key, more=shown)]


def _rows_from(block: IterationBlock, start: int) -> IterationBlock:
    """The numbers of the block from position ``start`` on."""
    if start == 0:
        return block
    rest = slice(start, len(block))
    return replace(
        block,
        iteration_T=block.iteration_T[rest],
        microbatch_T=block.microbatch_T[rest],
        time_T=block.time_T[rest],
        numbers={name: numbers.rows(rest) for name, numbers in block.numbers.items()},
        checksums={},
    )
