"""Losses of policies and of games: their height is no distance to anything.

The loss of a policy is an advantage, that of a critic grows with the returns it has to tell, and a penalty on
the distance from a reference grows as the policy learns: all of them rise in healthy runs, without bound and
for good. So does the loss of one side of a game as the other gets better. Only what is not finite, or
gradients that explode, tell a fault there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from .curve import LOSSES
from .evidence import Certainty, Evidence
from .peer_episode import WHY_NOT
from .precedence import Family, family

_REWARDED = re.compile(
    r"(?:^|[^a-z])(?:rewards?|returns?|ep_?rew(?:ard)?(?:_?mean)?|advantages?|approx_?kl|clip_?frac(?:tion)?"
    r"|(?:policy|actor|act|critic|cri|value|pg|vf|qf?\d?)[_ -]?loss)(?:$|[^a-z])",
    re.IGNORECASE,
)
_GAME = re.compile(
    r"(?:^|[^a-z])(?:(?:d|g|dis|gen|disc|discriminator|generator|adv|adversarial)[_ -]?loss|loss[_-][dg])"
    r"(?:$|[^a-z])",
    re.IGNORECASE,
)
_WHY_REWARDED = "the log reports rewards: the loss of a policy rises in runs that learn"
_WHY_GAME = "the log reports the losses of a game: one side's rises as the other gets better"


def why_it_rises(metrics: Iterable[str]) -> str:
    """Why the loss beside these metrics may rise in a healthy run; empty for a usual one.

    >>> why_it_rises(["loss", "train/rewards/chosen"])
    'the log reports rewards: the loss of a policy rises in runs that learn'
    >>> why_it_rises(["loss", "step_time_s", "reader_cost", "bad_loss"])
    ''
    """
    names = list(metrics)
    for pattern, why in ((_REWARDED, _WHY_REWARDED), (_GAME, _WHY_GAME)):
        if any(pattern.search(name) for name in names):
            return why
    return ""


def doubt_objectives(evidence: Iterable[Evidence], metrics: Iterable[str]) -> list[Evidence]:
    """``evidence`` with what only the height of such a loss tells as suspicions."""
    every = list(evidence)
    why = why_it_rises(metrics)
    if not why or any(_is_loud(one) for one in every):
        return every
    return [_doubted(one, why) if _is_of_loss(one) else one for one in every]


def _is_loud(one: Evidence) -> bool:
    """Whether it is sure without the height of the loss: nothing finite, or gradients that explode."""
    if one.certainty is not Certainty.CONFIRMED or one.supporting:
        return False
    is_growth = family(one) is Family.EXPLOSION and not _is_of_loss(one)
    return is_growth or family(one) is Family.NONFINITE


def _is_of_loss(one: Evidence) -> bool:
    """Whether it is the height or the shape of the loss curve, and it is sure."""
    is_shape = family(one) in (Family.EXPLOSION, Family.CURVE)
    return is_shape and one.metric in LOSSES and one.certainty is Certainty.CONFIRMED


def _doubted(one: Evidence, why: str) -> Evidence:
    return replace(one, certainty=Certainty.SUSPECTED, detail={**one.detail, WHY_NOT: why})
