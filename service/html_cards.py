"""The parts of which the page is made: cards with a title, tables that scroll, lists of sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .html_markup import Markup, Part, join, tag
from .ink import clean

_MAX_SENTENCES = 40


def card(title: str, *parts: Part, kind: str = "") -> Markup:
    """A section under a title; ``kind`` names its place in the order of a narrow page."""
    return tag("section", tag("h3", title), *parts, class_=f"card {kind}".rstrip())


def listing(
    names: Sequence[Part], rows: Iterable[Sequence[Part]], label: str, kinds: Sequence[str] = ()
) -> Markup:
    """A table that scrolls inside its own width; ``kinds`` are the classes of its columns."""
    classes = kinds or [""] * len(names)
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in names)))
    body = [
        tag("tr", *(tag("td", cell, class_=kind or None) for cell, kind in zip(row, classes, strict=True)))
        for row in rows
    ]
    return scrolling(tag("table", head, tag("tbody", *body)), label)


def scrolling(table: Markup, label: str) -> Markup:
    """A region that can be scrolled by keyboard too."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


def facts(rows: Iterable[tuple[str, Part]]) -> Markup:
    """Names and what is said of them; those of which nothing is said are left out."""
    return tag("dl", *(join(tag("dt", name), tag("dd", value)) for name, value in rows if value))


def sentences(given: Sequence[object]) -> Markup | None:
    """A list of sentences, bounded; None of none."""
    items = [tag("li", tag("bdi", clean(sentence, 400))) for sentence in given[:_MAX_SENTENCES]]
    if len(given) > len(items):
        items.append(tag("li", f"and {len(given) - len(items)} more"))
    return tag("ul", *items) if items else None
