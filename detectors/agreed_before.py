"""A vote without a majority among ranks that were never equal in this attempt, and always in an earlier one.

Alone such a vote may come of a layout that is not as it was said, or of state that is no replica's; so it is
only suspected. Where an earlier attempt of the same job saw the same ranks equal at every check it was
neither, and a restore that came back wrong on one of two replicas is confirmed. Axes: R ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .evidence import Certainty, Evidence
from .facts import AttemptFindings
from .reference import MAX_ATTEMPTS_BACK, is_same_job
from .trail import Trail

AGREED_IN = "equal_in_attempt"
"""Key of the detail that names the attempt in which the ranks agreed."""
_FEWEST_CHECKS = 2
"""Checks at which they must have been equal: one may be the moments of Adam before its first step."""


def confirm_agreed(later: AttemptFindings, earlier: Sequence[AttemptFindings]) -> AttemptFindings:
    """``later``, its votes without a majority confirmed where an ``earlier`` attempt saw the ranks equal."""
    if not any(_is_open(one) for one in later.evidence):
        return later
    known = [one for one in earlier[-MAX_ATTEMPTS_BACK:] if is_same_job(one.facts, later.facts)]
    return replace(later, evidence=tuple(_confirmed(one, known) for one in later.evidence))


def _is_open(one: Evidence) -> bool:
    """Whether it is a vote in a group that a layout names, undecided and never seen to agree."""
    is_vote = one.detector == "checksum_vote" and one.detail.get("groups") == "layout"
    is_undecided = one.is_tie and one.last_clean is None and not one.supporting
    return is_vote and is_undecided and one.certainty is Certainty.SUSPECTED


def _confirmed(one: Evidence, known: Sequence[AttemptFindings]) -> Evidence:
    if not _is_open(one):
        return one
    for findings in reversed(known):
        if findings.trail is not None and _always_equal(findings.trail, one.metric, one.ranks):
            detail = {**one.detail, AGREED_IN: findings.facts.attempt}
            return replace(one, certainty=Certainty.CONFIRMED, detail=detail)
    return one


def _always_equal(trail: Trail, metric: str, ranks: Sequence[int]) -> bool:
    """Whether all of ``ranks`` held one value at every check that is kept: at some alone is local SGD."""
    checks = 0
    for row in trail.rows_from(0):
        if row.metric != metric:
            continue
        words_R = row.words_R[np.isin(row.ranks_R, ranks)]
        if len(words_R) != len(ranks):
            continue
        if (words_R != words_R[0]).any():
            return False
        checks += 1
    return checks >= _FEWEST_CHECKS
