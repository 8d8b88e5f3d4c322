"""What may lie behind an incident: ranked causes, each with the reasons in words.

Every rule looks at one `Case` and says how far the evidence allows its cause, never further: one rank
that went wrong first among clean peers is a bad device, a bad sample, 0/0 or a stray write alike.
"""

from __future__ import annotations

from collections.abc import Callable

from firstfault.telemetry import EventKind, Phase

from .case import Case
from .device_causes import (
    is_contribution,
    is_odd_since_start,
    is_of_an_owner,
    is_rate_of_its_own,
    is_repeated_otherwise,
    is_shared,
    of_device,
)
from .device_record import failed_again
from .evaluation_causes import EVALUATION_RULES
from .evidence import LABEL_OF, Pattern
from .facts import AttemptFacts
from .incident import Cause, CauseKind
from .linear_evidence import FAULT
from .precedence import Family
from .stall_causes import STALL_RULES
from .vote_suspects import BEFORE_REDUCTION, WIDENED

LIKELY = 0.4
"""With a cause of this confidence the incident is not called undetermined beside it."""
START_ITERATIONS = 100
"""Growth so soon after the start, or after a rise of the learning rate, is the hyperparameters' work."""


def rank_causes(case: Case) -> tuple[Cause, ...]:
    """The causes that the evidence allows, most likely first; never empty."""
    own = STALL_RULES if case.family is Family.STALL else EVALUATION_RULES if case.is_of_evaluation else {}
    judged = [(kind, *own.get(kind, rule)(case)) for kind, rule in _RULES]
    if max(confidence for _, confidence, _ in judged) < LIKELY:
        judged.append((CauseKind.UNDETERMINED, *_undetermined(case)))
    found = [
        Cause(kind=kind, stage=_stage(case, kind), confidence=confidence, because=tuple(because))
        for kind, confidence, because in judged
        if because and confidence > 0
    ]
    return tuple(sorted(found, key=lambda one: (-one.confidence, list(CauseKind).index(one.kind))))


Judged = tuple[float, list[str]]
_NOTHING: Judged = (0.0, [])


_ACTS_AT = {
    CauseKind.DATA: "before_reduce",
    CauseKind.LOSS_FUNCTION: "before_reduce",
    CauseKind.HYPERPARAMETER: "after_reduce",
}
"""Where in an iteration a cause acts, whatever curve shows it: the learning rate in the update."""


def _stage(case: Case, kind: CauseKind) -> str:
    if case.family not in (Family.NONFINITE, Family.DIFFERENCE):
        return _ACTS_AT.get(kind, "unknown")
    if is_repeated_otherwise(case):
        # what all replicas share was wrong before they shared it, or as they did
        return "reduce" if kind is CauseKind.COLLECTIVE else "before_reduce"
    phase = case.origin.phase
    if phase <= Phase.REDUCE_IN or case.draft.root.detail.get(WIDENED) == BEFORE_REDUCTION:
        return "before_reduce"
    if phase > Phase.REDUCE_OUT:
        return "after_reduce"
    if case.family is Family.DIFFERENCE or case.origin.is_reduce_in_clean:
        return "reduce"
    return "before_reduce" if case.names_ranks else "unknown"


def _collective(case: Case) -> Judged:
    if FAULT in case.draft.root.detail and not case.names_ranks:
        return (0.7, ["the same result came out on all ranks, and it is not the sum of what went in"])
    if is_contribution(case):
        return (0.6, ["what one rank contributed did not enter the result once, as it must"])
    if is_repeated_otherwise(case):
        return (0.3, ["a reduction that went wrong alike on all ranks would look the same"])
    if case.family is Family.DIFFERENCE and case.origin.phase is Phase.REDUCE_OUT:
        return (0.4, [f"{case.origin.metric} must be equal behind the reduction and is not"])
    is_reduced = case.origin.is_reduce_in_clean and case.origin.phase is Phase.REDUCE_OUT
    # a rank alone has no reduction, or one whose other members nobody saw
    is_seen = is_reduced and len(case.facts.ranks) > 1
    if case.family is Family.NONFINITE and not case.names_ranks and is_seen:
        return (0.55, ["every rank was finite before the reduction and none behind it"])
    return _NOTHING


