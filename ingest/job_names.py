"""What the name of a log file says: its rank, its place among attempts and rotated pieces, its stream.

Each of these is cut out of the name; files whose names are then equal belong together. Some numbers are
ranks only if the files together make it plausible (a folder ``3``, ``stdout.3``): those are weak.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from firstfault.telemetry import MAX_RANK

COMPRESSED_ENDINGS = (".gz", ".zst", ".xz", ".bz2")
TEXT_ENDINGS = (".log", ".txt", ".out", ".err")
"""Endings of texts of any kind: one that differs only by them is no other format."""
FORMAT_ENDINGS = (
    *(".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet", ".arrow", ".arrows", ".feather", ".ipc"),
    *(".wandb", ".db", ".sqlite", ".sqlite3"),
    *TEXT_ENDINGS,
)
CHAINED_KINDS = frozenset({"", ".jsonl", ".ndjson", ".csv", ".tsv"})
"""Formats of lines: what is appended to them goes on."""
NEWEST = (2, 0, "")
"""The piece that is still written: after the dated and the numbered ones."""

_RANK_WORD = re.compile(
    r"(?:(?<=^)|(?<=[^A-Za-z]))((?:local|global)?[-_]?rank|worker(?:log)?|proc(?:ess)?)[-_.=]?(\d{1,7})(?!\d)",
    re.IGNORECASE,
)
_DEVICE_WORD = re.compile(
    r"(?:(?<=^)|(?<=[^A-Za-z]))(gpu|npu|cuda|device|dev|card|task|tid)[-_.=:]?(\d{1,4})(?!\d)", re.IGNORECASE
)
_ATTEMPT_WORD = re.compile(
    r"(?:(?<=^)|(?<=[^A-Za-z]))(attempt|restart|retry|resumed?|part)[-_.=]?(\d{1,5})(?!\d)", re.IGNORECASE
)
_STREAM_WORD = re.compile(r"(?:(?<=^)|(?<=[^A-Za-z]))(std)?(out|err)(?:put|or)?(?![A-Za-z])", re.IGNORECASE)
_BATCH_STREAM = re.compile(r"\.([oe])(\d{2,})(?=$|[-.])")
"""``job.o12345`` and ``job.e12345``: the two streams of a batch job."""
_ROTATED = re.compile(r"(.+?)\.(?:(\d{1,4})|(\d{4}-\d\d-\d\d(?:[T_-]\d\d[-:.]?\d\d(?:[-:.]?\d\d)?)?))")
_TASK_OF_JOB = re.compile(r"(?<=\d{4})[-.](\d{1,5})$")
"""``job-123456-3``: the task of a scheduler's job. Behind an underscore stands the number of an array
job by default, and those are runs of their own."""
RANK, ATTEMPT, STREAM = "\0", "\1", "\2"
"""What stands in a name for the parts that were cut out of it."""


@dataclass(frozen=True, slots=True)
class Facets:
    """The name of one file, taken apart. ``key`` is what files of one job have in common."""

    path: Path
    key: tuple[str, ...]
    rank: int | None = None
    is_weak: bool = False
    """Whether the rank holds only together with those of other files."""
    needs_all: bool = False
    """Whether they must then be exactly 0 to n-1."""
    attempt: int = 0
    piece: tuple[int, int, str] = NEWEST
    """Ascending in the order in which rotated pieces were written."""
    stream: str = ""
    """``out`` or ``err`` where the name says it."""


def stem_of(path: Path) -> str:
    """The name of a file without the endings of compression and format.

    >>> stem_of(Path("logs/llama-7b.v2.jsonl.gz"))
    'llama-7b.v2'
    """
    return _split_endings(path.name)[0]


def kind_of(path: Path) -> str:
    """The ending that tells the format, empty for any text: files of different kinds are not one."""
    ending = _split_endings(path.name)[1]
    return "" if ending in TEXT_ENDINGS else ending


def take_apart(path: Path, siblings: frozenset[str], *, with_weak: bool = True) -> Facets:
    """The facets of a file; ``siblings`` are the names of the files beside it."""
    name, piece = _rotation(path.name, siblings)
    stem, ending = _split_endings(name)
    folders = [*path.parent.parts]
    attempt, rank, is_weak, needs_all = 0, None, False, False
    stem, stream = _cut_stream(stem, ending)
    if (match := _last(_ATTEMPT_WORD, stem)) is not None:
        stem, attempt = _cut(stem, match, ATTEMPT), int(match.group(2))
    elif folders and (match := _last(_ATTEMPT_WORD, folders[-1])) is not None:
        folders[-1], attempt = _cut(folders[-1], match, ATTEMPT), int(match.group(2))
    elif len(folders) > 1 and (match := _last(_ATTEMPT_WORD, folders[-2])) is not None:
        folders[-2], attempt = _cut(folders[-2], match, ATTEMPT), int(match.group(2))
    if (match := _last(_RANK_WORD, stem)) is not None and int(match.group(2)) <= MAX_RANK:
        stem, rank = _cut(stem, match, RANK), int(match.group(2))
    elif with_weak:
        found = _weak_rank(stem, folders)
        if found is not None:
            stem, rank, needs_all = found
            is_weak = True
    kind = "" if ending in TEXT_ENDINGS else ending
    key = (*folders, stem, kind)
    return Facets(path, key, rank, is_weak, needs_all, attempt, piece, stream)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """A sort key in which rank10 comes after rank2."""
    parts = re.findall(r"\d{1,18}|\D+|\d", name)
    return tuple((0, int(part), "") if part.isdigit() and part.isascii() else (1, 0, part) for part in parts)


def _weak_rank(stem: str, folders: list[str]) -> tuple[str, int, bool] | None:
    """The stem, the rank, and whether ranks must be complete; folders are changed in their place."""
    if stem.isascii() and stem.isdigit() and len(stem) < 8:
        return RANK, int(stem), True
    if (match := _last(_DEVICE_WORD, stem)) is not None:
        return _cut(stem, match, RANK), int(match.group(2)), True
    if (match := _TASK_OF_JOB.search(stem)) is not None:
        return stem[: match.start()] + "-" + RANK, int(match.group(1)), True
    if re.fullmatch(rf"\W*{STREAM}\W*(\d{{1,7}})", stem):
        number = re.findall(r"\d+", stem)[-1]
        return stem.removesuffix(number) + RANK, int(number), True
    for at in (-1, -2):
        if len(folders) < -at:
            continue
        if (match := _last(_RANK_WORD, folders[at])) is not None:
            folders[at] = _cut(folders[at], match, RANK)
            return stem, int(match.group(2)), False
        if folders[at].isascii() and folders[at].isdigit() and len(folders[at]) < 8 and STREAM in stem:
            rank, folders[at] = int(folders[at]), RANK
            return stem, rank, True
    return None


def _rotation(name: str, siblings: frozenset[str]) -> tuple[str, tuple[int, int, str]]:
    """The name without the number of a rotated piece, and the place of the piece.

    A number behind a name is one if the file without it lies beside it. The higher it is, the older;
    a date says the order itself.
    """
    for ending in ("", *COMPRESSED_ENDINGS):
        plain = name.removesuffix(ending)
        match = _ROTATED.fullmatch(plain)
        if match is None or not (ending or plain == name):
            continue
        base, number, date = match.groups()
        if base not in siblings:
            continue
        return base, (1, -int(number), "") if number is not None else (0, 0, date)
    return name, NEWEST


def _split_endings(name: str) -> tuple[str, str]:
    """The stem, and the ending that tells the format (in lower case; empty without one)."""
    for ending in COMPRESSED_ENDINGS:
        if name.lower().endswith(ending) and len(name) > len(ending):
            name = name[: -len(ending)]
            break
    for ending in FORMAT_ENDINGS:
        if name.lower().endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)], ending
    return name, ""


def _cut_stream(stem: str, ending: str) -> tuple[str, str]:
    """The stem without the word for a stream, and the stream: by the ending, by a word, by a batch system."""
    if ending in (".out", ".err"):
        return stem, ending[1:]
    if ending in ("", *TEXT_ENDINGS):
        if (match := _BATCH_STREAM.search(stem)) is not None:
            stream = "out" if match.group(1) == "o" else "err"
            return stem[: match.start(1)] + STREAM + stem[match.end(1) :], stream
        if (match := _last(_STREAM_WORD, stem)) is not None:
            return _cut(stem, match, STREAM), match.group(2).lower()
    return stem, ""


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None


def _cut(text: str, match: re.Match[str], mark: str) -> str:
    return text[: match.start()] + mark + text[match.end() :]
