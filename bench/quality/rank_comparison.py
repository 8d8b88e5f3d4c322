"""Ours and the published rule on the per-rank telemetry of the rig: is the rank found, and at what price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .case import Origin, Tier
from .comparison import EARLY_POINTS, OURS
from .naive import MERGE_POINTS, merged
from .rank_rule import RANK_RULE
from .row import Row
from .scores import Figure, false_rate, share_of


@dataclass(frozen=True, slots=True, kw_only=True)
class RankContender:
    """One method on the faults of single ranks."""

    name: str
    found: Figure
    harmless: Figure
    alarmed: Figure
    rate: Figure


def compare_ranks(rows: Sequence[Row]) -> list[RankContender]:
    """Ours and the rule, on the same rows."""
    here = [row for row in rows if row.tier is Tier.RANKS and row.spec.origin is Origin.RIG]
    return [
        _contender(OURS, here, _ours_found, lambda row: row.false_alarms),
        _contender(RANK_RULE, here, _rule_found, _rule_false),
    ]


def _contender(
    name: str, rows: Sequence[Row], is_found: Callable[[Row], bool], count: Callable[[Row], int]
) -> RankContender:
    struck = [row for row in rows if row.truth.ranks and row.truth.is_observable]
    healthy = [row for row in rows if row.truth.injected_at is None]
    return RankContender(
        name=name,
        found=share_of([row for row in struck if row.truth.mattered], is_found),
        harmless=share_of([row for row in struck if not row.truth.mattered], is_found),
        alarmed=share_of(healthy, lambda row: count(row) > 0),
        rate=false_rate(sum(count(row) for row in rows), rows),
    )


def _ours_found(row: Row) -> bool:
    """A confirmed incident names the rank, or a tie set with it, at the onset or later."""
    onset = row.truth.onset or 0
    named = [one for one in row.judgement.confirmed if set(row.truth.ranks) <= set(one.ranks)]
    return any(one.confirmed_at >= onset for one in named)


def _rule_found(row: Row) -> bool:
    first = (row.truth.onset or 0) - EARLY_POINTS * row.log_interval
    alarms = row.others.get(RANK_RULE) or ()
    return any(one.rank in row.truth.ranks and (one.iteration or 0) >= first for one in alarms)


def _rule_false(row: Row) -> int:
    """Alarms before anything was wrong."""
    start = row.truth.injected_at
    alarms = row.others.get(RANK_RULE) or ()
    early = [one for one in alarms if start is None or (one.iteration or 0) < start]
    return len(merged(early, MERGE_POINTS * row.log_interval))
