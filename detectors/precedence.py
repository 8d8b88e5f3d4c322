"""Which evidence explains which: the one table that decides roots and chains.

Two pieces of evidence of one attempt are compared in order of their ``first_bad``. If their
intervals overlap they are *concurrent*, else *apart*, and `RULES` says what becomes of the later one.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from firstfault.telemetry import Phase

from .cause_graph import phase_of
from .evidence import JOINT, Evidence, Pattern


class Family(StrEnum):
    """Patterns that relate to others in the same way; the order settles equal positions."""

    NONFINITE = "nonfinite"
    DIFFERENCE = "difference"
    """Values that must agree do not: between ranks, or of one rank with itself."""
    EXPLOSION = "explosion"
    CURVE = "curve"
    """The level or shape of a whole curve."""
    STALL = "stall"


FAMILY_OF: Mapping[Pattern, Family] = {
    Pattern.IMMEDIATE_NONFINITE: Family.NONFINITE,
    Pattern.SHORT_NONFINITE: Family.NONFINITE,
    Pattern.RUNAWAY: Family.EXPLOSION,
    Pattern.SHARP_DEGRADE: Family.EXPLOSION,
    Pattern.REPLICA_DIVERGENCE: Family.DIFFERENCE,
    Pattern.COMPUTE_MISMATCH: Family.DIFFERENCE,
    Pattern.COLLECTIVE_MISMATCH: Family.DIFFERENCE,
    Pattern.PEER_DRIFT: Family.DIFFERENCE,
    Pattern.SLOW_DEGRADE: Family.CURVE,
    Pattern.SHARP_SLOW_DEGRADE: Family.CURVE,
    Pattern.PLATEAU: Family.CURVE,
    Pattern.STUCK: Family.CURVE,
    Pattern.LOW_TEST_ACCURACY: Family.CURVE,
    Pattern.HANG: Family.STALL,
    Pattern.UTILIZATION_DROP: Family.STALL,
}


class Outcome(StrEnum):
    """What becomes of later evidence beside an incident that earlier evidence belongs to."""

    FOLLOWS = "follows"
    """The earlier explains it: one incident, the later one in its chain."""
    LEADS = "leads"
    """One incident, but the later one is its root."""
    APART = "apart"
    """The earlier cannot explain it: another incident."""
    SAME_RANKS = "same_ranks"
    """Follows if both name a rank in common, else apart."""
    AFTERMATH = "aftermath"
    """Follows if the NaN stayed, ended just before, or names a rank in common; else apart."""
    GROWTH = "growth"
    """Follows if the growth had three points or more, else leads: that is a NaN, not an explosion."""


GROWING_POINTS = 3
"""Growing points that make what ends in NaN an explosion: two can be chance beside a fault."""

AFTERMATH_ITERATIONS = 50
"""Iterations after a NaN that healed within which an explosion or a drift is its work: what a bad step
did to the parameters shows at once, and the curve detectors need up to fifty points."""

_F, _L, _A = Outcome.FOLLOWS, Outcome.LEADS, Outcome.APART
_S, _M, _G = Outcome.SAME_RANKS, Outcome.AFTERMATH, Outcome.GROWTH

# (earlier, later): (concurrent, apart)
RULES: Mapping[tuple[Family, Family], tuple[Outcome, Outcome]] = {
    # A NaN that stays makes everything after it meaningless; one that heals explains its aftermath.
    (Family.NONFINITE, Family.NONFINITE): (_F, _M),
    (Family.NONFINITE, Family.DIFFERENCE): (_F, _M),
    (Family.NONFINITE, Family.EXPLOSION): (_F, _M),
    (Family.NONFINITE, Family.CURVE): (_F, _M),
    (Family.NONFINITE, Family.STALL): (_F, _M),
    # Replicas that differ corrupt the shared gradient, so any loud end may follow; another rank that
    # begins to differ later has a fault of its own.
    (Family.DIFFERENCE, Family.NONFINITE): (_F, _F),
    (Family.DIFFERENCE, Family.DIFFERENCE): (_F, _S),
    (Family.DIFFERENCE, Family.EXPLOSION): (_F, _F),
    (Family.DIFFERENCE, Family.CURVE): (_F, _F),
    (Family.DIFFERENCE, Family.STALL): (_F, _F),
    # Equal replicas explode equally: an explosion makes no rank differ from its peers.
    (Family.EXPLOSION, Family.NONFINITE): (_G, _G),
    (Family.EXPLOSION, Family.DIFFERENCE): (_S, _A),
    (Family.EXPLOSION, Family.EXPLOSION): (_F, _F),
    (Family.EXPLOSION, Family.CURVE): (_F, _F),
    (Family.EXPLOSION, Family.STALL): (_F, _F),
    # The onset on one noisy curve is vague: sharper evidence inside its interval is the better root.
    (Family.CURVE, Family.NONFINITE): (_L, _F),
    (Family.CURVE, Family.DIFFERENCE): (_L, _A),
    (Family.CURVE, Family.EXPLOSION): (_L, _F),
    (Family.CURVE, Family.CURVE): (_F, _F),
    (Family.CURVE, Family.STALL): (_F, _F),
    # Whoever is quiet says nothing about values.
    (Family.STALL, Family.NONFINITE): (_L, _A),
    (Family.STALL, Family.DIFFERENCE): (_L, _A),
    (Family.STALL, Family.EXPLOSION): (_L, _A),
    (Family.STALL, Family.CURVE): (_A, _A),
    (Family.STALL, Family.STALL): (_F, _S),
}


def family(evidence: Evidence) -> Family:
    """The family of ``evidence``."""
    return FAMILY_OF[evidence.pattern]


def position(evidence: Evidence) -> tuple[int, int, int, int, bool, str, str, str]:
    """The order in which evidence of one attempt is fused: total, so that arrival has no say."""
    kinds = list(Family)
    phase = phase_of(evidence.metric, declared=evidence.phase)
    order = kinds.index(family(evidence))
    return (
        evidence.first_bad, evidence.microbatch, int(phase), order, _is_derived(evidence),
        evidence.detector, evidence.metric, evidence.key,
    )  # fmt: skip


def are_concurrent(one: Evidence, other: Evidence) -> bool:
    """Whether the intervals in which the two faults began overlap."""
    low = max(-1 if end.last_clean is None else end.last_clean for end in (one, other))
    return low < min(_latest_onset(one), _latest_onset(other))


def outcome(earlier: Evidence, later: Evidence) -> Outcome:
    """What becomes of ``later``: follows, leads or apart."""
    together = are_concurrent(earlier, later)
    if together and (_is_consequence(earlier, of=later) or _is_vaguer(earlier, later)):
        return Outcome.LEADS
    if _is_growth_of(earlier, later):
        return Outcome.LEADS
    if later.pattern is Pattern.PEER_DRIFT and family(earlier) is Family.EXPLOSION:
        return Outcome.FOLLOWS  # what explodes scatters from rank to rank too
    ruled = RULES[family(earlier), family(later)][0 if together else 1]
    match ruled:
        case Outcome.SAME_RANKS:
            return Outcome.FOLLOWS if _share_rank(earlier, later) else Outcome.APART
        case Outcome.AFTERMATH:
            return Outcome.FOLLOWS if _is_aftermath(earlier, later) else Outcome.APART
        case Outcome.GROWTH:
            return Outcome.FOLLOWS if _growing_points(earlier, later) >= GROWING_POINTS else Outcome.LEADS
        case _:
            return ruled


def _is_derived(evidence: Evidence) -> bool:
    """Whether the value is computed from the reduced gradient, which a sketch is taken of at once."""
    return not evidence.metric.startswith("grad_sketch_")


def _latest_onset(evidence: Evidence) -> int:
    # A level test back-dates its alarm to a change point that noise moves: until the alarm nothing
    # but the test itself says that the curve had changed.
    if family(evidence) is Family.CURVE:
        return max(evidence.first_bad, evidence.alarm_iteration)
    return evidence.first_bad


def _is_consequence(canary: Evidence, *, of: Evidence) -> bool:
    """Whether a canary was computed with parameters that already differed on the same rank.

    So they do where a rank got another result of the reduction, if the canary runs behind the update.
    """
    return (
        canary.metric.startswith("canary_")
        and family(of) is Family.DIFFERENCE
        and of.pattern is not Pattern.PEER_DRIFT
        and phase_of(of.metric, declared=of.phase) >= Phase.REDUCE_OUT
        and _share_rank(canary, of)
    )


def _is_vaguer(drift: Evidence, other: Evidence) -> bool:
    """Whether a shift among peers, whose onset is an estimate, stands beside values that must be equal.

    So does what shows in all metrics together beside what shows in one.
    """
    if drift.pattern is not Pattern.PEER_DRIFT or family(other) is not Family.DIFFERENCE:
        return False
    is_sharper = other.pattern is not Pattern.PEER_DRIFT or drift.metric == JOINT != other.metric
    return is_sharper and _share_rank(drift, other)


def _is_growth_of(growth: Evidence, other: Evidence) -> bool:
    """Whether growth that took its time was seen only after values that must be equal had differed.

    Its begin is an estimate, which noise moves; equal replicas explode equally.
    """
    return (
        growth.pattern is Pattern.RUNAWAY
        and family(other) is Family.DIFFERENCE
        and other.pattern is not Pattern.PEER_DRIFT
        and other.first_bad <= growth.alarm_iteration
    )


def _share_rank(one: Evidence, other: Evidence) -> bool:
    return not set(one.ranks).isdisjoint(other.ranks)


def _is_aftermath(nonfinite: Evidence, later: Evidence) -> bool:
    if nonfinite.pattern is not Pattern.SHORT_NONFINITE:
        return True
    last_bad = nonfinite.detail.get("last_bad")
    end = last_bad if isinstance(last_bad, int) else nonfinite.first_bad
    return later.first_bad - end <= AFTERMATH_ITERATIONS or _share_rank(nonfinite, later)


def _growing_points(explosion: Evidence, nonfinite: Evidence) -> int:
    """Points that grew before the NaN: as the detector counted them, else the iterations between."""
    if explosion.metric == "loss_scale" and nonfinite.first_bad <= explosion.alarm_iteration:
        return 0  # what overflowed at every scale was NaN all the while
    counted = explosion.detail.get("growing_points")
    between = nonfinite.first_bad - explosion.iteration
    return counted if isinstance(counted, int) else between
