"""Who made a job stall: the ranks that others wait for, or that fell silent, and why they are named."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from firstfault.mesh import Layout
from firstfault.telemetry import Phase

from .endings import LAST_WORDS
from .evidence import Evidence, Pattern
from .incident import MAX_LISTED_RANKS
from .origin import Origin
from .stall_evidence import HEARTBEAT


def trace_stall(evidence: Evidence, *, ranks: Collection[int], layout: Layout | None) -> Origin:
    """The origin of a stall: evidence names its ranks itself; all ranks at once are nobody's doing."""
    known = set(ranks) | set(evidence.ranks) | set(layout.coordinates if layout else ())
    chosen = tuple(sorted(evidence.ranks))
    is_all = len(chosen) == len(known) > 1
    origin = Origin(
        iteration=evidence.iteration,
        microbatch=evidence.microbatch,
        phase=Phase.STATE if evidence.phase is None else evidence.phase,
        metric=evidence.metric,
        ranks=chosen,
        universe=len(known),
        is_all=is_all,
        is_common=len(chosen) > 1,
        are_peers_clean=0 < len(chosen) < len(known),
        bad_ranks=chosen,
    )
    reason = _reason(evidence)
    why = dict.fromkeys(origin.listed[:MAX_LISTED_RANKS], reason)
    return replace(origin, why=why, note=_note(evidence, is_all=is_all))


def _reason(evidence: Evidence) -> str:
    if evidence.pattern is Pattern.UTILIZATION_DROP:
        shift = evidence.detail.get("relative_shift")
        times = 1.0 + shift if isinstance(shift, float) else evidence.statistic
        return f"beside those of its peers its steps take {times:.2f} times as long as before"
    if evidence.metric == LAST_WORDS:
        if evidence.detail.get("is_of_others"):
            return f"it said nothing, and the others were ended by {evidence.detail['exception']}"
        return f"an exception ended it: {evidence.detail['exception']}: {evidence.detail['text']}"
    if evidence.metric != HEARTBEAT:
        return f"no report since iteration {evidence.last_clean}, while others went on"
    where = "" if evidence.phase is None else f", last seen in {evidence.phase.label}"
    ended = "; its heartbeats ended too" if evidence.detail.get("heartbeats_ended") else ""
    return f"not at the position where the others wait ({_place(evidence)}){where}{ended}"


def _note(evidence: Evidence, *, is_all: bool) -> str:
    if evidence.metric != HEARTBEAT or "others_wait_in" not in evidence.detail:
        return ""
    if is_all:
        return f"all ranks wait at one position ({_place(evidence)}): none is behind the others"
    if not evidence.ranks:
        return f"heartbeats stand still at one position ({_place(evidence)}) and name no rank behind"
    return ""


def _place(evidence: Evidence) -> str:
    phase = evidence.detail.get("others_wait_in")
    at = f"iteration {evidence.iteration}"
    return at if phase == "unknown" else f"{at}, {phase}"
