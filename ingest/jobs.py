"""Which files are one job: those whose names differ only by a rank number.

The rule, by file name within one folder, compression and format endings removed:

* a word for a rank with a number (``rank3``, ``job-rank_0003``, ``x.rank3``, ``worker-3``,
  ``local_rank0``, ``proc2``): files that are equal but for that number are one job, and the number
  is the rank of records that do not say theirs;
* bare numbers that are exactly 0 to n-1 (``0.jsonl`` … ``7.jsonl``), at least two: one job;
* everything else: one job a file. ``run1.csv`` and ``run2.csv`` are two runs, since a number alone
  does not say that it is a rank.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from firstfault.telemetry import MAX_RANK, MAX_RUN_BYTES

from .errors import UnreadableInput
from .folders import form_of_folder
from .sniff import COMPRESSED_SUFFIXES, READABLE_SUFFIXES, Format

STANDARD_INPUT = "-"
STANDARD_INPUT_RUN = "stdin"

_RANK_WORD = re.compile(
    r"(?:(?<=^)|(?<=[^A-Za-z]))((?:local|global)?[-_]?rank|worker|proc(?:ess)?)[-_.=]?(\d{1,7})(?!\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class JobFile:
    """One file of a job; ``rank`` is that of records without one, None when the name tells none."""

    path: str
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """The files of one training job; ``run`` names the run of records that do not say theirs."""

    run: str
    files: tuple[JobFile, ...]


def find_jobs(paths: Iterable[str | Path]) -> list[Job]:
    """The jobs in files, folders and ``-`` (standard input), in the order given.

    Folders are read recursively, in the order of names; hidden files and files of other kinds in
    them are passed over, a link back to a folder that is being read is not followed. A file that is
    named is taken whatever its name, and twice named is taken once.

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
        for path in _expand(Path(each)):
            identity = os.path.realpath(path)
            if identity not in seen:
                seen.add(identity)
                files.append(path)
    return jobs + _group(files)


def stem_of(path: Path) -> str:
    """The name of a file without the endings of compression and format.

    >>> stem_of(Path("logs/llama-7b.v2.jsonl.gz"))
    'llama-7b.v2'
    """
    name = path.name
    for endings in (COMPRESSED_SUFFIXES, (*READABLE_SUFFIXES, ".json", ".txt", ".log")):
        for ending in endings:
            if name.lower().endswith(ending) and len(name) > len(ending):
                name = name[: -len(ending)]
                break
    return name


def _expand(path: Path) -> list[Path]:
    if path.is_dir():
        found = list(_walk(path, frozenset()))
        if not found:
            kinds = ", ".join(READABLE_SUFFIXES)
            raise UnreadableInput(f"{path}: a folder must hold a readable file ({kinds}, also .gz and .zst)")
        return found
    if not path.exists():
        raise UnreadableInput(f"{path}: must be a file, a folder or -, but nothing is there")
    return [path]


def _walk(folder: Path, above: frozenset[str]) -> Iterator[Path]:
    identity = os.path.realpath(folder)
    if identity in above:
        return
    form = form_of_folder(folder)
    if form is not None:
        yield folder
    if form is Format.MLFLOW:
        return
    try:
        entries = sorted(folder.iterdir(), key=lambda entry: _natural(entry.name))
    except OSError as error:
        raise UnreadableInput(f"{folder}: {error.strerror}") from error
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            yield from _walk(entry, above | {identity})
        elif entry.is_file() and _is_readable_name(entry.name):
            yield entry


def _is_readable_name(name: str) -> bool:
    lowered = name.lower()
    for ending in COMPRESSED_SUFFIXES:
        lowered = lowered.removesuffix(ending)
    return lowered.endswith(READABLE_SUFFIXES)


