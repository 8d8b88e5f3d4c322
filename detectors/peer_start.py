"""A rank that is off from the first iterations on: its level is an outlier among the levels of its peers.

The fold learns what every rank differs by, so a fault that was there before would become its baseline. How
far healthy levels lie apart is asked of the other ranks: with data of one kind by the noise alone, with data
of several kinds by more. Few ranks say little about that, and the test then asks for more: of four ranks one
must be off by sixty times what the others differ, of three by more than anything.

Source: the externally studentized residual of one value among n (Cook and Weisberg, Residuals and Influence
in Regression (1982), section 2.2.1), which is Student's with n - 2 degrees of freedom, at n tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from firstfault.telemetry import MetricContract

from . import peer_levels as at
from .evidence import Certainty, Direction, Evidence, Pattern
from .peer_metric import PeerMetric, Report
from .peer_tails import student

FEWEST = 4
"""Ranks from which on the level of one is an outlier at all."""
MANY = 200
"""Degrees of freedom from which on Student's distribution is taken for that one."""


@dataclass(frozen=True, slots=True)
class OddLevel:
    """The rank of a group whose level stands out."""

    rank: int
    size: float
    """Difference from the mean of the others, in the logarithm."""
    statistic: float
    threshold: float
    peers: int


def odd_level(metric: PeerMetric, rank: int, *, wrong: float, least: float) -> OddLevel | None:
    """The odd one of the group of ``rank``, where there is one; false with probability ``wrong``."""
    member_N = np.array([one for one in metric.members(rank).tolist() if _is_known(metric, one)])
    count = len(member_N)
    if count < FEWEST:
        return None
    level_N = np.array([float(metric.stream(one)[at.OFFSET]) for one in member_N.tolist()])
    others_N = (level_N.sum() - level_N) / (count - 1)
    spread_N = np.array([float(np.delete(level_N, n).std(ddof=1)) for n in range(count)])
    size_N = level_N - others_N
    score_N = np.abs(size_N) / np.maximum(spread_N * math.sqrt(count / (count - 1)), 1e-12)
    odd = int(score_N.argmax())
    gate = gate_of_level(count, wrong)
    if score_N[odd] <= gate or abs(size_N[odd]) < least:
        return None
    return OddLevel(int(member_N[odd]), float(size_N[odd]), float(score_N[odd]), gate, count - 1)


@lru_cache(maxsize=1024)
def gate_of_level(count: int, wrong: float) -> float:
    """The studentized residual that the greatest of ``count`` healthy ones passes with probability ``wrong``.

    >>> [round(gate_of_level(count, 0.001), 1) for count in (4, 8, 64)]
    [63.2, 8.7, 4.7]
    """
    size_N, beyond_N = student(float(min(count - 2, MANY)))
    return float(np.interp(-math.log(wrong / count), -np.log(np.maximum(beyond_N, 1e-300)), size_N))


def level_evidence(
    odd: OddLevel, report: Report, metric: PeerMetric, contract: MetricContract, *, attempt: int, key: str
) -> Evidence:
    """The evidence for ``odd``; never more than a suspicion, for its data may be of another kind."""
    group = metric.group(odd.rank)
    iteration = int(metric.first_iteration)
    return Evidence(
        detector="peer_outlier",
        key=key,
        pattern=Pattern.PEER_DRIFT,
        certainty=Certainty.SUSPECTED,
        metric=contract.name,
        attempt=attempt,
        iteration=iteration,
        first_bad=iteration,
        last_clean=None,
        alarm_iteration=report.iteration,
        ranks=(odd.rank,),
        statistic=odd.statistic,
        threshold=odd.threshold,
        direction=Direction.UP if odd.size > 0 else Direction.DOWN,
        phase=contract.declared_phase,
        detail={
            "kind": "level",
            "relative_shift": math.expm1(odd.size),
            "sigma": math.sqrt(float(group[at.VARIANCE])),
            "peers": odd.peers,
            "why_suspected": "it was so from the beginning: its data may be of another kind",
        },
    )


def _is_known(metric: PeerMetric, rank: int) -> bool:
    return bool(metric.stream(rank)[at.COUNT] >= at.SPAN_POINTS)
