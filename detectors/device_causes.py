"""How far the evidence allows a defective device, and what speaks against it: a rule of `causes`."""

from __future__ import annotations

from firstfault.telemetry import Phase

from .case import Case
from .device_record import Record, device_record, failed_again
from .evidence import LABEL_OF, Pattern
from .linear_evidence import FAULT
from .linear_stream import Fault
from .precedence import Family
from .stall_causes import of_hardware
from .trail import ATTEMPT

TIE_PENALTY = 0.05
"""What a tie takes from the confidence: which of them it was is not known, but one of them it was."""
ALL_LIMIT = 0.4
"""Highest confidence where every rank is a suspect because values differ without a majority: two replicas,
two halves of a mesh. That something computed wrong is as sure as with three, not that it was one device."""
FOUND_BY_DIAGNOSTICS = 0.25
"""Share of defective devices that the vendor's tests find: a quarter of those screened in one published
fleet, 70 % in another. The less sure is taken, so that a pass takes little from what other evidence says."""
Judged = tuple[float, list[str]]
_NOTHING: Judged = (0.0, [])

ONE_RANK_LIMIT = 0.6
"""Highest confidence in hardware when one rank was first and its peers were clean, and nothing else
speaks against the device: in 21 production warnings of the best published system 3 were false."""
SEVERAL_RANKS_LIMIT = 0.35
"""The same when several ranks were first and no one host holds all of them: two devices that begin to
compute wrong in one interval are far rarer than something that both share."""
CONTRIBUTION_LIMIT = 0.3
"""The same where what a rank contributed is not in the result: its gradient was seen, and is not at fault."""


def of_device(case: Case) -> Judged:
    """The confidence in a defective device, and the reasons for it and against it."""
    record = device_record(case.first, case.facts, case.earlier, case.before)
    if case.is_one_rank_log and case.has_repeat_mismatch:
        return _with_record(0.6, ["one rank reports"], record, has_repeat_mismatch=True)
    if not case.names_ranks:
        return _of_all_ranks(case, record)
    if case.family is Family.STALL:
        return _with_record(*of_hardware(case), record, has_repeat_mismatch=False)
    if case.family not in (Family.NONFINITE, Family.DIFFERENCE) and not (
        record.near or record.failed or case.has_repeat_mismatch
    ):
        return (0.3, ["only some ranks show it"])
    return _of_named_ranks(case, record)


def is_shared(case: Case) -> bool:
    """Whether several ranks went wrong at once that are not those of one host."""
    return case.first.rank_count > 1 and not case.first.tie and not case.is_on_one_host


def is_repeated_otherwise(case: Case) -> bool:
    """Whether all ranks got another result than in an earlier attempt: an update that all replicas share."""
    return ATTEMPT in case.draft.root.detail and not case.names_ranks


def is_of_an_owner(case: Case) -> bool:
    """Whether what went wrong on all ranks at once can be the work of one that owns a shard of the state."""
    layout = case.facts.layout
    is_sharded = layout is not None and layout.sharding in ("zero1", "zero2")
    return case.family is Family.NONFINITE and is_sharded and case.origin.phase >= Phase.OPTIMIZER


def is_rate_of_its_own(case: Case) -> bool:
    """Whether a suspect had another learning rate than its peers."""
    own = set(case.origin.ranks)
    every = (*case.draft.members, *case.draft.attached)
    return any(one.metric == "lr" and not own.isdisjoint(one.ranks) for one in every)


def _of_all_ranks(case: Case, record: Record) -> Judged:
    """Everybody at once: a device can only be named by its own record near the onset."""
    if is_repeated_otherwise(case):
        return (0.45, ["repeated on the same data the job got another result: one of them was wrong"])
    if case.family is Family.DIFFERENCE and case.first.tie and FAULT not in case.draft.root.detail:
        return (
            ALL_LIMIT,
            [f"one of {case.first.rank_count} ranks was first, without a majority", *record.near],
        )
    if is_of_an_owner(case):
        return (0.5, ["one owner's shard of the update would reach every rank by the gather", *record.near])
    known = [*record.near, *record.failed]
    return (0.4, known) if known else _NOTHING


