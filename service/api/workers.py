"""What the workers say of themselves, and what that means: fresh, behind, blind, dead.

Each worker writes its row of the table ``health`` every second. A worker that was replaced leaves its row
behind, so one that fell silent matters only for parts that it never let go of and nobody living holds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .settings import ApiConfig
from .values import timestamp

_WORKER = "worker:"
"""How components that are workers begin; host and process follow."""
_REMEMBERED_S = 7 * 86_400.0
"""A worker silent for longer was put away, and its parts with it."""
_MAX_NAMED = 5
"""Runs and parts named in one reason."""

Spoken = Mapping[str, tuple[float, Mapping[str, Any]]]
"""When each component last spoke, and what it said of itself."""
Part = tuple[str, str]
"""A source, and the name of one of its parts."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that is not as it should be: a stable code, and in words."""

    code: str
    detail: str
    makes_stale: bool = True
    """Whether newer telemetry may exist that no verdict knows."""


class Workers:
    """The workers of a store, as of ``now``."""

    def __init__(self, spoken: Spoken, owned: Collection[Part], config: ApiConfig, now: float) -> None:
        """``owned`` are the parts that some worker has claimed and not let go of."""
        self._owned = owned
        mine = {name: one for name, one in spoken.items() if name.startswith(_WORKER)}
        self._config = config
        self.ages_s = {name: max(0.0, now - at) for name, (at, _) in mine.items()}
        self._spoken_at = {name: at for name, (at, _) in mine.items()}
        silent_s = config.worker_silent_after_s
        self.living = {name: body for name, (_, body) in mine.items() if self.ages_s[name] <= silent_s}
        self._dead = {
            name: body for name, (_, body) in mine.items() if silent_s < self.ages_s[name] <= _REMEMBERED_S
        }

    @property
    def age_s(self) -> float | None:
        """Time since any worker last spoke; None if none ever did."""
        return min(self.ages_s.values(), default=None)

    def reasons(self) -> list[Reason]:
        """All that is amiss."""
        if not self.ages_s:
            return [Reason("no-worker", "no worker has run on this store yet: a start takes some seconds")]
        if not self.living:
            last = timestamp(max(self._spoken_at.values()))
            return [Reason("worker-dead", f"no worker has said anything since {last}")]
        return [*self._orphans(), *(one for name in self.living for one in self._of(name, self.living[name]))]

    def total(self, *path: str) -> float | None:
        """The sum of a number over the living workers; None if none of them has said it."""
        found = list(self._numbers(path))
        return math.fsum(found) if found else None

    def worst(self, *path: str) -> float | None:
        """The greatest of a number over the living workers; None if none of them has said it."""
        return max(self._numbers(path), default=None)

    def least(self, *path: str) -> float | None:
        """The least of a number over the living workers; None if none of them has said it."""
        return min(self._numbers(path), default=None)

    def _orphans(self) -> Iterator[Reason]:
        """Parts that only a worker held which has fallen silent."""
        held = {part for body in self.living.values() for part in _parts(body)}
        for name, body in self._dead.items():
            missing = sorted((_parts(body) & set(self._owned)) - held)
            if missing:
                since, parts = timestamp(self._spoken_at[name]), [part for _, part in missing]
                yield Reason(
                    "worker-dead", f"{name} is silent since {since}, and nobody holds {_named(parts)}"
                )

    def _of(self, name: str, body: Mapping[str, Any]) -> Iterator[Reason]:
        away_since = body.get("unavailable_since")
        if away_since is not None:
            why = f" ({body['reason']})" if body.get("reason") else ""
            yield Reason("source-away", f"the source of {name} is away since {timestamp(away_since)}{why}")
        waiting, bound = body.get("lag_messages"), self._config.behind_after_messages
        if isinstance(waiting, int | float) and waiting > bound:
            yield Reason("worker-behind", f"{round(waiting)} messages wait for {name}")
        if body.get("starved"):
            starved = _named([str(part) for part in body["starved"]])
            yield Reason("partition-starved", f"{name} gets nothing of {starved}, where messages wait")
        if body.get("split_runs"):
            runs = _named([repr(run) for run in body["split_runs"]])
            yield Reason("run-split", f"two workers get records of {runs}: key messages by run")
        if body.get("store_failure"):
            yield Reason("store-refuses", f"the store takes nothing from {name}: {body['store_failure']}")

    def _numbers(self, path: Sequence[str]) -> Iterator[float]:
        for body in self.living.values():
            value: Any = body
            for key in path:
                value = value.get(key) if isinstance(value, dict) else None
            if isinstance(value, int | float):
                yield float(value)


def _parts(body: Mapping[str, Any]) -> set[Part]:
    return {(str(body.get("source")), str(part)) for part in body.get("parts", ())}


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + more
