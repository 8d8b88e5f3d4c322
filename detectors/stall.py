"""Stall: a rank falls silent while the others go on, dies, or the run stands still while heartbeats come.

Judged by records alone. *Silence*: no report for more turns than the lateness bound and than the rank's
own cadence allows, and for so long by record times where there are any. *Standstill*: heartbeats go on
and no position is reached any more; the ranks that are not as far as the others are the suspects, the
others wait for them (`standstill`). *Death*: an exception that nobody caught ended a process, and the run
did not end as a whole (`endings`). That nothing comes at all only a live clock can know.

What is open is told by `finish` alone: it depends on what comes next, and a verdict is always asked as
if nothing did. A new attempt has a detector of its own, so that a restart ends what was open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from firstfault.mesh import Layout
from firstfault.telemetry import Event, EventKind, Phase
from ingest.blocks import Flags, Heartbeats, Ints, IterationBlock, Ranks
from ingest.bounds import check_bounds

from .base import State
from .endings import LAST_WORDS, Endings
from .evidence import Certainty, Check, CheckState, Evidence, Finding
from .report_table import Gap, ReportTable
from .silence import present, silences
from .stall_evidence import back_again, falls_silent, stands_still, went_on
from .standstill import COLLECTIVE_PHASES, Standstill, standstill

MAX_SILENCES = 64
"""Silences told of one attempt, those that ended and those that last: the first tell what happened."""
MAX_PAUSES = 16
"""Longest pauses kept of an attempt: told as recovered where heartbeats say that the job was watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallConfig:
    """How long silence and standing still are borne."""

    silent_iterations: int = 64
    """Turns behind the furthest from which on a rank's silence is suspected: the lateness bound, up to
    which records may still come and tails of files are unequal. Confirmed at twice that."""
    silent_s: float = 30.0
    """Seconds that it must last besides, by record times: reporters flush every few seconds, and fast
    iterations pass by the hundred meanwhile. Confirmed at twice that."""
    suspect_s: float = 60.0
    """Seconds without a step, while heartbeats come, that are suspected: above any usual step, below
    slow checkpoints, which are told as recovered."""
    confirm_s: float = 300.0
    """Seconds after which a wait in a collective, or for ranks that did not come to it, is confirmed: half
    of the ten minutes after which the collectives' own watchdogs kill the job and its heartbeats."""
    together_s: float = 1800.0
    """Seconds after which all ranks outside a collective, a rank behind after its update, or a job that has
    not reported yet are taken to hang: evaluations, checkpoints and compilers take up to half an hour."""
    pause_factor: float = 2.0
    """A standstill must also be so many times as long as the longest pause the attempt came out of."""

    def __post_init__(self) -> None:
        check_bounds(
            self,
            {
                "silent_iterations": (1, 10**6),
                "silent_s": (0.0, 1e6),
                "suspect_s": (1.0, 1e6),
                "confirm_s": (self.suspect_s, 1e6),
                "together_s": (self.confirm_s, 1e6),
                "pause_factor": (1.0, 100.0),
            },
        )


