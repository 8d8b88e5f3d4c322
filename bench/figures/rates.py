"""What was measured of a detector, as a part of its page: from the files in ``bench/results``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent.parent / "results"
MEASURED = "detectors.json"
"""Written by ``python -m bench.rates``."""
QUALITY = "quality.json"
"""Written by ``make bench-quality``."""
_DEMANDS: Mapping[str, tuple[str, ...]] = {
    "nonfinite": ("NaN",),
    "explosion": ("explosion",),
    "checksum_vote": ("checksum faults", "bad units with a canary"),
    "curve_drift": ("level shift", "loss that rises", "slower decline"),
    "peer_outlier": ("one rank off",),
    "repeat": ("bad units with a canary",),
}
"""What the demands on a detector begin with; one that begins with … goes with the one above."""

_COLUMNS = (
    "case",
    "runs",
    "suspected",
    "found",
    "rank right",
    "onset inside",
    "delay: suspected, found",
    "false alarms: suspected, confirmed",
)

_LEGEND = (
    "Found is confirmed at or after the onset; delays are medians, in iterations; alarms are false where "
    "nothing was wrong, or not yet; 95 % intervals in brackets."
)


def rates_of(name: str) -> str:
    """The rates of one detector as tables, with the command that measured them."""
    parts = ["\n".join(part) for part in (list(_measured(name)), list(_demanded(name))) if part]
    return "\n\n".join(parts) if parts else "Not measured yet."


def _measured(name: str) -> Iterator[str]:
    path = RESULTS / MEASURED
    if not path.exists():
        return
    held: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = held["detectors"].get(name)
    if not rows:
        return
    yield f"`{held['command']}`, this detector alone on seeded runs. {_LEGEND}"
    yield ""
    yield f"| {' | '.join(_COLUMNS)} |"
    yield f"| {' | '.join('---' for _ in _COLUMNS)} |"
    yield from (_row(row) for row in rows)


def _demanded(name: str) -> Iterator[str]:
    """What the benchmark of whole verdicts says of this detector's part."""
    path = RESULTS / QUALITY
    if not path.exists():
        return
    held: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    rows = list(_belonging(name, held["floors"]))
    if not rows:
        return
    yield f"`make bench-quality` ({held['mode']}): whole verdicts, on seeds on which nothing was tuned."
    yield ""
    yield "| demand | bound | measured | cases | |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        sign = "≤" if row["is_ceiling"] else "≥"
        bound = "–" if row["bound"] is None else f"{sign} {row['bound']:g}"
        bound = "all" if row["bound"] == 1.0 and not row["is_ceiling"] else bound
        measured = f"{row['value']} [{row['low']}, {row['high']}]" if row["cases"] else "–"
        name = f"{row['name']} ({row['note']})" if row["note"] else row["name"]
        yield f"| {name} | {bound} | {measured} | {row['cases']} | {row['holds']} |"


def _belonging(name: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    is_mine = False
    for row in rows:
        if not row["name"].startswith("…"):
            is_mine = row["name"].startswith(_DEMANDS.get(name, ()))
        if is_mine:
            yield row


def _row(row: Mapping[str, Any]) -> str:
    cells = [
        row["case"],
        str(row["runs"]),
        _share(row.get("suspected")),
        _found(row),
        _share(row.get("rank_right")),
        _share(row.get("inside")),
        _delays(row),
        _alarms(row),
    ]
    return f"| {' | '.join(cells)} |"


def _share(figure: Mapping[str, float] | None) -> str:
    if figure is None:
        return "–"
    return f"{100 * figure['value']:.0f} % [{100 * figure['low']:.0f}, {100 * figure['high']:.0f}]"


def _found(row: Mapping[str, Any]) -> str:
    allowed = f"; chance allows {100 * row['expected']:.0f} %" if "expected" in row else ""
    return _share(row.get("found")) + allowed


def _delays(row: Mapping[str, Any]) -> str:
    numbers = [row.get(f"delay_{name}") for name in ("suspected", "confirmed")]
    return "–" if numbers[0] is None else ", ".join("–" if one is None else f"{one:g}" for one in numbers)


def _alarms(row: Mapping[str, Any]) -> str:
    iterations = f"{row['healthy_iterations']:,}".replace(",", " ")
    return f"{row['false_suspected']}, {row['false_confirmed']} in {iterations}"
