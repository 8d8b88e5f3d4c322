"""Freezes what every rank reported around an incident, before the flight recorder forgets it.

A window may be wanted beyond what has settled; it is then written again as that comes, also by a writer that
was started later: how far it is wanted is part of its name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from .history_access import Files
from .history_budget import Budget
from .history_config import HistoryConfig
from .history_names import (
    TAIL_VALUES,
    VALUES,
    Claim,
    Segment,
    WindowFile,
    attempt_folder,
    check_incident_id,
    claims,
    segments,
    size_of,
    window_path,
    windows,
    write_atomically,
)
from .history_parquet import VALUES_FORMAT, ValueNames, aligned, value_names, value_tables, values_schema

_MAX_WISHES = 4096
"""Windows waiting for more to settle: those of runs that ended wait for ever, so the oldest are let go."""


@dataclass(frozen=True, slots=True)
class Wish:
    """Iterations ``start`` up to ``stop`` of an attempt, for an incident that was seen at ``focus``."""

    incident_id: str
    run_id: str
    attempt: int
    start: int
    stop: int
    focus: int


class Windows:
    """The frozen windows in ``folder``, and those that are still to grow."""

    def __init__(self, folder: Path, config: HistoryConfig, budget: Budget) -> None:
        self._folder, self._config, self._budget = folder, config, budget
        self._wishes: dict[str, Wish] = {}
        for one in windows(folder):
            if not one.is_complete:
                self._want(Wish(one.incident_id, one.run_id, one.attempt, one.first, one.stop, one.last))

    def freeze(self, incident_id: str, run_id: str, attempt: int, start: int, stop: int) -> bool:
        """Freeze the iterations ``start`` up to ``stop`` with the margin around them; whether there were any.

        Raises:
            ValueError: no id of an incident.
            OSError: it could not be written.
        """
        check_incident_id(incident_id)
        reach = self._margin(run_id, attempt, stop)
        wish = Wish(incident_id, run_id, attempt, max(0, start - reach), stop + reach, max(start, stop - 1))
        self._want(wish)
        return self._write(wish)

    def grow(self, run_id: str, attempt: int, settled_to: int) -> None:
        """Write the windows once more for which all has settled now.

        Raises:
            OSError: one could not be written; it is tried again.
        """
        for wish in list(self._wishes.values()):
            if (wish.run_id, wish.attempt) == (run_id, attempt) and settled_to + 1 >= wish.stop:
                self._write(wish)
                self._wishes.pop(wish.incident_id, None)

    def refresh(self, run_id: str = "", attempt: int = 0) -> None:
        """Write the unfinished windows of an attempt, or all, as far as they go: no more may come.

        Raises:
            OSError: one could not be written.
        """
        for wish in list(self._wishes.values()):
            if not run_id or (wish.run_id, wish.attempt) == (run_id, attempt):
                self._write(wish)

    def _want(self, wish: Wish) -> None:
        self._wishes[wish.incident_id] = wish
        while len(self._wishes) > _MAX_WISHES:
            del self._wishes[next(iter(self._wishes))]

    def _margin(self, run_id: str, attempt: int, stop: int) -> int:
        """The margin in the attempt's own counter, which may advance by more than one a position."""
        around = [
            one for one in self._sources(run_id, attempt) if isinstance(one, Segment) and one.first < stop
        ]
        stride = (around[-1].last - around[-1].first + 1) // max(1, around[-1].rows) if around else 1
        return self._config.window_margin_iterations * max(1, stride)

    def _sources(self, run_id: str, attempt: int) -> list[Segment | WindowFile]:
        """Files that hold values of the attempt: the flight recorder, and what was frozen of it before."""
        folder = attempt_folder(self._folder, run_id, attempt)
        frozen = [one for one in windows(self._folder) if (one.run_id, one.attempt) == (run_id, attempt)]
        return [*(segments(folder, VALUES, TAIL_VALUES) if folder else []), *frozen]

    def _write(self, wish: Wish) -> bool:
        sources = self._sources(wish.run_id, wish.attempt)
        wish = _within(wish, sources, self._config.window_bytes)
        answering = [
            replace(one, first=max(one.first, wish.start), last=min(one.last, wish.stop - 1))
            for one in claims(sources)
            if one.last >= wish.start and one.first < wish.stop
        ]
        if not answering:
            return False
        first, last = answering[0].first, answering[-1].last
        settled = min(last, max((one.settled for one in sources), default=-1))
        made = WindowFile(
            Path(),
            wish.incident_id,
            wish.run_id,
            wish.attempt,
            first,
            last,
            max(settled, first - 1),
            wish.stop,
        )
        own = [one for one in sources if isinstance(one, WindowFile) and one.incident_id == wish.incident_id]
        if any(
            one.first <= first and one.last >= last and one.settled >= settled and one.stop >= wish.stop
            for one in own
        ):
            return True
        path = window_path(self._folder, made)
        self._budget.demand_room(self._config.window_bytes)
        self._budget.written(write_atomically(path, lambda temporary: _copy(temporary, answering)))
        for one in own:
            if one.path != path:
                self._budget.remove(one.path)
        return True


def _within(wish: Wish, sources: Sequence[Segment | WindowFile], most_bytes: int) -> Wish:
    """The wish, cut to the iterations nearest to its focus that ``most_bytes`` hold."""
    sizes = [
        (size_of(one.path), one.last - one.first + 1)
        for one in sources
        if one.last >= wish.start and one.first < wish.stop
    ]
    spans = sum(span for _, span in sizes)
    fitting = most_bytes * spans // max(1, sum(size for size, _ in sizes))
    if wish.stop - wish.start <= fitting:
        return wish
    start = max(wish.start, min(wish.focus - fitting // 2, wish.stop - fitting))
    return replace(wish, start=start, stop=start + max(1, fitting))


def _copy(path: Path, answering: Sequence[Claim]) -> None:
    """Write the cells that each file answers for into one file; a damaged one is left out."""
    import pyarrow.parquet as pq

    files = Files(is_last_look=True)
    read = [(claim, files.read(claim.path, value_names)) for claim in answering]
    held = [(claim, own) for claim, own in read if own is not None]
    numbers = {name for _, own in held for name in own.numbers}
    checksums = {name for _, own in held for name in own.checksums}
    names = ValueNames(sorted(numbers), sorted(checksums))
    with pq.ParquetWriter(path, values_schema(names), **VALUES_FORMAT) as writer:
        for claim, own in held:
            use = partial(value_tables, first=claim.first, last=claim.last)
            for table in files.read(claim.path, use) or []:
                writer.write_table(aligned(table, own, names))
