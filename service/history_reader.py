"""The API's end of history: curves at any zoom, and the values of every rank around an incident.

Reads beside the writer in another process: files may vanish at any time (joined, pruned), and are
then looked up anew; one that cannot be read is left out and logged. Iterations are given as ``start``
up to ``stop``, half-open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from firstfault.mesh import Layout

from .history_access import Files, look
from .history_curve import Curve, read_curve
from .history_layout import read_layout
from .history_matrix import Matrix, Part, matrices, read_matrix
from .history_names import (
    COARSE,
    SUMMARY,
    TAIL,
    TAIL_VALUES,
    VALUES,
    Segment,
    WindowFile,
    attempt_folder,
    attempts_in,
    claims,
    segments,
    windows,
)
from .history_parquet import metadata_of, value_names
from .history_replay import Recorded, read_blocks

MAX_CELLS = 1 << 23
"""Cells of one matrix: 8 M, 70 MB. 800 iterations of 10 000 ranks."""
_PIECE_CELLS = 1 << 21
"""Cells of a piece where a metric is folded piece by piece: 18 MB."""
_END = (1 << 63) - 1
Folded = TypeVar("Folded")


@dataclass(frozen=True, slots=True)
class FrozenWindow:
    """What is frozen for an incident: iterations ``first`` to ``last`` of an attempt."""

    incident_id: str
    run_id: str
    attempt: int
    first: int
    last: int
    is_complete: bool
    """Whether all that was asked for had settled when it was written."""
    numbers: Sequence[str]
    checksums: Sequence[str]


class HistoryReader:
    """Reads what a `HistoryWriter` wrote into ``folder``; holds no state, so any thread may."""

    def __init__(self, folder: Path, *, max_cells: int = MAX_CELLS) -> None:
        self._folder, self._max_cells = folder, max_cells

    def attempts(self, run_id: str) -> list[int]:
        """The attempts of a run that have any history, ascending."""
        return attempts_in(self._folder, run_id)

    def layout(self, run_id: str, attempt: int) -> Layout | None:
        """How the ranks of an attempt lie in its mesh and on its hosts; None where no ``run_start`` told."""
        folder = attempt_folder(self._folder, run_id, attempt)
        return None if folder is None else read_layout(folder)

    def metrics(self, run_id: str) -> list[str]:
        """The metrics that have a curve, in any attempt, sorted."""

        def read(files: Files) -> list[str]:
            found = [
                one
                for at in self.attempts(run_id)
                for one in self._segments(run_id, at, SUMMARY, COARSE, TAIL)
            ]
            named = [files.read(one.path, metadata_of) or {} for one in found]
            return sorted({name for one in named for name in one.get("metrics", [])})

        return look(read)

    def curve(
        self,
        run_id: str,
        attempt: int,
        metric: str,
        start: int = 0,
        stop: int | None = None,
        *,
        points: int = 1000,
    ) -> Curve:
        """A metric over its ranks in at most ``points`` rows; none if there is no history of it.

        Raises:
            ValueError: fewer than one point.
        """
        if points < 1:
            raise ValueError(f"points must be >= 1, got {points}")
        last = _END if stop is None else stop - 1

        def read(files: Files) -> Curve:
            found = claims(self._segments(run_id, attempt, SUMMARY, COARSE, TAIL))
            return read_curve(files, found, metric, start, last, points=points)

        return look(read)

    def matrix(
        self,
        run_id: str,
        attempt: int,
        metric: str,
        start: int = 0,
        stop: int | None = None,
        *,
        ranks: Collection[int] | None = None,
    ) -> Matrix | None:
        """A metric of every rank (or of ``ranks``), as far as the flight recorder or a frozen window has it.

        None if neither has any.
        """
        part = self._part(start, stop, ranks)

        def read(files: Files) -> Matrix | None:
            return read_matrix(files, self._sources(run_id, attempt), metric, part)

        return look(read)

    def kept(self, run_id: str, attempt: int) -> list[tuple[int, int]]:
        """The ranges of iterations, ascending, of which values of single ranks are kept: first and last."""
        found: list[tuple[int, int]] = []
        for one in claims(self._sources(run_id, attempt)):
            if found and one.first <= found[-1][1] + 1:
                found[-1] = (found[-1][0], one.last)
            else:
                found.append((one.first, one.last))
        return found

    def fold_matrices(
        self,
        run_id: str,
        attempt: int,
        metric: str,
        span: tuple[int, int],
        fold: Callable[[Iterator[Matrix]], Folded],
    ) -> Folded:
        """What ``fold`` makes of the pieces of a metric in the iterations of ``span``, the newest first.

        It is called anew where files vanish under it.
        """
        part = Part(start=span[0], last=span[1], ranks=None, max_cells=_PIECE_CELLS)
        return look(lambda files: fold(matrices(files, self._sources(run_id, attempt), metric, part)))

    def _sources(self, run_id: str, attempt: int) -> list[Segment | WindowFile]:
        """Files that hold values of single ranks of an attempt."""
        frozen = [one for one in windows(self._folder) if (one.run_id, one.attempt) == (run_id, attempt)]
        return [*self._segments(run_id, attempt, VALUES, TAIL_VALUES), *frozen]

    def window(self, incident_id: str) -> FrozenWindow | None:
        """What is frozen for an incident; None if nothing is."""

        def read(files: Files) -> FrozenWindow | None:
            for one in windows(self._folder, incident_id):
                names = files.read(one.path, value_names)
                if names is not None:
                    place = (one.run_id, one.attempt, one.first, one.last, one.is_complete)
                    return FrozenWindow(one.incident_id, *place, names.numbers, names.checksums)
            return None

        return look(read)

    def window_matrix(
        self, incident_id: str, metric: str, *, ranks: Collection[int] | None = None
    ) -> Matrix | None:
        """A metric of every rank (or of ``ranks``) in the frozen window of an incident."""
        part = self._part(0, None, ranks)
        return look(lambda files: read_matrix(files, windows(self._folder, incident_id)[:1], metric, part))

    def recorded(self, run_id: str, attempt: int, run: str, *, max_cells: int) -> Recorded | None:
        """All that is kept of single ranks of an attempt of ``run``, as blocks; None where nothing is.

        Raises:
            TooManyValuesError: it is more than ``max_cells`` values.
        """
        about = (run, attempt, self.layout(run_id, attempt))

        def read(files: Files) -> Recorded | None:
            found = claims(self._segments(run_id, attempt, VALUES, TAIL_VALUES))
            return read_blocks(files, found, about, max_cells)

        return look(read)

    def _segments(self, run_id: str, attempt: int, *kinds: str) -> list[Segment]:
        folder = attempt_folder(self._folder, run_id, attempt)
        return segments(folder, *kinds) if folder else []

    def _part(self, start: int, stop: int | None, ranks: Collection[int] | None) -> Part:
        last = _END if stop is None else stop - 1
        return Part(start=start, last=last, ranks=ranks, max_cells=self._max_cells)
