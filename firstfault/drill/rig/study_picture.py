"""The picture of a study: shares of outcomes as stacked bars, written as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import escape

from .outcomes import Outcome
from .spec import Kind
from .study import UNIT_SITES
from .study_report import by_bit_class, by_kind, by_recipe, by_site, is_computed_flip
from .study_results import Result

_COLOURS = {
    Outcome.NO_EFFECT: "#c9d6df",
    Outcome.BENIGN_JITTER: "#8fb4c9",
    Outcome.SLOW_DEGRADE: "#f2c46d",
    Outcome.SHARP_SLOW_DEGRADE: "#e8963e",
    Outcome.SHARP_DEGRADE: "#d9642f",
    Outcome.NONFINITE_LATER: "#b83a86",
    Outcome.NONFINITE_NOW: "#7a45b8",
}
_WIDTH, _LEFT, _BAR, _ROW = 960, 210, 560, 26
_STYLE = (
    "<style>svg{--ink:#1f2328;--page:#fff;\n"
    "font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}\n"
    "@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--page:#0d1117}}\n"
    ".page{fill:var(--page)}text{fill:var(--ink)}</style>"
)
"""As the reader's page, light or dark; the colours of the outcomes are told apart on both."""


def picture(results: Sequence[Result]) -> str:
    """An SVG with a bar for each kind, recipe, class of bits and site."""
    flips = [one for one in results if one.kind is Kind.BIT_FLIP]
    computed = [one for one in flips if is_computed_flip(one)]
    groups = [
        ("faults of computed values, by kind", by_kind(results)),
        ("… by recipe", by_recipe([one for one in results if one.site in UNIT_SITES])),
        ("single flips of computed values, by bit", by_bit_class(computed)),
        ("single flips, by site", by_site(flips)),
    ]
    parts: list[str] = []
    y = 64
    for title, bars in groups:
        parts.append(_text(16, y + 14, title, 'font-weight="bold"'))
        y += _ROW
        for name, found in bars.items():
            if found:
                parts += _bar(y, name, found)
                y += _ROW
        y += 10
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}">'
    )
    page = f'<rect class="page" width="{_WIDTH}" height="{y}" rx="6"/>'
    return "\n".join([head, _STYLE, page, *_legend(), *parts, "</svg>\n"])


def _bar(y: int, name: str, found: Sequence[Result]) -> list[str]:
    parts = [_text(_LEFT - 8, y + 15, name, 'text-anchor="end"')]
    x = float(_LEFT)
    for outcome, colour in _COLOURS.items():
        count = sum(one.outcome == outcome for one in found)
        width = _BAR * count / len(found)
        if count:
            where = f'x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" fill="{colour}"'
            what = f"{outcome.value}: {count} of {len(found)}"
            parts.append(f"<rect {where}><title>{escape(what)}</title></rect>")
        x += width
    harmless = sum(one.is_harmless for one in found) / len(found)
    parts.append(_text(_LEFT + _BAR + 8, y + 15, f"{100 * harmless:.0f} % harmless, n = {len(found)}"))
    return parts


def _legend() -> list[str]:
    parts = [_text(16, 22, "What a fault did to the training", 'font-weight="bold"')]
    x = 16
    for outcome, colour in _COLOURS.items():
        name = outcome.value.replace("_", " ")
        parts.append(f'<rect x="{x}" y="36" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(x + 17, 47, name))
        x += 34 + 7 * len(name)  # 7: about the width of a letter at this size
    return parts


def _text(x: float, y: float, said: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" {more}>{escape(said)}</text>'
