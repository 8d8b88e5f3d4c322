"""Which files are one job: those that are its ranks, its attempts, its rotated pieces or its streams.

By file name within one folder, compression endings removed; the rules stand in `job_names`:

* a word for a rank with a number (``rank3``, ``job-rank_0003``, ``worker-3``, ``workerlog.3``,
  ``local_rank0``): files that are equal but for that number are one job, and the number is the rank of
  records that do not say theirs. So are the files of folders ``rank_0`` … , at least two;
* numbers that are exactly 0 to n-1, at least two, and stand where ranks do: the whole name
  (``0.jsonl``), behind a word for a device (``gpu0.log``) or a stream (``stdout.0``), the folder of a
  stream (``3/stdout.log``), the task of a scheduler's job (``job-123456-3.out``);
* a word for an attempt (``attempt_1``, ``restart2``, ``part-3``) and rotated pieces (``train.log.2.gz``
  beside ``train.log``): one stream, in the order in which they were written;
* the two streams of one process (``x.out`` and ``x.err``, ``stdout.log`` and ``stderr.log``): one rank;
* everything else: one job a file. ``run1.csv`` and ``run2.csv`` are two runs, since a number alone does
  not say what it counts, unless one goes on where the other stopped (`continuations`).
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from firstfault.telemetry import MAX_RUN_BYTES

from .job_folders import PassedOver, expand
from .job_names import ATTEMPT, CHAINED_KINDS, RANK, STREAM, Facets, natural, stem_of, take_apart

__all__ = ["STANDARD_INPUT", "STANDARD_INPUT_RUN", "Job", "JobFile", "find_jobs", "stem_of"]

STANDARD_INPUT = "-"
STANDARD_INPUT_RUN = "stdin"
_STREAM_ORDER = {"out": 0, "": 1, "err": 2}


@dataclass(frozen=True, slots=True)
class JobFile:
    """One file of a job; ``rank`` is that of records without one, None when the name tells none."""

    path: str
    rank: int | None = None
    parts: tuple[str, ...] = ()
    """Files that go on where ``path`` ends, in their order."""
    beside: tuple[JobFile, ...] = ()
    """The other streams of the same process."""


@dataclass(frozen=True, slots=True)
class Job:
    """The files of one training job; ``run`` names the run of records that do not say theirs."""

    run: str
    files: tuple[JobFile, ...]
    is_named: bool = True
    """Whether a file of it was given by its own name; else it was found in a folder, and may be no log."""


def find_jobs(
    paths: Iterable[str | Path],
    passed: PassedOver | None = None,
    *,
    named: Iterable[Path] | None = None,
    is_awaited: bool = False,
) -> list[Job]:
    """The jobs in files, folders and ``-`` (standard input), in the order given.

    Folders are read recursively, in the order of names, see `job_folders`. A file that is named is taken
    whatever its name, and twice named is taken once. ``passed`` is told what was not taken;
    ``named`` are the paths that a person gave, where ``paths`` were found in them. With ``is_awaited`` a
    name of which nothing is there is that of a file to come.

    Raises:
        UnreadableInput: a path that does not exist, a folder without a readable file.
    """
    given = [str(path) for path in paths]
    files: list[Path] = []
    jobs: list[Job] = []
    seen: set[str] = set()
    for each in given:
        if each == STANDARD_INPUT:
            if STANDARD_INPUT not in seen:
                jobs.append(Job(STANDARD_INPUT_RUN, (JobFile(STANDARD_INPUT),)))
            seen.add(STANDARD_INPUT)
            continue
        is_to_come = is_awaited and not os.path.lexists(each)
        for path in [Path(each)] if is_to_come else expand(Path(each), passed):
            identity = os.path.realpath(path)
            if identity not in seen:
                seen.add(identity)
                files.append(path)
    own = set(map(Path, given) if named is None else named)
    return jobs + [
        replace(job, is_named=any(Path(path) in own for path in _paths_of(job))) for job in _group(files)
    ]


@dataclass(frozen=True, slots=True)
class _Group:
    """The files of one job, taken apart."""

    facets: tuple[Facets, ...]

    @property
    def first(self) -> Facets:
        return self.facets[0]

    @property
    def ranks(self) -> set[int | None]:
        return {each.rank for each in self.facets}

    @property
    def is_plausible(self) -> bool:
        """Whether weak ranks hold together."""
        if not any(each.is_weak for each in self.facets):
            return True
        ranks = sorted(each.rank or 0 for each in self.facets)
        if len(set(ranks)) < 2:
            return False
        return not self.first.needs_all or sorted(set(ranks)) == list(range(len(set(ranks))))

    @property
    def is_distinct(self) -> bool:
        """Whether each file has a place of its own; only formats of lines are put one behind the other."""
        places = {(each.rank, each.attempt, each.piece, each.stream) for each in self.facets}
        behind = {(each.attempt, each.piece) for each in self.facets}
        return len(places) == len(self.facets) and (len(behind) == 1 or self.first.key[-1] in CHAINED_KINDS)


def _group(files: Sequence[Path]) -> list[Job]:
    siblings: dict[Path, set[str]] = defaultdict(set)
    for path in files:
        siblings[path.parent].add(path.name)
    names = {folder: frozenset(found) for folder, found in siblings.items()}
    groups: list[_Group] = []
    for group in _keyed(take_apart(path, names[path.parent]) for path in files if not path.is_dir()):
        if group.is_plausible:
            groups.append(group)
        else:
            weaker = (take_apart(one.path, names[one.path.parent], with_weak=False) for one in group.facets)
            groups += _keyed(weaker)
    whole = [part for group in groups for part in _split(group)]
    whole += [_Group((_alone(path),)) for path in files if path.is_dir()]
    order = {path: at for at, path in enumerate(files)}
    whole.sort(key=lambda group: min(order[each.path] for each in group.facets))
    return _with_names(whole)


def _keyed(facets: Iterable[Facets]) -> list[_Group]:
    found: dict[tuple[object, ...], list[Facets]] = defaultdict(list)
    for each in facets:
        found[each.key].append(each)
    return [_Group(tuple(group)) for group in found.values()]


def _alone(path: Path) -> Facets:
    return Facets(path, (*path.parent.parts, path.name if path.is_dir() else stem_of(path), ""))


def _split(group: _Group) -> list[_Group]:
    """One group, unless two files claim one place (``rank0.log`` beside ``rank0.txt``): then file by file."""
    is_one = len(group.facets) == 1 or group.is_distinct
    if is_one and (group.ranks != {None} or len(group.facets) > 1):
        return [group]
    return [
        _Group((each if each.rank is not None and is_one else _alone(each.path),)) for each in group.facets
    ]


def _with_names(groups: Sequence[_Group]) -> list[Job]:
    """Each group named by its shortest unambiguous name: the stem, else the path, else the ending too."""
    names = [_short_name(group) for group in groups]
    for longer in (_folder_name, _path_name, _full_name):
        counts = Counter(names)
        names = [
            longer(group) if counts[name] > 1 else name for name, group in zip(names, groups, strict=True)
        ]
    return [Job(_cut(name), _files(group)) for name, group in zip(names, groups, strict=True)]


def _files(group: _Group) -> tuple[JobFile, ...]:
    """The files by rank; of each rank its streams, of each stream its pieces in order."""
    by_rank: dict[int | None, dict[str, list[Facets]]] = defaultdict(lambda: defaultdict(list))
    for each in group.facets:
        by_rank[each.rank][each.stream].append(each)
    files: list[JobFile] = []
    for rank in sorted(by_rank, key=lambda rank: -1 if rank is None else rank):
        streams = [
            _chain(by_rank[rank][stream], rank)
            for stream in sorted(by_rank[rank], key=_STREAM_ORDER.__getitem__)
        ]
        files.append(JobFile(streams[0].path, rank, streams[0].parts, tuple(streams[1:])))
    return tuple(files)


def _chain(pieces: Iterable[Facets], rank: int | None) -> JobFile:
    first, *rest = sorted(pieces, key=lambda each: (each.attempt, each.piece, natural(each.path.name)))
    return JobFile(str(first.path), rank, tuple(str(each.path) for each in rest))


def _paths_of(job: Job) -> Iterator[str]:
    for file in job.files:
        for stream in (file, *file.beside):
            yield from (stream.path, *stream.parts)


def _short_name(group: _Group) -> str:
    """What is left of the name when rank, attempt and stream go: "job-" names the job "job".

    Where nothing is left it is the nearest folder of which something is.
    """
    *folders, stem, _ = group.first.key
    for name in (stem, *reversed(folders)):
        left = re.sub(
            rf"[-_.=]*[{RANK}{ATTEMPT}{STREAM}][-_.=]*",
            lambda match: "-" if match.start() > 0 and match.end() < len(match.string) else "",
            name,
        )
        if left and (left == name or re.search(r"[A-Za-z]", left)) and left not in (".", "..", "/"):
            return left
    return group.first.path.absolute().parent.name or "run"


def _folder_name(group: _Group) -> str:
    short = _short_name(group)
    parent = group.first.path.absolute().parent.name
    return f"{parent}/{short}" if parent and parent != short else short


def _path_name(group: _Group) -> str:
    short = _short_name(group)
    parent = group.first.path.parent.as_posix().lstrip("./")
    return f"{parent}/{short}" if parent and parent != short else short


def _full_name(group: _Group) -> str:
    return group.first.path.as_posix()


def _cut(name: str) -> str:
    """A name within the rules of a run: no control characters, at most 256 bytes, its end kept."""
    clean = "".join(
        "?" if ord(char) < 32 or 127 <= ord(char) < 160 or 0xD800 <= ord(char) < 0xE000 else char
        for char in name
    )
    raw = clean.encode()
    return clean if len(raw) <= MAX_RUN_BYTES else raw[-MAX_RUN_BYTES:].decode(errors="ignore")
