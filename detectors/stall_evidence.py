"""What a stall looks like as evidence.

Axes: R ranks that stand still, or fell silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np

from firstfault.telemetry import Phase
from ingest.blocks import Ranks

from .evidence import Certainty, Direction, Evidence, Finding, Json, Pattern, Sight
from .report_table import Gap
from .silence import Silence
from .standstill import Standstill

HEARTBEAT = "heartbeat"
RECORDS = "records"
"""What the evidence is about: no metric, but that anything was reported at all."""


def falls_silent(detector: str, attempt: int, silence: Silence, now: int) -> Evidence:
    """Ranks that stopped reporting while the others went on to iteration ``now``."""
    due = min(silence.first_missing, now)
    detail: dict[str, Json] = {"last_report": silence.last_iteration, "others_at": now}
    return Evidence(
        detector=detector,
        key=f"silent/{silence.last_iteration}",
        pattern=Pattern.HANG,
        certainty=silence.certainty,
        metric=RECORDS,
        attempt=attempt,
        iteration=due,
        first_bad=due,
        last_clean=silence.last_iteration,
        # One iteration a turn at least: the same however far the others have come by now.
        alarm_iteration=max(due, silence.last_iteration + silence.allowed + 1),
        ranks=silence.ranks,
        statistic=float(silence.turns),
        threshold=float(silence.allowed),
        direction=Direction.UP,
        detail=detail,
    )


def back_again(detector: str, attempt: int, gaps: Sequence[Gap]) -> list[Finding]:
    """Ranks that reported again after a silence, those with the same gap together."""

    def span(gap: Gap) -> tuple[int, int]:
        return gap.next_iteration, gap.last_iteration

    return [
        Evidence(
            detector=detector,
            key=f"back/{last}/{again}",
            pattern=Pattern.HANG,
            certainty=Certainty.RECOVERED,
            metric=RECORDS,
            attempt=attempt,
            iteration=last + 1,
            first_bad=last + 1,
            last_clean=last,
            alarm_iteration=again,
            ranks=tuple(sorted(gap.rank for gap in same)),
            statistic=float(same[0].turns),
            threshold=float(same[0].allowed),
            direction=Direction.UP,
            detail={"last_report": last, "reports_again": again},
        )
        for (again, last), group in groupby(sorted(gaps, key=span), key=span)
        for same in [list(group)]
    ]


def stands_still(
    detector: str,
    attempt: int,
    stands: Standstill,
    certainty: Certainty,
    bound_s: float,
    *,
    is_everyone: bool,
) -> Evidence:
    """Ranks that wait for others, or all of them for each other."""
    waits = "unknown" if stands.phase is None else stands.phase.label
    detail: dict[str, Json] = {"others_wait_in": waits, "waiting_ranks": len(stands.waiting_R)}
    if len(stands.suspects_R):
        ranks = stands.suspects_R
        detail["heartbeats_ended"] = stands.is_dead
    else:
        ranks = stands.waiting_R if is_everyone else stands.waiting_R[:0]
    phase = stands.phase if stands.suspect_phase is None else stands.suspect_phase
    return Evidence(
        detector=detector,
        key="standstill",
        pattern=Pattern.HANG,
        certainty=certainty,
        metric=HEARTBEAT,
        attempt=attempt,
        iteration=stands.iteration,
        first_bad=stands.iteration,
        last_clean=stands.iteration - 1 if stands.iteration else None,
        alarm_iteration=stands.iteration,
        ranks=tuple(ranks.tolist()),
        # In whole minutes: while nothing moves, a heartbeat more is no other verdict.
        statistic=60.0 * (stands.stood_s // 60.0),
        threshold=bound_s,
        direction=Direction.UP,
        phase=Phase.STATE if phase is None else phase,
        detail=detail,
        sights=(_sight(stands),),
    )


def went_on(detector: str, attempt: int, pause: Sequence[float]) -> Evidence:
    """A pause of the whole run that ended by itself: iterations before and after, seconds, bound."""
    before, after, seconds, bound_s = pause
    return Evidence(
        detector=detector,
        key=f"pause/{int(after)}",
        pattern=Pattern.HANG,
        certainty=Certainty.RECOVERED,
        metric=HEARTBEAT,
        attempt=attempt,
        iteration=int(after),
        first_bad=int(after),
        last_clean=int(before) if before < after else None,
        alarm_iteration=int(after),
        statistic=60.0 * (seconds // 60.0),
        threshold=bound_s,
        direction=Direction.UP,
        detail={"went_on_at": int(after)},
    )


def _sight(stands: Standstill) -> Sight:
    """Who stands still: suspects and those that wait for them."""
    ranks_R: Ranks = np.union1d(stands.suspects_R, stands.waiting_R).astype(np.int32)
    return Sight(
        metric=HEARTBEAT,
        iteration=stands.iteration,
        ranks_R=ranks_R,
        bad_R=np.ones(len(ranks_R), np.bool_),
        clean_R=np.zeros(len(ranks_R), np.bool_),
        phase=stands.phase,
    )