def _hyperparameter(case: Case) -> Judged:
    if case.family is not Family.EXPLOSION or case.names_ranks:
        return _NOTHING
    onset = case.first.iteration
    together = (
        "all ranks that report grow together" if len(case.facts.ranks) > 1 else "the curve grows steadily"
    )
    start = case.facts.first_iteration
    if start is not None and 0 <= onset - start <= START_ITERATIONS:
        count = onset - start
        after = f"{count} iteration{'' if count == 1 else 's'} after" if count > 0 else "at"
        if case.facts.resumes:
            return (0.4, [f"growth began {after} a resume", together])
        return (0.8, [f"growth began {after} the start", together])
    for low, high in case.facts.lr_rises:
        if low <= onset <= high + START_ITERATIONS:
            when = f"at iteration {low}" if low == high else f"from iteration {low} to {high}"
            return (0.8, [f"the learning rate rose {when}", together])
    if at := _change(case, EventKind.LR_CHANGE):
        return (0.7, [f"the learning rate was changed at iteration {at[-1]}", together])
    return _NOTHING


def _change(case: Case, *kinds: EventKind) -> list[int]:
    """Iterations of such events up to `START_ITERATIONS` before the onset."""
    onset = case.first.iteration
    return sorted(
        event.iteration
        for event in case.facts.changes
        if event.kind in kinds and onset - START_ITERATIONS <= event.iteration <= onset
    )


def _data(case: Case) -> Judged:
    if case.is_bad("nonfinite_input"):
        return (0.85, ["the input itself was non-finite"])
    if case.origin.metric.startswith("data_checksum"):
        # a shard that is read twice is a matter of the data's order, ranks that part of the sampler's state
        shared = "distinct" in str(case.draft.root.detail.get("relation", ""))
        return (0.6 if shared else 0.5, ["the ranks did not read the data they should"])
    if again := failed_again(case.first, LABEL_OF[case.draft.root.pattern], case.before):
        return (0.6, [again])
    if at := _change(case, EventKind.DATA_CHANGE, EventKind.BATCH_SIZE):
        return (0.5, [f"the data or the batch size changed at iteration {at[-1]}"])
    if case.draft.root.pattern is Pattern.PEER_DRIFT and case.names_ranks:
        return (0.35, ["other data on this rank alone would move its values too"])
    is_possible = case.family is Family.NONFINITE and case.origin.phase <= Phase.REDUCE_IN
    if is_possible and case.names_ranks and not case.is_clean("nonfinite_input"):
        return (0.3, ["one bad sample would look the same, and the input was not checked"])
    return _NOTHING


def _loss_function(case: Case) -> Judged:
    if case.family is Family.NONFINITE and case.is_of_loss and case.is_clean("nonfinite_logits"):
        return (0.8, ["the logits were finite and the loss was not"])
    return _NOTHING


def _numeric_overflow(case: Case) -> Judged:
    root = case.draft.root
    is_skip = root.metric in ("loss_scale", "skipped") and not case.names_ranks
    if is_skip or _is_endless_skip(case):
        return (0.6, ["steps are skipped again and again and the loss scale does not recover"])
    if case.family is not Family.NONFINITE or case.is_bad("nonfinite_input"):
        return _NOTHING
    if root.detail.get("value") != "Infinity":
        return _NOTHING
    if "16" in _precision(case.facts) and "bf" not in _precision(case.facts):
        return (0.5, ["the first bad value was infinite, not NaN, and half precision ends at 65504"])
    return (0.35, ["the first bad value was infinite, not NaN"])


