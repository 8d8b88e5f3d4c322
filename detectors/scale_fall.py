"""A loss scale that falls and falls: the gradients themselves no longer fit.

Every overflow skips its step and halves the scale. One or two halvings are the search for the right scale; a
scale that falls step after step to nothing says that gradients have grown by as much, or are not finite at
all: either way no update happens any more, while the loss that is printed is that of old parameters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from firstfault.telemetry import Event, EventKind

from .base import State
from .evidence import Certainty, Direction, Evidence, Pattern

FALLS = 5
"""Halvings in a row that are too many: in mid-run one is usual, after a spike of the loss two to four."""
LOW_SCALE = 4.0
"""Scale at or below which so many halvings end in nothing: what trains in half precision trains at 2**7 to
2**20."""
FIRST_SCALE = 4096.0
"""From here on the search for the first scale begins, which may take any number of halvings."""
SEARCH_ITERATIONS = 40
"""Iterations of a run in which a scale is searched for, whatever it begins with."""
LOST_SCALE = 2.0**-10
"""Scale that no search ends at: gradients of 2**26 would still fit. Two falls in a row there are enough."""
AGAIN_WITHIN = 2
"""Iterations between two falls in a row: counters of text logs stand still or skip one between them."""
AT_MINIMUM = "at_minimum"
"""Field of a ``loss_scale`` event of a scaler that gives up: the scale cannot fall any further."""


@dataclass(slots=True)
class ScaleFall:
    """Follows the scale through ``loss_scale`` events and skipped steps; tells once when it is lost."""

    scale: float = math.nan
    before: float = math.nan
    """The scale from which the falls in a row began."""
    falls: int = 0
    first: int = 0
    """Iteration of the first of them."""
    last: int = 0
    begin: int | None = None
    """The first iteration of the attempt."""
    found: dict[str, float] | None = None
    """Since when the scale is lost, and from where it fell."""
    told: int = 0
    """How many falls were told."""

    def begin_at(self, iteration: int) -> None:
        """The attempt begins here, if it has not yet."""
        self.begin = iteration if self.begin is None else min(self.begin, iteration)

    def note(self, events: Iterable[Event]) -> None:
        """Take the events of a block. Each rank prints the same fall: the first of equal ones counts."""
        falls = [event for event in events if event.kind is EventKind.LOSS_SCALE]
        for event in sorted(falls, key=lambda event: (event.iteration, -_number(event, "scale"))):
            scale, previous = _number(event, "scale"), _number(event, "previous")
            if not math.isnan(scale):
                self.move(event.iteration, 2.0 * scale if math.isnan(previous) else previous, scale)
            if event.fields.get(AT_MINIMUM) in (True, 1):
                self._give_up(event.iteration)

    def move(self, iteration: int, before: float, after: float) -> None:
        """The scale went from ``before`` to ``after``."""
        self.begin_at(iteration)
        if after >= before or (not math.isnan(self.scale) and after == self.scale and iteration == self.last):
            self.scale = after
            return
        if self.falls == 0 or iteration - self.last > AGAIN_WITHIN or before > self.scale:
            self.falls, self.first, self.before = 0, iteration, before
        self.falls += 1
        self.scale, self.last = after, iteration
        if self.found is None and self._is_lost():
            self._lose(self.first, self.before, iteration)
        elif self.found is not None and self.found["first"] == self.first:
            self.found |= {"falls": self.falls, "scale": after}

    def news(self, detector: str, attempt: int) -> list[Evidence]:
        """That the scale is lost, where it is news or has fallen on since last told."""
        if self.found is None or self.told >= self.found["falls"]:
            return []
        self.told = int(self.found["falls"])
        return [_evidence(self.found, detector, attempt)]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return asdict(self)

    @classmethod
    def restored(cls, state: State) -> ScaleFall:
        """The one that gave ``state``."""
        return cls(**state)

    def _is_lost(self) -> bool:
        if self.scale < LOST_SCALE and self.falls > 1:
            return True
        is_search = self.before >= FIRST_SCALE or self.first < SEARCH_ITERATIONS
        return self.falls >= FALLS and self.scale <= LOW_SCALE and not is_search

    def _give_up(self, iteration: int) -> None:
        if self.found is None:
            first, before = (self.first, self.before) if self.falls else (iteration, self.scale)
            self._lose(first, before, iteration)

    def _lose(self, first: int, before: float, at: int) -> None:
        # a scaler looks at every step: the one before passed
        clean = first - 1 if self.begin is not None and self.begin < first else -1
        self.found = {
            "first": first,
            "clean": clean,
            "at": at,
            "falls": max(self.falls, 1),
            "before": before,
            "scale": self.scale,
        }


def names_scaler(fields: Mapping[str, object]) -> bool:
    """Whether a ``run_start`` says that the loss is scaled dynamically.

    >>> names_scaler({"precision": "fp16"}), names_scaler({"precision": "bf16"})
    (True, False)
    """
    scaler = fields.get("scaler")
    if scaler is not None:
        return scaler not in (False, 0, "", "none", "static")
    return str(fields.get("precision", "")).lower() in ("fp16", "float16", "half", "16-mixed", "amp")


def _evidence(found: Mapping[str, float], detector: str, attempt: int) -> Evidence:
    first, clean, falls = int(found["first"]), int(found["clean"]), int(found["falls"])
    before, after = (None if math.isnan(found[name]) else float(found[name]) for name in ("before", "scale"))
    return Evidence(
        detector=detector,
        key="scale_fall",
        pattern=Pattern.RUNAWAY,
        certainty=Certainty.CONFIRMED,
        metric="loss_scale",
        attempt=attempt,
        iteration=first,
        first_bad=first,
        last_clean=None if clean < 0 else clean,
        alarm_iteration=int(found["at"]),
        statistic=0.0 if after is None else after,
        threshold=LOW_SCALE,
        direction=Direction.DOWN,
        # each halving that did not help is one more doubling of what overflows
        detail={"falls": falls, "scale_before": before, "scale_after": after, "growing_points": falls},
    )


def _number(event: Event, name: str) -> float:
    value = event.fields.get(name)
    return float(value) if isinstance(value, int | float) else math.nan
