"""Attempts of files whose records name none: a counter that goes back is a restart.

Axes: N rows (records and events) of one batch.

In a file order means something, so a training loop that appends to its log after a restart shows
itself: its counter goes back. The rule, per run and rank, row by row in file order:

* a row more than `window_iterations` behind the furthest of its rank starts a new attempt;
* unless `far_only`, so does a row behind the furthest whose iteration was reported before in this
  attempt with a *different* value of a metric (same microbatch);
* a shuffle within the window, exact repetitions, and rows that add other metrics to an iteration
  (evaluation) start nothing.

Ranks that restart some rows later land on the same number: the n-th restart of a rank is attempt n.
A rank that was absent from a launch, or appears late, takes the attempt nearest to it: the one of
the row before it in the file, or the earliest attempt that began closest to its own iteration.
Lines of our own wire format get the far rule only (`far_only`), and none once a record says its
attempt: there an attempt changes by itself alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import numpy as np

from .attempt_rows import Cut as _Cut
from .attempt_rows import RowBlock as _Block
from .attempt_rows import Rows as _Rows
from .attempt_rows import conflicts
from .blocks import RecordBatch
from .columns import select_rows
from .joining import concatenate


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptConfig:
    """When a counter that goes back is a restart."""

    window_iterations: int = 64
    """The lateness bound of alignment: what is less far behind may be mere disorder of writers."""
    window_rows_per_rank: int = 4096
    """Rows of a rank that are remembered to compare with: 64 iterations of 64 rows each."""
    far_only: bool = False
    """Ignore conflicts inside the window; for lines that carry run and rank, as our probe writes."""


_MAX_RESTARTS = 1000
"""Restarts of one rank that are followed; a counter that goes back more often is no counter of iterations."""
_BLOCK_ROWS = 4096
"""Rows judged at once where counters do not just rise: bounds the work a restart repeats."""


@dataclass(slots=True)
class _Rank:
    """Where one rank stands: its attempt, the furthest iteration in it, its restarts so far."""

    attempt: int
    furthest: int
    restarts: int = 0


class AttemptAssigner:
    """Numbers the attempts of one file, batch by batch in file order.

    The result does not depend on how the file is cut into batches. Cost per row is that of a few
    array operations while counters only rise.
    """

    def __init__(self, config: AttemptConfig | None = None) -> None:
        self._config = config or AttemptConfig()
        self._ranks: dict[tuple[str, int], _Rank] = {}
        self._starts: dict[str, list[int]] = {}
        self._last: dict[str, tuple[int, tuple[str, int]]] = {}
        self._recent: RecordBatch | None = None
        self.restarts = 0
        """Places at which an attempt of a rank began, so far."""

    def assign(self, batch: RecordBatch) -> RecordBatch:
        """The batch with attempts by the rule, events included."""
        if not len(batch) and not batch.events:
            return batch
        rows = _Rows.of(batch)
        attempt_N = np.array([self._attempt_of(key) for key in rows.keys], np.int64)[rows.group_N]
        cuts = [] if self._note_if_rising(rows) else self._find_cuts(rows, batch)
        for cut in self._number(cuts, rows):
            later_N = rows.places_of(cut.group)
            attempt_N[later_N[later_N >= cut.place]] = cut.attempt
        self._note_last(rows)
        assigned = replace(
            batch,
            attempt_N=attempt_N[rows.record_N >= 0].astype(np.int32),
            events=tuple(
                (before, replace(event, attempt=int(attempt)))
                for (before, event), attempt in zip(batch.events, attempt_N[rows.record_N < 0], strict=True)
            ),
        )
        self._remember(assigned, rows)
        return assigned

    def _attempt_of(self, key: tuple[str, int]) -> int:
        rank = self._ranks.get(key)
        return rank.attempt if rank is not None else 0

    def _note_if_rising(self, rows: _Rows) -> bool:
        """Whether every counter only rises, which is then noted; a new rank beside attempts is judged."""
        order_N, group_N, iteration_N = rows.judged()
        if not len(order_N):
            return True
        new_group_N = np.diff(group_N, prepend=-1) != 0
        if not (new_group_N[1:] | (np.diff(iteration_N) > 0)).all():
            return False
        first_G, last_G = np.flatnonzero(new_group_N), np.flatnonzero(np.append(new_group_N[1:], True))
        for at in first_G:
            rank = self._ranks.get(rows.keys[group_N[at]])
            if rank is None and len(self._starts.get(rows.keys[group_N[at]][0], ())) > 1:
                return False
            if rank is not None and iteration_N[at] <= rank.furthest:
                return False
        for at in last_G:
            self._advance(rows.keys[group_N[at]], int(iteration_N[at]))
        for run, iteration in rows.first_iterations():
            self._starts.setdefault(run, [iteration])
        return True

    def _advance(self, key: tuple[str, int], iteration: int) -> None:
        rank = self._ranks.get(key)
        if rank is None:
            self._ranks[key] = _Rank(0, iteration)
        else:
            rank.furthest = max(rank.furthest, iteration)

    def _find_cuts(self, rows: _Rows, batch: RecordBatch) -> list[_Cut]:
        """Where ranks restart or first appear; ranks advance, their attempts are numbered later."""
        cuts: list[_Cut] = []
        order_N, group_N, iteration_N = rows.judged()
        borders = np.flatnonzero(np.diff(group_N, prepend=-1, append=-1) != 0)
        for start, stop in itertools.pairwise(borders):
            group = int(group_N[start])
            key = rows.keys[group]
            rank = self._ranks.get(key)
            if rank is None:
                rank = self._ranks[key] = _Rank(0, int(iteration_N[start]))
                cuts.append(
                    _Cut(
                        place=int(order_N[start]), group=group, iteration=int(iteration_N[start]), is_new=True
                    )
                )
            earlier = self._earlier(key, rank)
            for begin in range(start, stop, _BLOCK_ROWS):
                places = order_N[begin : min(begin + _BLOCK_ROWS, stop)]
                block = _Block.of(batch, rows.record_N[places], rows.iteration_N[places])
                found, earlier = self._judge_block(rank, block, earlier)
                cuts += [
                    _Cut(place=int(places[at]), group=group, iteration=int(block.iteration_N[at]))
                    for at in found
                ]
        return cuts

    def _earlier(self, key: tuple[str, int], rank: _Rank) -> _Block:
        """The remembered rows of one rank in its present attempt."""
        recent = self._recent
        if recent is None or self._config.far_only:
            return _Block.empty()
        run, number = key
        mine_N = (recent.rank_N == number) & (recent.attempt_N == rank.attempt)
        mine_N &= recent.run_N == (recent.runs.index(run) if run in recent.runs else -1)
        at_N = np.flatnonzero(mine_N)
        return _Block.of(recent, at_N, recent.iteration_N[at_N])

    def _judge_block(self, rank: _Rank, block: _Block, earlier: _Block) -> tuple[list[int], _Block]:
        """Where in ``block`` the rank restarts, and the rows that the next block is compared with."""
        found: list[int] = []
        begin = 0
        while True:
            rest = block.part(begin)
            at = self._first_restart(rank, rest, earlier)
            if at is None or rank.restarts >= _MAX_RESTARTS:
                break
            begin += at
            found.append(begin)
            rank.restarts += 1
            rank.furthest = int(block.iteration_N[begin])
            earlier = _Block.empty()
        rest = block.part(begin)
        rank.furthest = max(rank.furthest, int(rest.iteration_N.max()))
        if self._config.far_only:
            return found, earlier
        return found, earlier.joined(rest).near(
            rank.furthest, self._config.window_iterations, self._config.window_rows_per_rank
        )

    def _first_restart(self, rank: _Rank, rest: _Block, earlier: _Block) -> int | None:
        before_N = np.maximum.accumulate(np.concatenate([[rank.furthest], rest.iteration_N[:-1]]))
        far_N = rest.iteration_N < before_N - self._config.window_iterations
        back_N = rest.iteration_N < before_N
        if not self._config.far_only and back_N.any():
            stop = int(np.argmax(far_N)) if far_N.any() else len(far_N)
            far_N = far_N | (back_N & conflicts(earlier, rest.upto(stop)))
        return int(np.argmax(far_N)) if far_N.any() else None

    def _number(self, cuts: list[_Cut], rows: _Rows) -> list[_Cut]:
        """Each cut with its attempt, in file order across ranks."""
        for run, iteration in rows.first_iterations():
            self._starts.setdefault(run, [iteration])
        numbered: list[_Cut] = []
        for cut in sorted(cuts, key=lambda each: each.place):
            key = rows.keys[cut.group]
            starts = self._starts[key[0]]
            own = 0 if cut.is_new else self._ranks[key].attempt + 1
            if own >= len(starts):
                starts.append(cut.iteration)
                attempt = own
            else:
                attempt = self._nearest(cut, rows, starts, own)
            self._ranks[key].attempt = attempt
            self.restarts += not cut.is_new
            numbered.append(replace(cut, attempt=attempt))
        return numbered

    def _nearest(self, cut: _Cut, rows: _Rows, starts: list[int], own: int) -> int:
        """The attempt of the row before if that is the latest and as near as any start, else by start."""
        key = rows.keys[cut.group]
        choices = range(len(starts)) if cut.is_new else range(own, own + 1)
        best = min(choices, key=lambda attempt: abs(cut.iteration - starts[attempt]))
        before = rows.before(cut.place, key[0]) or self._last.get(key[0])
        latest = len(starts) - 1
        if before is None or self._attempt_of(before[1]) != latest or before[1] == key:
            return best
        is_nearer = abs(cut.iteration - before[0]) <= abs(cut.iteration - starts[best])
        return latest if is_nearer else best

    def _note_last(self, rows: _Rows) -> None:
        for run in {key[0] for key in rows.keys}:
            last = rows.before(len(rows.group_N), run)
            if last is not None:
                self._last[run] = last

    def _remember(self, batch: RecordBatch, rows: _Rows) -> None:
        """Keep the rows that the next batch may conflict with: those near the furthest of their rank."""
        if self._config.far_only or not len(batch):
            return
        bare = replace(batch, events=(), rejected=(), labels=())
        recent = bare if self._recent is None else None
        if batch.events:
            rows = _Rows.of(bare)
        furthest_G = np.array([self._ranks[key].furthest for key in rows.keys], np.int64)
        near_N = bare.iteration_N >= furthest_G[rows.group_N] - self._config.window_iterations
        fresh = select_rows(bare, near_N)
        if recent is None and self._recent is not None:
            fresh = concatenate([self._still_near(self._recent), fresh])
        limit = self._config.window_rows_per_rank * max(len(self._ranks), 1)
        if len(fresh) > limit:
            fresh = select_rows(fresh, np.arange(len(fresh)) >= len(fresh) - limit)
        self._recent = fresh

    def _still_near(self, recent: RecordBatch) -> RecordBatch:
        rows = _Rows.of(recent)
        ranks = [self._ranks[key] for key in rows.keys]
        furthest_G = np.array([rank.furthest for rank in ranks], np.int64)
        attempt_G = np.array([rank.attempt for rank in ranks], np.int64)
        near_N = recent.iteration_N >= furthest_G[rows.group_N] - self._config.window_iterations
        return select_rows(recent, near_N & (recent.attempt_N == attempt_G[rows.group_N]))
