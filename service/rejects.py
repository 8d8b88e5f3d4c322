"""Rejected records and values: counted by reason, a few kept as examples, all of them in quarantine."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from ingest.blocks import Rejected

from .ink import clean

_MAX_REASONS = 200
"""Reasons told apart; a reason holds no values, so logs have a handful."""
_MAX_EXAMPLES = 2
FURTHER_REASONS = "further reasons"


def reason_of(rejected: Rejected) -> str:
    """``field: rule``, as in a verdict's ``rejected_by``."""
    return f"{rejected.field}: {rejected.rule}"


def count_by_reason(counted: dict[str, tuple[int, bytes]], rejected: Iterable[Rejected]) -> None:
    """Add to the counts, each with the first example of its reason."""
    for one in rejected:
        count, example = counted.get(reason_of(one), (0, one.raw or one.value.encode(errors="replace")))
        counted[reason_of(one)] = count + 1, example


@dataclass(slots=True)
class RejectTally:
    """How much was rejected and why, with the first examples of each reason."""

    records: int = 0
    values: int = 0
    by_reason: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[Rejected]] = field(default_factory=dict)

    def add(self, rejected: Iterable[Rejected]) -> None:
        """Count what one batch rejected."""
        for one in rejected:
            self.records += one.whole
            self.values += not one.whole
            reason = reason_of(one)
            if reason not in self.by_reason and len(self.by_reason) >= _MAX_REASONS:
                reason = FURTHER_REASONS
            self.by_reason[reason] = self.by_reason.get(reason, 0) + 1
            kept = self.examples.setdefault(reason, [])
            if len(kept) < _MAX_EXAMPLES:
                kept.append(one)

    def lines(self) -> list[str]:
        """The tally for a person: one line a reason, the most frequent first, with examples below."""
        told = []
        for reason, count in sorted(self.by_reason.items(), key=lambda item: (-item[1], item[0])):
            told.append(f"  {count:>7} x {clean(reason, 140)}")
            told += [f"            {_place(one)}: {clean(one.value, 80)}" for one in self.examples[reason]]
        return told

    @property
    def words(self) -> str:
        """``3 records and 1 value rejected``."""
        parts = [_count(self.records, "record")] if self.records or not self.values else []
        parts += [_count(self.values, "value")] if self.values else []
        return f"{' and '.join(parts)} rejected"


class Quarantine:
    """A file of JSON lines that keeps what was rejected: where it came from, why, and its bytes."""

    def __init__(self, path: Path) -> None:
        """Open ``path`` for writing, replacing what was there.

        Raises:
            OSError: it cannot be written.
        """
        self._file: TextIO = path.open("w", encoding="ascii")

    def add(self, rejected: Iterable[Rejected]) -> None:
        """Append one line for each rejected record or value."""
        for one in rejected:
            line: dict[str, object] = {
                "source": one.source,
                "offset": one.offset,
                "field": one.field,
                "rule": one.rule,
                "value": one.value,
                "whole": one.whole,
            }
            try:
                line["raw"] = one.raw.decode()
            except UnicodeDecodeError:
                line["raw_base64"] = base64.b64encode(one.raw).decode()
            self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Write out what is buffered and let go of the file."""
        self._file.close()


def _place(rejected: Rejected) -> str:
    where = clean(Path(rejected.source).name or "input", 40)
    # Offsets count lines (rows of an Arrow or Parquet file) from 0; editors count them from 1.
    return f"{where}:{rejected.offset + 1}" if rejected.offset >= 0 else where


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"
