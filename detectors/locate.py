"""Where an incident began: the origin of its root, the interval, suspects with hosts, victims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from firstfault.telemetry import UNNAMED_RANK

from .difference import by_repetition, join_twins, narrow, trace_ranks
from .drafts import Draft, interval_of
from .evidence import Evidence, Sight
from .facts import AttemptFacts
from .incident import MAX_LISTED_RANKS, First, Scope, Suspect
from .nonfinite_sites import CHECKED
from .origin import Origin, trace_nonfinite
from .precedence import Family, family
from .stall_origin import trace_stall


def locate(draft: Draft, facts: AttemptFacts) -> Origin:
    """Who can have begun the fault of ``draft``."""
    root, layout, roles = draft.root, facts.layout, facts.roles
    if family(root) is Family.NONFINITE:
        members = [one for one in draft.members if family(one) is Family.NONFINITE]
        traced = trace_nonfinite(
            [sight for one in members for sight in _sights(one)],
            ranks=named(facts.ranks),
            layout=layout,
            roles=roles,
            chunks=_chunks(facts),
        )
        if traced is not None:
            return traced
    if family(root) is Family.STALL:
        return trace_stall(root, ranks=named(facts.ranks), layout=layout)
    is_difference = family(root) is Family.DIFFERENCE
    seen = root
    if is_difference:
        seen = by_repetition(join_twins(root, draft.members), [*draft.members, *draft.attached])
    origin = trace_ranks(seen, ranks=named(facts.ranks), layout=layout, roles=roles)
    if is_difference:
        origin = narrow(origin, draft.siblings()[1:])
    return origin


def _sights(evidence: Evidence) -> list[Sight]:
    """The sights of ``evidence`` without the rank that stands for a log which names none."""
    kept = []
    for sight in evidence.sights:
        named_R = sight.ranks_R != UNNAMED_RANK
        kept.append(
            replace(
                sight,
                ranks_R=sight.ranks_R[named_R],
                bad_R=sight.bad_R[named_R],
                clean_R=sight.clean_R[named_R],
            )
        )
    return kept


def named(ranks: Iterable[int]) -> tuple[int, ...]:
    """``ranks`` without the one that stands for a log which names none."""
    return tuple(rank for rank in ranks if rank != UNNAMED_RANK)


def _chunks(facts: AttemptFacts) -> int:
    """Model chunks per pipeline stage, given by ``pipeline_chunks`` of the run_start event."""
    given = facts.run_start.get("pipeline_chunks")
    # 64: more chunks than any schedule uses; beyond it the number is an error of the writer.
    return given if isinstance(given, int) and 1 <= given <= 64 else 1


def first_of(origin: Origin, draft: Draft, facts: AttemptFacts) -> First:
    """Where the fault of ``draft`` began, as a verdict shows it."""
    siblings = draft.siblings()
    if family(draft.root) in (Family.EXPLOSION, Family.CURVE):
        # The loss follows the gradient norm and the level test lags: their intervals are not one cause's.
        siblings = [draft.root]
    low = max(interval_of(one)[0] for one in siblings)
    high = min(one.first_bad for one in siblings)
    iteration = origin.iteration if low < origin.iteration <= high else high
    # A check of the trainer speaks of its own rank, and who waits for a rank names it, also where one other
    # rank alone prints the log.
    is_named = draft.root.metric.endswith(CHECKED) or bool(draft.root.detail.get("waiting_ranks"))
    has_peers = len(named(facts.ranks)) > 1 or is_named
    is_known = has_peers and bool(origin.ranks)
    listed = origin.listed[:MAX_LISTED_RANKS] if is_known else ()
    victims = _victims(draft, origin) if is_known else ()
    scope = Scope.UNKNOWN if not is_known else Scope.ALL if origin.is_all else Scope.RANKS
    return First(
        attempt=facts.attempt,
        ranks=listed,
        rank_count=len(origin.ranks) if is_known else 0,
        scope=scope,
        tie=origin.is_tie and is_known,
        iteration=iteration,
        interval=(None if low < 0 else low, high),
        phase=origin.phase.label,
        metric=origin.metric,
        suspects=tuple(_suspect(rank, origin, facts) for rank in listed),
        victims=victims[:MAX_LISTED_RANKS],
        victim_count=len(victims),
        note=_note(origin, draft, facts) if is_known else "",
    )


def _note(origin: Origin, draft: Draft, facts: AttemptFacts) -> str:
    notes = [origin.note]
    if _is_reversed(draft, origin):
        notes.append("the majority is the corrupted side: the others repeat what an earlier attempt computed")
    elif family(draft.root) is Family.DIFFERENCE and draft.root.last_clean is None and facts.resumes:
        # What was broadcast or gathered from a corrupted state is the same wrong value on most ranks.
        notes.append(
            "they differ since the first check after a resume: the majority may be the corrupted side"
        )
    if healed := draft.root.detail.get("equal_again_at"):
        notes.append(f"equal again at iteration {healed}")
    return "; ".join(note for note in notes if note)


def _is_reversed(draft: Draft, origin: Origin) -> bool:
    """Whether those that the vote outvoted are right (`by_repetition`)."""
    outvoted = set(draft.root.ranks)
    return (
        family(draft.root) is Family.DIFFERENCE
        and bool(outvoted)
        and bool(origin.ranks)
        and not draft.root.is_tie
        and outvoted.isdisjoint(origin.ranks)
    )


def _victims(draft: Draft, origin: Origin) -> tuple[int, ...]:
    """All ranks that turned bad, or waited for the suspects, and are not suspects."""
    turned = set(origin.bad_ranks)
    if family(draft.root) is Family.STALL:
        turned.update(*(sight.ranks_R.tolist() for sight in draft.root.sights))
    for member in [] if _is_reversed(draft, origin) else draft.members:
        if family(member) in (Family.NONFINITE, Family.DIFFERENCE):
            turned.update(member.ranks)
            turned.update(rank for _, rank in member.later_ranks)
    return tuple(sorted(turned - set(origin.ranks) - {UNNAMED_RANK}))


def _suspect(rank: int, origin: Origin, facts: AttemptFacts) -> Suspect:
    host, device = place_of(rank, facts)
    return Suspect(rank=rank, host=host, device=device, why=origin.why.get(rank, ""))


def place_of(rank: int, facts: AttemptFacts) -> tuple[str | None, str | None]:
    """Host and device of ``rank``: as last reported, else as the run_start event gave them."""
    labels = facts.labels.get(rank, {})
    host = labels.get("host")
    if host is None and facts.layout is not None:
        host = facts.layout.hosts.get(rank)
    given = facts.run_start.get("device_ids")
    device = labels.get("device")
    if (
        device is None
        and isinstance(given, Sequence)
        and not isinstance(given, str)
        and 0 <= rank < len(given)
    ):
        device = str(given[rank])
    if device is None and isinstance(given, Mapping) and str(rank) in given:
        device = str(given[str(rank)])
    return host, device
