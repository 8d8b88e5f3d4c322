"""Non-finite values that do no harm, told as annotations: activations alone, ranks without tokens.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from firstfault.telemetry import UNNAMED_RANK
from ingest.blocks import Flags

from .base import State
from .evidence import Annotation
from .nonfinite_onset import Onset, fine_column, is_noisy
from .nonfinite_sites import Level, Scene, Site
from .rank_table import RankTable

MAX_RANKS = 16
"""Ranks named in an annotation."""


@dataclass(slots=True)
class _Note:
    """One kind of benign value of one metric, since when and how often."""

    kind: str
    metric: str
    first: int
    ranks: list[int]
    iterations: int = 0
    told: int = 0

    @property
    def at_least(self) -> int:
        """The count rounded down to a power of two: a series that goes on is not news every time."""
        return 1 << (self.iterations.bit_length() - 1)


class BenignNotes:
    """Collects one annotation per kind and metric."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}

    def note(self, scene: Scene, i: int, j: int, table: RankTable) -> None:
        """Iterations ``[i, j)`` in which losses, gradients and parameters were finite."""
        start, stop = scene.rows(i, j)
        for site in scene.sites:
            if site.bad_TR is not None and site.level is Level.ACTIVATION:
                bad_TR = site.bad_TR[start:stop]
                if bad_TR.any():
                    self._add("nonfinite_activation", scene, site, bad_TR, start)
                    self._count_fine(scene, site, bad_TR, table)
            if site.excused_TR is not None and site.excused_TR[start:stop].any():
                self._add("no_tokens", scene, site, site.excused_TR[start:stop], start)

    def note_recovered(self, onset: Onset) -> None:
        """A gradient that was not finite for an unknown reason, without harm."""
        note = self._notes.setdefault(
            "nonfinite_gradient",
            _Note("nonfinite_gradient", onset.metric, onset.iteration, onset.ranks[:MAX_RANKS]),
        )
        note.iterations += 1

    def news(self, attempt: int) -> list[Annotation]:
        """The annotations that are new or whose count doubled."""
        changed = [note for _, note in sorted(self._notes.items()) if note.at_least > note.told]
        for note in changed:
            note.told = note.at_least
        return [
            Annotation(
                kind=note.kind,
                key=note.metric,
                attempt=attempt,
                iteration=note.first,
                detail={
                    "metric": note.metric,
                    "ranks": list(note.ranks),
                    "iterations_at_least": note.at_least,
                },
            )
            for note in changed
        ]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {key: asdict(note) for key, note in self._notes.items()}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._notes = {key: _Note(**held) for key, held in state.items()}

    def _add(self, kind: str, scene: Scene, site: Site, flag_TR: Flags, start: int) -> None:
        rows = np.flatnonzero(flag_TR.any(axis=1))
        key = f"{kind}:{site.metric}"
        if key not in self._notes:
            ranks = scene.block.ranks_R[flag_TR[rows[0]]]
            named = ranks[ranks != UNNAMED_RANK][:MAX_RANKS].tolist()
            self._notes[key] = _Note(kind, site.metric, int(scene.block.iteration_T[start + rows[0]]), named)
        self._notes[key].iterations += len(np.unique(scene.block.iteration_T[start + rows]))

    def _count_fine(self, scene: Scene, site: Site, bad_TR: Flags, table: RankTable) -> None:
        if is_noisy(site):
            at_R = table.rows(scene.block.ranks_R)
            table.column(fine_column(site.metric))[at_R] += bad_TR.sum(axis=0)
