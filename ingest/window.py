"""The pending positions of one attempt as dense matrices: scatter in, settled rows out.

Axes: N records, P pending positions (iteration, microbatch), R ranks.

Alignment by scatter costs nanoseconds a value where sorting costs a hundred. Rows are appended at the end of
buffers with spare capacity and leave at the front as views; a buffer is never written again behind a view.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import WHOLE_ITERATION

from .blocks import ChecksumBlock, Flags, Floats, Ints, NumberBlock, Ranks
from .cells import Cells, distinct, is_in, settle_claims
from .columns import union

CONFLICT = "conflict"
INFERRED = "inferred"
_MICROBATCH_SPAN = WHOLE_ITERATION + 1


@dataclass(slots=True)
class _Matrix:
    """One metric: one word buffer for a number, two for a checksum; reported cells; marked cells."""

    words: tuple[NDArray[Any], ...]
    present_PR: Flags
    marks: dict[str, Flags] = field(default_factory=dict)
    """By `CONFLICT` and `INFERRED` the cells that are; without an entry none is."""

    def mark(self, what: str) -> Flags:
        """The cells marked as ``what``, to be written to."""
        return self.marks.setdefault(what, np.zeros(self.present_PR.shape, np.bool_))


class Window:
    """Positions not settled yet. ``start`` and ``stop`` bound the live rows of every buffer."""

    def __init__(self) -> None:
        self.ranks_R: Ranks = np.empty(0, np.int32)
        self.start, self.stop, self.capacity = 0, 0, 0
        self.iteration_P: Ints = np.empty(0, np.int64)
        self.microbatch_P: NDArray[np.int32] = np.empty(0, np.int32)
        self.time_P: Floats = np.empty(0)
        self.matrices: dict[str, _Matrix] = {}

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def live_iterations(self) -> Ints:
        return self.iteration_P[self.start : self.stop]

    @property
    def live_microbatches(self) -> NDArray[np.int32]:
        return self.microbatch_P[self.start : self.stop]

    def place(self, iteration_N: Ints, microbatch_N: NDArray[np.int32], rank_N: Ranks) -> Cells:
        """Make room for N records; where each of them belongs in the live rows × R ranks."""
        self._admit_ranks(rank_N)
        row_N = self._admit_positions(iteration_N, microbatch_N)
        cell_N = row_N * len(self.ranks_R) + self._column(rank_N)
        return Cells.of(cell_N, row_N, cells=len(self) * len(self.ranks_R))

    def scatter(self, name: str, cells: Cells, words: tuple[NDArray[Any], ...], present_N: Flags) -> None:
        """Write one metric of N records; a cell that is written twice keeps the winner.

        Non-finite wins, then the greater bit pattern: a rule that no order of arrival can change.
        """
        cell_N: Ints | slice = cells.span
        if not present_N.all():
            cell_N = cells.cell_N[present_N]
            words = tuple(word[present_N] for word in words)
        if not len(words[0]):
            return
        matrix = self._matrix(name, words)
        present = self._flat(matrix.present_PR)
        if cells.has_repeats or present[cell_N].any():
            claimed_N = cells.cell_N if isinstance(cell_N, slice) else cell_N
            cell_N, words = self._resolve(matrix, claimed_N, words)
        for buffer, word_N in zip(matrix.words, words, strict=True):
            self._flat(buffer)[cell_N] = word_N
        present[cell_N] = True

    def infer(self, name: str, cells: Cells, inferred_N: Flags) -> None:
        """Mark the values of N records that a reader concluded; a cell stays marked, whatever else comes."""
        if name in self.matrices and inferred_N.any():
            self._flat(self.matrices[name].mark(INFERRED))[cells.cell_N[inferred_N]] = True

    def note_time(self, cells: Cells, time_N: Floats) -> None:
        """Keep the newest record time of each position; NaN times say nothing."""
        if (known := ~np.isnan(time_N)).any():
            np.fmax.at(self.time_P[self.start : self.stop], cells.row_N[known], time_N[known])

    def take(self, rows: int) -> tuple[dict[str, NumberBlock], dict[str, ChecksumBlock]]:
        """The matrices of the first ``rows`` live positions, as read-only views."""
        numbers: dict[str, NumberBlock] = {}
        checksums: dict[str, ChecksumBlock] = {}
        part = slice(self.start, self.start + rows)
        for name, matrix in sorted(self.matrices.items()):
            present_TR = _sealed(matrix.present_PR[part])
            if not present_TR.any():
                continue
            words = [_sealed(buffer[part]) for buffer in matrix.words]
            if len(words) == 1:
                inferred_TR = _sealed(matrix.marks[INFERRED][part]) if INFERRED in matrix.marks else None
                numbers[name] = NumberBlock(words[0], present_TR, inferred_TR)
            else:
                checksums[name] = ChecksumBlock(words[0], words[1], present_TR)
        return numbers, checksums

    def conflicts(self, rows: int) -> int:
        """Cells among the first ``rows`` live positions that were reported with several values."""
        part = slice(self.start, self.start + rows)
        found = (m.marks[CONFLICT][part] for m in self.matrices.values() if CONFLICT in m.marks)
        return sum(int(np.count_nonzero(flags)) for flags in found)

    def last_rows(self) -> Ints:
        """Of each rank with pending records, the last live row that it reported anything at."""
        part = slice(self.start, self.stop)
        seen_PR = np.zeros((len(self), len(self.ranks_R)), np.bool_)
        for matrix in self.matrices.values():
            seen_PR |= matrix.present_PR[part]
        if not seen_PR.any():
            return np.empty(0, np.int64)
        last_R: Ints = len(self) - 1 - seen_PR[::-1].argmax(axis=0)
        return last_R[seen_PR.any(axis=0)]

    def drop(self, rows: int) -> None:
        """Forget the first ``rows`` live positions; views of them stay valid."""
        self.start += rows
        if self.start == self.stop:
            self._allocate(0, ())

    def snapshot(self) -> Mapping[str, Any]:
        """The live rows as plain arrays."""
        part = slice(self.start, self.stop)
        return {
            "ranks": self.ranks_R,
            "iteration": self.iteration_P[part],
            "microbatch": self.microbatch_P[part],
            "time": self.time_P[part],
            "matrices": {
                name: {
                    "words": [buffer[part] for buffer in matrix.words],
                    "present": matrix.present_PR[part],
                    "marks": {what: marked_PR[part] for what, marked_PR in matrix.marks.items()},
                }
                for name, matrix in self.matrices.items()
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.ranks_R = np.asarray(state["ranks"], np.int32)
        self.iteration_P = np.array(state["iteration"], np.int64)
        self.microbatch_P = np.array(state["microbatch"], np.int32)
        self.time_P = np.array(state["time"], np.float64)
        self.start, self.stop, self.capacity = 0, len(self.iteration_P), len(self.iteration_P)
        self.matrices = {
            name: _Matrix(
                tuple(np.array(word) for word in saved["words"]),
                np.array(saved["present"], np.bool_),
                {what: np.array(marked_PR, np.bool_) for what, marked_PR in saved["marks"].items()},
            )
            for name, saved in state["matrices"].items()
        }

    def _flat(self, buffer: NDArray[Any]) -> NDArray[Any]:
        return buffer[self.start : self.stop].reshape(-1)

    def _column(self, rank_N: Ranks) -> Ints:
        ranks_R = self.ranks_R
        if len(ranks_R) == 1:
            return np.zeros(len(rank_N), np.int64)
        if ranks_R[0] == 0 and ranks_R[-1] == len(ranks_R) - 1:  # 0..R-1, the usual case: no search
            return rank_N.astype(np.int64)
        return np.searchsorted(ranks_R, rank_N)

    def _admit_ranks(self, rank_N: Ranks) -> None:
        known, lowest, greatest = self.ranks_R, int(rank_N.min()), int(rank_N.max())
        is_gapless = len(known) > 0 and known[-1] - known[0] == len(known) - 1
        if is_gapless and known[0] <= lowest and greatest <= known[-1]:
            return
        seen = np.flatnonzero(np.bincount(rank_N - lowest)) + lowest
        new = np.setdiff1d(seen.astype(np.int32), known, assume_unique=True)
        if not len(new):
            return
        self.ranks_R = union(known, new)
        columns = np.searchsorted(self.ranks_R, known)
        for matrix in self.matrices.values():
            matrix.words = tuple(self._widen(buffer, columns) for buffer in matrix.words)
            matrix.present_PR = self._widen(matrix.present_PR, columns)
            matrix.marks = {what: self._widen(marked, columns) for what, marked in matrix.marks.items()}

    def _widen(self, buffer: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
        wide = np.full((len(buffer), len(self.ranks_R)), _absent(buffer.dtype), buffer.dtype)
        wide[:, columns] = buffer
        return wide

    def _admit_positions(self, iteration_N: Ints, microbatch_N: NDArray[np.int32]) -> Ints:
        base = int(min([iteration_N.min(), *self.live_iterations[:1]]))
        key_N = (iteration_N - base) * _MICROBATCH_SPAN + microbatch_N
        key_P = (self.live_iterations - base) * _MICROBATCH_SPAN + self.live_microbatches
        fresh = distinct(key_N)
        if len(key_P) and fresh[0] <= key_P[-1]:
            fresh = fresh[~is_in(fresh, key_P)]
        if len(fresh):
            self._insert(key_P, fresh, base)
            key_P = (self.live_iterations - base) * _MICROBATCH_SPAN + self.live_microbatches
        first = len(key_P) - len(key_N)
        if len(fresh) == len(key_N) and np.array_equal(key_P[first:], key_N):
            return np.arange(first, len(key_P))  # one rank in order needs no search
        return np.searchsorted(key_P, key_N)

    def _insert(self, key_P: Ints, fresh: Ints, base: int) -> None:
        if not len(key_P) or fresh[0] > key_P[-1]:
            if self.stop + len(fresh) > self.capacity:
                self._allocate(len(key_P) + len(fresh), np.arange(len(key_P)))
                self.stop = len(key_P)
            rows = slice(self.stop, self.stop + len(fresh))
            self.stop += len(fresh)
        else:
            merged = np.concatenate([key_P, fresh])
            merged.sort()
            self._allocate(len(merged), np.searchsorted(merged, key_P))
            rows = np.searchsorted(merged, fresh)  # type: ignore[assignment]  # indices serve as well as a slice
        for matrix in self.matrices.values():
            for buffer in matrix.words:
                buffer[rows] = _absent(buffer.dtype)
        self.iteration_P[rows] = fresh // _MICROBATCH_SPAN + base
        self.microbatch_P[rows] = fresh % _MICROBATCH_SPAN

    def _allocate(self, rows: int, keep: NDArray[Any] | tuple[()]) -> None:
        """Fresh buffers for ``rows`` live positions, the old live row i moved to ``keep[i]``."""
        # Twice what is needed: then appending copies each row a bounded number of times.
        capacity = 2 * rows
        old = slice(self.start, self.stop)
        count = len(keep)

        def moved(buffer: NDArray[Any], fill: float = 0) -> NDArray[Any]:
            fresh = np.zeros((capacity, *buffer.shape[1:]), buffer.dtype)  # zeroed lazily by the system
            if fill:
                fresh.fill(fill)
            if count:
                fresh[keep] = buffer[old]
            return fresh

        self.iteration_P = moved(self.iteration_P)
        self.microbatch_P = moved(self.microbatch_P)
        self.time_P = moved(self.time_P, np.nan)
        for name, matrix in list(self.matrices.items()):
            if not count or not matrix.present_PR[old].any():
                del self.matrices[name]  # not reported any more: made again when it comes back
                continue
            matrix.words = tuple(moved(buffer) for buffer in matrix.words)
            matrix.present_PR = moved(matrix.present_PR)
            matrix.marks = {what: moved(marked) for what, marked in matrix.marks.items()}
        self.start, self.stop, self.capacity = 0, rows, capacity

    def _matrix(self, name: str, words: tuple[NDArray[Any], ...]) -> _Matrix:
        matrix = self.matrices.get(name)
        if matrix is None:
            shape = self.capacity, len(self.ranks_R)
            matrix = _Matrix(tuple(np.zeros(shape, word.dtype) for word in words), np.zeros(shape, np.bool_))
            for buffer in matrix.words:
                buffer[self.start : self.stop] = _absent(buffer.dtype)
            self.matrices[name] = matrix
        return matrix

    def _resolve(
        self, matrix: _Matrix, cell_N: Ints, words: tuple[NDArray[Any], ...]
    ) -> tuple[Ints, tuple[NDArray[Any], ...]]:
        """The winning value of every cell that N records and the buffer claim; marks conflicts."""
        held = np.unique(cell_N[self._flat(matrix.present_PR)[cell_N]])
        claims = [
            np.concatenate([self._flat(buffer)[held], word])
            for buffer, word in zip(matrix.words, words, strict=True)
        ]
        winners = settle_claims(np.concatenate([held, cell_N]), claims)
        if len(winners.contested):
            self._flat(matrix.mark(CONFLICT))[winners.contested] = True
        return winners.cell_N, winners.words


def _absent(dtype: np.dtype[Any]) -> float:
    """What stands in a cell that was not reported: NaN in a number, so that none is taken for a value."""
    return np.nan if dtype.kind == "f" else 0


def _sealed(view: NDArray[Any]) -> NDArray[Any]:
    view.flags.writeable = False
    return view
