"""Non-finite values: which rank had one first, inside the first iteration that had any.

Axes: T positions of a block, R ranks, I iterations of a block.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ingest.blocks import IterationBlock

from .base import State
from .evidence import MAX_LATER_RANKS, Certainty, Check, CheckState, Finding
from .loss_scale import Alarm, GradientRuns, LossScaleConfig
from .nonfinite_benign import BenignNotes
from .nonfinite_episode import Episode
from .nonfinite_losses import OtherLosses
from .nonfinite_onset import Onset, bad_ranks, note_clean, onset_of
from .nonfinite_sites import Level, Scene, scene_of
from .nonfinite_supporting import SupportingNonfinite
from .rank_table import RankTable
from .roles import Roles
from .sole_skipper import SoleSkipper

MAX_EPISODES = 32
"""Separate non-finite episodes per attempt that are told apart; later ones go on in the last."""
MAX_RECOVERED = 16
"""Gradients told as recovered per attempt; later ones are counted in their annotation only."""
REOPENS_WITHIN = 50
"""Iterations after the end of an episode within which the next non-finite value is the same one: what
healed that recently has not recovered."""


class Nonfinite:
    """Finds the first non-finite value of an attempt, by cause and not by arrival.

    A non-finite loss or parameter opens an episode at once, and it stays confirmed when it heals
    (``short_nonfinite``): nothing benign makes one, except a rank without tokens, and what loops print
    before they have a first loss: parameters that are NaN do not heal. Non-finite gradients are judged by
    `GradientRuns`, since loss scaling makes them; counts in activations alone are annotations.
    The evidence is of the first bad iteration: ``sights`` say who was bad and clean at every watched
    metric, ``ranks`` who was bad in the earliest phase. NaN that was not reported is not seen here.
    """

    name: ClassVar[str] = "nonfinite"

    def __init__(self, config: LossScaleConfig | None = None) -> None:
        self._roles = Roles()
        self._table = RankTable()
        self._runs = GradientRuns(config or LossScaleConfig())
        self._sole = SoleSkipper()
        self._benign = BenignNotes()
        self._supporting = SupportingNonfinite()
        self._losses = OtherLosses()
        self._episodes: list[Episode] = []
        self._changed: set[int] = set()
        self._findings: list[Finding] = []
        self._ordinal = 0
        self._attempt = 0
        self._metrics: dict[str, bool] = {}

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        self._attempt = block.attempt
        if len(block):
            self._runs.fall.begin_at(int(block.iteration_T[0]))
        self._runs.note(block.events)
        if not len(block):
            return self._told()
        self._roles.update(block)
        scene = scene_of(block)
        self._metrics |= {site.metric: True for site in scene.sites if site.numbers.present_TR.any()}
        self._table.rows(block.ranks_R)
        self._fold(scene)
        self._sole.pass_block(scene)
        note_clean(scene, self._table)
        self._findings += self._supporting.update(block, self.name)
        self._losses.update(block)
        return self._told()

    def finish(self) -> list[Finding]:
        """A gradient that nothing explained so far is suspected; where all was bad, it is the fault."""
        onset = self._runs.end(self._ordinal - 1)
        if onset is not None:
            certainty = Certainty.CONFIRMED if self._runs.is_lost else Certainty.SUSPECTED
            self._open(onset, Level.GRADIENT, onset.iteration, "the log ends here", certainty)
        return [*self._told(), *self._losses.finish(self._attempt, self.name)]

    def check(self) -> Check:
        """Ran when one value of a watched metric was reported, or of rewards where there is nothing else."""
        watched = tuple(sorted(self._metrics)) or self._supporting.telling
        if watched:
            return Check(name=self.name, state=CheckState.RAN, metrics=watched)
        why = "no loss, gradient norm or non-finite count was reported"
        return Check(name=self.name, state=CheckState.NOT_RUN, why=why)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "roles": self._roles.snapshot(),
            "table": self._table.snapshot(),
            "runs": self._runs.snapshot(),
            "sole": self._sole.snapshot(),
            "benign": self._benign.snapshot(),
            "supporting": self._supporting.snapshot(),
            "losses": self._losses.snapshot(),
            "episodes": [episode.snapshot() for episode in self._episodes],
            "ordinal": self._ordinal,
            "attempt": self._attempt,
            "metrics": sorted(self._metrics),
        }

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._roles.restore(state["roles"])
        self._table = RankTable.restored(state["table"])
        self._runs.restore(state["runs"])
        self._sole.restore(state["sole"])
        self._benign.restore(state["benign"])
        self._supporting.restore(state["supporting"])
        self._losses.restore(state["losses"])
        self._episodes = [Episode.restored(held) for held in state["episodes"]]
        self._ordinal, self._attempt = state["ordinal"], state["attempt"]
        self._metrics = dict.fromkeys(state["metrics"], True)

    def _fold(self, scene: Scene) -> None:
        """Go through the iterations, past what is of no interest in one step."""
        begins, self._ordinal = self._ordinal, self._ordinal + len(scene)
        edges = np.append(np.flatnonzero(np.diff(scene.level_I)) + 1, len(scene))
        i = 0
        while i < len(scene):
            level = int(scene.level_I[i])
            j = int(edges[np.searchsorted(edges, i, side="right")])
            if level == Level.LOSS:
                i = self._meet_loss(scene, i, j, begins)
            elif level == Level.GRADIENT:
                i = self._meet_gradient(scene, i, j, begins)
            else:
                i = self._pass_quiet(scene, i, j, begins)

    def _meet_loss(self, scene: Scene, i: int, j: int, begins: int) -> int:
        """Non-finite losses or parameters over ``[i, j)``; returns where to go on."""
        earlier = self._runs.end_in_loss(scene, i, begins + i)
        episode = self._current(begins + i)
        if episode is None:
            onset = earlier or self._onset(scene, i)
            reason = "a loss or a parameter was not finite"
            episode = self._open(onset, Level.LOSS, scene.iteration(i), reason, Certainty.CONFIRMED)
            episode.alarm_ordinal = begins + i
        episode.level = int(Level.LOSS)
        self._extend(episode, scene, i, j, begins)
        self._runs.skip_over(scene, i, j)
        return j

    def _meet_gradient(self, scene: Scene, i: int, j: int, begins: int) -> int:
        """Non-finite gradients or skips over ``[i, j)``, one by one until it is clear what they are."""
        open_episode = self._last()
        if open_episode is not None and not open_episode.is_over:
            self._extend(open_episode, scene, i, j, begins)
            self._runs.skip_over(scene, i, j)
            return j
        alarm = self._runs.step(scene, i, begins + i, lambda: self._onset(scene, i))
        if alarm is not None:
            self._raise(alarm, scene, i, begins)
        self._findings += self._sole.update(scene, i, self._roles, self.name, lambda: self._onset(scene, i))
        return i + 1

    def _pass_quiet(self, scene: Scene, i: int, j: int, begins: int) -> int:
        """Iterations ``[i, j)`` without: one by one while an episode or a run may end."""
        if self._runs.run is not None:
            alarm, ended = self._runs.quiet(scene, i, begins + i)
            if alarm is not None:
                self._raise(alarm, scene, i, begins)
            elif ended is not None:
                self._recover(ended, scene, i)
            j = i + 1
        else:
            self._runs.skip_over(scene, i, j)
        self._heal(scene, i, j)
        self._benign.note(scene, i, j, self._table)
        return j

    def _raise(self, alarm: Alarm, scene: Scene, i: int, begins: int) -> None:
        """A run of gradients is a fault; iteration ``i`` itself may be clean again."""
        self._runs.run = None
        episode = self._current(begins + i)
        if episode is None:
            certainty = Certainty.CONFIRMED
            episode = self._open(alarm.onset, Level.GRADIENT, scene.iteration(i), alarm.reason, certainty)
        episode.bad_iterations += alarm.iterations
        episode.last_bad, episode.last_ordinal = alarm.last_iteration, begins + i
        self._note_ranks(episode, scene, i, i + 1)

    def _recover(self, ended: Alarm, scene: Scene, i: int) -> None:
        """A gradient that was not finite for unknown reasons and is again."""
        self._benign.note_recovered(ended.onset)
        if sum(episode.certainty == Certainty.RECOVERED for episode in self._episodes) < MAX_RECOVERED:
            certainty = Certainty.RECOVERED
            episode = self._open(ended.onset, Level.GRADIENT, scene.iteration(i), ended.reason, certainty)
            episode.is_over = True
            episode.bad_iterations, episode.last_bad = ended.iterations, ended.last_iteration

    def _heal(self, scene: Scene, i: int, j: int) -> None:
        """End the open episode once one of its ranks shows its metrics clean in ``[i, j)``."""
        episode = self._last()
        if episode is None or episode.is_over or not episode.is_clean_again(scene, i, j):
            return
        episode.is_over = True
        is_before_any = episode.alarm_ordinal == 0 and episode.bad_iterations <= REOPENS_WITHIN
        if is_before_any and episode.is_of_curves_alone:
            episode.certainty = Certainty.RECOVERED.value
            episode.reason = "only the first values were not finite: printed before there were any"
        self._changed.add(self._episodes.index(episode))

    def _last(self) -> Episode | None:
        """The last episode that has not recovered, open or over."""
        return next((e for e in reversed(self._episodes) if e.certainty != Certainty.RECOVERED), None)

    def _current(self, ordinal: int) -> Episode | None:
        """The episode that a bad iteration goes on with, reopened if need be."""
        episode = self._last()
        if episode is None or not episode.is_over:
            return episode
        told = sum(each.certainty != Certainty.RECOVERED for each in self._episodes)
        if ordinal - episode.last_ordinal > REOPENS_WITHIN and told < MAX_EPISODES:
            return None
        episode.is_over = False
        self._changed.add(self._episodes.index(episode))
        return episode

    def _open(self, onset: Onset, level: Level, alarm: int, reason: str, certainty: Certainty) -> Episode:
        bad = np.array(sorted({*onset.ranks, *onset.others}), np.int32)
        later = [[onset.iteration, rank] for rank in onset.others]
        episode = Episode(onset, int(level), alarm, reason, certainty.value, bad, later)
        self._episodes.append(episode)
        self._changed.add(len(self._episodes) - 1)
        return episode

    def _extend(self, episode: Episode, scene: Scene, i: int, j: int, begins: int) -> None:
        """The iterations ``[i, j)`` are bad too: count them, and note who turned bad."""
        episode.bad_iterations += j - i
        episode.last_bad, episode.last_ordinal = scene.iteration(j - 1), begins + j - 1
        self._note_ranks(episode, scene, i, j)

    def _note_ranks(self, episode: Episode, scene: Scene, i: int, j: int) -> None:
        room = MAX_LATER_RANKS - len(episode.later_ranks)
        new = bad_ranks(scene, *scene.rows(i, j), episode.bad_ranks)[:room] if room > 0 else []
        if new:
            episode.later_ranks += [list(pair) for pair in new]
            episode.bad_ranks = np.union1d(episode.bad_ranks, [rank for _, rank in new]).astype(np.int32)
            self._changed.add(self._episodes.index(episode))

    def _onset(self, scene: Scene, i: int) -> Onset:
        return onset_of(scene, i, self._table, self._roles)

    def _told(self) -> list[Finding]:
        """What changed since the last call."""
        findings: list[Finding] = [
            self._episodes[index].evidence(self.name, index, self._attempt) for index in sorted(self._changed)
        ]
        findings += self._findings
        findings += self._runs.news(self.name, self._attempt)
        findings += self._benign.news(self._attempt)
        self._changed, self._findings = set(), []
        return findings
