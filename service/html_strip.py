"""Ranks × iterations around the onset as inline SVG: how far each rank is from its peers.

Axes: B columns, R ranks, L rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .html_markup import Markup, join, tag
from .picture_ranks import Cell, RankStrip

_ROWS = 40
"""Rows of a strip at most: what fits on a page; more ranks share rows, each with its worst."""
_ALONE = 8
"""Ranks at fault that get a row of their own among rows that are shared."""
_TELLING = 0.1
"""How much more often a rank at fault is off its peers than the others, for a strip to be worth its place."""
_CLASSES = {
    Cell.MISSING: "c0",
    Cell.SAME: "c1",
    Cell.LEVEL_1: "c2",
    Cell.LEVEL_2: "c3",
    Cell.LEVEL_3: "c4",
    Cell.LEVEL_4: "c5",
    Cell.DIFFERS: "c6",
    Cell.INFINITE: "c7",
    Cell.NAN: "c8",
}
_LEAVES = {
    "number": ("is not finite", "are not finite"),
    "checksum": ("differs from its replicas", "differ from their replicas"),
    "count": ("counts some", "count some"),
}
"""What a rank does in a cell that counts as bad, for one and for many."""
_LEGENDS = {
    "number": ("c1 as the peers", "c3 off", "c5 far off", "c7 infinite", "c8 NaN", "c0 not reported"),
    "checksum": ("c1 equal to its replicas", "c6 differs", "c0 not reported"),
    "count": ("c1 none", "c6 some", "c0 not reported"),
}


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    ranks: tuple[int, ...]
    is_suspect: bool


def draw_strip(strip: RankStrip, suspects: Sequence[int], onset: int, id_: str) -> Markup:
    """Names of rows beside a picture of cells, and what the colours mean."""
    rows = _rows(strip.ranks, suspects)
    cells_BL = _cells(strip, rows)
    tall = 18 if len(rows) <= 16 else 13
    height = tall * len(rows)
    names = tag(
        "svg",
        *(
            tag(
                "text",
                f"▸ {row.name}" if row.is_suspect else row.name,
                class_="suspect" if row.is_suspect else "tick",
                x="100%",
                y=at * tall + tall / 2 + 4,
                text_anchor="end",
            )
            for at, row in enumerate(rows)
        ),
        width="84",
        height=height + 18,
        aria_hidden="true",
    )
    picture = tag(
        "svg",
        tag("title", f"{strip.metric} of each rank", id=f"{id_}t"),
        tag("desc", strip_words(strip, suspects, onset), id=f"{id_}d"),
        _picture(cells_BL, height),
        _onset_line(strip, onset, height),
        _foot(strip, onset, height),
        role="img",
        aria_labelledby=f"{id_}t {id_}d",
        width="100%",
        height=height + 18,
    )
    return join(tag("div", names, picture, class_="strip"), _legend(strip, cells_BL))


def shows(strip: RankStrip, suspects: Sequence[int], onset: int) -> bool:
    """Whether the strip tells ranks apart: one at fault is off more often, or not all is finite and equal."""
    if (strip.cells_BR >= Cell.DIFFERS).any():
        return True
    shares = _shares(strip, suspects, onset)
    return shares is not None and shares[0] >= _TELLING + shares[1]


def strip_words(strip: RankStrip, suspects: Sequence[int], onset: int) -> str:
    """The strip in one sentence."""
    span = f"{len(strip.ranks)} ranks, iterations {strip.first[0]} to {strip.last[-1]}"
    one, many = _LEAVES[strip.kind]
    seen = [(at, rank) for rank in strip.ranks if (at := strip.first_bad(rank)) is not None]
    if seen:
        first = min(at for at, _ in seen)
        named = [rank for at, rank in seen if at == first]
        who = f"rank {named[0]} {one}" if len(named) == 1 else f"{len(named)} ranks {many}"
        later = f"; {len(seen) - len(named)} more later" if len(seen) > len(named) else ""
        return f"{span}: {who} first, at iteration {first}{later}."
    shares = _shares(strip, suspects, onset)
    if shares is None:
        return f"{span}."
    who = f"rank {suspects[0]} is" if len(suspects) == 1 else "the suspects are"
    off = f"{shares[0]:.0%} of what follows the onset, the others in {shares[1]:.0%}"
    return f"{span}: {who} off the peers in {off}."


def _shares(strip: RankStrip, suspects: Sequence[int], onset: int) -> tuple[float, float] | None:
    """From the onset on, how often suspects and others are off their peers; None without either of them."""
    is_suspect_R = np.isin(strip.ranks, suspects)
    after_BR = strip.cells_BR[np.array(strip.last) >= onset]
    if not is_suspect_R.any() or is_suspect_R.all() or not len(after_BR):
        return None
    off_R = (after_BR >= Cell.LEVEL_1).mean(axis=0)
    return float(off_R[is_suspect_R].mean()), float(off_R[~is_suspect_R].mean())


def _rows(ranks: Sequence[int], suspects: Sequence[int]) -> list[_Row]:
    if len(ranks) <= _ROWS:
        return [_Row(f"rank {rank}", (rank,), rank in suspects) for rank in ranks]
    known = set(ranks)
    alone = [rank for rank in suspects if rank in known][:_ALONE]
    rest = [rank for rank in ranks if rank not in set(alone)]
    each = -(-len(rest) // (_ROWS - len(alone)))
    groups = [tuple(rest[at : at + each]) for at in range(0, len(rest), each)]
    shared = [_Row(f"{one[0]}–{one[-1]}", one, False) for one in groups]
    return [_Row(f"rank {rank}", (rank,), True) for rank in alone] + shared


def _cells(strip: RankStrip, rows: Sequence[_Row]) -> NDArray[np.uint8]:
    """The worst of each row's ranks."""
    place = {rank: at for at, rank in enumerate(strip.ranks)}
    columns = [strip.cells_BR[:, [place[rank] for rank in row.ranks]].max(axis=1) for row in rows]
    return np.stack(columns, axis=1)


