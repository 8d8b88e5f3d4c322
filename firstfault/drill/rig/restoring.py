"""What a resumed attempt makes of a checkpoint, and what a fault makes of that.

Axes: H ranks held by this process, P parameters.
"""

from __future__ import annotations

import random

from .faults import Faults
from .model import initial_parameters, slices
from .spec import Job, Kind
from .state import State

_MOMENTS = ("first", "second")


def restored(job: Job, faults: Faults, saved: State) -> State:
    """The state of the ranks here after reading the checkpoint."""
    state = saved.clone()
    fault = faults.fault
    if fault is None or not faults.is_restoring():
        return state
    if fault.kind is Kind.CORRUPT_RESTORE:
        faults.strike_rows(state.tensors["parameters"], faults.rows())
    elif fault.kind is Kind.INCOMPLETE_RESTORE:
        _forget(job, faults, state)
    return state


def forget_moments(state: State, rows: list[int]) -> None:
    """These ranks start with a fresh optimizer."""
    for name in _MOMENTS:
        if name in state.tensors:
            state.tensors[name][rows] = 0.0
    for row in rows:
        state.steps[row] = 0


def _forget(job: Job, faults: Faults, state: State) -> None:
    """One block's parameters and all moments were not in what the rank read."""
    fault = faults.fault
    assert fault is not None
    layer = random.Random(f"{fault.seed}/restore").randrange(job.model.layers)
    fresh_P = initial_parameters(job.model, job.seed)
    rows = faults.rows()
    for name, place in slices(job.model).items():
        if name.startswith(f"layer{layer}."):
            state.tensors["parameters"][rows, place] = fresh_P[place]
    forget_moments(state, rows)
