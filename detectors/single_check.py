"""What ranks printed of their parameters once, in a log that holds nothing else.

Nobody prints a fingerprint per rank but to compare them. One check teaches no groups, so what differs there
is suspected only: ranks may hold different parts. But a bias is split among ranks only where its weight is:
weights that are equal to the last digit beside biases that are not say that the ranks should be equal.
Axes: R ranks.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .equality_watch import EqualityWatch
from .evidence import Certainty, Direction, Evidence, Pattern, Sight
from .groups import NO_CLASS
from .vote_view import Checks

_WEIGHTS = ("weight", "weights")


def compare_once(
    watches: Mapping[str, EqualityWatch], detector: str, attempt: int
) -> tuple[list[str], list[Evidence]]:
    """The metrics that were equal on all ranks, and evidence of those that were not.

    Nothing where a group was learned or is known: then there was more than one check, or a layout.
    """
    groups = {metric: watch.groups for metric, watch in watches.items()}
    if any(group is None or group.is_decided for group in groups.values()):
        return [], []
    checks = {metric: group.first for metric, group in groups.items() if group and group.first}
    is_equal = {metric: _is_equal(check) for metric, check in checks.items()}
    equal = [metric for metric, same in sorted(is_equal.items()) if same]
    differing = [metric for metric, same in sorted(is_equal.items()) if not same]
    found = []
    for metric in differing:
        stem, _, kind = metric.rpartition(".")
        proved = kind == "bias" and any(f"{stem}.{weight}" in equal for weight in _WEIGHTS)
        certainty = Certainty.CONFIRMED if proved else Certainty.SUSPECTED
        found.append(_evidence(metric, checks[metric], certainty, detector, attempt))
    return equal, found


def _is_equal(check: Checks) -> bool:
    is_there_R = check.present_TR[0] & (check.class_R != NO_CLASS)
    high, low = check.high_TR[0, is_there_R], check.low_TR[0, is_there_R]
    return bool((high == high[0]).all() and (low == low[0]).all())


def _evidence(metric: str, check: Checks, certainty: Certainty, detector: str, attempt: int) -> Evidence:
    iteration, microbatch = int(check.iteration_T[0]), int(check.microbatch_T[0])
    every_R = np.ones(len(check.ranks_R), np.bool_)
    return Evidence(
        detector=detector,
        key=f"{metric}:once",
        pattern=Pattern.REPLICA_DIVERGENCE,
        certainty=certainty,
        metric=metric,
        attempt=attempt,
        iteration=iteration,
        first_bad=iteration,
        last_clean=None,
        alarm_iteration=iteration,
        microbatch=microbatch,
        ranks=tuple(check.ranks_R.tolist()),
        is_tie=True,
        statistic=float(len(check.ranks_R)),
        threshold=0.0,
        direction=Direction.DIFFERS,
        detail={"note": "printed once: which of the ranks is wrong cannot be told"},
        sights=(
            Sight(
                metric=metric,
                iteration=iteration,
                microbatch=microbatch,
                ranks_R=check.ranks_R,
                bad_R=every_R,
                clean_R=~every_R,
            ),
        ),
    )