class Stall:
    """Folds who reported when, and holds it against the heartbeats."""

    name: ClassVar[str] = "stall"

    def __init__(self, config: StallConfig | None = None) -> None:
        self.config = config or StallConfig()
        self._table = ReportTable()
        self._endings = Endings()
        self._beats: Heartbeats | None = None
        self._layout: Layout | None = None
        self._attempt = 0
        self._rebased = -1
        """Iteration of the last change of membership: who has not reported since then may be gone."""
        self._world_size = 0
        self._is_over = False
        self._ended_silences = 0
        self._last_time_s = np.nan
        self._longest_s = 0.0
        self._pauses: list[list[float]] = []
        """[last iteration before, first one after, seconds, bound] of the longest pauses."""

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions; tells of silences that ended."""
        self._attempt, self._layout = block.attempt, block.layout or self._layout
        self._beats = block.heartbeats or self._beats
        for event in block.events:
            self._note(event)
        self._follow_pauses(block)
        gaps = self._table.update(block, self.config.silent_iterations)
        ended = back_again(self.name, self._attempt, [gap for gap in gaps if self._is_silence(gap)])
        ended = ended[: MAX_SILENCES - self._ended_silences]
        self._ended_silences += len(ended)
        return ended

    def finish(self) -> list[Finding]:
        """What is open, if nothing more comes."""
        beats = self._known_beats()
        found: list[Finding] = list(self._open_silences(beats))
        if self._beats is not None:
            found += [went_on(self.name, self._attempt, pause) for pause in self._pauses]
        if beats is not None:
            found += self._open_standstill(*beats)
        return found + self._deaths()

    def check(self) -> Check:
        """Ran when two ranks reported past the bound, or heartbeats came with times."""
        standing = self._table.standing()
        metrics = []
        if self._beats is not None and bool(np.isfinite(self._beats.newest_R).any()):
            metrics.append("heartbeat")
        if (standing.reports_N > 0).sum() > 1 and self._table.turn > self.config.silent_iterations:
            metrics.append("records")
        if self._deaths():
            metrics.append(LAST_WORDS)
        if metrics:
            return Check(name=self.name, state=CheckState.RAN, metrics=tuple(metrics))
        why = f"no heartbeats with times, and no two ranks over {self.config.silent_iterations} iterations"
        return Check(name=self.name, state=CheckState.NOT_RUN, why=why)

    def snapshot(self) -> State:
        """The whole state as plain data; heartbeats are told anew with each verdict."""
        return {
            "table": self._table.snapshot(),
            "endings": self._endings.snapshot(),
            "layout": None if self._layout is None else self._layout.to_plain(),
            "attempt": self._attempt,
            "rebased": self._rebased,
            "world_size": self._world_size,
            "is_over": self._is_over,
            "ended_silences": self._ended_silences,
            "last_time_s": self._last_time_s,
            "longest_s": self._longest_s,
            "pauses": [list(pause) for pause in self._pauses],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``."""
        self._table.restore(state["table"])
        self._endings.restore(state.get("endings", ()))
        self._layout = None if state["layout"] is None else Layout.from_plain(state["layout"])
        self._attempt, self._rebased = state["attempt"], state["rebased"]
        self._world_size, self._is_over = state["world_size"], state["is_over"]
        self._ended_silences = state["ended_silences"]
        self._last_time_s, self._longest_s = state["last_time_s"], state["longest_s"]
        self._pauses = [list(pause) for pause in state["pauses"]]

    def _deaths(self) -> list[Evidence]:
        """Who died of an exception, where the run did not end as a whole nevertheless."""
        if self._is_over:
            return []
        standing = self._table.standing()
        reported = dict(zip(standing.ranks_N.tolist(), standing.last_iteration_N.tolist(), strict=True))
        beating = [] if self._beats is None else self._beats.ranks_R.tolist()
        heard = [rank for rank, at in reported.items() if at >= 0] + beating
        return self._endings.evidence(self.name, self._attempt, reported, rebased=self._rebased, heard=heard)

    def _note(self, event: Event) -> None:
        self._endings.take(event)
        size = event.fields.get("world_size")
        is_size = isinstance(size, int) and not isinstance(size, bool)
        if is_size and event.kind in (EventKind.RUN_START, EventKind.MEMBERSHIP):
            self._world_size = int(str(size))
        if event.kind is EventKind.MEMBERSHIP:
            self._rebased = max(self._rebased, event.iteration)
        elif event.kind is EventKind.RUN_END:
            self._is_over = True

    def _is_silence(self, gap: Gap) -> bool:
        return gap.last_iteration >= self._rebased and not gap.silence_s <= self.config.silent_s

    def _follow_pauses(self, block: IterationBlock) -> None:
        """Times without any record; the longest ones are kept."""
        known_T = np.flatnonzero(~np.isnan(block.time_T))
        if not len(known_T):
            return
        time_T = np.append(self._last_time_s, block.time_T[known_T])
        pause_T = np.diff(time_T)
        for at in np.flatnonzero(pause_T > self.config.suspect_s).tolist():
            earlier = float(np.fmax.reduce(pause_T[:at], initial=self._longest_s))
            bound = self._bound(self.config.suspect_s, earlier)
            if pause_T[at] > bound:
                iteration = int(block.iteration_T[known_T[at]])
                self._pauses.append([max(iteration - 1, 0), iteration, float(pause_T[at]), bound])
        self._longest_s = float(np.fmax.reduce(pause_T, initial=self._longest_s))
        self._last_time_s = float(time_T[-1])
        self._pauses = sorted(sorted(self._pauses, key=lambda one: -one[2])[:MAX_PAUSES])

    def _bound(self, least_s: float, longest_s: float) -> float:
        # However long a pause was, beyond `together_s` nothing is borne any more.
        return max(least_s, min(self.config.pause_factor * longest_s, self.config.together_s))

    def _known_beats(self) -> tuple[Heartbeats, Flags] | None:
        """The heartbeats, and which of their ranks belong to the job now."""
        beats = self._beats
        if beats is None or self._is_over:
            return None
        known_R = present(beats.ranks_R, self._layout) & (beats.iteration_R >= self._rebased)
        if self._layout is None and self._world_size > 0:
            known_R &= beats.ranks_R < self._world_size
        return (beats, known_R) if known_R.any() else None

    def _open_silences(self, beats: tuple[Heartbeats, Flags] | None) -> list[Evidence]:
        standing = self._table.standing()
        if len(standing.ranks_N) < 2:
            return []
        judged_N = present(standing.ranks_N, self._layout) & (standing.last_iteration_N >= self._rebased)
        if beats is not None:  # who still says that it comes along is not silent, only its metrics are
            since = self._table.iteration - self.config.silent_iterations
            judged_N &= ~np.isin(standing.ranks_N, beats[0].ranks_R[beats[0].iteration_R > since])
        found = silences(
            standing,
            judged_N,
            least_turns=self.config.silent_iterations,
            least_s=self.config.silent_s,
        )
        if self._is_over:  # a rank whose log ends a little before the run's is finished
            found = [one for one in found if one.certainty is Certainty.CONFIRMED]
        told = found[:MAX_SILENCES]
        return [falls_silent(self.name, self._attempt, one, self._table.iteration) for one in told]

    def _open_standstill(self, beats: Heartbeats, known_R: Flags) -> list[Evidence]:
        reported, reporters = self._reported(beats.ranks_R)
        stands = standstill(
            beats, known_R, self._layout, reported=reported, newest_record_s=self._last_time_s
        )
        if stands is None:
            return []
        suspect_s, confirm_s = self._bounds(stands)
        if stands.stood_s <= suspect_s:
            return []
        certainty = Certainty.CONFIRMED if stands.stood_s > confirm_s else Certainty.SUSPECTED
        bound_s = confirm_s if certainty is Certainty.CONFIRMED else suspect_s
        is_everyone = len(stands.waiting_R) > 1 and len(stands.waiting_R) >= len(reporters)
        return [stands_still(self.name, self._attempt, stands, certainty, bound_s, is_everyone=is_everyone)]

    def _bounds(self, stands: Standstill) -> tuple[float, float]:
        """(seconds to suspect, seconds to confirm) for what stands like this."""
        is_waiting = len(stands.suspects_R) > 0 or stands.phase in COLLECTIVE_PHASES
        if stands.suspect_phase is Phase.STATE and not stands.is_dead:
            is_waiting = False  # between two steps one rank saves or evaluates for all, who wait at the next
        if self._table.turn < 0:
            return self.config.confirm_s, self.config.together_s
        least_s = self.config.confirm_s if is_waiting else self.config.together_s
        return self._bound(self.config.suspect_s, self._longest_s), self._bound(least_s, self._longest_s)

    def _reported(self, ranks_R: Ranks) -> tuple[Ints, Ranks]:
        """The last iteration that each of ``ranks_R`` reported, -1 for none; and all ranks that report."""
        standing = self._table.standing()
        last_R = np.full(len(ranks_R), -1, np.int64)
        if len(standing.ranks_N):
            at_R = np.minimum(np.searchsorted(standing.ranks_N, ranks_R), len(standing.ranks_N) - 1)
            is_known_R = standing.ranks_N[at_R] == ranks_R
            last_R[is_known_R] = standing.last_iteration_N[at_R[is_known_R]]
        return last_R, standing.ranks_N[standing.reports_N > 0]
