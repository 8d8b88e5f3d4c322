"""Evidence of one attempt is grouped: what one fault explains becomes one draft of an incident."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from .evidence import Certainty, Evidence, Pattern
from .precedence import Family, Outcome, are_concurrent, family, outcome, position

MAX_DRAFTS = 200
"""Incidents of one attempt that are kept apart; the first ones tell what happened, a flood does not."""
_SPOKESMEN = 16
"""Members of a draft that later evidence is compared with: a chain has few kinds of links."""


@dataclass(slots=True)
class Draft:
    """One fault: its root, all that it explains (the root included), and supporting evidence."""

    root: Evidence
    certainty: Certainty
    members: list[Evidence] = field(default_factory=list)
    attached: list[Evidence] = field(default_factory=list)
    """Weaker evidence that this fault explains: shown, but it decides nothing."""

    @property
    def alarm_iteration(self) -> int:
        """Where the first of the members fired."""
        return min(member.alarm_iteration for member in self.members)

    def siblings(self) -> list[Evidence]:
        """Members of the root's family that began inside the interval that all of them share."""
        low, high = interval_of(self.root)
        chosen = [self.root]
        for member in self.members:
            if member is self.root or family(member) is not family(self.root):
                continue
            if family(self.root) is Family.DIFFERENCE and set(member.ranks).isdisjoint(self.root.ranks):
                continue
            if member.pattern is Pattern.PEER_DRIFT is not self.root.pattern:
                continue  # its onset is an estimate, and must not narrow what was observed
            if max(low, interval_of(member)[0]) < min(high, member.first_bad):
                low, high = max(low, interval_of(member)[0]), min(high, member.first_bad)
                chosen.append(member)
        return chosen


def interval_of(evidence: Evidence) -> tuple[int, int]:
    """``(last_clean, first_bad]`` with -1 for no clean observation, which is before every iteration."""
    return (-1 if evidence.last_clean is None else evidence.last_clean, evidence.first_bad)


def draft_incidents(evidence: Iterable[Evidence]) -> list[Draft]:
    """The faults behind the evidence of one attempt, in order of position, in whatever order it comes.

    Confirmed evidence decides first; a mere suspicion joins what explains it and never becomes the
    root of a confirmed incident. So does what recovered: a loss that came back while the gradient norm did
    not is the same fault. Otherwise it stands for itself: spikes of a run are not one fault.
    """
    ordered = sorted(confirm_each_other(evidence), key=position)
    strong = [one for one in ordered if not one.supporting]
    confirmed: list[Draft] = []
    for one in _of(strong, Certainty.CONFIRMED):
        _place(confirmed, one)
    suspected: list[Draft] = []
    for one in _of(strong, Certainty.SUSPECTED):
        if not _attach(confirmed, one):
            _place(suspected, one)
    recovered: list[Draft] = []
    for one in _of(strong, Certainty.RECOVERED):
        if _attach(confirmed, one) or _attach([draft for draft in suspected if _is_beside(draft, one)], one):
            continue
        _place([draft for draft in recovered if are_concurrent(draft.root, one)], one, new=recovered)
    drafts = confirmed + suspected + recovered
    for one in (one for one in ordered if one.supporting):
        _attach(drafts, one)
    return sorted(drafts, key=lambda draft: position(draft.root))[:MAX_DRAFTS]


def confirm_each_other(evidence: Iterable[Evidence]) -> list[Evidence]:
    """``evidence``; values that differed once too little to be sure of it are confirmed by state that does.

    A reduced number that is off by rounding on one rank may be chance. Where a checksum of the same rank
    differs from inside the same interval on, it was the first sign of it.
    """
    every = list(evidence)
    sure = [one for one in every if one.certainty is Certainty.CONFIRMED and _is_exact(one)]
    return [
        replace(one, certainty=Certainty.CONFIRMED)
        if one.certainty is Certainty.SUSPECTED
        and _is_exact(one)
        and one.last_clean is not None
        and any(are_concurrent(one, other) and not set(one.ranks).isdisjoint(other.ranks) for other in sure)
        else one
        for one in every
    ]


def _is_exact(one: Evidence) -> bool:
    """Whether it tells of values that must be equal, and may open an incident."""
    return family(one) is Family.DIFFERENCE and one.pattern is not Pattern.PEER_DRIFT and not one.supporting


def _is_beside(draft: Draft, one: Evidence) -> bool:
    """Whether ``one`` can have begun together with a member of ``draft``."""
    return any(are_concurrent(member, one) for member in draft.members[:_SPOKESMEN])


def _of(evidence: Sequence[Evidence], certainty: Certainty) -> list[Evidence]:
    return [one for one in evidence if one.certainty is certainty]


def _place(drafts: list[Draft], one: Evidence, new: list[Draft] | None = None) -> None:
    """Put ``one`` into the first of ``drafts`` that explains it, else into a new draft."""
    for draft in drafts:
        verdicts = [outcome(member, one) for member in (draft.root, *draft.members[:_SPOKESMEN])]
        if verdicts[0] is Outcome.LEADS:
            draft.root = one
        if any(verdict is not Outcome.APART for verdict in verdicts):
            draft.members.append(one)
            return
    target = drafts if new is None else new
    if len(target) < MAX_DRAFTS:
        target.append(Draft(root=one, certainty=one.certainty, members=[one]))


def _attach(drafts: Sequence[Draft], one: Evidence) -> bool:
    """Show ``one`` with the first draft that explains it; says whether there is one."""
    for draft in drafts:
        if position(draft.root) <= position(one):
            explained = any(
                outcome(member, one) is not Outcome.APART for member in draft.members[:_SPOKESMEN]
            )
        elif one.certainty is Certainty.RECOVERED:
            # What came back is no root: where it began together with a member, that one explains it.
            explained = family(one) is family(draft.root) and _is_beside(draft, one)
        elif one.supporting and are_concurrent(one, draft.root):
            explained = outcome(one, draft.root) is not Outcome.APART
        else:
            explained = outcome(one, draft.root) is Outcome.LEADS
        if explained:
            draft.attached.append(one)
            return True
    return False
