"""Lines of text inside the records of a log export: which field holds them, and in which order they came.

Container engines, shippers and stores of logs wrap each line into a record of their own (``log``,
``message``, ``textPayload``, ``_source.message``), with its time beside it. Stores give the newest first
unless asked not to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .blocks import RecordBatch
from .joining import concatenate
from .log_reader import LineDecoder
from .roles import Loss, meaning_of
from .written_times import do_fall, is_time_name

TEXT_KEYS = (
    *("log", "message", "msg", "@message", "textPayload", "line", "_raw", "MESSAGE", "LogEntry"),
    *("log_line", "logMessage", "Log Message", "text", "body", "content"),
)
"""Keys that hold a line of text; the first that most records have is it."""
_OURS = {"run", "iteration"}
_DEPTH = 3
"""Levels of nesting: ``hits/_source/message`` has three."""
_LOOKED_AT = 40
_DIGIT = re.compile(r"\d|nan|inf", re.IGNORECASE)

Path = tuple[str, ...]
Wrapped = Mapping[str, object]


def text_path(records: Sequence[Wrapped]) -> Path | None:
    """Where most of the records hold text of a log; None if they are records of a job themselves.

    >>> text_path([{"jsonPayload": {"message": "step 1 loss 2.5"}, "severity": "INFO"}])
    ('jsonPayload', 'message')
    """
    if not records or any(_is_record(each) for each in records):
        return None
    found: dict[Path, list[str]] = {}
    for each in records:
        for path, leaf in _leaves(each):
            if isinstance(leaf, str) and path[-1] in TEXT_KEYS:
                found.setdefault(path, []).append(leaf)
    for path in sorted(found, key=lambda path: (len(path), TEXT_KEYS.index(path[-1]))):
        texts = found[path]
        if 2 * len(texts) > len(records) and any(map(_DIGIT.search, texts)):
            return path
    return None


def value_at(record: object, path: Path) -> object:
    """What stands at ``path``; None where nothing does."""
    for key in path:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record


def are_newest_first(records: Sequence[Wrapped]) -> bool:
    """Whether the times of the records fall."""
    paths = (path for each in records for path, _ in _leaves(each) if is_time_name(path[-1]))
    path = min(paths, key=len, default=())
    return bool(path) and do_fall([str(value_at(each, path)) for each in records])


@dataclass(frozen=True, slots=True)
class ExportedLines:
    """The lines of a log out of a document, oldest first, and in words where they stood."""

    text: str
    where: str


def exported_lines(value: object) -> ExportedLines | None:
    """The lines of a log in a document that is an export of them; None for any other document."""
    for where, objects in _lists(value):
        path = text_path(objects[:_LOOKED_AT])
        if path is not None:
            texts = [text for each in objects if isinstance(text := value_at(each, path), str)]
            name = "/".join((*where, ".".join(path)))
            return _export(texts, f"in a JSON document under {name!r}", are_newest_first(objects))
    pairs = _pairs(value)
    if len(pairs) > 1 and any(_DIGIT.search(text) for _, text in pairs[:_LOOKED_AT]):
        is_newest_first = do_fall([time for time, _ in pairs])
        return _export([text for _, text in pairs], "in streams of Loki", is_newest_first)
    return None


def _export(texts: list[str], where: str, is_newest_first: bool) -> ExportedLines:
    ended = (text if text.endswith("\n") else f"{text}\n" for text in texts)
    return ExportedLines("".join(reversed(list(ended)) if is_newest_first else ended), where)


def _lists(value: object, where: Path = ()) -> Iterator[tuple[Path, list[Wrapped]]]:
    """The lists of objects in a document, and where they stand."""
    if isinstance(value, list):
        objects: list[Wrapped] = [each for each in value if isinstance(each, dict)]
        if 2 * len(objects) > len(value):
            yield where, objects
    elif isinstance(value, dict) and len(where) <= _DEPTH:
        for key, inner in value.items():
            yield from _lists(inner, (*where, str(key)))


def _pairs(value: object) -> list[tuple[str, str]]:
    """Time and line of each entry of Loki's streams, of several by time; none in any other document."""
    for key in ("data", "result"):
        value = value.get(key) if isinstance(value, dict) else None
    streams = value if isinstance(value, list) else []
    found: list[tuple[str, str]] = []
    for each in streams:
        entries = each.get("values") if isinstance(each, dict) and "stream" in each else ()
        lists = (entry for entry in entries or () if isinstance(entry, list) and len(entry) > 1)
        found += [(entry[0], entry[1]) for entry in lists if all(isinstance(one, str) for one in entry[:2])]
    return sorted(found, key=lambda entry: entry[0]) if len(streams) > 1 else found


class Unwrapped:
    """Texts on their way to the reader of text logs, in the order in which they were printed.

    Of an export with the newest first nothing is read before its end.
    """

    def __init__(self, inner: LineDecoder, *, is_newest_first: bool) -> None:
        self.inner = inner
        self._is_newest_first = is_newest_first
        self._held: list[str] = []

    def take(self, texts: Iterable[str]) -> RecordBatch:
        """The records of the next texts, each of which is a line, some, or part of one."""
        if self._is_newest_first:
            self._held += texts
            return concatenate([])
        return self.inner.decode("".join(texts).encode("utf-8", "replace"))

    def finish(self) -> RecordBatch | None:
        """The records of what was held back."""
        held, self._held = self._held, []
        whole = [self.inner.decode("".join(reversed(held)).encode("utf-8", "replace"))] if held else []
        rest = self.inner.finish()
        whole += [] if rest is None else [rest]
        return concatenate(whole) if whole else None


def _leaves(value: Wrapped, path: Path = ()) -> Iterator[tuple[Path, object]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            if len(path) + 1 < _DEPTH:
                yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner


def _is_record(found: Wrapped) -> bool:
    """Whether an object holds a loss by itself, or is one of our own."""
    return not found.keys().isdisjoint(_OURS) or any(
        isinstance(value, int | float | str)
        and value != ""
        and not isinstance(value, bool)
        and meaning_of(path[-1]).loss is not Loss.NONE
        for path, value in _leaves(found)
    )
