"""The kinds of fault that only ranks can have that share more than a gradient. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping

from .entries import Entry
from .spec import Kind, LayoutName, Site

LAYOUT_ENTRIES: Mapping[Kind, Entry] = {
    Kind.CORRUPT_MESSAGE: Entry(
        summary="a stretch of what a rank sends to the next stage or to an expert is written over",
        sites=(Site.MESSAGE,),
        causes=("collective", "hardware", "software"),
        lasts=None,
        counts=(8, 128),
        rates=(0.05, 1.0),
        layouts=(LayoutName.PP4_TP2_DP2, LayoutName.EXPERT),
    ),
    Kind.WRONG_GATHER: Entry(
        summary="one receiver finds one owner's shard where another's belongs",
        sites=(Site.GATHER,),
        causes=("collective", "hardware", "software"),
        layouts=(LayoutName.ZERO1, LayoutName.FULL_SHARD),
    ),
    Kind.SHARD_OWNER: Entry(
        summary="a bit flips in the only copy of a shard, and everybody gathers it",
        sites=(Site.GATHER, Site.FIRST_MOMENT, Site.SECOND_MOMENT),
        causes=("hardware",),
        has_bit=True,
        layouts=(LayoutName.ZERO1, LayoutName.FULL_SHARD),
    ),
    Kind.TIED_DESYNC: Entry(
        summary="a rank's copy of the tied embedding misses the other stage's gradient",
        sites=(Site.REDUCE_OUT,),
        causes=("software", "collective", "hardware"),
        lasts=None,
        layouts=(LayoutName.PP4_TP2_DP2,),
    ),
    Kind.TP_DESYNC: Entry(
        summary="norm layers of one tensor-parallel coordinate get another gradient, on all replicas alike",
        sites=(Site.REDUCE_OUT,),
        causes=("software", "collective"),
        lasts=None,
        magnitudes=(1e-6, 1e-2),
        layouts=(LayoutName.PP4_TP2_DP2,),
    ),
}
