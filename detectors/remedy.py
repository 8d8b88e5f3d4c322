"""What to go back to and what it costs: the last good iteration, its checkpoint, the work to redo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from firstfault.telemetry import Event, Phase

from .cause_graph import phase_of
from .drafts import Draft
from .evidence import Certainty
from .facts import AttemptFacts
from .incident import Basis, Cost, First, Incident, LastGood
from .precedence import Family, family


def last_good(
    draft: Draft, first: First, attempts: Sequence[AttemptFacts], before: Sequence[Incident]
) -> LastGood:
    """The last iteration before the first *possible* fault and the newest complete checkpoint up to it.

    ``attempts`` are those before this one and this one, in order, ``before`` the incidents of those
    before: what an attempt saved after a fault of its own is not good, nor what went on from it. A fault
    that was there from the first check of a resumed attempt leaves what the attempt before it saved.
    """
    trusted = _trusted(attempts, before)
    clean = first.interval[0]
    if clean is None:
        clean = _inherited(attempts, trusted)
        attempts = attempts[:-1]
    if clean is None:
        return LastGood()
    usable = [
        (event.iteration, facts.attempt, event)
        for facts in attempts
        for event in facts.checkpoints
        if event.fields.get("complete", True) in (True, 1)
        and event.iteration <= _least(clean, trusted[facts.attempt])
    ]
    newest = max(usable, key=lambda one: (one[0], one[1], _path(one[2]) or ""), default=None)
    return LastGood(
        iteration=clean,
        checkpoint=_path(newest[2]) if newest else None,
        checkpoint_iteration=newest[0] if newest else None,
        basis=Basis.PROVED if _is_proved(draft) else Basis.ASSUMED,
    )


def cost_of(first: First, good: LastGood, facts: AttemptFacts) -> Cost:
    """What the fault has cost up to the last judged iteration."""
    now = facts.judged_to if facts.judged_to is not None else first.iteration
    low, high = first.interval
    since = (max(now - high, 0), None if low is None else max(now - low, 0))
    if good.checkpoint_iteration is None:
        return Cost(iterations_since_onset=since)
    redo = max(now - good.checkpoint_iteration, 0)
    devices = facts.world_size or len(facts.layout.coordinates if facts.layout else facts.ranks)
    hours = None
    if facts.iteration_time_s is not None and facts.iteration_time_s > 0 and devices:
        hours = redo * facts.iteration_time_s * devices / 3600
    return Cost(iterations_since_onset=since, iterations_to_redo=redo, device_hours=hours)


def _trusted(attempts: Sequence[AttemptFacts], before: Sequence[Incident]) -> dict[int, int | None]:
    """Per attempt the last iteration whose state no confirmed fault can have reached; None for all.

    An attempt goes on from the one before it, so where that had gone wrong by then it starts out bad.
    """
    trusted: dict[int, int | None] = {}
    limit: int | None = None
    for facts in attempts:
        begin = facts.first_iteration
        if limit is not None and begin is not None and begin - 1 <= limit:
            limit = None  # it began before the fault
        for incident in before:
            if incident.certainty is Certainty.CONFIRMED and incident.first.attempt == facts.attempt:
                low = incident.first.interval[0]
                limit = _least(-1 if low is None else low, limit)
        trusted[facts.attempt] = limit
    return trusted


def _inherited(attempts: Sequence[AttemptFacts], trusted: Mapping[int, int | None]) -> int | None:
    """The iteration before the first of a resumed attempt, where the attempt before it got there well."""
    *earlier, facts = attempts
    if not earlier or facts.first_iteration is None or facts.first_iteration < 1:
        return None
    clean, parent = facts.first_iteration - 1, earlier[-1]
    limit, seen = trusted[parent.attempt], parent.judged_to
    if seen is None or (parent.first_iteration or 0) > clean:
        return None
    clean = min(clean, seen)
    return clean if clean == _least(clean, limit) else None


def _least(iteration: int, limit: int | None) -> int:
    return iteration if limit is None else min(iteration, limit)


def _path(event: Event) -> str | None:
    path = event.fields.get("path")
    return path if isinstance(path, str) and path else None


def _is_proved(draft: Draft) -> bool:
    """Whether checksums of the state agreed at the start of the interval."""
    return any(
        family(one) is Family.DIFFERENCE
        and phase_of(one.metric, declared=one.phase) is Phase.STATE
        and one.metric.partition("/")[0] in ("param_checksum", "optim_checksum")
        and one.last_clean is not None
        for one in draft.siblings()
    )