def _natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key in which rank10 comes after rank2."""
    parts = re.findall(r"\d{1,18}|\D+|\d", name)
    return tuple((0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts)


@dataclass(frozen=True, slots=True)
class _Named:
    path: Path
    pattern: str
    rank: int | None


def _group(files: Sequence[Path]) -> list[Job]:
    named = [_split_rank(path) for path in files]
    bare = _bare_number_folders(files)
    groups: dict[tuple[str, str], list[_Named]] = defaultdict(list)
    for each in named:
        if str(each.path.parent) in bare and each.path in bare[str(each.path.parent)]:
            rank = int(stem_of(each.path))
            groups[str(each.path.parent), ""].append(_Named(each.path, "", rank))
        elif each.rank is None:
            groups[str(each.path), each.pattern].append(each)
        else:
            groups[str(each.path.parent), each.pattern].append(each)
    return _with_names([group for pieces in groups.values() for group in _distinct_ranks(pieces)])


def _split_rank(path: Path) -> _Named:
    stem = stem_of(path)
    found = list(_RANK_WORD.finditer(stem))
    if not found or int(found[-1].group(2)) > MAX_RANK:
        return _Named(path, stem, None)
    match = found[-1]
    return _Named(path, stem[: match.start()] + "\0" + stem[match.end() :], int(match.group(2)))


def _distinct_ranks(pieces: list[_Named]) -> list[list[_Named]]:
    """One group, unless two files claim one rank (``rank0.csv`` beside ``rank0.jsonl``): then by ending."""
    if len({piece.rank for piece in pieces}) == len(pieces):
        return [pieces]
    by_ending: dict[str, list[_Named]] = defaultdict(list)
    for piece in pieces:
        by_ending[piece.path.name[len(stem_of(piece.path)) :]].append(piece)
    if any(len({piece.rank for piece in group}) < len(group) for group in by_ending.values()):
        return [[piece] for piece in pieces]
    return list(by_ending.values())


def _bare_number_folders(files: Sequence[Path]) -> dict[str, set[Path]]:
    numbers: dict[str, list[tuple[str, Path]]] = defaultdict(list)
    for path in files:
        stem = stem_of(path)
        if stem.isascii() and stem.isdigit() and len(stem) < 8:
            numbers[str(path.parent)].append((stem, path))
    return {
        folder: {path for _, path in found}
        for folder, found in numbers.items()
        if len(found) > 1 and sorted(int(stem) for stem, _ in found) == list(range(len(found)))
    }


def _with_names(groups: Sequence[list[_Named]]) -> list[Job]:
    """Each group named by its shortest unambiguous name: the stem, else the path, else the ending too."""
    names = [_short_name(group) for group in groups]
    for longer in (_path_name, _full_name):
        counts = Counter(names)
        names = [
            longer(group) if counts[name] > 1 else name for name, group in zip(names, groups, strict=True)
        ]
    return [
        Job(_cut(name), tuple(JobFile(str(piece.path), piece.rank) for piece in _by_rank(group)))
        for name, group in zip(names, groups, strict=True)
    ]


def _by_rank(group: list[_Named]) -> list[_Named]:
    return sorted(group, key=lambda piece: -1 if piece.rank is None else piece.rank)


def _short_name(group: list[_Named]) -> str:
    first = group[0]
    if first.rank is None:
        return stem_of(first.path)
    # What is left of the pattern when the rank goes: "job-" names the job "job"; nothing left, the folder.
    left = re.sub(
        r"[-_.=]*\0[-_.=]*",
        lambda match: "-" if match.start() > 0 and match.end() < len(match.string) else "",
        first.pattern,
    )
    return left or first.path.absolute().parent.name or "run"


def _path_name(group: list[_Named]) -> str:
    first = group[0]
    short = _short_name(group)
    parent = first.path.parent.as_posix().lstrip("./")
    return f"{parent}/{short}" if parent and parent != short else short


def _full_name(group: list[_Named]) -> str:
    return group[0].path.as_posix()


def _cut(name: str) -> str:
    """A name within the rules of a run: no control characters, at most 256 bytes, its end kept."""
    clean = "".join(
        "?" if ord(char) < 32 or 127 <= ord(char) < 160 or 0xD800 <= ord(char) < 0xE000 else char
        for char in name
    )
    raw = clean.encode()
    return clean if len(raw) <= MAX_RUN_BYTES else raw[-MAX_RUN_BYTES:].decode(errors="ignore")
