"""The kinds of fault that any data parallel job can have: where, how hard, and what may be their cause.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .spec import Kind, LayoutName, Site

STATE_SITES = (Site.PARAMETER, Site.FIRST_MOMENT, Site.SECOND_MOMENT)
_REDUCED = (Site.REDUCE_IN, Site.REDUCE_OUT, Site.REDUCE_ALL)
_COMPUTED = (Site.FORWARD, Site.RECOMPUTE, Site.ACT_GRAD, Site.WEIGHT_GRAD)
_ALL_LAYOUTS = tuple(LayoutName)
_WHOLE_REPLICAS = (LayoutName.DP, LayoutName.ZERO1, LayoutName.LOCAL_SGD)
"""Layouts in which every rank has all parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is known of one kind."""

    summary: str
    sites: tuple[Site, ...]
    causes: tuple[str, ...]
    """Causes that a verdict may name, the best first."""
    is_of_one_rank: bool = True
    lasts: int | None = 1
    magnitudes: tuple[float, float] = (1.0, 1.0)
    """Usual range of the magnitude, drawn evenly in its logarithm."""
    counts: tuple[int, int] = (1, 1)
    rates: tuple[float, float] = (1.0, 1.0)
    from_start: bool = False
    """It is there from the first iteration on."""
    has_bit: bool = False
    weight: float = 1.0
    """Share of random draws."""
    layouts: tuple[LayoutName, ...] = _ALL_LAYOUTS


ENTRIES: Mapping[Kind, Entry] = {
    Kind.BIT_FLIP: Entry(
        summary="one bit of one value flips",
        sites=(Site.DATA, *_COMPUTED, *_REDUCED, *STATE_SITES, Site.LOSS_SCALE, Site.MESSAGE),
        causes=("hardware",),
        has_bit=True,
        weight=2.0,
    ),
    Kind.STUCK_BIT: Entry(
        summary="the same bit of the same places is always one",
        sites=(*_COMPUTED, Site.REDUCE_IN, Site.REDUCE_OUT, *STATE_SITES),
        causes=("hardware",),
        lasts=None,
        counts=(1, 32),
        has_bit=True,
    ),
    Kind.MULTI_FLIP: Entry(
        summary="neighbouring values have a flipped bit each",
        sites=(*_COMPUTED, Site.REDUCE_IN, Site.REDUCE_OUT, *STATE_SITES),
        causes=("hardware",),
        counts=(2, 8),
        has_bit=True,
    ),
    Kind.RELATIVE_ERROR: Entry(
        summary="a unit computes a little too much, in some passes",
        sites=(*_COMPUTED, Site.REDUCE_IN, Site.REDUCE_OUT),
        causes=("hardware",),
        lasts=None,
        magnitudes=(1e-3, 1e-1),
        rates=(0.02, 1.0),
        weight=2.0,
    ),
    Kind.TILE_ERROR: Entry(
        summary="a tile or a stride of a matrix is wrong by 1e-6 to 1e-3, in bursts that depend on operands",
        sites=(*_COMPUTED, Site.REDUCE_IN),
        causes=("hardware",),
        lasts=None,
        magnitudes=(1e-6, 1e-3),
        rates=(0.02, 0.5),
        weight=3.0,
    ),
    Kind.WRONG_ORDER: Entry(
        summary="chunks of a gradient change places",
        sites=(Site.REDUCE_IN, Site.REDUCE_OUT, Site.REDUCE_ALL),
        causes=("collective", "software", "hardware"),
        lasts=None,
    ),
    Kind.STALE: Entry(
        summary="a rank sends the gradient of the iteration before",
        sites=(Site.REDUCE_IN,),
        causes=("collective", "software", "hardware"),
        lasts=None,
    ),
    Kind.DROPPED: Entry(
        summary="the reduction loses what a rank sends",
        sites=(Site.REDUCE_IN,),
        causes=("collective", "software", "hardware"),
        lasts=None,
    ),
    Kind.MISSING_SYNC: Entry(
        summary="a rank steps on its own gradient instead of the mean",
        sites=(Site.REDUCE_OUT,),
        causes=("collective", "software", "hardware"),
        lasts=None,
    ),
    Kind.FP8_SCALE: Entry(
        summary="a rank quantises a product to 8 bits under a scale that is too large",
        sites=(Site.FORWARD, Site.WEIGHT_GRAD),
        causes=("software", "hardware", "numeric_overflow"),
        lasts=None,
        magnitudes=(4.0, 256.0),
    ),
    Kind.NORM_DESYNC: Entry(
        summary="the gradients of a rank's norm layers are not reduced",
        sites=(Site.REDUCE_OUT,),
        causes=("software", "collective", "hardware"),
        lasts=None,
        layouts=tuple(one for one in LayoutName if one is not LayoutName.FULL_SHARD),
    ),
    Kind.DUPLICATE_DATA: Entry(
        summary="a rank reads the shard of its neighbour",
        sites=(Site.DATA,),
        causes=("data", "software"),
        lasts=None,
    ),
    Kind.RANDOM_DESYNC: Entry(
        summary="a rank's random state is one step ahead: it reads the shard of the next iteration",
        sites=(Site.DATA,),
        causes=("data", "software"),
        lasts=None,
    ),
    Kind.CORRUPT_RESTORE: Entry(
        summary="a resumed rank reads flipped bits from the checkpoint",
        sites=(Site.CHECKPOINT,),
        causes=("software", "hardware"),
        counts=(1, 64),
        has_bit=True,
    ),
    Kind.INCOMPLETE_RESTORE: Entry(
        summary="a resumed rank starts with one fresh block and a fresh optimizer",
        sites=(Site.CHECKPOINT,),
        causes=("software", "hardware"),
        layouts=_WHOLE_REPLICAS,
    ),
    Kind.LOST_UPDATES: Entry(
        summary="parameters are kept in bfloat16: updates below one unit of the last place are lost",
        sites=(Site.PARAMETER,),
        causes=("software", "hyperparameter", "numeric_overflow"),
        is_of_one_rank=False,
        lasts=None,
    ),
    Kind.INF_MINUS_INF: Entry(
        summary="the reduction adds infinity and minus infinity",
        sites=(Site.REDUCE_IN, Site.REDUCE_ALL),
        causes=("numeric_overflow", "collective", "hardware"),
    ),
    Kind.NAN: Entry(
        summary="a value becomes NaN",
        sites=(*_COMPUTED, *_REDUCED, *STATE_SITES, Site.MESSAGE),
        causes=("hardware",),
    ),
    Kind.INF: Entry(
        summary="a value becomes infinite",
        sites=(*_COMPUTED, *_REDUCED, *STATE_SITES),
        causes=("hardware", "numeric_overflow"),
    ),
    Kind.HIGH_LR: Entry(
        summary="the learning rate is too high from the start",
        sites=(Site.SCHEDULE,),
        causes=("hyperparameter",),
        is_of_one_rank=False,
        lasts=None,
        magnitudes=(10.0, 300.0),
        from_start=True,
    ),
    Kind.LR_JUMP: Entry(
        summary="the learning rate jumps",
        sites=(Site.SCHEDULE,),
        causes=("hyperparameter",),
        is_of_one_rank=False,
        lasts=None,
        magnitudes=(10.0, 300.0),
    ),
    Kind.NO_WARMUP: Entry(
        summary="there is no warm-up, at a rate that needs one",
        sites=(Site.SCHEDULE,),
        causes=("hyperparameter",),
        is_of_one_rank=False,
        lasts=None,
        magnitudes=(3.0, 30.0),
        from_start=True,
    ),
    Kind.BAD_BATCH: Entry(
        summary="one batch is noise",
        sites=(Site.DATA,),
        causes=("data",),
        is_of_one_rank=False,
    ),
    Kind.BAD_BATCHES: Entry(
        summary="batches are noise from some iteration on",
        sites=(Site.DATA,),
        causes=("data",),
        is_of_one_rank=False,
        lasts=50,
        magnitudes=(0.2, 1.0),
    ),
    Kind.NAN_INPUT: Entry(
        summary="a sample holds values that are not numbers",
        sites=(Site.DATA,),
        causes=("data", "hardware"),
    ),
    Kind.LOG_OF_ZERO: Entry(
        summary="the loss takes the logarithm of a probability that is zero",
        sites=(Site.LOSS_FUNCTION,),
        causes=("loss_function",),
        is_of_one_rank=False,
        counts=(1, 4),
    ),
    Kind.EXPONENT_OVERFLOW: Entry(
        summary="the loss exponentiates large logits without taking off their maximum",
        sites=(Site.LOSS_FUNCTION,),
        causes=("loss_function", "numeric_overflow"),
        is_of_one_rank=False,
    ),
    Kind.WRONG_NORMALIZATION: Entry(
        summary="the loss is divided by a wrong number of tokens",
        sites=(Site.LOSS_FUNCTION,),
        causes=("loss_function", "software"),
        is_of_one_rank=False,
        lasts=None,
        magnitudes=(1.1, 4.0),
    ),
}
"""What is known of each kind."""
