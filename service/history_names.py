"""Where history lies on disk: a folder per run and attempt, names that tell what a file covers.

    <run id>/<attempt>/summary-<first>-<last>-<rows>.parquet     per-iteration summaries and their pyramid
    <run id>/<attempt>/coarse-<first>-<last>-<rows>.parquet      the same without its finest level
    <run id>/<attempt>/values-<first>-<last>-<positions>.parquet the flight recorder: every rank
    <run id>/<attempt>/tail-…, tailvalues-…                      what is behind both and has not settled
    <run id>/<attempt>/layout.json.gz                            how its ranks lie in the mesh and on hosts
    windows/<incident>-<run id>-<attempt>-<first>-<last>-<settled>-<stop>.parquet
                                     frozen; final before ``settled``, wanted before ``stop``

Only hashes and numbers are names of files: those of runs and metrics are data of strangers. A file is
written under a hidden name, synced, then renamed, so what bears its name is whole. Files may
overlap, after a crash or while small ones are joined: `claims` decides which answers for an iteration.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SUMMARY, COARSE, VALUES = "summary", "coarse", "values"
TAIL, TAIL_VALUES = "tail", "tailvalues"
WINDOWS = "windows"
TEMPORARY = ".tmp"

_SEGMENT = re.compile(r"(summary|coarse|values|tail|tailvalues)-(\d{1,19})-(\d{1,19})-(\d{1,19})\.parquet")
_WINDOW = re.compile(
    r"([0-9A-Za-z]{1,64})-([0-9a-f]{16})-(\d{1,10})-(\d{1,19})-(\d{1,19})-(\d{1,19})-(\d{1,19})\.parquet"
)
_RUN_ID = re.compile(r"[0-9a-f]{16}")
_ATTEMPT = re.compile(r"\d{1,10}")
_INCIDENT_ID = re.compile(r"[0-9A-Za-z]{1,64}")
_LISTINGS = 8
"""Looks at a folder that changes under our eyes: files are joined at most every few seconds."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of an attempt: iterations ``first`` to ``last``, both inside."""

    path: Path
    kind: str
    first: int
    last: int
    rows: int

    @property
    def settled(self) -> int:
        """The last iteration that will not change any more."""
        return self.first - 1 if self.kind in (TAIL, TAIL_VALUES) else self.last


@dataclass(frozen=True, slots=True)
class WindowFile:
    """The frozen window of an incident: it holds ``first`` to ``last`` and is wanted up to ``stop``.

    What it holds behind ``settled`` was still open to change.
    """

    path: Path
    incident_id: str
    run_id: str
    attempt: int
    first: int
    last: int
    settled: int
    stop: int

    @property
    def is_complete(self) -> bool:
        """Whether all that was asked for had settled."""
        return self.settled + 1 >= self.stop


@dataclass(frozen=True, slots=True)
class Claim:
    """The iterations ``first`` to ``last`` that a file answers for; ``is_whole`` if that is all of it."""

    path: Path
    first: int
    last: int
    is_whole: bool


def attempt_folder(folder: Path, run_id: str, attempt: int) -> Path | None:
    """Where an attempt's files lie; None for what cannot be a run's id."""
    return folder / run_id / str(attempt) if _RUN_ID.fullmatch(run_id) and attempt >= 0 else None


def check_incident_id(incident_id: str) -> None:
    """Refuse what could leave the folder."""
    if not _INCIDENT_ID.fullmatch(incident_id):
        raise ValueError(f"incident_id must be 1 to 64 letters and digits, got {incident_id!r}")


def segment_path(folder: Path, kind: str, first: int, last: int, rows: int) -> Path:
    """The name of a segment."""
    return folder / f"{kind}-{first}-{last}-{rows}.parquet"


def window_path(folder: Path, one: WindowFile) -> Path:
    """The name of a frozen window, whatever its ``path``."""
    numbers = "-".join(map(str, (one.attempt, one.first, one.last, one.settled + 1, one.stop)))
    return folder / WINDOWS / f"{one.incident_id}-{one.run_id}-{numbers}.parquet"


