"""The generated parts of the pages: pictures with what the detector said, settings, rates, the index.

A part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``; all else on a page is written by hand.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Mapping
from html import unescape
from pathlib import Path

from detectors.reference import NAME as REFERENCE
from detectors.registry import DetectorsConfig, make_detectors

from .rates import rates_of

ROOT = Path(__file__).parent.parent.parent
PAGES = ROOT / "docs" / "detectors"
PICTURES = PAGES / "figures"
NAMES = tuple(sorted([*(detector.name for detector in make_detectors()), REFERENCE]))
"""Every detector that has a page."""
INDEX = "README"
_PART = re.compile(r"<!-- (?P<name>[a-z_-]+) -->\n.*?<!-- /(?P=name) -->", re.DOTALL)


def with_parts(name: str, text: str) -> str:
    """The page of a detector, or the index, with every generated part as it should be."""

    def made(match: re.Match[str]) -> str:
        part = match["name"]
        return f"<!-- {part} -->\n{part_of(name, part)}\n<!-- /{part} -->"

    return _PART.sub(made, text)


def part_of(name: str, part: str) -> str:
    """One generated part of the page ``name``."""
    makers: Mapping[str, Callable[[], str]] = {
        "settings": lambda: settings_table(name),
        "rates": lambda: rates_of(name),
        "index": index_table,
    }
    return makers[part]() if part in makers else picture(part)


def picture(stem: str) -> str:
    """A picture with its title, and below it what the detector said, which the picture itself holds."""
    text = (PICTURES / f"{stem}.svg").read_text(encoding="utf-8")
    title, caption = (
        unescape(re.search(rf'<{tag} id="\w">(.*?)</{tag}>', text, re.DOTALL)[1])  # type: ignore[index]  # `draw` writes both
        for tag in ("title", "desc")
    )
    return f"![{title}](figures/{stem}.svg)\n\n*{caption}*"


def settings_table(name: str) -> str:
    """Key, default and reason of each setting, from where it is declared."""
    owner = config_of(name)
    if owner is None:
        return "There is nothing to set."
    reasons = field_docs(type(owner))
    rows = [
        f"| `{one.name}` | `{getattr(owner, one.name)}` | {reasons[one.name]} |"
        for one in dataclasses.fields(owner)  # type: ignore[arg-type]  # `config_of` gives dataclasses
    ]
    return "\n".join(
        [
            f"In the table `[detectors.{name}]`:",
            "",
            "| setting | default | why |",
            "| --- | --- | --- |",
            *rows,
        ]
    )


def config_of(name: str) -> object | None:
    """The settings of a detector with their defaults; None where it has none."""
    return getattr(DetectorsConfig(), name, None)


def field_docs(owner: type) -> dict[str, str]:
    """The text below each field of a dataclass, on one line."""
    tree = ast.parse(inspect.getsource(sys.modules[owner.__module__]))
    body = next(
        node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner.__name__
    )
    docs: dict[str, str] = {}
    for field, below in itertools.pairwise(body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            docs[ast.unparse(field.target)] = " ".join(str(below.value.value).replace("``", "`").split())
    return docs


def index_table() -> str:
    """Each detector with the first two sentences of its page."""
    rows = []
    for name in NAMES:
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        watches, found, finds = text.split("\n\n")[1].replace("\n", " ").partition(" Finds ")
        assert found, f"the first paragraph of {name}.md says what it watches and finds"
        rows.append(f"| [`{name}`]({name}.md) | {watches.removeprefix('Watches ').rstrip('.')} | {finds} |")
    return "\n".join(["| detector | watches | finds |", "| --- | --- | --- |", *rows])
