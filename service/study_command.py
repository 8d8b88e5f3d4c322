"""`firstfault drill study`: run the grid, print the table, write it and the picture."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from firstfault.drill.plans import require_torch
from firstfault.drill.rig.study import QUICK, StudyPlan

RESULTS, TABLE, PICTURE = "study.jsonl", "study.md", "study.svg"


def run_study_command(out: Path, *, seeds: int | None, bit_step: int | None, is_quick: bool) -> None:
    """Run what is missing of the study into ``out`` and print its table.

    Raises:
        DrillError: torch is not installed.
        OSError: the folder cannot be written.
    """
    require_torch()
    from firstfault.drill.rig.study_picture import picture
    from firstfault.drill.rig.study_report import report
    from firstfault.drill.rig.study_run import run_study

    plan = QUICK if is_quick else StudyPlan()
    plan = replace(plan, seeds=seeds or plan.seeds, bit_step=bit_step or plan.bit_step)
    out.mkdir(parents=True, exist_ok=True)
    progress = _show_progress if sys.stderr.isatty() else None
    results = run_study(plan, out / RESULTS, progress)
    if progress is not None:
        sys.stderr.write("\r\x1b[K")
    table = report(results)
    (out / TABLE).write_text(table, encoding="utf-8")
    (out / PICTURE).write_text(picture(results), encoding="utf-8")
    sys.stdout.write(table)


def _show_progress(done: int, total: int) -> None:
    sys.stderr.write(f"\rstudy: case {done} of {total}")
    sys.stderr.flush()
