"""What was measured of a detector, as a part of its page: from the files in ``bench/results``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
MEASURED = "detectors.json"
"""Written by ``python -m bench.detector_rates``."""

_COLUMNS = (
    "case",
    "runs",
    "found",
    "rank right",
    "onset inside",
    "delay: suspected, confirmed",
    "false alarms",
)


def rates_of(name: str) -> str:
    """The rates of one detector as tables, with the command that measured them."""
    lines = list(_measured(name))
    return "\n".join(lines) if lines else "Not measured yet."


def _measured(name: str) -> Iterator[str]:
    path = RESULTS / MEASURED
    if not path.exists():
        return
    held: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = held["detectors"].get(name)
    if not rows:
        return
    yield f"`{held['command']}`, seeded runs of this detector alone; 95 % intervals in brackets."
    yield ""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"| {' | '.join('---' for _ in _COLUMNS)} |"
    yield from (_row(row) for row in rows)


def _row(row: Mapping[str, Any]) -> str:
    cells = [
        row["case"],
        str(row["runs"]),
        _share(row.get("found")),
        _share(row.get("rank_right")),
        _share(row.get("inside")),
        _delays(row),
        _false(row),
    ]
    return f"| {' | '.join(cells)} |"


def _share(figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return "–"
    return f"{100 * figure['value']:.0f} % [{100 * figure['low']:.0f}, {100 * figure['high']:.0f}]"


def _delays(row: Mapping[str, Any]) -> str:
    numbers = [row.get("delay_suspected"), row.get("delay_confirmed")]
    return "–" if numbers[0] is None else ", ".join("–" if one is None else f"{one:g}" for one in numbers)


def _false(row: Mapping[str, Any]) -> str:
    false = row.get("false_confirmed")
    if false is None:
        return "–"
    return f"{false['count']} in {false['iterations']:,} iterations".replace(",", " ")
