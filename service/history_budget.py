"""Keeps history within its bytes: what goes first, and what goes last.

Values of single ranks go first, oldest first, those frozen for incidents that are closed among them: they are
many and soon old. A quarter of the budget is kept for the flight recorder, without which nothing could be
frozen. Then goes the finest level of the summaries, of the runs silent longest; their curves stay, coarser.
Then coarse curves, then the recorder's quarter, and only when nothing else is left windows of open
incidents, which is counted and logged.
"""

from __future__ import annotations

import errno
import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .history_access import Files
from .history_config import HistoryConfig
from .history_names import (
    COARSE,
    SUMMARY,
    TAIL,
    TAIL_VALUES,
    VALUES,
    Segment,
    attempts_in,
    remove_leftovers,
    run_folders,
    segment_path,
    segments,
    size_of,
    windows,
    write_atomically,
)
from .history_parquet import read_fine, write_summary

log = logging.getLogger(__name__)

_PRUNED_TO = 0.9
"""Share of the budget left after pruning: looking at every file is dear, so it is done rarely."""
_RESERVED = 0.25
"""Share of the budget that values of single ranks keep against curves: 512 MB of the default, some 600
iterations of a job of 10 000 ranks."""


class Budget:
    """The bytes that history takes, and what happens when they are too many."""

    def __init__(self, folder: Path, config: HistoryConfig, is_open: Callable[[str], bool]) -> None:
        """``is_open`` tells whether an incident is one that somebody may still look at."""
        self._folder, self._config, self._is_open = folder, config, is_open
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        self.used_bytes = self._measure()
        self.counts: Counter[str] = Counter()
        """Files pruned, by kind; ``open_window`` is the one that hurts."""
        self.written(0)  # the budget may have been lowered

    def demand_room(self, size: int) -> None:
        """Make sure that ``size`` more bytes may be written, pruning if they may not.

        Raises:
            OSError: the disk is too full even so.
        """
        if self._free_bytes() < self._config.keep_free_bytes + size:
            wanted = self._config.keep_free_bytes + size - self._free_bytes()
            # others may have filled the disk: for their sake only what is soon old anyway is given up
            self._prune(self.used_bytes - wanted, only=VALUES)
            if self._free_bytes() < self._config.keep_free_bytes + size:
                raise OSError(
                    errno.ENOSPC, f"under {self._config.keep_free_bytes} bytes free", str(self._folder)
                )

    def written(self, size: int) -> None:
        """Count bytes written; prune when all together are too many."""
        self.used_bytes += size
        if self.used_bytes > self._config.budget_bytes:
            self._prune(int(_PRUNED_TO * self._config.budget_bytes))

    def remove(self, path: Path) -> None:
        """Remove a file and take its bytes off."""
        size = size_of(path)
        path.unlink(missing_ok=True)
        self.used_bytes -= size

    def _prune(self, target_bytes: int, only: str = "") -> None:
        self.used_bytes = self._measure()
        for kind, path in self._victims():
            if self.used_bytes <= target_bytes:
                return
            if only and kind != only:
                continue
            if kind == SUMMARY:
                self._coarsen(path)
            else:
                self.remove(path)
            self.counts[kind] += 1
            if kind == "open_window":
                log.warning("the frozen window of an open incident was pruned", extra={"file": path.name})

    def _victims(self) -> Iterator[tuple[str, Path]]:
        """Every file in the order in which it may go; looked up as it is needed, since pruning makes some."""
        runs = sorted(run_folders(self._folder), key=_newest)
        values = sorted(
            (one.path for run in runs for one in self._segments(run, VALUES, TAIL_VALUES)), key=_modified
        )
        frozen = sorted(windows(self._folder), key=lambda one: _modified(one.path))
        closed = [one.path for one in frozen if not self._is_open(one.incident_id)]
        spare = [(VALUES, path) for path in self._beyond_reserve(values)]
        yield from sorted([*spare, *(("closed_window", path) for path in closed)], key=_age)
        for run in runs:
            yield from ((SUMMARY, one.path) for one in self._segments(run, SUMMARY))
        for run in runs:
            yield from ((COARSE, one.path) for one in self._segments(run, COARSE, TAIL))
        yield from ((VALUES, path) for path in values[len(spare) :])
        yield from (("open_window", one.path) for one in frozen if one.path not in closed)

    def _beyond_reserve(self, values: Sequence[Path]) -> list[Path]:
        """The oldest values, up to the share that is the recorder's own."""
        spare_bytes = sum(size_of(path) for path in values) - _RESERVED * self._config.budget_bytes
        found: list[Path] = []
        for path in values:
            if spare_bytes <= 0:
                break
            spare_bytes -= size_of(path)
            found.append(path)
        return found

    def _segments(self, run: Path, *kinds: str) -> Iterator[Segment]:
        for attempt in attempts_in(self._folder, run.name):
            yield from segments(run / str(attempt), *kinds)

    def _coarsen(self, path: Path) -> None:
        """Put the levels above the finest in the place of a file of summaries."""
        (one,) = (found for found in segments(path.parent, SUMMARY) if found.path == path)
        fine = Files(is_last_look=True).read(path, read_fine)
        coarse = segment_path(path.parent, COARSE, one.first, one.last, one.rows)
        try:
            if fine is not None:
                self.used_bytes += write_atomically(
                    coarse, lambda temporary: write_summary(temporary, *fine, fine=False)
                )
        except OSError as error:
            # no room even for that: the space is needed all the same
            log.warning("summaries were pruned whole", extra={"file": path.name, "reason": str(error)})
        self.remove(path)

    def _measure(self) -> int:
        return sum(size_of(path) for path in self._folder.rglob("*") if not path.is_dir())

    def _free_bytes(self) -> int:
        return shutil.disk_usage(self._folder).free


def _newest(run: Path) -> float:
    """When anything of a run was written last."""
    return max((_modified(path) for path in run.rglob("*.parquet")), default=0.0)


def _age(victim: tuple[str, Path]) -> float:
    return _modified(victim[1])


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
