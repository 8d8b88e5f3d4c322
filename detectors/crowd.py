"""Ranks that part from their peers one after another: that is how their data are, and no rank's fault.

A device that computes wrong is one among many. Where several ranks leave their peers for good, each at its
time, they read data of different kinds, or experts are asked more and less often: nothing in their noise
tells which of them may be at fault as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .evidence import Certainty, Evidence, Pattern
from .peer_episode import WHY_NOT
from .precedence import Family, family

CROWD = 3
"""Ranks of one attempt whose shifts are a crowd. Two faults of their own in one run are rare, three are not
seen: one device in a thousand is defective."""
_WHY = "other ranks part from their peers as well: so do ranks that read data of different kinds"
_LEVELS = (Pattern.SLOW_DEGRADE, Pattern.SHARP_SLOW_DEGRADE)
_LOUD = (Family.EXPLOSION, Family.NONFINITE)


def doubt_crowds(evidence: Iterable[Evidence]) -> list[Evidence]:
    """``evidence`` with the confirmed shifts of a crowd, and of the level of the whole, as suspicions.

    What comes after a loud end neither counts nor is doubted: it scatters ranks, whoever began.
    """
    every = list(evidence)
    sure = [one for one in every if one.certainty is Certainty.CONFIRMED and not one.supporting]
    end = min((one.first_bad for one in sure if family(one) in _LOUD), default=None)
    crowd = [one for one in every if _lasts(one) and (end is None or one.alarm_iteration < end)]
    if len({one.ranks for one in crowd}) < CROWD:
        return every
    # The level of the whole run goes up and down with theirs.
    levels = [one for one in sure if one.pattern in _LEVELS]
    doubted = {(one.detector, one.key) for one in [*crowd, *levels] if one.certainty is Certainty.CONFIRMED}
    return [_doubted(one) if (one.detector, one.key) in doubted else one for one in every]


def _lasts(one: Evidence) -> bool:
    """Whether a shift has repeated itself, also where it is held against peers that wander."""
    return one.pattern is Pattern.PEER_DRIFT and (
        one.certainty is Certainty.CONFIRMED or WHY_NOT in one.detail
    )


def _doubted(one: Evidence) -> Evidence:
    return replace(one, certainty=Certainty.SUSPECTED, detail={**one.detail, WHY_NOT: _WHY})
