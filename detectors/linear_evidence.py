"""What a wrong reduction looks like as evidence. Axes: N members of the group, ascending."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firstfault.telemetry import UNNAMED_RANK

from .evidence import Certainty, Direction, Evidence, Json, Pattern, Sight
from .linear_stream import Episode, Fault, LinearStream

FAULT = "reduction"
"""Key of the detail that tells which of `Fault` it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Whose evidence it is: the detector, the attempt, the bucket, and a name for the group of ranks."""

    detector: str
    attempt: int
    metric: str
    group: str


def evidence_of(place: Place, stream: LinearStream, episode: Episode) -> Evidence:
    """The evidence of one episode as it stands."""
    ranks = [int(stream.ranks_N[at]) for at in episode.columns if stream.ranks_N[at] != UNNAMED_RANK]
    return Evidence(
        detector=place.detector,
        key=f"{place.metric}:{place.group}:{episode.ordinal}",
        pattern=Pattern.COLLECTIVE_MISMATCH,
        certainty=Certainty.CONFIRMED if episode.is_confirmed else Certainty.SUSPECTED,
        metric=place.metric,
        attempt=place.attempt,
        iteration=episode.iteration,
        first_bad=episode.iteration,
        last_clean=episode.last_clean,
        alarm_iteration=episode.iteration,
        microbatch=episode.microbatch,
        ranks=tuple(ranks),
        later_ranks=tuple((at, int(stream.ranks_N[column])) for at, column in episode.later),
        is_tie=episode.fault == Fault.SUM_DIFFERS,
        statistic=episode.statistic,
        threshold=episode.threshold,
        direction=Direction.DIFFERS,
        supporting=episode.is_clipping,
        detail=_detail(stream, episode),
        sights=(_sight(place.metric, stream, episode),),
    )


def _detail(stream: LinearStream, episode: Episode) -> dict[str, Json]:
    detail: dict[str, Json] = {
        FAULT: episode.fault,
        "collective": episode.collective,
        "factor": episode.factor,
        "members": len(stream.ranks_N),
        "expected": episode.expected,
        "got": episode.got,
    }
    if episode.is_clipping:
        detail["note"] = "the second sketch is taken behind the clipping: no fault"
    elif episode.may_be_clipping:
        detail["note"] = "clipping between the two sketches would look the same"
    if episode.is_over:
        detail |= {"wrong_checks": episode.wrong_checks, "last_bad": episode.last_bad}
    return detail


def _sight(metric: str, stream: LinearStream, episode: Episode) -> Sight:
    """Who got a wrong result and who a right one; of a missing contribution all others are clean."""
    bad_N = np.zeros(len(stream.ranks_N), np.bool_)
    bad_N[episode.columns] = True
    return Sight(
        metric=metric,
        iteration=episode.iteration,
        microbatch=episode.microbatch,
        ranks_R=stream.ranks_N.copy(),
        bad_R=bad_N,
        clean_R=~bad_N,
    )
