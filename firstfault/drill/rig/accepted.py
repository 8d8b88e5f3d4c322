"""What a verdict may say of the cause of each fault at its site, and its phase. Standard library only.

The catalogue says what may be named for a kind; for values that are simply wrong it depends on the site: a
bit that flips in one copy of a reduced gradient was the device's or the collective's work.
"""

from __future__ import annotations

from ...telemetry import Phase
from .catalogue import CATALOGUE
from .spec import Fault, Kind, Site

_ANYBODYS = (
    Kind.BIT_FLIP,
    Kind.STUCK_BIT,
    Kind.MULTI_FLIP,
    Kind.NAN,
    Kind.INF,
    Kind.RELATIVE_ERROR,
    Kind.TILE_ERROR,
)
"""Kinds that may be anybody's work: the site tells whose."""
_BY_SITE = {
    Site.DATA: ("data", "hardware"),
    Site.REDUCE_IN: ("hardware", "collective"),
    Site.REDUCE_OUT: ("collective", "hardware"),
    Site.REDUCE_ALL: ("collective",),
    Site.LOSS_FUNCTION: ("loss_function", "hardware"),
    Site.MESSAGE: ("collective", "hardware"),
    Site.GATHER: ("collective", "hardware"),
}
_PHASES = {
    Site.DATA: Phase.DATA,
    Site.FORWARD: Phase.FORWARD,
    Site.RECOMPUTE: Phase.BACKWARD,
    Site.ACT_GRAD: Phase.BACKWARD,
    Site.WEIGHT_GRAD: Phase.BACKWARD,
    Site.REDUCE_IN: Phase.REDUCE_IN,
    Site.REDUCE_OUT: Phase.REDUCE_OUT,
    Site.REDUCE_ALL: Phase.REDUCE_OUT,
    Site.PARAMETER: Phase.STATE,
    Site.FIRST_MOMENT: Phase.OPTIMIZER,
    Site.SECOND_MOMENT: Phase.OPTIMIZER,
    Site.LOSS_FUNCTION: Phase.FORWARD,
    Site.LOSS_SCALE: Phase.BACKWARD,
    Site.SCHEDULE: Phase.OPTIMIZER,
    Site.MESSAGE: Phase.FORWARD,
    Site.GATHER: Phase.GATHER,
    Site.CHECKPOINT: Phase.STATE,
}


def accepted_causes(fault: Fault) -> tuple[str, ...]:
    """The kinds of cause that a verdict may name for ``fault``, the truest one first."""
    if fault.kind in _ANYBODYS and fault.site in _BY_SITE:
        return _BY_SITE[fault.site]
    return CATALOGUE[fault.kind].causes


def phase_of_fault(fault: Fault) -> str:
    """The phase of the iteration in which the fault acts: ``reduce_in``."""
    return _PHASES[fault.site].label
