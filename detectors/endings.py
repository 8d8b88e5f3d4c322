"""Processes that died: what an exception that nobody caught said last, and whose doing it was.

One rank that dies takes the others with it: their collectives lose a peer, and a launcher ends what is left.
So an exception about a lost peer, or a signal, is a consequence wherever another exception was told, or a
rank is missing that said nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass

from firstfault.telemetry import Event, EventKind, Phase

from .evidence import Certainty, Direction, Evidence, Json, Pattern

LAST_WORDS = "last_words"
"""What the evidence is about: no metric, but what a process said as it died."""
MAX_ENDINGS = 64
"""Endings kept of an attempt, those that came first: of thousands of ranks the rest follow."""
_ON_PURPOSE = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})
"""Exceptions by which a person, or the program itself, ends a run."""
_OF_OTHERS = re.compile(
    r"^Dist\w*Error$|ChildFailed|SignalException|RendezvousError|ConnectionResetError|BrokenPipeError"
    r"|connection (closed|reset|refused)|broken pipe|\bpeer\b|\bnccl\b|\bgloo\b|\brccl\b|process ?group"
    r"|tcpstore|remote process|rendezvous|\bbarrier\b",
    re.IGNORECASE,
)
"""Types and texts of exceptions that a process gets because another one is gone, or does not come."""


@dataclass(frozen=True, slots=True, order=True)
class Ending:
    """How one process ended; the order is that of what counts first."""

    is_of_others: bool
    iteration: int
    phase: int
    rank: int
    code: str
    text: str


class Endings:
    """The first processes of an attempt that died of an exception."""

    def __init__(self) -> None:
        self._kept: list[Ending] = []

    def take(self, event: Event) -> None:
        """Look at an event; the same in any order, and twice as once."""
        if (ending := _ending_of(event)) is not None and ending not in self._kept:
            self._kept = sorted([*self._kept, ending])[:MAX_ENDINGS]

    def evidence(
        self,
        detector: str,
        attempt: int,
        reported: Mapping[int, int],
        *,
        rebased: int,
        heard: Collection[int],
    ) -> list[Evidence]:
        """The death of a run, or none.

        ``reported`` has the last iteration that each rank reported: whoever went on did not die. Who died
        before ``rebased`` left the job. ``heard`` are the ranks that reported or sent heartbeats.
        """
        held = [
            one
            for one in self._kept
            if reported.get(one.rank, -1) <= one.iteration and one.iteration >= rebased
        ]
        if not held:
            return []
        first = held[0]
        kind = (first.is_of_others, first.iteration)
        ranks = {one.rank for one in held if (one.is_of_others, one.iteration) == kind}
        detail: dict[str, Json] = {"exception": first.code, "text": first.text}
        if first.is_of_others:
            missing = set(heard) - {one.rank for one in held}
            is_known = 0 < len(missing) < len(ranks) and len(self._kept) < MAX_ENDINGS
            ranks = missing if is_known else set()
            detail["is_of_others"] = True
        return [_evidence(detector, attempt, first, tuple(sorted(ranks)), detail)]

    def snapshot(self) -> Sequence[Sequence[object]]:
        """All of it as plain data."""
        return [list(astuple(one)) for one in self._kept]

    def restore(self, state: Sequence[Sequence[object]]) -> None:
        """Go on from what `snapshot` gave."""
        self._kept = [
            Ending(bool(others), int(str(at)), int(str(phase)), int(str(rank)), str(code), str(text))
            for others, at, phase, rank, code, text in state
        ]


def _ending_of(event: Event) -> Ending | None:
    """What an event says of the end of a process by an exception; None where it says nothing of one."""
    fields = event.fields
    code = str(fields.get("code") or "")[:80]
    is_death = event.kind is EventKind.HARDWARE and fields.get("kind") == "exception" and fields.get("ended")
    if not is_death or event.rank < 0 or not code or code in _ON_PURPOSE:
        return None
    phase = Phase.__members__.get(str(fields.get("phase")).upper(), Phase.STATE)
    text = str(fields.get("text") or "").partition(": ")[2][:160]
    is_of_others = bool(_OF_OTHERS.search(code) or _OF_OTHERS.search(text))
    return Ending(is_of_others, event.iteration, int(phase), event.rank, code, text)


def _evidence(
    detector: str, attempt: int, first: Ending, ranks: tuple[int, ...], detail: dict[str, Json]
) -> Evidence:
    return Evidence(
        detector=detector,
        key="ending",
        pattern=Pattern.HANG,
        certainty=Certainty.CONFIRMED,
        metric=LAST_WORDS,
        attempt=attempt,
        iteration=first.iteration,
        first_bad=first.iteration,
        last_clean=first.iteration - 1 if first.iteration else None,
        alarm_iteration=first.iteration,
        ranks=ranks,
        statistic=1.0,
        threshold=0.0,
        direction=Direction.UP,
        phase=Phase(first.phase),
        detail=detail,
    )
