r"""Text logs inside JSON: lines that a container engine or a logger wrapped, and what a notebook printed.

``{"log": "step 10 loss 2.5\n", "stream": "stdout", "time": …}`` is a line of Docker, ``{"message": …}`` one
of many loggers. A notebook holds the text of its cells, and tables of epochs as HTML.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from .blocks import RecordBatch
from .log_reader import LineDecoder, Understood
from .roles import Loss, meaning_of

TEXT_KEYS = ("log", "message", "msg", "@message", "textPayload", "line", "text", "body")
"""Keys that hold a line of text; the first that most lines have is it."""
_OURS = {"run", "iteration"}
_LOOKED_AT = 40
_DIGIT = re.compile(r"\d|nan|inf", re.IGNORECASE)
_CELL_ENDS = re.compile(r"</t[hd]>\s*", re.IGNORECASE)
_ROW_ENDS = re.compile(r"</tr>|<br */?>|</div>|</p>", re.IGNORECASE)
_TAGS = re.compile(r"<style.*?</style>|<[^>]*>", re.IGNORECASE | re.DOTALL)


def text_key(head: bytes) -> str | None:
    """Under which key the lines of ``head`` hold text of a log; None if they are records themselves.

    >>> text_key(b'{"log": "step 1 loss 2.5", "stream": "stdout"}\\n')
    'log'
    """
    lines = islice((line for line in head.split(b"\n") if line.strip()), _LOOKED_AT)
    objects = [found for line in lines if (found := _object(line)) is not None]
    if not objects or any(_is_record(each) for each in objects):
        return None
    for key in TEXT_KEYS:
        texts = [text for each in objects if isinstance(text := each.get(key), str)]
        if 2 * len(texts) > len(objects) and any(_DIGIT.search(text) for text in texts):
            return key
    return None


class WrappedTextDecoder:
    """The text within JSON lines, read by the reader of text logs: a `LineDecoder`."""

    is_wire = False
    says_attempt = False

    def __init__(self, key: str, inner: LineDecoder) -> None:
        self._key = key
        self._inner = inner
        self._wraps_parts = key == "log"  # Docker cuts long lines, and ends the last part with a newline

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines."""
        texts = (each.get(self._key) for line in data.split(b"\n") if (each := _object(line)) is not None)
        ended = (self._ended(text) for text in texts if isinstance(text, str))
        return self._inner.decode("".join(ended).encode("utf-8", "replace"))

    def finish(self) -> RecordBatch | None:
        """The records of what was held back."""
        return self._inner.finish()

    def understood(self) -> Understood:
        """What was understood so far."""
        understood = self._inner.understood()
        return replace(understood, format=f"{understood.format}, in JSON lines under {self._key!r}")

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """None: lines depend on those before them."""
        return None

    def _ended(self, text: str) -> str:
        if self._wraps_parts and "\n" not in text:
            return text
        self._wraps_parts = self._wraps_parts and text.endswith("\n")
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


def _is_record(found: Mapping[str, object]) -> bool:
    """Whether an object holds a loss by itself, or is one of our own."""
    return not found.keys().isdisjoint(_OURS) or any(
        isinstance(value, int | float | str) and value != "" and not isinstance(value, bool) and _is_loss(key)
        for key, value in found.items()
    )


def _is_loss(key: str) -> bool:
    return meaning_of(key).loss is not Loss.NONE
