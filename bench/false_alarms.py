"""How often the curve detectors alarm on curves that are healthy.

    python -m bench.false_alarms FOLDER [FOLDER …]

Each ``.csv`` file is one curve: a header, a counter (``iteration``, ``step`` or the row), and ``loss``,
``grad_norm`` or ``lr``. An empty cell or the text ``nan`` was not recorded. Every alarm counts as false.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from detectors.base import Detector
from detectors.curve_drift import CurveDrift
from detectors.evidence import Certainty, Evidence, Finding
from detectors.explosion import Explosion
from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import IterationBlock, NumberBlock

DETECTORS: tuple[Callable[[], Detector], ...] = (Explosion, CurveDrift)
METRICS = ("loss", "grad_norm", "lr")
COUNTERS = ("iteration", "step")


def main(arguments: Sequence[str]) -> int:
    """Print a line for each file that alarms and the rates over all; 0 if nothing was confirmed."""
    if not arguments:
        print("false alarms: give folders of healthy curves to judge, see the docstring")
        return 0
    points, files, counts = 0, 0, Counter[tuple[str, str]]()
    for path in curve_files(arguments):
        block = read_curve(path)
        if block is None:
            print(f"{path}: no curve in it")
            continue
        files += 1
        points += len(block)
        for make in DETECTORS:
            detector = make()
            found = final_evidence([*detector.update(block), *detector.finish()])
            for evidence in found:
                counts[detector.name, evidence.certainty] += 1
                if evidence.certainty is Certainty.CONFIRMED:
                    what = f"{detector.name} {evidence.pattern} of {evidence.key}"
                    print(f"{path.name}: {what} at {evidence.iteration}")
    print(f"{files} curves, {points} points")
    for make in DETECTORS:
        name = make().name
        for certainty in Certainty:
            count = counts[name, certainty]
            print(f"{name:12} {certainty:10} {count:5}   {1000 * count / max(points, 1):.4f} per 1000 points")
    return int(any(counts[make().name, Certainty.CONFIRMED] for make in DETECTORS))


def curve_files(folders: Sequence[str]) -> Iterator[Path]:
    """All csv files of the folders, in the order of their names."""
    for folder in folders:
        yield from sorted(Path(folder).glob("*.csv"))


def read_curve(path: Path) -> IterationBlock | None:
    """The curve of one file as one block of one rank; None if it has none of the columns."""
    with path.open(newline="", encoding="utf-8") as lines:
        rows = [{str(name).strip(): text for name, text in row.items()} for row in csv.DictReader(lines)]
    named = [metric for metric in METRICS if rows and metric in rows[0]]
    if "loss" not in named and "grad_norm" not in named:
        return None
    counter = next((name for name in COUNTERS if name in rows[0]), None)
    iterations = [int(float(row[counter])) for row in rows] if counter else list(range(len(rows)))
    return IterationBlock(
        run=path.stem,
        attempt=0,
        iteration_T=np.array(iterations, np.int64),
        microbatch_T=np.full(len(rows), WHOLE_ITERATION, np.int32),
        ranks_R=np.zeros(1, np.int32),
        numbers={metric: column([row[metric] for row in rows]) for metric in named},
    )


def column(cells: Sequence[str | None]) -> NumberBlock:
    """Text cells as T values of one rank; empty and nan are not recorded."""
    texts = [(cell or "").strip().lower() for cell in cells]
    present_T = np.array([text not in ("", "nan") for text in texts])
    value_T = np.array([float(text) if kept else 0.0 for text, kept in zip(texts, present_T, strict=True)])
    return NumberBlock(value_T.reshape(-1, 1), present_T.reshape(-1, 1))


def final_evidence(findings: Sequence[Finding]) -> list[Evidence]:
    """The last evidence of each key."""
    return list({finding.key: finding for finding in findings if isinstance(finding, Evidence)}.values())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
