"""HTML out of parts, in which text is text: whatever a log holds, it cannot become markup.

>>> str(tag("b", "<script>", id="x"))
'<b id="x">&lt;script&gt;</b>'
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from .ink import clean

_VOID = frozenset({"meta", "br", "path", "line", "rect", "use"})


class Markup(str):
    """Text that is markup already; made by `tag` alone."""

    __slots__ = ()


Part = str | int | None | Iterable["Part"]
"""What may stand inside a tag: text is escaped, `Markup` is not, None is nothing."""


def tag(name: str, /, *parts: Part, **attributes: str | int | float | bool | None) -> Markup:
    """An element. ``class_`` is ``class``, ``stroke_width`` is ``stroke-width``; what is None is left out."""
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{given}/>" if not parts else f"<{name}{given}>{join(*parts)}</{name}>")
    return Markup(f"<{name}{given}>{join(*parts)}</{name}>")


def join(*parts: Part) -> Markup:
    """Parts one after the other."""
    return Markup("".join(_text(part) for part in parts))


def data(text: object, limit: int = 200) -> Markup:
    """A name or value out of a log: bounded, its control characters shown as codes, its direction its own."""
    return tag("bdi", clean(text, limit))


def _text(part: Part) -> str:
    if part is None:
        return ""
    if isinstance(part, Markup):
        return str(part)
    if isinstance(part, str | int):
        return escape(str(part), quote=False)
    return "".join(_text(one) for one in part)


def _attribute(key: str, value: str | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{escape(_number(value) if isinstance(value, float) else str(value))}"'


def _number(value: float) -> str:
    """Two decimals, no trailing zeros: equal on every machine, and short."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
