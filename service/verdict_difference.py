"""Two verdicts of the same records under different settings: which incidents appear, vanish or move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from .revisions import differences

# Any: JSON objects, whose shape detectors/verdict.schema.json fixes.
Json = Mapping[str, Any]

_PLACE = ("first.attempt", "first.iteration", "first.interval", "first.ranks", "first.metric", "first.phase")
_SORT = ("label", "pattern", "certainty", "severity", "detected_at_iteration")


class Kind(StrEnum):
    """What became of an incident."""

    APPEARS = "appears"
    VANISHES = "vanishes"
    MOVES = "moves"
    """Another rank, iteration, metric or phase is the first."""
    CHANGES = "changes"
    """The same place, seen as something else, with another certainty, or at another time."""
    STAYS = "stays"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One incident before and after; None on the side on which there is none."""

    kind: Kind
    before: Json | None
    after: Json | None
    changed: tuple[tuple[str, Any, Any], ...] = ()
    """Fields with what they were and are."""


def difference(before: Json, after: Json) -> list[Difference]:
    """What becomes of each incident, by position: first where it was, else where it is."""
    pairs = list(_pairs(before["incidents"], after["incidents"]))
    found = [_told(was, now) for was, now in pairs]
    return sorted(found, key=lambda one: _position(one.before or one.after or {}))


def essence(verdict: Json) -> list[tuple[Any, ...]]:
    """What makes two verdicts the same for a reader: of each incident what it is, who and since when."""
    return [
        (*(one[name] for name in ("label", "pattern", "certainty")), *_position(one), one["first"]["ranks"])
        for one in verdict["incidents"]
    ]


def _told(was: Json | None, now: Json | None) -> Difference:
    if was is None or now is None:
        kind = Kind.APPEARS if was is None else Kind.VANISHES
        return Difference(kind=kind, before=was, after=now)
    changed = tuple(one for one in differences(was, now) if one[0] in (*_PLACE, *_SORT))
    names = {name for name, _, _ in changed}
    kind = Kind.MOVES if names & set(_PLACE) else Kind.CHANGES if names else Kind.STAYS
    return Difference(kind=kind, before=was, after=now, changed=changed)


def _pairs(before: Sequence[Json], after: Sequence[Json]) -> Iterator[tuple[Json | None, Json | None]]:
    """Incidents that are the same one, the surest first; what is left on either side stands alone.

    Ids tell nothing: they count incidents, and one that appears before others shifts all of them.
    """
    distances = sorted(
        (distance, at, to)
        for at, was in enumerate(before)
        for to, now in enumerate(after)
        if (distance := _distance(was, now)) is not None
    )
    left, right = set(range(len(before))), set(range(len(after)))
    for _, at, to in distances:
        if at in left and to in right:
            left.discard(at)
            right.discard(to)
            yield before[at], after[to]
    yield from ((before[at], None) for at in sorted(left))
    yield from ((None, after[to]) for to in sorted(right))


def _distance(was: Json, now: Json) -> tuple[int, int] | None:
    """How far two incidents are from being the same; None where they have nothing in common."""
    one, other = was["first"], now["first"]
    if one["attempt"] != other["attempt"]:
        return None
    apart = abs(one["iteration"] - other["iteration"])
    is_same_sort = was["pattern"] == now["pattern"]
    if is_same_sort and one["metric"] == other["metric"]:
        return 0, apart
    if is_same_sort or was["label"] == now["label"]:
        return 1, apart
    return (2, apart) if _overlap(one["interval"], other["interval"]) else None


def _overlap(one: Sequence[int | None], other: Sequence[int | None]) -> bool:
    """Whether two intervals ``(low, high]`` share an iteration; an open low end reaches to the beginning."""
    lows = [-1 if low is None else low for low, _ in (one, other)]
    highs = [high for _, high in (one, other) if high is not None]
    return max(lows) < min(highs, default=0)


def _position(one: Json) -> tuple[int, int, str]:
    first = one["first"]
    return int(first["attempt"]), int(first["iteration"]), str(first["metric"] or "")
