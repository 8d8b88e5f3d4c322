"""The published rule for single ranks on the same logs: leave-one-out median and MAD of local norms.

Its gate is 2.5 times the greatest score of a clean calibration, as published; the calibration is the same job
without the fault, which nobody has in practice. Axes: T iterations, R ranks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from bench.peer_rules import WINDOW, alarms, calibrated_gate, leave_one_out_scores
from ingest.blocks import Floats

from .naive import ANY, Alarm
from .tiers import NUMBERS

RANK_RULE = "leave-one-out median/MAD over 64"
METRIC = "local_grad_norm"


def rank_alarms(lines: Sequence[bytes], clean: Sequence[bytes]) -> list[Alarm]:
    """What the rule fires on in a log, calibrated on a ``clean`` one of the same job."""
    iteration_T, value_TR, ranks = norms_of(lines)
    _, clean_TR, _ = norms_of(clean)
    if min(value_TR.shape[1], clean_TR.shape[1]) < 3 or min(len(value_TR), len(clean_TR)) <= 2 * WINDOW:
        return []
    score_TR = leave_one_out_scores(clean_TR)
    flags_TR = alarms(leave_one_out_scores(value_TR), calibrated_gate(score_TR[np.isfinite(score_TR)]))
    found = [
        Alarm(iteration_T[at], ANY, ranks[column])
        for column in range(len(ranks))
        for at in np.flatnonzero(flags_TR[:, column]).tolist()
    ]
    return sorted(found, key=lambda one: (one.iteration or 0, one.rank or 0))


def norms_of(lines: Sequence[bytes]) -> tuple[list[int], Floats, list[int]]:
    """(iterations, norms T × R, ranks) in order; what is said twice counts as it was said last."""
    cells: dict[int, dict[int, float]] = {}
    for line in lines:
        record = json.loads(line)
        if "event" not in record and METRIC in record:
            value = record[METRIC]
            cells.setdefault(record["iteration"], {})[record["rank"]] = float(NUMBERS.get(value, value))
    ranks = sorted({rank for row in cells.values() for rank in row})
    iterations = sorted(cells)
    table = [[cells[at].get(rank, math.nan) for rank in ranks] for at in iterations]
    return iterations, np.asarray(table, np.float64).reshape(len(iterations), len(ranks)), ranks