def segments(folder: Path, *kinds: str) -> list[Segment]:
    """The segments of an attempt, by first iteration, the longer and finer before the others."""
    order = (SUMMARY, COARSE, VALUES, TAIL, TAIL_VALUES)
    found = [_as_segment(folder, name) for name in _listed(folder)]
    wanted = [one for one in found if one is not None and one.kind in kinds]
    return sorted(wanted, key=lambda one: (one.first, -one.last, order.index(one.kind)))


def windows(folder: Path, incident_id: str | None = None) -> list[WindowFile]:
    """The frozen windows, all or those of one incident; of several versions of one the longest first."""
    found: list[WindowFile] = []
    for name in _listed(folder / WINDOWS):
        match = _WINDOW.fullmatch(name)
        if match is not None and incident_id in (None, match[1]):
            attempt, first, last, settled_stop, stop = (int(one) for one in match.groups()[2:])
            place = (folder / WINDOWS / name, match[1], match[2], attempt, first, last)
            found.append(WindowFile(*place, settled=settled_stop - 1, stop=stop))
    return sorted(found, key=lambda one: (one.incident_id, -one.last, one.first))


def run_folders(folder: Path) -> Iterator[Path]:
    """The folders of the runs."""
    yield from (folder / name for name in _listed(folder) if _RUN_ID.fullmatch(name))


def attempts_in(folder: Path, run_id: str) -> list[int]:
    """The attempts of a run, ascending."""
    if not _RUN_ID.fullmatch(run_id):
        return []
    return sorted(int(name) for name in _listed(folder / run_id) if _ATTEMPT.fullmatch(name))


def claims(files: Iterable[Segment | WindowFile]) -> list[Claim]:
    """Which file answers for which iterations: the one that begins first, and the others for the rest.

    What overlaps and has settled holds the same values (records read again settle as before), so any rule
    would do that counts nothing twice. What has not settled answers only behind all that has.
    """
    listed = list(files)
    settled = [(one.first, one.settled, one) for one in listed]
    open_ = [(max(one.first, one.settled + 1), one.last, one) for one in listed]
    claimed, found = -1, []
    for parts in (settled, open_):
        for first, last, one in sorted(parts, key=lambda part: (part[0], -part[1])):
            if first <= last and last > claimed:
                is_whole = first > claimed and (first, last) == (one.first, one.last)
                found.append(Claim(one.path, max(first, claimed + 1), last, is_whole))
                claimed = last
    return found


def size_of(path: Path) -> int:
    """Bytes of a file; 0 once it is gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def write_atomically(path: Path, write: Callable[[Path], None]) -> int:
    """Let ``write`` fill a hidden file, then give it its name; the bytes it took.

    Raises:
        OSError: it could not be written; nothing is left behind.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        write(temporary)
        _sync(temporary)
        size = temporary.stat().st_size
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)
    return size


def remove_leftovers(folder: Path) -> int:
    """Remove what writers that are gone left half-written; how many."""
    removed = 0
    for path in folder.rglob(f".*{TEMPORARY}"):
        if not _is_alive(path.name.removesuffix(TEMPORARY).rpartition(".")[2]):
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _is_alive(pid: str) -> bool:
    if not pid.isdecimal() or int(pid) == os.getpid():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it runs and belongs to somebody else
    return True


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _as_segment(folder: Path, name: str) -> Segment | None:
    match = _SEGMENT.fullmatch(name)
    if match is None:
        return None
    return Segment(folder / name, match[1], int(match[2]), int(match[3]), int(match[4]))


def _listed(folder: Path) -> list[str]:
    """The names in a folder, none if it is not there.

    A listing during which files are joined may miss the new one and the old ones alike, so it is
    taken until two in a row agree.
    """
    names = _names(folder)
    for _ in range(_LISTINGS):
        again = _names(folder)
        if again == names:
            break
        names = again
    return sorted(names)


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))  # noqa: PTH208  # names alone: no object for each of thousands
    except (FileNotFoundError, NotADirectoryError):
        return set()
