"""Answers of the service as polars frames: NaN and infinity are floats, what was not reported is null."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .telemetry import is_checksum

if TYPE_CHECKING:
    import polars as pl

_FIRST = {
    "first_attempt": "whole",
    "first_iteration": "whole",
    "first_ranks": "ranks",
    "first_rank_count": "whole",
    "first_metric": "text",
}
"""What an incident's ``first`` gives, each key a column of its own."""
RUNS = {
    "run_id": "text",
    "run": "text",
    "label": "text",
    "severity": "text",
    "sentence": "text",
    **_FIRST,
    "incident_id": "text",
    "judged_to_iteration": "whole",
    "open_incidents": "whole",
    "revision": "whole",
    "first_seen_at": "time",
    "updated_at": "time",
    "newest_record_at": "time",
    "quiet_since": "time",
}
INCIDENTS = {
    "id": "text",
    "run_id": "text",
    "run": "text",
    "label": "text",
    "pattern": "text",
    "certainty": "text",
    "severity": "text",
    "state": "text",
    "sentence": "text",
    **_FIRST,
    "muted_until": "time",
    "is_withdrawn": "flag",
    "revision": "whole",
    "opened_at": "time",
    "updated_at": "time",
}
REVISIONS = {
    "revision": "whole",
    "at": "time",
    "kind": "text",
    **dict.fromkeys(("label", "pattern", "certainty", "severity", "sentence"), "text"),
    **_FIRST,
    "changed": "text",
}
MUTES = {
    **dict.fromkeys(("id", "run", "label", "pattern", "detector", "host", "comment", "who"), "text"),
    **dict.fromkeys(("created_at", "until", "ended_at"), "time"),
    "active": "flag",
    "ended_by": "text",
}
HOSTS = {
    "host": "text",
    **dict.fromkeys(("incidents", "as_sole_suspect", "as_one_of_several"), "whole"),
    **dict.fromkeys(("false_alarms", "runs", "runs_seen"), "whole"),
    "chance_state": "text",
    "chance_p_value": "number",
    "chance_why": "text",
}
DETECTORS = {
    "detector": "text",
    "pattern": "text",
    **dict.fromkeys(("fired", "confirmed", "withdrawn", "judged_real", "false_alarms", "judged"), "whole"),
    **dict.fromkeys(("estimate", "low", "high"), "number"),
}
CURVE = {
    "iteration": "whole",
    "last_iteration": "whole",
    "microbatch": "whole",
    "time": "time",
    **dict.fromkeys(("positions", "reported", "missing", "nan", "posinf", "neginf"), "whole"),
    **dict.fromkeys(("min", "p25", "median", "p75", "max"), "number"),
    "min_rank": "whole",
    "max_rank": "whole",
}


def frame_of_items(items: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> pl.DataFrame:
    """One row an item; of its ``first`` the keys stand in columns ``first_…``."""
    rows = [
        {**item, **{f"first_{key}": value for key, value in (item.get("first") or {}).items()}}
        for item in items
    ]
    return _frame({name: [row.get(name) for row in rows] for name in kinds}, kinds)


def frame_of_curve(answer: Mapping[str, Any]) -> pl.DataFrame:
    """One row an iteration, or a group of them."""
    return _frame({name: answer["columns"][name] for name in CURVE}, CURVE)


def frame_of_matrix(answer: Mapping[str, Any]) -> pl.DataFrame:
    """One row an iteration, one column a rank, named by its number; checksums stay text."""
    kind = "text" if is_checksum(answer["metric"]) else "number"
    names = [str(rank) for rank in answer["ranks"]]
    kinds = {"iteration": "whole", "microbatch": "whole", **dict.fromkeys(names, kind)}
    cells = zip(*answer["values"], strict=True) if answer["values"] else ([] for _ in names)
    columns = {"iteration": answer["iteration"], "microbatch": answer["microbatch"]}
    return _frame({**columns, **dict(zip(names, map(list, cells), strict=True))}, kinds)


def _frame(columns: Mapping[str, Sequence[Any]], kinds: Mapping[str, str]) -> pl.DataFrame:
    import polars as pl

    types: dict[str, tuple[pl.DataType | type[pl.DataType], Callable[[Any], Any]]] = {
        "text": (pl.String, str),
        "whole": (pl.Int64, int),  # beyond 2**53 the service writes text
        "number": (pl.Float64, float),  # also of "NaN", "Infinity" and "-Infinity"
        "flag": (pl.Boolean, bool),
        "ranks": (pl.List(pl.Int64), list),
        "time": (pl.Datetime("ms", "UTC"), _moment),
    }
    series = []
    for name, kind in kinds.items():
        dtype, read = types[kind]
        values = [None if value is None else read(value) for value in columns[name]]
        series.append(pl.Series(name, values, dtype))
    return pl.DataFrame(series)


def _moment(text: str) -> Any:
    from datetime import datetime

    return datetime.fromisoformat(text)
