"""Sentences in a log that are observations or events: a skipped step, a NaN, a checkpoint, bad hardware.

A sentence is recognised by literals in it (once per shape of line) and read by one expression whose groups
say what it tells. The table of all of them is `sentence_table.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from firstfault.telemetry import MAX_ITERATION, MAX_RANK, EventKind, Value

from .prefixes import read_prefix

MAX_MESSAGE_BYTES = 2000
"""Of a message looked at beside the sentence in it."""
BEFORE_BYTES = 48
"""Of what stands in front of a sentence, to tell "loss is nan" from "stop if the loss is nan"."""


class Place(StrEnum):
    """Which iteration a sentence is about, where it does not say so itself."""

    LAST = "last"
    """That of its own line, else the one printed last by the same printer, else by anyone."""
    NEXT = "next"
    """The one after the last: it was not finished, and hence not printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What one sentence tells.

    ``iteration`` is in the log's own counter and stands. ``hint`` is one in another counter (an optimizer
    counts its steps where the log counts something else): it is used only where the log has none yet.
    ``metrics`` are values at that iteration; with ``event`` there is an event with ``fields``.
    """

    sentence: str
    event: EventKind | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, Value] = field(default_factory=dict)
    place: Place = Place.LAST
    iteration: int | None = None
    hint: int | None = None
    rank: int | None = None
    host: str | None = None
    local_device: int | None = None
    time: float | None = None
    is_heading: bool = False
    """Whether it names the rank of what follows, up to the next heading."""
    needs_heading: bool = False
    """Whether it is of the rank that the heading above names, and of none without one."""


_TEXT_GROUPS = {"path", "text", "collective", "host", "message"}
"""Groups that are kept as they are written, numbers and all."""
Amend = Callable[[Finding, Mapping[str, str]], Finding | None]
"""What a form cannot say: completes the finding of the groups, or takes it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One kind of sentence; one of its ``clues`` stands in every line that holds it.

    ``takes_line`` says that the line's numbers are told with it, so that it gives no record besides.
    """

    name: str
    tool: str
    meaning: str
    example: str
    clues: tuple[bytes, ...]
    form: re.Pattern[bytes] | None = None
    reader: Callable[[bytes], Finding | None] | None = None
    """Reads a line in place of ``form``, where one expression cannot."""
    event: EventKind | None = None
    fields: Mapping[str, object] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    place: Place = Place.LAST
    takes_line: bool = True
    amend: Amend | None = None

    @property
    def tells_numbers(self) -> bool:
        """Whether it tells nothing but numbers, however they are written, and words of the shape."""
        return (
            self.form is not None and self.reader is None and not self.form.groupindex.keys() & _TEXT_GROUPS
        )

    def is_in(self, line: bytes) -> bool:
        """Whether lines like ``line`` may hold it."""
        return any(clue in line for clue in self.clues)

    def read(self, line: bytes) -> Finding | None:
        """What it tells in ``line``; None where its form is not met after all."""
        if self.reader is not None:
            return self.reader(line)
        found = None if self.form is None else self.form.search(line)
        if found is None:
            return None
        before = line[max(0, found.start() - BEFORE_BYTES) : found.start()]
        message = line[read_prefix(line).end :][:MAX_MESSAGE_BYTES] if self.amend is not None else b""
        groups = {
            "before": before.decode("utf-8", "replace"),
            "line": message.decode("utf-8", "replace"),
            **_texts(found),
        }
        return self._finding(groups)

    def _finding(self, groups: Mapping[str, str]) -> Finding | None:
        finding = Finding(
            sentence=self.name,
            event=self.event,
            fields={**self.fields, **_fields(groups)},
            metrics=self.metrics,
            place=self.place,
            iteration=_whole(groups.get("iteration"), MAX_ITERATION),
            hint=_whole(groups.get("hint"), MAX_ITERATION),
            rank=_whole(groups.get("rank"), MAX_RANK),
            host=groups.get("host"),
            local_device=_whole(groups.get("device"), MAX_RANK),
        )
        if self.event is EventKind.RESUME and finding.iteration is not None:
            finding = replace(finding, iteration=finding.iteration + 1)
        return finding if self.amend is None else self.amend(finding, groups)


def nonfinite_of(text: str) -> float:
    """The value that a word stands for: ``inf``, ``-inf`` or, for ``nan`` and ``not finite``, NaN."""
    word = text.strip().lower()
    if "nan" in word or not word.lstrip("+-").startswith("inf"):
        return math.nan
    return -math.inf if word.startswith("-") else math.inf


def _texts(found: re.Match[bytes]) -> dict[str, str]:
    """The groups that matched; ``outcome2`` is another place for ``outcome``."""
    named = {name.rstrip("2"): text for name, text in found.groupdict().items() if text}
    return {name: text.decode("utf-8", "replace") for name, text in named.items()}


_NUMBERS = ("scale", "previous", "lr", "batch_size", "hysteresis", "sequence", "waited_ms", "waiter")
_TEXTS = ("path", "text", "collective")


def _fields(groups: Mapping[str, str]) -> dict[str, object]:
    numbers: dict[str, object] = {
        name: number for name in _NUMBERS if (number := _number(groups.get(name))) is not None
    }
    return numbers | {name: groups[name] for name in _TEXTS if name in groups}


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text.replace(",", ""))
    except ValueError:
        return None


def _whole(text: str | None, greatest: int) -> int | None:
    """A number of digits, where it is one that an iteration or rank may be."""
    if text is None or len(text) > 20:
        return None
    number = int(text)
    return number if number <= greatest else None
