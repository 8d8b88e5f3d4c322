"""Which column of a table holds the lines of a log: exports of CloudWatch, Datadog, Splunk and Kibana."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .role_words import Loss, meaning_of
from .table_lines import cut_lines, rows_of
from .written_times import do_fall, is_time_name

if TYPE_CHECKING:
    from .table_dialect import Dialect

_TEXTS = frozenset(
    (
        "message",
        "@message",
        "_raw",
        "msg",
        "log",
        "line",
        "textpayload",
        "log message",
        "logmessage",
        "logentry",
    )
)
"""Names, or last parts of names (``jsonPayload.message``), of columns that hold text, in lower case."""
_SAMPLE_ROWS = 40
_WORD = re.compile(r"[A-Za-z]")
_MOST = 0.75
"""Share of the texts that must hold a word: a column ``log`` of numbers is a metric."""


@dataclass(frozen=True, slots=True)
class ExportColumns:
    """Where the text of each line stands, and whether the newest comes first."""

    text: int
    is_newest_first: bool


def export_columns(dialect: Dialect, head: bytes) -> ExportColumns | None:
    """The columns of an export of log lines that begins with ``head``; None for any other table.

    It has a column of that name, with words in it, and a time beside it, but no loss of its own.
    """
    if not dialect.has_header or dialect.separator:
        return None
    names = [name.strip().lower().rpartition(".")[2] for name in dialect.names]
    texts = [at for at, name in enumerate(names) if name in _TEXTS]
    times = [at for at, name in enumerate(names) if is_time_name(name)]
    if not texts or not times or any(meaning_of(name).loss is not Loss.NONE for name in dialect.names):
        return None
    rows = _sample(dialect, head)
    text = max(texts, key=lambda at: sum(len(row[at]) for row in rows))
    filled = [row[text] for row in rows if row[text].strip()]
    if 2 * len(filled) <= len(rows) or len([text for text in filled if _WORD.search(text)]) < _MOST * len(
        filled
    ):
        return None
    return ExportColumns(text=text, is_newest_first=do_fall([row[times[0]] for row in rows]))


def _sample(dialect: Dialect, head: bytes) -> Sequence[Sequence[str]]:
    lines = cut_lines(dialect.plain(head.replace(b"\r\n", b"\n")), dialect.delimiter)
    raw = [lines.raw(at) for at in range(min(len(lines.start_L), _SAMPLE_ROWS + 1))]
    rows = [row for row in rows_of(raw, dialect.delimiter) if len(row) == len(dialect.names)]
    return rows[1:]
