"""Who went bad when, in which phase, and through which collective it can have come to them.

Axes: R ranks of the job, ascending; C columns, each a phase of an iteration in causal order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.rank_groups import Groups, groups_of
from firstfault.mesh import Layout
from firstfault.telemetry import Kind, Phase, contract_of
from ingest.blocks import Flags, Ranks

from .checksum_matrix import is_compared, odd_ranks
from .history_matrix import Matrix

MAX_COLUMNS = 16
"""Columns shown: two iterations of every phase; what came later is no longer how it spread."""
MAX_LANES = 64
_LISTED = 64
"""Ranks listed of one lane."""
_METRICS = 8
"""Metrics named of one column."""
_WATCHED = (Kind.CURVE, Kind.AGREED, Kind.NONFINITE_COUNT)


class Cell(IntEnum):
    """What a rank showed in a phase of an iteration, the worse the higher."""

    NONE = 0
    FINE = 1
    WAITS = 2
    TIE = 3
    BAD = 4


@dataclass(frozen=True, slots=True)
class Column:
    """A phase of an iteration in which some rank was bad."""

    iteration: int
    phase: Phase
    metrics: Sequence[str]
    new_ranks: int
    """Ranks that were bad here and in no column before."""
    via: str
    """What can have carried it to them; empty for the first column."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Ranks of one role with the same cells."""

    role: str
    """``suspect``, ``victim``, ``affected`` where nobody is suspected, ``clean``."""
    ranks: Sequence[int]
    rank_count: int
    hosts: Sequence[str]
    cells: Sequence[int]


@dataclass(frozen=True, slots=True)
class Propagation:
    """How one incident spread."""

    columns: Sequence[Column]
    lanes: Sequence[Lane]
    hidden_lanes: int
    notes: Sequence[str]
    are_columns_cut: bool


@dataclass(slots=True)
class _Seen:
    """What is known of every rank at one phase of one iteration."""

    cell_R: NDArray[np.int8]
    metrics: dict[str, None] = field(default_factory=dict)


class Observations:
    """Collects what ranks showed, by phase of an iteration."""

    def __init__(self, ranks_R: Ranks, layout: Layout | None = None) -> None:
        self.ranks_R, self.layout = ranks_R, layout
        self._seen: dict[tuple[int, int], _Seen] = {}

    def take(self, matrix: Matrix) -> None:
        """A metric of every rank: its values that are not finite, its counts, its minority."""
        contract = contract_of(matrix.metric)
        place_R = np.searchsorted(self.ranks_R, matrix.ranks_R)
        for at, iteration in enumerate(matrix.iteration_T.tolist()):
            present_R = matrix.present_TR[at]
            if not present_R.any():
                continue
            cell_R = np.where(present_R, np.int8(Cell.FINE), np.int8(Cell.NONE))
            if matrix.values_TR is not None:
                bad_R = present_R & ~np.isfinite(matrix.values_TR[at])
                if contract.kind is Kind.NONFINITE_COUNT:
                    bad_R |= present_R & (matrix.values_TR[at] > 0)
                cell_R[bad_R] = Cell.BAD
            if is_compared(matrix.metric):
                bad_R, tie_R = odd_ranks(matrix, contract, self.layout, at)
                cell_R[bad_R], cell_R[tie_R] = Cell.BAD, Cell.TIE
            self._merge((iteration, int(contract.phase)), matrix.metric, place_R, cell_R)

    def mark(self, iteration: int, phase: int, metric: str, ranks: Iterable[int], cell: Cell) -> None:
        """What a detector says of some ranks."""
        wanted = np.array(sorted(set(ranks)), np.int64)
        place = np.searchsorted(self.ranks_R, wanted)
        known = (place < len(self.ranks_R)) & (
            self.ranks_R[np.minimum(place, len(self.ranks_R) - 1)] == wanted
        )
        place = place[known]
        self._merge((iteration, phase), metric, place, np.full(len(place), int(cell), np.int8))

    def columns(self) -> list[tuple[tuple[int, int], _Seen]]:
        """In causal order those in which anybody was more than fine."""
        found = sorted(self._seen.items())
        return [(key, one) for key, one in found if (one.cell_R > Cell.FINE).any()]

    def _merge(
        self, key: tuple[int, int], metric: str, place: NDArray[np.int64], cell: NDArray[np.int8]
    ) -> None:
        one = self._seen.get(key)
        if one is None:
            one = self._seen[key] = _Seen(np.zeros(len(self.ranks_R), np.int8))
        one.cell_R[place] = np.maximum(one.cell_R[place], cell)
        if (cell > Cell.FINE).any():
            one.metrics[metric] = None


def is_watched(metric: str) -> bool:
    """Whether a value of this metric alone tells that its rank is bad."""
    return contract_of(metric).kind in _WATCHED or is_compared(metric)


def propagation(seen: Observations, incident: Mapping[str, Any]) -> Propagation:
    """How an incident spread over what was seen."""
    found = seen.columns()
    first = incident["first"]
    begin = int(first["iteration"])
    found = [one for one in found if one[0][0] >= begin] or found
    telling = _telling(found)
    kept = telling[:MAX_COLUMNS]
    groups = None if seen.layout is None else groups_of(seen.layout, seen.ranks_R)
    columns = _columns(kept, groups)
    cells_CR = np.array([one.cell_R for _, one in kept], np.int8).reshape(len(kept), len(seen.ranks_R))
    lanes = _lanes(cells_CR, seen.ranks_R, first, seen.layout) if kept else []
    return Propagation(
        columns=columns,
        lanes=lanes[:MAX_LANES],
        hidden_lanes=max(0, len(lanes) - MAX_LANES),
        notes=_notes(columns, cells_CR, seen.ranks_R, first),
        are_columns_cut=len(telling) > len(kept),
    )