def _of_named_ranks(case: Case, record: Record) -> Judged:
    because = [_who(case)]
    confidence = ONE_RANK_LIMIT if case.origin.are_peers_clean else ONE_RANK_LIMIT - 0.15
    are_several = is_shared(case)
    if are_several:
        confidence = SEVERAL_RANKS_LIMIT
        because.append("several devices rarely fail at once")
    if is_contribution(case):
        confidence = min(confidence, CONTRIBUTION_LIMIT)
        because.append("what it computed may be right and lost on the way")
    if case.first.tie:
        confidence -= TIE_PENALTY
    if case.family is Family.NONFINITE:
        is_input_clean = case.is_clean("nonfinite_input")
        confidence -= 0.05 if is_input_clean else 0.1
        sample = "" if is_input_clean else "a bad sample, "
        because.append(f"{sample}0/0 or a stray write would look the same")
    if case.draft.root.pattern is Pattern.PEER_DRIFT:
        confidence -= 0.15
        because.append("its values are noise, of which only the mean has moved: data of its own might do so")
    if is_odd_since_start(case):
        confidence, because = 0.2, [*because, "it differed at the first check already"]
    if case.is_bad("nonfinite_input") or case.origin.metric.startswith("data_checksum"):
        confidence = 0.1
    if case.is_clean("nonfinite_logits") and case.is_of_loss:
        confidence -= 0.2
    if failed_again(case.first, LABEL_OF[case.draft.root.pattern], case.before):
        confidence /= 2
    if is_rate_of_its_own(case):
        confidence /= 2
    is_sure_of_itself = case.has_repeat_mismatch and not are_several and not case.first.tie
    return _with_record(confidence, because, record, has_repeat_mismatch=is_sure_of_itself)


def _with_record(
    confidence: float, because: list[str], record: Record, *, has_repeat_mismatch: bool
) -> Judged:
    """Raise the confidence in hardware by what speaks against the device itself."""
    strong = []
    if has_repeat_mismatch:
        strong.append((0.9, ["it disagrees with itself: a repeated computation gave another result"]))
    if record.follows:
        strong.append((0.9, list(record.follows)))
    if record.near:
        strong.append((0.85, list(record.near)))
    if record.failed:
        strong.append((0.7 if record.is_assumed else 0.85, list(record.failed)))
    if record.older:
        strong.append((0.7, list(record.older)))
    for reached, why in strong:
        confidence = max(confidence, reached)
        because = [*because, *why]
    if len(strong) > 1:
        confidence = max(confidence, 0.95)
    if record.passed:
        missed = 1 - FOUND_BY_DIAGNOSTICS
        confidence = confidence * missed / (1 - confidence * FOUND_BY_DIAGNOSTICS)
        because = [*because, *record.passed, "such tests find a quarter of the devices that compute wrong"]
    return (round(confidence, 2), [*because, *record.weak])


def _who(case: Case) -> str:
    count = case.first.rank_count
    if case.first.tie:
        return f"one of {count} ranks was first"
    who = (
        f"rank {case.first.ranks[0]} alone went wrong first"
        if count == 1
        else f"{count} ranks went wrong at once"
    )
    return f"{who} while peers were clean" if case.origin.are_peers_clean else who


def is_odd_since_start(case: Case) -> bool:
    """Whether ranks that must be equal never were."""
    return case.family is Family.DIFFERENCE and case.draft.root.last_clean is None


def is_contribution(case: Case) -> bool:
    """Whether a rank is named for what it gave to a reduction, and not for what it got."""
    return case.draft.root.detail.get(FAULT) in (Fault.CONTRIBUTION_MISSING, Fault.CONTRIBUTION_DOUBLED)
