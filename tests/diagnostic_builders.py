"""Builders of reports about hardware, and of runs that they are joined to."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

MEMORY_FAILS = "A DBE was detected"


def dcgm(results: Mapping[int, str], *, test: str = "memory", layout: int = 4) -> str:
    """The JSON of a diagnosis with one test of the hardware: per device its status."""
    rows = []
    for device, status in results.items():
        warning = MEMORY_FAILS if status.lower() == "fail" else ""
        if layout == 4:
            row: dict[str, object] = {"entity_group": "GPU", "entity_id": device, "status": status}
            row |= {"warnings": [{"warning": warning, "error_id": 41}]} if warning else {}
        else:
            row = {"gpu_ids": str(device), "status": status.upper()}
            row |= {"warnings": warning} if warning else {}
        rows.append(row)
    software: dict[str, object] = {"name": "Denylist", "results": [{**row, "status": "Pass"} for row in rows]}
    root = "DCGM Diagnostic" if layout == 4 else "DCGM GPU Diagnostic"
    categories = [
        {"category": "Deployment", "tests": [software]},
        {"category": "Hardware", "tests": [{"name": test, "results": rows}]},
    ]
    return "Starting diagnosis.\n" + json.dumps({root: {"test_categories": categories}})


def write_run(
    path: Path,
    *,
    ranks: int = 8,
    bad_rank: int | None = None,
    places: Sequence[tuple[str, str]] = (),
    iterations: int = 100,
) -> Path:
    """A run whose replicas stay equal, but for one whose parameters differ from iteration 40 on."""
    lines = []
    for iteration in range(iterations):
        for rank in range(ranks):
            is_bad = rank == bad_rank and iteration >= 40
            row: dict[str, object] = {"run": "r", "rank": rank, "iteration": iteration}
            row |= {"time": 1_764_470_000 + iteration * 10, "loss": 2.0 + 0.01 * ((iteration * 7 + rank) % 5)}
            row["param_checksum"] = f"{iteration * 2 + is_bad + 16:x}"
            if iteration == 0 and places:
                row |= {"host": places[rank][0], "device": places[rank][1]}
            lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path
