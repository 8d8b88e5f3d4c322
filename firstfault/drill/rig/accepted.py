"""What a verdict may say of the cause of each fault: kinds, stage and phase. Standard library only.

More than one kind is accepted where the telemetry cannot tell them apart: a bit that flips in the copy of a
reduced gradient was the device's or the collective's work.
"""

from __future__ import annotations

from ...telemetry import Phase
from .spec import Fault, Kind, Site

_HARDWARE, _COLLECTIVE, _HYPERPARAMETER = "hardware", "collective", "hyperparameter"
_DATA, _LOSS_FUNCTION, _OVERFLOW, _SOFTWARE = "data", "loss_function", "numeric_overflow", "software"

_BY_KIND = {
    Kind.BIT_FLIP: (_HARDWARE,),
    Kind.STUCK_BIT: (_HARDWARE,),
    Kind.MULTI_FLIP: (_HARDWARE,),
    Kind.RELATIVE_ERROR: (_HARDWARE,),
    Kind.TILE_ERROR: (_HARDWARE,),
    Kind.WRONG_ORDER: (_COLLECTIVE, _SOFTWARE),
    Kind.STALE: (_COLLECTIVE, _SOFTWARE),
    Kind.DROPPED: (_COLLECTIVE,),
    Kind.MISSING_SYNC: (_COLLECTIVE, _SOFTWARE),
    Kind.CORRUPT_MESSAGE: (_COLLECTIVE, _HARDWARE),
    Kind.WRONG_GATHER: (_COLLECTIVE, _HARDWARE),
    Kind.SHARD_OWNER: (_HARDWARE,),
    Kind.FP8_SCALE: (_OVERFLOW, _SOFTWARE, _HARDWARE),
    Kind.TIED_DESYNC: (_SOFTWARE, _COLLECTIVE),
    Kind.NORM_DESYNC: (_SOFTWARE, _COLLECTIVE),
    Kind.DUPLICATE_DATA: (_DATA, _SOFTWARE),
    Kind.RANDOM_DESYNC: (_SOFTWARE,),
    Kind.CORRUPT_RESTORE: (_HARDWARE, _SOFTWARE),
    Kind.INCOMPLETE_RESTORE: (_SOFTWARE,),
    Kind.LOST_UPDATES: (_OVERFLOW, _SOFTWARE, _HYPERPARAMETER),
    Kind.INF_MINUS_INF: (_OVERFLOW, _COLLECTIVE),
    Kind.NAN: (_HARDWARE,),
    Kind.INF: (_HARDWARE, _OVERFLOW),
    Kind.HIGH_LR: (_HYPERPARAMETER,),
    Kind.LR_JUMP: (_HYPERPARAMETER,),
    Kind.NO_WARMUP: (_HYPERPARAMETER,),
    Kind.BAD_BATCH: (_DATA,),
    Kind.BAD_BATCHES: (_DATA,),
    Kind.NAN_INPUT: (_DATA,),
    Kind.LOG_OF_ZERO: (_LOSS_FUNCTION,),
    Kind.EXPONENT_OVERFLOW: (_OVERFLOW,),
    Kind.WRONG_NORMALIZATION: (_LOSS_FUNCTION, _SOFTWARE),
    Kind.TP_DESYNC: (_SOFTWARE, _COLLECTIVE),
}
_ANYBODYS = (
    Kind.BIT_FLIP,
    Kind.STUCK_BIT,
    Kind.MULTI_FLIP,
    Kind.NAN,
    Kind.INF,
    Kind.RELATIVE_ERROR,
    Kind.TILE_ERROR,
)
"""Kinds whose cause depends on the site: a wrong value behind the reduction may be the collective's."""
_BY_SITE = {
    Site.DATA: (_DATA, _HARDWARE),
    Site.REDUCE_IN: (_HARDWARE, _COLLECTIVE),
    Site.REDUCE_OUT: (_COLLECTIVE, _HARDWARE),
    Site.REDUCE_ALL: (_COLLECTIVE,),
    Site.LOSS_FUNCTION: (_LOSS_FUNCTION, _HARDWARE),
    Site.MESSAGE: (_COLLECTIVE, _HARDWARE),
    Site.GATHER: (_COLLECTIVE, _HARDWARE),
    Site.SCHEDULE: (_HYPERPARAMETER,),
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
    return _BY_KIND[fault.kind]


def phase_of_fault(fault: Fault) -> str:
    """The phase of the iteration in which the fault acts: ``reduce_in``."""
    return _PHASES[fault.site].label


def stage_of_fault(fault: Fault) -> str:
    """before_reduce, reduce, after_reduce, or unknown for a fault that no stage of an iteration made."""
    if fault.site is Site.SCHEDULE:
        return "unknown"
    phase = _PHASES[fault.site]
    if phase is Phase.REDUCE_OUT:
        return "reduce"
    return "before_reduce" if phase <= Phase.REDUCE_IN else "after_reduce"
