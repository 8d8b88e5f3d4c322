r"""Text logs inside JSON: lines that a container engine or a logger wrapped, and what a notebook printed.

``{"log": "step 10 loss 2.5\n", "stream": "stdout", "time": …}`` is a line of Docker, ``{"message": …}`` one
of many loggers. A notebook holds the text of its cells, and tables of epochs as HTML.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from .blocks import RecordBatch
from .log_exports import Path, Unwrapped, are_newest_first, text_path, value_at
from .log_reader import LineDecoder, Understood

_LOOKED_AT = 40
_CELL_ENDS = re.compile(r"</t[hd]>\s*", re.IGNORECASE)
_ROW_ENDS = re.compile(r"</tr>|<br */?>|</div>|</p>", re.IGNORECASE)
_TAGS = re.compile(r"<style.*?</style>|<[^>]*>", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapping:
    """How JSON lines hold the lines of a log."""

    path: Path
    is_newest_first: bool = False
    ends_lines: bool = False
    """Whether a text says by a newline that its line ends: Docker cuts long lines into several texts."""


def wrapping_of(head: bytes) -> Wrapping | None:
    """How the lines of ``head`` hold text of a log; None if they are records themselves.

    >>> wrapping_of(b'{"log": "step 1 loss 2.5\\\\n", "stream": "stdout"}\\n')
    Wrapping(path=('log',), is_newest_first=False, ends_lines=True)
    """
    lines = islice((line for line in head.split(b"\n") if line.strip()), _LOOKED_AT)
    objects = [found for line in lines if (found := _object(line)) is not None]
    path = text_path(objects)
    if path is None:
        return None
    texts = [text for each in objects if isinstance(text := value_at(each, path), str)]
    return Wrapping(
        path=path,
        is_newest_first=are_newest_first(objects),
        ends_lines=path == ("log",) and any(text.endswith("\n") for text in texts),
    )


class WrappedTextDecoder:
    """The text within JSON lines, read by the reader of text logs: a `LineDecoder`."""

    is_wire = False
    says_attempt = False

    def __init__(self, wrapping: Wrapping, inner: LineDecoder) -> None:
        self._path = wrapping.path
        self._unwrapped = Unwrapped(inner, is_newest_first=wrapping.is_newest_first)
        self._wraps_parts = wrapping.ends_lines

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines."""
        texts = (value_at(_object(line), self._path) for line in data.split(b"\n"))
        return self._unwrapped.take(self._ended(text) for text in texts if isinstance(text, str))

    def finish(self) -> RecordBatch | None:
        """The records of what was held back."""
        return self._unwrapped.finish()

    def understood(self) -> Understood:
        """What was understood so far."""
        understood = self._unwrapped.inner.understood()
        return replace(
            understood, format=f"{understood.format}, in JSON lines under {'.'.join(self._path)!r}"
        )

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """None: lines depend on those before them."""
        return None

    def _ended(self, text: str) -> str:
        if self._wraps_parts and "\n" not in text:
            return text
        return text if text.endswith("\n") else f"{text}\n"


def is_notebook(value: object) -> bool:
    """Whether a document is a notebook."""
    return isinstance(value, dict) and "nbformat" in value and isinstance(value.get("cells"), list)


def text_of_notebook(value: Mapping[str, object]) -> str:
    """What the cells of a notebook printed, in order; of HTML the rows of its tables."""
    return "".join(f"{text}\n" for output in _outputs(value) for text in _texts(output))


def _outputs(value: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    cells = value.get("cells")
    for cell in cells if isinstance(cells, list) else ():
        outputs = cell.get("outputs") if isinstance(cell, dict) else None
        yield from (each for each in outputs or () if isinstance(each, dict))


def _texts(output: Mapping[str, object]) -> Iterator[str]:
    yield from _joined(output.get("text"))
    yield from _joined(output.get("traceback"))
    data = output.get("data")
    if isinstance(data, dict):
        tables = ["".join(_joined(data.get("text/html")))]
        yield from (_text_of_html(table) for table in tables if "<t" in table)
        yield from () if any(tables) else _joined(data.get("text/plain"))


def _joined(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Sequence):
        yield "".join(each for each in value if isinstance(each, str))


def _text_of_html(text: str) -> str:
    r"""
    >>> _text_of_html("<tr><th>Step</th><th>Loss</th></tr><tr><td>10</td><td>2.5</td></tr>")
    'Step | Loss | \n10 | 2.5 | \n'
    """
    one_line = " ".join(text.split())
    marked = _ROW_ENDS.sub("\n", _CELL_ENDS.sub(" | ", one_line))
    return html.unescape(_TAGS.sub("", marked))


def _object(line: bytes) -> dict[str, object] | None:
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
