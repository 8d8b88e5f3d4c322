"""What was recognised of the files of a job, for a person: before any verdict, what it is a verdict of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ingest.file_reader import FileNotes

from .ink import clean, columns_of
from .strides import Strides

_MAX_COLUMNS = 6
"""Columns named in the short form: what decides, and what fits into two lines."""
_MAX_REMARKS = 2
_MAX_PATH = 44
_DECIDE = ("loss", "global_loss", "grad_norm", "local_grad_norm", "loss_scale", "lr", "eval_loss")
"""Metrics that are named first."""


def recognised(
    notes: Sequence[FileNotes], strides: Strides | None, ranks: int, *, is_long: bool = False
) -> list[str]:
    """A few sentences: the files and their format, the columns, the iterations, what was left over."""
    if not notes:
        return []
    words = [
        _file_words(notes, is_long=is_long),
        _column_words(notes, is_long=is_long),
        _iteration_words(strides, ranks, is_long=is_long),
    ]
    words.append(_line_words(notes))
    remarks = list(dict.fromkeys(remark for note in notes for remark in _news(note)))
    shown = remarks if is_long else remarks[:_MAX_REMARKS]
    words += [clean(remark, 400) for remark in shown]
    if len(remarks) > len(shown):
        words.append(f"{len(remarks) - len(shown)} more remarks, with --details")
    return [one for one in words if one]


def _news(note: FileNotes) -> list[str]:
    """The remarks of a file but for those that the columns say already."""
    said = {f"{name!r} is read as {read}" for name, read in note.understood.columns}
    return [remark for remark in note.remarks if remark not in said]


def formats_words(notes: Sequence[FileNotes]) -> str:
    """The formats of files, with their number where there is more than one: ``table (3), JSON lines (1)``."""
    counts = Counter(note.understood.format or "of no format" for note in notes)
    if len(counts) == 1:
        return clean(next(iter(counts)), 60)
    return ", ".join(f"{clean(name, 60)} ({count})" for name, count in counts.most_common())


def _file_words(notes: Sequence[FileNotes], *, is_long: bool) -> str:
    counters = list(dict.fromkeys(note.understood.counter for note in notes if note.understood.counter))
    counter = f"; counts by {clean(' and '.join(counters[:2]), 60)}" if counters else ""
    names = clean(notes[0].path, 300) if is_long else _path_words(notes[0].path)
    if len(notes) == 1:
        return f"{names}: {clean(notes[0].understood.format or 'of no format', 60)}{counter}"
    return f"{len(notes)} files, {names} first: {formats_words(notes)}{counter}"


def _path_words(path: str) -> str:
    """A path that fits into a line: of a long one its end, which tells files apart."""
    shown = clean(path, 1000)
    return shown if columns_of(shown) <= _MAX_PATH else f"..{shown[-_MAX_PATH:]}"


def _column_words(notes: Sequence[FileNotes], *, is_long: bool) -> str:
    """Which column is read as what; names that say so themselves are only named."""
    named = dict.fromkeys(pair for note in notes for pair in note.understood.columns)
    given = {read: name for name, read in named}
    metrics = list(dict.fromkeys(metric for note in notes for metric in note.metrics))
    metrics.sort(key=lambda metric: _DECIDE.index(metric) if metric in _DECIDE else len(_DECIDE))
    shown = metrics if is_long else metrics[:_MAX_COLUMNS]
    words = [_metric_words(metric, given.get(metric, metric)) for metric in shown]
    more = f" and {len(metrics) - len(shown)} more" if len(metrics) > len(shown) else ""
    return (
        f"{len(metrics)} metric{'' if len(metrics) == 1 else 's'}: {', '.join(words)}{more}"
        if metrics
        else "no metric"
    )


def _metric_words(metric: str, name: str) -> str:
    """A metric with the name that the file has for it, where that is another."""
    is_same = _letters(metric) == _letters(name)
    return clean(metric, 40) if is_same else f"{clean(metric, 40)} (from {clean(name, 40)})"


def _letters(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _iteration_words(strides: Strides | None, ranks: int, *, is_long: bool) -> str:
    if strides is None or strides.first is None:
        return ""
    words = [f"{ranks} ranks"] if ranks > 1 else []
    step = f" every {strides.step}" if strides.step and strides.step > 1 else ""
    irregular = f" ({strides.positions} of them)" if strides.step is None and strides.positions > 1 else ""
    is_one = strides.first == strides.last
    span = f"iteration {strides.first}" if is_one else f"iterations {strides.first} to {strides.last}"
    words.append(f"{span}{step}{irregular}")
    if strides.missing:
        gaps = strides.gaps[: 20 if is_long else 2]
        where = ", ".join(f"{low} and {high}" for low, high in gaps)
        more = ", .." if len(strides.gaps) > len(gaps) else ""
        words.append(f"{strides.missing} missing (between {where}{more})")
    if strides.restarts:
        places = list(dict.fromkeys(strides.restarts))
        listed = ", ".join(str(at) for at in places[: 20 if is_long else 4])
        count = len(strides.restarts)
        more = ", .." if len(places) > (20 if is_long else 4) else ""
        words.append(f"{count} restart{'' if count == 1 else 's'} (at iteration {listed}{more})")
    return ", ".join(words)


def _line_words(notes: Sequence[FileNotes]) -> str:
    lines, used = (sum(getattr(note.understood, name) for note in notes) for name in ("lines", "used_lines"))
    records, rejected = sum(note.rows for note in notes), sum(note.rejected for note in notes)
    padding = sum(note.understood.padding for note in notes)
    words = [f"{used} of {lines} lines used ({used / lines:.0%})"] if lines else []
    words.append(f"{records} record{'' if records == 1 else 's'}")
    words += [f"{rejected} rejected"] if rejected else []
    words += [f"{padding} rows of padding"] if padding else []
    return ", ".join(words)