def _telling(found: Sequence[tuple[tuple[int, int], _Seen]]) -> list[tuple[tuple[int, int], _Seen]]:
    """Up to an iteration behind the last in which a rank turned bad: what follows only repeats itself."""
    last, bad_R = -1, None
    for (iteration, _), one in found:
        here_R = one.cell_R > Cell.FINE
        if bad_R is None or (here_R & ~bad_R).any():
            last = iteration
        bad_R = here_R if bad_R is None else bad_R | here_R
    late = [key[0] for key, _ in found if key[0] > last]
    return [one for one in found if one[0][0] <= min(late, default=last)]


def _columns(kept: Sequence[tuple[tuple[int, int], _Seen]], groups: Groups | None) -> list[Column]:
    columns: list[Column] = []
    bad_R: Flags | None = None
    for (iteration, phase), one in kept:
        here_R: Flags = one.cell_R >= Cell.TIE
        new_R = here_R if bad_R is None else here_R & ~bad_R
        is_same = bool(columns) and columns[-1].iteration == iteration
        waits = not here_R.any()
        via = ""
        if bad_R is not None and bad_R.any() and new_R.any():
            via = carried_by(groups, bad_R, new_R, Phase(phase), is_same_iteration=is_same)
        elif waits:
            via = "they wait for the others here"
        columns.append(Column(iteration, Phase(phase), list(one.metrics)[:_METRICS], int(new_R.sum()), via))
        bad_R = here_R if bad_R is None else bad_R | here_R
    return columns


def carried_by(
    groups: Groups | None, bad_R: Flags, new_R: Flags, phase: Phase, *, is_same_iteration: bool
) -> str:
    """What can have carried it from the ranks that were bad before to those that turned bad now.

    Inside one iteration only a collective that lies before the phase; from one iteration to the next the
    update as well.
    """
    if groups is None:
        return "no layout was told: any collective that joins these ranks"
    late = phase >= Phase.REDUCE_OUT or not is_same_iteration
    shares = {
        "the tensor parallel collectives": groups.tensor_R,
        "the tp, cp and ep collectives": groups.collective_R,
        "the pipeline, from stage to stage": groups.place_R,
    }
    for words, group_R in shares.items():
        if _reaches(group_R, bad_R, new_R):
            return words
    if late and _reaches(groups.shard_R, bad_R, new_R):
        return "the reduction of the gradient over the data parallel ranks"
    if late:
        return "the reduction of the gradient and the collectives inside each replica"
    return "no collective before this phase joins them: cannot be ordered within one iteration"


def _reaches(group_R: NDArray[np.int64], bad_R: Flags, new_R: Flags) -> bool:
    return bool(np.isin(group_R[new_R], np.unique(group_R[bad_R])).all())


def _lanes(
    cells_CR: NDArray[np.int8], ranks_R: Ranks, first: Mapping[str, Any], layout: Layout | None
) -> list[Lane]:
    suspect_R = np.isin(ranks_R, np.array(first.get("ranks") or [], np.int64))
    touched_R = (cells_CR > Cell.FINE).any(axis=0) | np.isin(
        ranks_R, np.array(first.get("victims") or [], np.int64)
    )
    role_R = np.where(suspect_R, 0, np.where(touched_R, 1, 2))
    code_R = role_R.astype(np.int64)
    for cell_R in cells_CR:  # 16 columns of 5 kinds: 4e11 codes
        code_R = code_R * len(Cell) + np.where(role_R == 2, 0, cell_R)
    codes, at, inverse = np.unique(code_R, return_index=True, return_inverse=True)
    names = ("suspect", "victim" if suspect_R.any() else "affected", "clean")
    lanes: list[tuple[tuple[int, int, int], Lane]] = []
    for place in range(len(codes)):
        members = ranks_R[inverse.ravel() == place]
        here = int(at[place])
        cells = cells_CR[:, here]
        bad = np.flatnonzero(cells > Cell.FINE)
        listed = members[:_LISTED].tolist()
        lane = Lane(names[role_R[here]], listed, len(members), _hosts(listed, layout), cells.tolist())
        key = int(role_R[here]), int(bad[0]) if len(bad) else MAX_COLUMNS, int(members[0])
        lanes.append((key, lane))
    return [lane for _, lane in sorted(lanes, key=lambda one: one[0])]


def _hosts(ranks: Sequence[int], layout: Layout | None) -> list[str]:
    known = {} if layout is None else layout.hosts
    return list(dict.fromkeys(known[rank] for rank in ranks if rank in known))[:4]


def _notes(
    columns: Sequence[Column], cells_CR: NDArray[np.int8], ranks_R: Ranks, first: Mapping[str, Any]
) -> list[str]:
    """What the order does not tell."""
    notes: list[str] = []
    if not columns:
        notes.append("nothing that single ranks reported tells one from another: nobody can be put first")
    low, high = first.get("interval") or (None, None)
    if low is not None and high is not None and high - low > 1:
        notes.append(
            f"nothing was looked at between iterations {low} and {high}: it can have begun at any of them"
        )
    if columns and (count := int((cells_CR[0] >= Cell.TIE).sum())) > 1:
        where = f"{columns[0].phase.label.replace('_', ' ')} of iteration {columns[0].iteration}"
        notes.append(
            f"{count} ranks were bad first in the same phase, {where}:"
            " which of them was first cannot be ordered within one iteration"
        )
        if columns[0].phase >= Phase.REDUCE_OUT and count == len(ranks_R):
            notes.append("all ranks at once behind the reduction: nothing reported before it was bad")
    if first.get("tie"):
        notes.append("the suspects cannot be told apart: one of them")
    return notes
