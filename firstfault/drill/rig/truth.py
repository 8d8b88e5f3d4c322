"""What a verdict on a faulty run ought to say, by tier of telemetry: label, onset, ranks, cause.

From the golden twin (the same seed without the fault), and only from what a detector can see without it:
relations among ranks, the shape of the curves, non-finite values. The first observable effect decides the
label: non-finite out of a clean curve is `nan`, growth is `gradient_explosion` also where it ends in NaN,
anything subtle before a loud event is `silent_drift`, and what does not show is `healthy`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .accepted import accepted_causes, phase_of_fault
from .catalogue import stage
from .curves import GROWING_POINTS, CurveEvent, Shape, curve_events
from .effects import departure, first_effects, scaled
from .nonfinite_truth import nonfinite_event
from .oracle import suspects
from .outcomes import Damage, damage_of
from .recording import Recording, align
from .relations import Broken, broken_relations
from .spec import Fault, Site
from .tiers import Tier, cut, has

HEALTHY, NAN, EXPLOSION, DRIFT = "healthy", "nan", "gradient_explosion", "silent_drift"
SAME_ONSET_POINTS = 5
"""A rank that parts from its peers so few points before the whole curve grows is that growth, seen earlier:
in the mean over all ranks it is diluted."""
COMMON_ONSET_POINTS = 25
"""The same of a fault that struck all ranks alike (a learning rate): whichever of them shows it first, it is
no fault of that rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierTruth:
    """What telemetry of one tier can show of the fault."""

    label: str
    is_observable: bool
    """Whether anything of the tier leaves the twin as a detector may see it. Of a healthy label: a spike that
    passes, a loss that falls, another level of a norm, which nothing tells from what healthy runs do. A loss
    that only falls more slowly is a drift, and not observable: learning itself may take that course."""
    onset: int | None
    """First iteration at which what decides the label shows; None of a healthy label."""
    last_clean: int | None = None
    """Last iteration before it at which the same was seen clean; None where there was none."""
    ranks: tuple[int, ...] = ()
    """The smallest set of suspects: one rank or a tie set; empty where it is all ranks or none is named."""
    metrics: tuple[str, ...] = ()
    """The metrics or relations that show it at the onset."""
    is_exact: bool = False
    """Whether the onset shows bit by bit, or as a non-finite value; else it stands out of noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """All that is known of a faulty run."""

    fault: Fault
    phase: str
    stage: str
    """before_reduce, reduce or after_reduce; unknown of a learning rate, which is no part of an iteration."""
    causes: tuple[str, ...]
    """Kinds of cause that a verdict may name, the truest first."""
    damage: Damage
    first_effect: Mapping[str, int]
    """Per metric, the first iteration at which it differs from the twin; most of it no detector can see."""
    tiers: Mapping[Tier, TierTruth] = field(default_factory=dict)

    @property
    def injected_at(self) -> int:
        """Iteration at which the fault began to act."""
        return self.fault.iteration

    @property
    def ranks(self) -> tuple[int, ...]:
        """The faulty rank, or none for a fault of all ranks."""
        return () if self.fault.rank is None else (self.fault.rank,)


@dataclass(frozen=True, slots=True)
class Shown:
    """What the curves and the relations among ranks show, computed once for all tiers."""

    curves: tuple[CurveEvent, ...]
    broken: tuple[Broken, ...]
    culprit: int | None = None
    """The rank that the fault struck; None where it struck all."""

    def within(self, tier: Tier) -> Shown:
        """What a job of this tier reports of it."""
        curves = tuple(one for one in self.curves if has(tier, one.metric))
        broken = tuple(one for one in self.broken if has(tier, one.metric) and tier is not Tier.CURVE)
        return Shown(curves, broken, self.culprit)


@dataclass(frozen=True, slots=True)
class _Event:
    """One thing that shows: where, and what it would be called by itself."""

    label: str
    position: int
    truth: TierTruth


def judge_truth(faulty: Recording, twin: Recording, fault: Fault) -> Truth:
    """The truth of ``faulty``, given the same run without its ``fault``."""
    faulty, twin = align(faulty, twin)
    shown = Shown(tuple(curve_events(faulty, twin)), tuple(broken_relations(faulty, twin)), fault.rank)
    return Truth(
        fault=fault,
        phase=phase_of_fault(fault),
        stage="unknown" if fault.site is Site.SCHEDULE else stage(fault),
        causes=accepted_causes(fault),
        damage=damage_of(faulty, twin, fault.iteration),
        first_effect=first_effects(faulty, twin),
        tiers={tier: _tier_truth(cut(faulty, tier), cut(twin, tier), shown.within(tier)) for tier in Tier},
    )


def _tier_truth(faulty: Recording, twin: Recording, shown: Shown) -> TierTruth:
    """What recordings of one tier show: the first event, and what it is called."""
    lost = nonfinite_event(faulty, twin)
    events = [
        *_relations(faulty, twin, shown, lost),
        *_of_curves(twin, shown.curves, lost),
        *_nonfinite(faulty, twin, shown.curves, lost),
    ]
    slower = [one for one in shown.curves if one.shape is Shape.SLOWER]
    if not events and slower:
        return replace(_plain(twin, DRIFT, slower[0]), is_observable=False)
    if not events:
        is_spike = any(one.shape is Shape.SPIKE for one in shown.curves)
        return TierTruth(label=HEALTHY, is_observable=is_spike, onset=None)
    # at one position the loudest names it: a checksum that differs as a NaN comes is its consequence
    order = (NAN, EXPLOSION, DRIFT)
    return min(events, key=lambda one: (one.position, order.index(one.label))).truth


def _relations(faulty: Recording, twin: Recording, shown: Shown, lost: int | None) -> list[_Event]:
    """Broken relations; one of noisy values just before the whole curve grows is part of that growth, or of
    the NaN that a jump ends in."""
    loud = [one for one in shown.curves if one.shape in (Shape.GROWTH, Shape.SHARP)]
    jumps = [at.position for at in loud if _is_nan(at, lost)]
    found = []
    soon = COMMON_ONSET_POINTS if shown.culprit is None else SAME_ONSET_POINTS
    for one in shown.broken:
        near = [at for at in loud if one.position <= at.position <= one.position + soon]
        if not one.is_exact and any(at - SAME_ONSET_POINTS <= one.position <= (lost or 0) for at in jumps):
            continue
        label = EXPLOSION if near and not one.is_exact else DRIFT
        alike = [other for other in shown.broken if other.position == one.position]
        truth = TierTruth(
            label=label,
            is_observable=True,
            onset=one.iteration,
            last_clean=one.last_clean,
            ranks=_common(one, alike, twin, shown.culprit) if label == DRIFT else _grown(faulty, twin, one),
            metrics=tuple(sorted({other.metric for other in alike})),
            is_exact=one.is_exact,
        )
        found.append(_Event(label, one.position, truth))
    return found


def _common(one: Broken, alike: list[Broken], twin: Recording, culprit: int | None) -> tuple[int, ...]:
    """The ranks that all relations broken at one position point at; empty where that is everybody.

    Also where ranks feed each other (stages, experts) and none of them points at the culprit: what it sent
    was not seen, only what others made of it.
    """
    ranks = set(one.ranks)
    for other in alike:
        apart = set(other.ranks) if one.is_exact and other.is_exact else set()
        ranks = ranks & set(other.ranks) or ranks | apart
    feeds_others = twin.layout is not None and len(twin.layout.axes) > 1
    if feeds_others and culprit is not None and culprit not in ranks:
        return ()
    return () if len(ranks) == len(twin.ranks_R) > 2 else tuple(sorted(ranks))


def _grown(faulty: Recording, twin: Recording, one: Broken) -> tuple[int, ...]:
    """The ranks that leave their twin as the whole curve begins to grow; empty where that is most of them."""
    stop = one.position + SAME_ONSET_POINTS + 1
    ranks = []
    for column, rank in enumerate(twin.ranks_R.tolist()):
        curves = (scaled(one.metric, run.numbers[one.metric][:stop, column]) for run in (faulty, twin))
        if departure(*curves).jump is not None:
            ranks.append(rank)
    return () if 2 * len(ranks) > len(twin.ranks_R) else tuple(ranks)


def _of_curves(twin: Recording, curves: tuple[CurveEvent, ...], lost: int | None) -> list[_Event]:
    names = {Shape.GROWTH: EXPLOSION, Shape.SHARP: EXPLOSION, Shape.SHIFT: DRIFT}
    return [
        _Event(names[one.shape], one.position, _plain(twin, names[one.shape], one))
        for one in curves
        if one.shape in names and not _is_nan(one, lost)
    ]


def _is_nan(one: CurveEvent, lost: int | None) -> bool:
    """Whether it is a jump of one or two points that ends in the NaN at position ``lost``: that is a NaN."""
    is_short = lost is not None and one.position <= lost < one.position + GROWING_POINTS
    return one.shape is Shape.SHARP and is_short


def _plain(twin: Recording, label: str, one: CurveEvent) -> TierTruth:
    before = int(twin.iterations_T[one.position - 1]) if one.position else None
    onset = int(twin.iterations_T[one.position])
    return TierTruth(
        label=label, is_observable=True, onset=onset, last_clean=before, metrics=(one.metric,), is_exact=False
    )


def _nonfinite(
    faulty: Recording, twin: Recording, curves: tuple[CurveEvent, ...], at: int | None
) -> list[_Event]:
    if at is None or any(one.shape is Shape.GROWTH and one.position < at for one in curves):
        return []
    first, attempt = [(first, one) for first, one in faulty.attempts() if first <= at][-1]
    ranks = suspects(attempt, at - first) if twin.ranks_R[0] >= 0 else ()
    truth = TierTruth(
        label=NAN,
        is_observable=True,
        onset=int(twin.iterations_T[at]),
        last_clean=int(twin.iterations_T[at - 1]) if at else None,
        ranks=() if len(ranks) == len(attempt.ranks_R) else ranks,
        is_exact=True,
    )
    return [_Event(NAN, at, truth)]
