"""What a fault makes of the reduction's inputs and of the copies of its result.

Axes: H ranks held by this process, P parameters.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .corruption import is_of_elements
from .faults import Faults
from .spec import Kind, Site


def contribute(faults: Faults, local_HP: torch.Tensor, sent_HP: torch.Tensor) -> torch.Tensor:
    """What each rank hands to the reduction; ``sent_HP`` holds its last contribution and gets this one."""
    given_HP = local_HP
    fault = faults.fault
    if fault is not None and faults.is_at(Site.REDUCE_IN):
        rows = faults.rows()
        given_HP = local_HP.clone()
        if fault.kind is Kind.STALE:
            given_HP[rows] = sent_HP[rows]
        elif fault.kind is Kind.DROPPED:
            given_HP[rows] = 0.0
        elif fault.kind is Kind.INF_MINUS_INF:
            _opposite_infinities(faults, given_HP)
        else:
            faults.strike_rows(given_HP, rows)
    # a rank that is stuck sends the same stale gradient on and on
    sent_HP.copy_(given_HP)
    return given_HP


def received(
    places: Mapping[str, slice], faults: Faults, reduced_HP: torch.Tensor, local_HP: torch.Tensor
) -> torch.Tensor:
    """The reduced gradient as each rank gets it; ``places`` says where each parameter lies."""
    fault = faults.fault
    if fault is None or not faults.is_at(Site.REDUCE_OUT):
        return reduced_HP
    rows = faults.rows()
    if fault.kind is Kind.MISSING_SYNC:
        reduced_HP[rows] = local_HP[rows]
    elif fault.kind is Kind.NORM_DESYNC:
        for name, place in places.items():
            if ".norm" in name or name.startswith("norm"):
                reduced_HP[rows, place] = local_HP[rows, place]
    elif is_of_elements(fault.kind):
        faults.strike_rows(reduced_HP, rows)
    return reduced_HP


def _opposite_infinities(faults: Faults, given_HP: torch.Tensor) -> None:
    """One rank hands in infinity, its neighbour minus infinity: no rank has a NaN, the sum has."""
    fault = faults.fault
    assert fault is not None
    first = fault.rank or 0
    for row, sign in faults.pair(first):
        given_HP[row, : fault.count] = sign * torch.inf
