"""``python -m bench.rates``: measure the detectors one by one."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import again, curves, ranks, values
from .case import Case, score

RESULTS = Path(__file__).parent.parent / "results" / "detectors.json"
COMMAND = "python -m bench.rates"
CASES: Mapping[str, Callable[[], list[Case]]] = {
    "nonfinite": values.nonfinite,
    "explosion": curves.explosion,
    "checksum_vote": values.checksum_vote,
    "agreement": values.agreement,
    "repeat": values.repeat,
    "linear_checksum": values.linear_checksum,
    "curve_drift": curves.curve_drift,
    "evaluation": curves.evaluation,
    "stall": ranks.stall,
    "peer_outlier": ranks.peer_outlier,
    "joint": ranks.joint,
    "slowdown": ranks.slowdown,
    "reference": again.reference,
}


def main(arguments: Sequence[str]) -> int:
    """Measure the detectors asked for, or all; what was measured of the others stays."""
    parser = argparse.ArgumentParser(prog=COMMAND)
    parser.add_argument("names", nargs="*", metavar="NAME", help="detectors; default: all")
    parser.add_argument("--runs", type=int, help="at most so many runs a case; then nothing is written")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.names if name not in CASES]
    if unknown:
        parser.error(f"detectors must be of {', '.join(CASES)}, got {', '.join(unknown)}")
    held: dict[str, Any] = {"command": COMMAND, "detectors": {}}
    if RESULTS.exists():
        held = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in asked.names or CASES:
        rows = [_measured(name, case, asked.runs) for case in CASES[name]()]
        held["detectors"][name] = rows
    if asked.runs is None:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        held["detectors"] = dict(sorted(held["detectors"].items()))
        RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    return 0


def _measured(name: str, case: Case, at_most: int | None) -> dict[str, Any]:
    plain = score(case, min(case.runs, at_most or case.runs)).to_plain(case)
    shown = {
        key: value["value"] if isinstance(value, dict) else value
        for key, value in plain.items()
        if key != "case"
    }
    print(f"{name:16} {case.name:52} {shown}", flush=True)
    return plain


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
