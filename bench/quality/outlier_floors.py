"""What must hold of one rank among its peers."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .floor import Floor
from .outliers import Outcome
from .scores import Figure, share


def outlier_floors(outcomes: Sequence[Outcome]) -> list[Floor]:
    """The floors of one rank among its peers, Gaussian noise unless it says otherwise."""
    gaussian = [one for one in outcomes if one.trial.noise == "gaussian"]
    bounds = [(6.0, False, 0.85), (8.0, False, 0.99), (1.0, True, 0.95)]
    every = [one for one in outcomes if not one.trial.sigmas]
    alarmed = share(sum(one.ours for one in every), sum(one.cases for one in every))
    floors = [
        Floor(
            name=_outlier_name(sigmas, is_lasting),
            bound=bound,
            figure=_recall(gaussian, sigmas, is_lasting)[0],
        )
        for sigmas, is_lasting, bound in bounds
    ]
    ours, rule = (figure.value for figure in _recall(gaussian, 6.0, is_lasting=False))
    return [
        *floors,
        Floor(
            name="one rank: share of healthy steps with evidence, all noises",
            bound=1e-4,
            figure=alarmed,
            is_ceiling=True,
        ),
        Floor(
            name="one rank: recall over the leave-one-out rule's, 6 sigma, 0.01 % a step",
            bound=0.1,
            figure=_gain(gaussian, 6.0),
            note=f"{ours:.2f} against {rule:.2f}",
        ),
    ]


def _outlier_name(sigmas: float, is_lasting: bool) -> str:
    if is_lasting:
        return f"one rank off by {sigmas:g} sigma for good: found within 100 iterations"
    return f"one rank off by {sigmas:g} sigma in one step: found"


def _recall(outcomes: Sequence[Outcome], sigmas: float, is_lasting: bool) -> tuple[Figure, Figure]:
    """Ours and the rule's."""
    here = [one for one in outcomes if (one.trial.sigmas, one.trial.is_lasting) == (sigmas, is_lasting)]
    cases = sum(one.cases for one in here)
    return share(sum(one.ours for one in here), cases), share(sum(one.rule for one in here), cases)


def _gain(outcomes: Sequence[Outcome], sigmas: float) -> Figure:
    """How much more we find; its interval from the two shares as if they were of different runs."""
    ours, rule = _recall(outcomes, sigmas, is_lasting=False)
    if not ours.cases:
        return ours
    spread = math.hypot(ours.value - ours.low, rule.high - rule.value)
    wider = math.hypot(ours.high - ours.value, rule.value - rule.low)
    gain = ours.value - rule.value
    return Figure(value=gain, low=gain - spread, high=gain + wider, cases=ours.cases)
