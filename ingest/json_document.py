"""JSON documents: a file that is one value, with records somewhere inside it.

HF ``trainer_state.json``, histories of Keras, results of xgboost, exports of runs and charts, golden
values. ``NaN`` and ``Infinity`` may stand bare, as Python writes them; a document that ends in the
middle is read up to there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic_core import from_json

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .errors import UnreadableInput
from .json_reference import parsed
from .json_rows import JsonRows, require_numbers
from .json_trees import Found, find_records
from .log_exports import exported_lines
from .log_reader import FileConfig, Understood
from .prometheus import Series, records_of, series_of
from .role_words import words_of
from .roles import Part, Role, meaning_of
from .value_columns import flat
from .wrapped_text import is_notebook, text_of_notebook

MAX_BYTES = 1 << 30
"""1 GiB: a document is read as a whole, and takes some ten times as much memory. Longer logs are lines."""
_BATCH_RECORDS = 50_000
_OTHERS = tuple(
    (word,) for word in ("acc", "accuracy", "accuracies", "reward", "rewards", "score", "scores", "f1")
)


def read(path: Path, defaults: Defaults, config: FileConfig) -> Iterator[tuple[RecordBatch, Understood]]:
    """The records of a document in order."""
    value, remarks = _parse(path)
    if isinstance(value, dict) and is_notebook(value):
        yield from _read_text(text_of_notebook(value), "what a notebook printed", path, defaults, config)
        return
    if (series := series_of(value)) is not None:
        yield from _read_series(series, path, defaults, config)
        return
    if (export := exported_lines(value)) is not None:
        yield from _read_text(export.text, f"text log, {export.where}", path, defaults, config)
        return
    found = find_records(value, _series_name(path))
    if found is None:
        raise UnreadableInput(
            f"{path}: a JSON document must hold records or series of numbers, got {_shape(value)}"
        )
    sample = [flat(record) for record in found.records[:1000]]
    rows = JsonRows(found.records, defaults, str(path), config.columns)
    require_numbers(rows.roles, sample, str(path))
    if found.left_out:
        remarks.append(f"arrays of another length are not read: {', '.join(map(repr, found.left_out[:12]))}")
    for start in range(0, len(found.records), _BATCH_RECORDS):
        part = found.records[start : start + _BATCH_RECORDS]
        batch = rows.decode(part, range(start, start + len(part)))
        yield batch, _understood(rows, found, value, remarks, start + len(part))


def _read_text(
    text: str, form: str, path: Path, defaults: Defaults, config: FileConfig
) -> Iterator[tuple[RecordBatch, Understood]]:
    from .scan.scanner import TextScanner  # only text pays for it

    scanner = TextScanner(defaults, str(path), config.columns)
    for batch in (scanner.decode(text.encode("utf-8", "replace")), scanner.finish()):
        if batch is not None:
            yield batch, replace(scanner.understood(), format=form)


def _read_series(
    series: Sequence[Series], path: Path, defaults: Defaults, config: FileConfig
) -> Iterator[tuple[RecordBatch, Understood]]:
    """What Prometheus scraped: the host of each rank is told with the first record of it."""
    scraped = records_of(series, _series_name(path))
    if not scraped.records:
        raise UnreadableInput(f"{path}: an answer of Prometheus must hold samples, but its series are empty")
    rows = JsonRows(scraped.records, defaults, str(path), config.columns)
    require_numbers(rows.roles, [flat(record) for record in scraped.records[:1000]], str(path))
    batch = rows.decode(scraped.records, range(len(scraped.records)))
    first = {int(rank): row for row, rank in reversed(list(enumerate(batch.rank_N)))}
    hosts = [(first[rank], "host", host) for rank, host in scraped.host_of.items() if rank in first]
    batch = replace(batch, labels=tuple(sorted((*batch.labels, *hosts))))
    yield (
        batch,
        Understood(
            format="answer of Prometheus",
            counter=rows.roles.counter,
            columns=rows.roles.columns,
            lines=len(scraped.records),
            used_lines=len(batch),
            padding=rows.padding,
            remarks=(*scraped.remarks, *rows.roles.remarks),
        ),
    )


def _series_name(path: Path) -> str:
    """What numbers without a name are: what the file is called after, if that is a metric, else the loss."""
    meaning = meaning_of(path.stem)
    is_other = meaning.part is Part.EVAL or (
        meaning.role is Role.CONTEXT or words_of(path.stem)[-1:] in _OTHERS
    )
    return path.stem if is_other else "loss"


def _parse(path: Path) -> tuple[object, list[str]]:
    if path.stat().st_size > MAX_BYTES:
        raise UnreadableInput(f"{path}: a JSON document must be at most {MAX_BYTES >> 20} MiB; write lines")
    data = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return parsed(data), []
    except ValueError as error:
        reason = str(error)
    try:
        value = from_json(data, allow_partial=True)
    except ValueError:
        raise UnreadableInput(f"{path}: must be JSON: {reason}") from None
    return value, [f"the document ends in the middle ({reason}); what came before is judged"]


def _understood(rows: JsonRows, found: Found, value: object, remarks: list[str], used: int) -> Understood:
    return Understood(
        format=_name(value, found),
        counter=rows.roles.counter,
        columns=rows.roles.columns,
        lines=len(found.records),
        used_lines=used,
        padding=rows.padding,
        remarks=(*remarks, *rows.roles.remarks),
    )


def _name(value: object, found: Found) -> str:
    if isinstance(value, dict) and "log_history" in value:
        return "HF trainer_state.json"
    where = f" under {found.where!r}" if found.where else ""
    return f"JSON document ({found.kind}{where})"


def _shape(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {', '.join(map(repr, list(value)[:8]))}" if value else "an empty object"
    return f"a {type(value).__name__}"
