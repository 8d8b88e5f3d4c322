"""Peer outlier: one rank whose losses or norms part from those of the ranks it should be exchangeable with.

What it is for is a rank that computes a few percent wrong before the reduction and reports neither
checksums nor a canary. `peer_fold` holds the tests, `peer_levels` what is learned, `peer_gates` the rates.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from firstfault.telemetry import EventKind, Kind, MetricContract, Relation
from ingest.blocks import Floats, Ints, IterationBlock, NumberBlock
from ingest.bounds import check_bounds

from . import peer_fold as fold
from . import peer_rows as on_rows
from . import peer_tests as on_tests
from .base import State
from .curve import Marks
from .evidence import Annotation, Check, CheckState, Finding
from .groups import fingerprint, peer_classes
from .peer_episode import Episode, evidence_of, go_on, open_episode
from .peer_gates import Gates, gates_of
from .peer_metric import PeerMetric, Report
from .peer_start import level_evidence, odd_level
from .roles import CLOSE_SPREAD, Role, Roles

EXPLAINING = 3
"""Least mark (see `curve.MARKS`) after which ranks may differ as they did not before: a change of batch,
data or stage, a resume. A learning rate is the same for all of them."""
OFTEN_LOCAL = ("grad_norm", "global_loss")
"""Agreed curves by their names alone, under which many loops log a local value."""
MAX_EPISODES = 16
"""Episodes of one rank and metric that are told apart; later ones take the place of the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOutlierConfig:
    """When a rank among its peers is suspected."""

    iterations_per_alarm: float = 25_000.0
    """Healthy iterations to one false suspicion of a lasting shift, all ranks, metrics and directions
    together; measured it is a third to a sixth of that. A suspicion must repeat itself on new points to be
    confirmed, which one in some hundred false ones does."""
    iterations_per_step: float = 20_000.0
    """Healthy iterations to one false suspicion of a single wild step, all ranks, metrics and directions
    together. Both rates stay under one in 10 000. How far a step must reach follows from the tails that
    the noise of this job has: 4.7 standard deviations where it is Gaussian, among 8 ranks."""
    attempts_per_level: float = 1000.0
    """Healthy attempts to one false suspicion of a rank that is off from the beginning, for each metric and
    group of peers. Such a rank is never confirmed by that alone."""
    least_shift: float = 0.01
    """Relative shift below which a rank is left alone, however sure: 1 % of a norm changes no run."""
    hold_points: int = 24
    """Least points on which a suspicion must repeat itself; small shifts need more, up to 256."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)

    def knobs(self, *, is_agreed: bool = False) -> Floats:
        """The thresholds as the fold takes them; agreed numbers must scatter more than by rounding."""
        knobs = np.zeros(on_tests.KNOBS)
        knobs[on_tests.LEAST_SHIFT] = math.log1p(self.least_shift)
        knobs[on_tests.HOLD_LEAST] = self.hold_points
        knobs[on_tests.TELLS_LEVELS] = 1.0
        knobs[on_tests.LEAST_VARIANCE] = CLOSE_SPREAD**2 if is_agreed else 0.0
        return knobs


_BOUNDS = {
    "iterations_per_alarm": (100.0, 1e12),
    "attempts_per_level": (1.0, 1e12),
    "least_shift": (0.0001, 10.0),
    "iterations_per_step": (100.0, 1e12),
    "hold_points": (4, 10_000),
}


class PeerOutlier:
    """Names the rank whose value of a metric parts for good from those of its peers.

    Peers are the ranks over which the metric is noise by contract, as the layout gives them; without a
    layout, all. A grad norm that turns out to be every rank's own counts as one of theirs.

    >>> rng = np.random.default_rng(0)
    >>> norm_TR = np.exp(rng.normal(0.0, 0.1, (400, 8)))
    >>> norm_TR[250:, 3] *= 1.3
    >>> block = IterationBlock(
    ...     run="r", attempt=0, iteration_T=np.arange(400), microbatch_T=np.zeros(400, np.int32),
    ...     ranks_R=np.arange(8, dtype=np.int32),
    ...     numbers={"local_grad_norm": NumberBlock(norm_TR, np.ones((400, 8), np.bool_))})
    >>> found = PeerOutlier().update(block)[-1]
    >>> (str(found.certainty), found.ranks, found.iteration)
    ('confirmed', (3,), 250)
    """

    name: ClassVar[str] = "peer_outlier"

    def __init__(self, config: PeerOutlierConfig | None = None) -> None:
        self.config = config or PeerOutlierConfig()
        self._metrics: dict[str, PeerMetric] = {}
        self._episodes: dict[str, dict[int, Episode]] = {}
        self._marks = Marks()
        self._roles = Roles()
        self._streams = 0
        self._layout_mark = ""
        self._epoch = 0

    def update(self, block: IterationBlock) -> list[Finding]:
        """Fold what is noise in the block; findings in the order of the metrics' names."""
        if not len(block):
            return []
        self._notice_layout(block)
        self._roles.update(block)
        marked_T = resets_of(block, self._marks)
        chosen = dict(self._chosen(block))
        for name, metric in self._metrics.items():
            if name not in chosen:
                metric.miss(marked_T)
        columns = {}
        for name, (contract, _) in chosen.items():
            if name not in self._metrics:
                self._metrics[name] = PeerMetric(self.config.knobs(is_agreed=contract.kind is Kind.AGREED))
            class_R = peer_classes(contract, block.ranks_R, block.layout)
            columns[name] = self._metrics[name].meet(block.ranks_R, class_R)
        gates = self._gates(block, chosen, columns)
        findings: list[Finding] = []
        for name, (contract, numbers) in chosen.items():
            self._metrics[name].fold(
                block,
                numbers,
                columns[name],
                gates=gates,
                marked_T=marked_T,
                on_report=lambda report, contract=contract: findings.extend(  # type: ignore[misc]
                    self._findings(contract, block.attempt, report)
                ),
            )
        return findings

    def finish(self) -> list[Finding]:
        """Nothing more: a suspicion stays one, since it had too few points to repeat itself."""
        return []

    def check(self) -> Check:
        """Whether two ranks were compared for long enough."""
        judged = tuple(sorted(name for name, metric in self._metrics.items() if metric.has_judged))
        if judged:
            return Check(name=self.name, state=CheckState.RAN, metrics=judged)
        # What was folded until it proved to be one number of all ranks: how long that took is no news.
        watched = {name: metric for name, metric in self._metrics.items() if not self._is_agreed(name)}
        if not watched:
            why = "no loss and no norm of single ranks was reported"
        elif all(metric.has_reported_C.sum() < 2 for metric in watched.values()):
            why = "one rank reports: it has no peers"
        else:
            why = f"no two peers reported the same metric at {int(fold.WARM_ROWS)} positions"
        return Check(name=self.name, state=CheckState.NOT_RUN, why=why, metrics=tuple(sorted(watched)))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "metrics": {name: metric.snapshot() for name, metric in self._metrics.items()},
            "episodes": {
                name: {str(rank): dict(episode) for rank, episode in held.items()}
                for name, held in self._episodes.items()
            },
            "marks": self._marks.snapshot(),
            "roles": self._roles.snapshot(),
            "streams": self._streams,
            "layout_mark": self._layout_mark,
            "epoch": self._epoch,
        }

    def restore(self, state: State) -> None:
        """Continue from what `snapshot` gave."""
        self._metrics = {}
        for name, kept in state["metrics"].items():
            self._metrics[name] = PeerMetric(self.config.knobs())
            self._metrics[name].restore(kept)
        self._episodes = {
            name: {int(rank): dict(episode) for rank, episode in held.items()}
            for name, held in state["episodes"].items()
        }
        self._marks.restore(state["marks"])
        self._roles.restore(state["roles"])
        self._streams, self._epoch = state["streams"], state["epoch"]
        self._layout_mark = state["layout_mark"]

    def _notice_layout(self, block: IterationBlock) -> None:
        """Another layout is another way of being peers: all is learned anew."""
        mark = fingerprint(block.layout)
        if mark != self._layout_mark:
            self._epoch += int(bool(self._metrics))
            self._metrics, self._episodes, self._streams, self._layout_mark = {}, {}, 0, mark

    def _is_agreed(self, name: str) -> bool:
        """Whether ``name`` turned out to be the agreed number that it says."""
        is_settled = name in OFTEN_LOCAL and self._roles.is_decided(name)
        return is_settled and self._roles.role_of(name) is not Role.LOCAL

    def _chosen(self, block: IterationBlock) -> Iterator[tuple[str, tuple[MetricContract, NumberBlock]]]:
        for name, numbers in sorted(block.numbers.items()):
            contract = block.contracts.of(name)
            if is_noise(contract) or (
                is_perhaps_local(contract)
                and (self._roles.role_of(name) is Role.LOCAL or not self._roles.is_decided(name))
            ):
                yield name, (contract, numbers)

    def _gates(self, block: IterationBlock, chosen: dict[str, Any], columns: dict[str, Ints]) -> Gates:
        """The gates at each position, by how many streams there are by then.

        Only curves are counted: whether an agreed number is a stream is not known from its first row on.
        """
        new_T = np.zeros(len(block), np.int64)
        for name, (contract, numbers) in chosen.items():
            rows = self._metrics[name].first_reports(numbers, columns[name])
            if contract.kind is Kind.CURVE:
                np.add.at(new_T, rows, 1)
        streams_T = self._streams + np.cumsum(new_T)
        self._streams = int(streams_T[-1])
        return gates_of(streams_T, self.config.iterations_per_alarm, per_step=self.config.iterations_per_step)

    def _findings(self, contract: MetricContract, attempt: int, report: Report) -> list[Finding]:
        metric, held = self._metrics[contract.name], self._episodes.setdefault(contract.name, {})
        stem = f"{contract.name}:{self._epoch}"
        if report.code == on_rows.LEVELS:
            odd = odd_level(
                metric,
                report.rank,
                wrong=1.0 / self.config.attempts_per_level,
                least=math.log1p(self.config.least_shift),
            )
            if odd is None:
                return []
            key = f"{stem}:{odd.rank}:level"
            return [level_evidence(odd, report, metric, contract, attempt=attempt, key=key)]
        if report.code == on_rows.MOVED_TOGETHER:
            note = Annotation(
                kind="peers_moved_together",
                key=f"{stem}:{int(metric.class_C[metric.ranks_C == report.rank][0])}",
                attempt=attempt,
                iteration=report.iteration,
                detail={"metric": contract.name},
            )
            return [note]
        if report.code == on_rows.SUSPECTED:
            ordinal = held[report.rank]["ordinal"] + 1 if report.rank in held else 0
            held[report.rank] = open_episode(report, metric, min(ordinal, MAX_EPISODES - 1))
        episode = held[report.rank]
        go_on(report, metric, episode)
        key = f"{stem}:{report.rank}:{episode['ordinal']}"
        return [evidence_of(episode, contract, detector=self.name, attempt=attempt, key=key)]


def is_noise(contract: MetricContract) -> bool:
    """Whether ranks are exchangeable in this metric, each with noise of its own."""
    return contract.kind is Kind.CURVE and "dp" in contract.axes(Relation.NOISE)


def is_perhaps_local(contract: MetricContract) -> bool:
    """Whether the metric is an agreed curve by its name alone, which many loops use for a local one."""
    return contract.name in OFTEN_LOCAL and contract.declared_phase is None


def resets_of(block: IterationBlock, marks: Marks) -> Ints:
    """1 at each position before which ranks may have come to differ for a good reason."""
    marked_T = (marks.of(block) >= EXPLAINING).astype(np.int64)
    for event in block.events:
        if event.kind is EventKind.MEMBERSHIP:
            marked_T[min(int(np.searchsorted(block.iteration_T, event.iteration)), len(block) - 1)] = 1
    return marked_T