def _is_endless_skip(case: Case) -> bool:
    """Whether the gradients of all ranks overflowed at skips that loss scaling explains one by one."""
    if case.family is not Family.NONFINITE or case.names_ranks or case.origin.phase > Phase.REDUCE_OUT:
        return False
    skips = (one for one in case.findings.annotations if one.kind == "loss_scale_skip")
    spans = ((one.iteration, one.detail.get("last_iteration")) for one in skips)
    return case.origin.phase >= Phase.BACKWARD and any(
        isinstance(last, int) and first <= case.first.iteration <= last for first, last in spans
    )


def _precision(facts: AttemptFacts) -> str:
    """The precision that the run_start event gave, in lower case; empty without one."""
    return str(facts.run_start.get("precision", "")).lower()


def _software(case: Case) -> Judged:
    if again := failed_again(case.first, LABEL_OF[case.draft.root.pattern], case.before):
        return (0.5, [again])
    if is_rate_of_its_own(case):
        return (0.6, ["its learning rate differs from that of its peers"])
    if case.origin.metric.startswith("data_checksum"):
        shared = "distinct" in str(case.draft.root.detail.get("relation", ""))
        return (0.5 if shared else 0.6, ["the sampler or its seed gives ranks the wrong data"])
    if is_odd_since_start(case):
        return (0.5, ["it differed at the first check already: initialisation or broadcast may be at fault"])
    if case.family is Family.NONFINITE and not case.names_ranks and case.origin.is_reduce_in_clean:
        if len(case.facts.ranks) <= 1:
            return (
                0.4,
                ["finite when the backward pass ended and not behind it: clipping, scaling, a stray write"],
            )
        is_after = case.origin.phase > Phase.REDUCE_OUT and not is_of_an_owner(case)
        return (
            0.5 if is_after else 0.4,
            ["all ranks at once, and each was seen finite before the reduction"],
        )
    if case.family in (Family.NONFINITE, Family.DIFFERENCE) and case.names_ranks and is_shared(case):
        return (0.4, ["several ranks at once: what they share, software or a link, is likelier"])
    if is_contribution(case):
        return (0.35, ["a reduction that starts before the gradient is written would look the same"])
    if case.draft.root.detail.get(WIDENED) == BEFORE_REDUCTION:
        return (0.45, ["a replicated layer parts along tp alone: its gradients may not be added up there"])
    if case.family is Family.DIFFERENCE and (case.names_ranks or case.first.tie):
        return (0.25, ["a stray write or a race would look the same"])
    if case.family is Family.NONFINITE and case.names_ranks:
        return (0.2, ["a division by zero or a stray write would look the same"])
    return _NOTHING


def _undetermined(case: Case) -> Judged:
    if case.names_ranks:
        return (0.4, ["nothing in this telemetry tells hardware, data and software apart"])
    if case.family is Family.NONFINITE:
        if len(case.facts.ranks) <= 1:
            return (0.6, ["one rank reports: nothing to compare it with"])
        return (0.6, ["all ranks at once, and not every rank was seen finite before the reduction"])
    if case.family is Family.CURVE:
        return (0.6, ["the curve alone does not tell a corrupted update from data or schedule"])
    if case.family in (Family.STALL, Family.DIFFERENCE):
        return (0.5, ["no rank can be named"])
    if "lr" not in case.facts.metrics:
        return (0.5, ["growth, and no learning rate was reported: all kinds of causes look the same"])
    return (0.5, ["growth without a change of the learning rate: all kinds of causes look the same"])


_RULES: tuple[tuple[CauseKind, Callable[[Case], Judged]], ...] = (
    (CauseKind.HARDWARE, of_device),
    (CauseKind.COLLECTIVE, _collective),
    (CauseKind.HYPERPARAMETER, _hyperparameter),
    (CauseKind.DATA, _data),
    (CauseKind.LOSS_FUNCTION, _loss_function),
    (CauseKind.NUMERIC_OVERFLOW, _numeric_overflow),
    (CauseKind.SOFTWARE, _software),
)
