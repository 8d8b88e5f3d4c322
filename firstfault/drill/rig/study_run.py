"""Run a study: every case that the file of results does not hold yet, written as soon as it is known.

Axes: T iterations, N copies of the job, G ranks of one copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import numpy as np

from .data_parallel import DataParallel
from .engine import settle_torch
from .faults import Faults
from .links import OneProcess
from .observing import Columns
from .outcomes import damage_of
from .recording import Floats, Recording
from .side_by_side import SideBySide
from .state import State
from .study import Case, StudyPlan, cases, job_of
from .study_results import Result, append, mend, read, result_of

Progress = Callable[[int, int], None]
"""Told (cases done, cases in all), those of earlier sittings counted."""
COPIES = 7
"""Faulty copies beside the golden twin: three times as fast as alone; twice as many outgrow the cache."""
_JUDGED = ("loss", "grad_norm", "nonfinite_loss", "nonfinite_reduced", "nonfinite_param")


def run_study(plan: StudyPlan, path: Path, progress: Progress | None = None) -> list[Result]:
    """Run what is missing of a study and give the results of all its cases, in the order of the grid.

    Killed at any moment and called again it goes on: at most the few cases it was at are done twice.

    Raises:
        OSError: the file cannot be read or written.
    """
    settle_torch()
    mend(path)
    found = {one.key: one for one in read(path)}
    grid = list(cases(plan))
    missing = [case for case in grid if case.key not in found]
    done = len(grid) - len(missing)
    for (recipe, seed), group in groupby(missing, key=lambda case: (case.recipe, case.seed)):
        for results in _results(plan, recipe, seed, list(group)):
            append(path, results)
            found |= {one.key: one for one in results}
            done += len(results)
            if progress is not None:
                progress(done, len(grid))
    return [found[case.key] for case in grid]


def _results(plan: StudyPlan, recipe: str, seed: int, group: Sequence[Case]) -> Iterator[list[Result]]:
    """The cases of one job, so many at once; its healthy part is computed once."""
    job = job_of(plan, recipe, seed)
    healthy = DataParallel(job, OneProcess(plan.ranks), Faults(job, range(plan.ranks)))
    before: list[Columns] = []
    for strike in sorted({case.fault.iteration for case in group}):
        before += [healthy.iterate(iteration, 0) for iteration in range(len(before), strike)]
        struck = [case for case in group if case.fault.iteration == strike]
        for first in range(0, len(struck), COPIES):
            yield _side_by_side(plan, struck[first : first + COPIES], healthy.state, before)


def _side_by_side(
    plan: StudyPlan, batch: Sequence[Case], state: State, before: Sequence[Columns]
) -> list[Result]:
    """Some cases that strike at one iteration, and the golden twin beside them."""
    job = job_of(plan, batch[0].recipe, batch[0].seed)
    copies = SideBySide(job, [*(case.fault for case in batch), None], state)
    after = [copies.iterate(iteration, 0) for iteration in range(len(before), plan.iterations)]
    twin = _recording(plan, len(batch), before, after)
    results = []
    for number, case in enumerate(batch):
        run = _recording(plan, number, before, after)
        damage = damage_of(run, twin, case.fault.iteration)
        is_same = np.array_equal(run.numbers["loss"], twin.numbers["loss"])
        results.append(
            result_of(case, damage.outcome.value, damage.end_change, damage.end_sigma, is_same=is_same)
        )
    return results


def _recording(
    plan: StudyPlan, number: int, before: Sequence[Columns], after: Sequence[Columns]
) -> Recording:
    """What the copy ``number`` would have reported, from its first iteration on."""
    first = number * plan.ranks

    def values_of(metric: str) -> Floats:
        rows = [columns[metric] for columns in before]
        rows += [columns[metric][first : first + plan.ranks] for columns in after]
        return np.array(rows, dtype=np.float64)

    numbers = {metric: values_of(metric) for metric in _JUDGED}
    shape = numbers["loss"].shape
    return Recording(
        attempts_T=np.zeros(shape[0], dtype=np.int64),
        iterations_T=np.arange(shape[0]),
        ranks_R=np.arange(plan.ranks),
        numbers=numbers,
        checksums={},
        present={metric: np.ones(shape, dtype=np.bool_) for metric in _JUDGED},
    )
