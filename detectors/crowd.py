"""Ranks that part from their peers one after another: that is how their data are, and no rank's fault.

A device that computes wrong is one among many. Where several ranks leave their peers for good, each at its
time, they read data of different kinds, or experts are asked more and less often: nothing in their noise
tells which of them may be at fault as well. So it is where two whole replicas leave at the same time: two
devices do not break at once, and their data may well be switched at once. Where all of them sit on one host
and no rank of another parts, that host is the one cause, if chance would rarely have put them there.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from firstfault.mesh import Layout

from .evidence import Certainty, Evidence, Pattern
from .peer_episode import WHY_NOT
from .precedence import Family, are_concurrent, family, position

CROWD = 3
"""Ranks of one attempt whose shifts are a crowd. Two faults of their own in one run are rare, three are not
seen: one device in a thousand is defective."""
BY_CHANCE = 0.02
"""Probability that the ranks of a crowd, drawn from all, would share a host, below which it is the cause.
Three of 64 ranks on 8 hosts do so once in 62 times; of 8 ranks on 2 hosts once in 7."""
_WHY = "other ranks part from their peers as well: so do ranks that read data of different kinds"
_LEVELS = (Pattern.SLOW_DEGRADE, Pattern.SHARP_SLOW_DEGRADE)
_LOUD = (Family.EXPLOSION, Family.NONFINITE)


def doubt_crowds(
    evidence: Iterable[Evidence],
    hosts: Mapping[int, str | None] | None = None,
    layout: Layout | None = None,
) -> list[Evidence]:
    """``evidence`` with the confirmed shifts of a crowd, and of the level of the whole, as suspicions.

    ``hosts`` gives that of each rank, where it is known; inside a ``layout`` whose ranks hold parts of the
    model one fault may move two of them at once. What comes after a loud end neither counts nor is
    doubted: it scatters ranks, whoever began.
    """
    every = list(evidence)
    sure = [one for one in every if one.certainty is Certainty.CONFIRMED and not one.supporting]
    end = min((one.first_bad for one in sure if family(one) in _LOUD), default=None)
    crowd = [one for one in every if _lasts(one) and (end is None or one.alarm_iteration < end)]
    parting = {one.ranks for one in crowd}
    is_crowd = len(parting) >= CROWD or (_holds_whole_replicas(layout) and _parted_at_once(crowd))
    if not is_crowd or are_of_one_host({rank for ranks in parting for rank in ranks}, hosts or {}):
        return every
    # The level of the whole run goes up and down with theirs.
    levels = [one for one in sure if one.pattern in _LEVELS]
    doubted = {(one.detector, one.key) for one in [*crowd, *levels] if one.certainty is Certainty.CONFIRMED}
    return [_doubted(one) if (one.detector, one.key) in doubted else one for one in every]


def are_of_one_host(ranks: Collection[int], hosts: Mapping[int, str | None]) -> bool:
    """Whether ``ranks`` share a host that so many ranks would rarely share by chance.

    >>> hosts = {rank: f"node-{rank // 8}" for rank in range(64)}
    >>> are_of_one_host({8, 9, 12}, hosts), are_of_one_host({8, 9, 16}, hosts)
    (True, False)
    >>> are_of_one_host({0, 1, 2}, {rank: f"node-{rank // 4}" for rank in range(8)})
    False
    """
    shared = {hosts.get(rank) for rank in ranks}
    if len(shared) != 1 or None in shared:
        return False
    sizes = Counter(host for host in hosts.values() if host is not None)
    together = sum(math.comb(size, len(ranks)) for size in sizes.values())
    return together < BY_CHANCE * math.comb(sizes.total(), len(ranks))


def _holds_whole_replicas(layout: Layout | None) -> bool:
    return layout is None or layout.size("dp") == len(layout.coordinates)


def _parted_at_once(crowd: Sequence[Evidence]) -> bool:
    """Whether two ranks, for all that is known, left their peers at the same iteration."""
    firsts = {one.ranks: one for one in sorted(crowd, key=position, reverse=True)}
    return any(are_concurrent(one, other) for one, other in combinations(firsts.values(), 2))


def _lasts(one: Evidence) -> bool:
    """Whether a shift has repeated itself, also where it is held against peers that wander."""
    return one.pattern is Pattern.PEER_DRIFT and (
        one.certainty is Certainty.CONFIRMED or WHY_NOT in one.detail
    )


def _doubted(one: Evidence) -> Evidence:
    return replace(one, certainty=Certainty.SUSPECTED, detail={**one.detail, WHY_NOT: _WHY})
