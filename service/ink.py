"""Words on a terminal: colour where it is wanted, and nothing in a name that could act on it.

Run, host and metric names come from the telemetry, so they are hostile data: `clean` before any
of them is printed.
"""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

WIDTH = 80
"""Columns of every plain output: what a terminal has at least, and what fits into a ticket."""

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


@dataclass(frozen=True, slots=True)
class Ink:
    """How to write on one stream: with colour or not, with Unicode or plain ASCII."""

    has_color: bool = False
    has_unicode: bool = True

    def paint(self, text: str, *styles: str) -> str:
        """``text`` in the named styles; unchanged without colour or without text.

        >>> Ink(has_color=True).paint("bad", "bold", "red")
        '\\x1b[1;31mbad\\x1b[0m'
        """
        if not self.has_color or not text.strip():
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"

    def either(self, unicode: str, plain: str) -> str:
        """The first where the stream can show it, else the second."""
        return unicode if self.has_unicode else plain


def ink_for(stream: TextIO) -> Ink:
    """Colour on a terminal unless ``NO_COLOR`` is set or it is dumb, Unicode where the stream has it."""
    is_terminal = stream.isatty() and os.environ.get("TERM", "") != "dumb"
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    return Ink(
        has_color=is_terminal and not os.environ.get("NO_COLOR"),
        has_unicode=encoding.startswith("utf"),
    )


def clean(text: object, limit: int = 64) -> str:
    """``text`` as one printable word group of at most ``limit`` columns.

    Control characters, terminal escapes, direction marks and lone surrogates appear as their code.

    >>> clean("llama\\x1b[31m")
    'llama\\\\x1b[31m'
    """
    shown = "".join(c if c.isprintable() else _code(c) for c in str(text))
    return cut(shown, limit)


def cut(text: str, columns: int) -> str:
    """``text`` shortened to ``columns`` columns, with ``..`` where something is gone."""
    if columns_of(text) <= columns:
        return text
    while text and columns_of(text) > columns - 2:
        text = text[:-1]
    return text + ".."


def columns_of(text: str) -> int:
    """How many terminal columns ``text`` takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )


def pad(text: str, columns: int) -> str:
    """``text`` cut and filled to exactly ``columns`` columns."""
    text = cut(text, columns)
    return text + " " * (columns - columns_of(text))


def wrap(text: str, first: str = "", rest: str = "", width: int = WIDTH) -> list[str]:
    """``text`` as lines of at most ``width`` columns; ``first`` starts the first one, ``rest`` the others."""
    lines = list(_fill(text.split(), first, rest, width))
    return lines or [first.rstrip()]


def table(rows: Sequence[Sequence[str]], ink: Ink, styles: Sequence[Sequence[str]] = ()) -> list[str]:
    """A header and rows in columns as wide as their widest cell; ``styles`` are those of the rows.

    Where that is more than `WIDTH`, the widest columns give way.
    """
    widths = [max(columns_of(row[at]) for row in rows) for at in range(len(rows[0]))]
    while 2 * len(widths) + sum(widths) > WIDTH:
        widths[widths.index(max(widths))] -= 1
    lines = ["  " + "  ".join(map(pad, row, widths)).rstrip() for row in rows]
    rule = "  " + "  ".join(ink.either("─", "-") * width for width in widths)
    body = lines[1:]
    if styles:
        body = [ink.paint(line, *style) for line, style in zip(body, styles, strict=True)]
    return [ink.paint(lines[0], "dim"), ink.paint(rule, "dim"), *body]


def _fill(words: list[str], first: str, rest: str, width: int) -> Iterator[str]:
    line, is_empty = first, True
    for given in words:
        word = given
        if not is_empty and columns_of(line) + 1 + columns_of(word) > width:
            yield line
            line, is_empty = rest, True
        # a path or command longer than a line is broken hard: cutting would lose what is to be copied
        while (
            columns_of(line) + columns_of(word) + (not is_empty) > width and is_empty and columns_of(word) > 8
        ):
            room = max(8, width - columns_of(line))
            yield line + word[:room]
            line, word = rest, word[room:]
        line = line + word if is_empty else f"{line} {word}"
        is_empty = False
    if not is_empty:
        yield line


def _code(character: str) -> str:
    point = ord(character)
    return f"\\x{point:02x}" if point < 0x100 else f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