def _picture(cells_BL: NDArray[np.uint8], height: int) -> Markup:
    """One path for each colour; neighbours of one colour are one rectangle."""
    columns, rows = cells_BL.shape
    paths: dict[int, list[str]] = {}
    for row in range(rows):
        codes = cells_BL[:, row]
        starts = np.flatnonzero(np.append(True, np.diff(codes.astype(np.int16)) != 0))
        for start, stop in zip(starts, np.append(starts[1:], columns), strict=True):
            # one unit of eight is the gap between rows
            paths.setdefault(int(codes[start]), []).append(f"M{start} {row * 8}H{stop}v7H{start}z")
    return tag(
        "svg",
        *(
            tag("path", class_=_CLASSES[Cell(code)], d="".join(found))
            for code, found in sorted(paths.items())
        ),
        x="0",
        y="0",
        width="100%",
        height=height,
        viewBox=f"0 0 {columns} {rows * 8}",
        preserveAspectRatio="none",
        shape_rendering="crispEdges",
        aria_hidden="true",
    )


def _place(strip: RankStrip, iteration: int) -> float | None:
    """The left edge of the column that holds ``iteration``, 0 to 1."""
    for at, last in enumerate(strip.last):
        if last >= iteration:
            return at / len(strip.last)
    return None


def _onset_line(strip: RankStrip, onset: int, height: int) -> Markup | None:
    at = _place(strip, onset)
    if at is None:
        return None
    x = f"{100 * at:.2f}%"
    return tag("line", class_="onset", x1=x, x2=x, y1=0, y2=height)


def _foot(strip: RankStrip, onset: int, height: int) -> Markup:
    y = height + 13
    parts = [tag("text", f"{strip.first[0]}", class_="tick", x="0", y=y)]
    parts.append(tag("text", f"{strip.last[-1]}", class_="tick", x="100%", y=y, text_anchor="end"))
    at = _place(strip, onset)
    if at is not None and 0.15 < at < 0.85:
        parts.append(
            tag("text", f"▲ {onset}", class_="pin fault", x=f"{100 * at:.2f}%", y=y, text_anchor="middle")
        )
    return join(*parts)


def _legend(strip: RankStrip, cells_BL: NDArray[np.uint8]) -> Markup:
    shown = {_CLASSES[Cell(int(code))] for code in np.unique(cells_BL)}
    keys = [one.split(" ", 1) for one in _LEGENDS[strip.kind]]
    swatch = [
        tag(
            "span",
            tag("svg", tag("rect", class_=class_, width="12", height="12"), width="12", height="12"),
            f" {word}",
        )
        for class_, word in keys
        if class_ in shown or class_ in ("c1", "c3", "c5", "c6")
    ]
    return tag("p", *swatch, class_="legend")
