"""Write what was measured: the JSON, the page made from it, and the section of the README."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .cache import ROOT, write_whole
from .results import as_text
from .tables import page, section

RESULTS = ROOT / "bench" / "results"
README = ROOT / "README.md"
BEGIN = "<!-- quality: this part is written by make bench-quality -->"
END = "<!-- quality: end -->"


def write_results(plain: Mapping[str, Any]) -> list[Path]:
    """Write all three; the paths written.

    Raises:
        ValueError: the README has not the two marks, in order.
    """
    paths = [RESULTS / "quality.json", RESULTS / "quality.md", README]
    # from the JSON, as everyone else will read it: what is rounded there is rounded in the tables
    text = as_text(plain)
    read = json.loads(text)
    readme = with_section(README.read_text(encoding="utf-8"), read)
    for path, content in zip(paths, (text, page(read), readme), strict=True):
        write_whole(path, content.encode())
    return paths


def with_section(readme: str, plain: Mapping[str, Any]) -> str:
    """The README with the section that these figures make.

    Raises:
        ValueError: the README has not the two marks, in order.
    """
    return with_part(readme, BEGIN, END, section(plain))


def with_part(page: str, begin: str, end: str, part: str) -> str:
    """The page with ``part`` between its marks ``begin`` and ``end``.

    Raises:
        ValueError: the page has not the two marks, in order.
    """
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page must hold {begin!r} and behind it {end!r}")
    return f"{before}{begin}\n\n{part}\n{end}{after}"
