"""An attempt that repeats iterations of an earlier one: a deterministic job must compute the same again.

Detectors see one attempt; here attempts meet, by the checksums that `Trail` keeps of each. Plain data
parallelism hides a wrong computation from all comparisons between ranks, since every replica applies the
same wrong update; its repetition shows it. Axes: R ranks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from firstfault.telemetry import EventKind, Phase, contract_of
from ingest.blocks import Flags, Ranks

from .evidence import (
    Annotation,
    Certainty,
    Check,
    CheckState,
    Direction,
    Evidence,
    Pattern,
    Sight,
)
from .facts import AttemptFacts, AttemptFindings
from .groups import fingerprint
from .incident import Incident
from .reference_exact import PROVING_CHECKS
from .trail import ATTEMPT, Trail, TrailRow

NAME = "reference"
_EXPLAINING = (EventKind.LR_CHANGE, EventKind.BATCH_SIZE, EventKind.DATA_CHANGE, EventKind.MEMBERSHIP)
"""Events after which the same iteration is another computation."""

MAX_ATTEMPTS_BACK = 8
"""Earlier attempts looked through for one that reported the same iterations: launches that die before
they report anything come in rows, but not in long ones."""


@dataclass(frozen=True, slots=True, eq=False)
class _Repeated:
    """One checksum at one position in both attempts."""

    row: TrailRow
    ranks_R: Ranks
    equal_R: Flags


def meet(
    later: AttemptFindings, earlier: Sequence[AttemptFindings], before: Sequence[Incident]
) -> AttemptFindings:
    """``later`` with what its repetition of the newest earlier attempt shows; ``before``: their incidents.

    One difference is told: the first. It is evidence where the job has proved deterministic: some ranks
    repeated it exactly, or everything was equal before it and both launches say so or eight checks showed
    it. Else, or where the earlier attempt had gone wrong by then, it is an annotation: in the last case the
    difference is what the fault did, and the repetition went better.
    """
    if later.trail is None:
        return later
    for reference in reversed(earlier[-MAX_ATTEMPTS_BACK:]):
        repeated = list(_repeated(reference.trail, later.trail))
        if repeated:
            break
    else:
        why = "no checksum was reported of an iteration that a later attempt repeated"
        return _with_check(later, CheckState.NOT_RUN, why)
    if not is_same_job(reference.facts, later.facts):
        return _with_check(later, CheckState.NOT_RUN, "attempts differ in layout, software or world size")
    metrics = tuple(sorted({one.row.metric for one in repeated}))
    checked = _with_check(later, CheckState.RAN, "", metrics)
    at = next((at for at, one in enumerate(repeated) if not one.equal_R.all()), None)
    if at is None:
        return checked
    explained = _explained(repeated, at, reference.facts, later.facts, before)
    if explained:
        note = Annotation(
            kind="not_reproduced",
            key=str(reference.facts.attempt),
            attempt=later.facts.attempt,
            iteration=repeated[at].row.iteration,
            detail={"metric": repeated[at].row.metric, ATTEMPT: reference.facts.attempt, "why": explained},
        )
        return replace(checked, annotations=(*checked.annotations, note))
    evidence = _evidence(repeated, at, reference.facts, later.facts)
    return replace(checked, evidence=(*checked.evidence, evidence))


def _repeated(one: Trail | None, two: Trail | None) -> Iterator[_Repeated]:
    """What both attempts reported, in order of cause."""
    start = None if two is None else two.first_iteration
    if one is None or two is None or start is None:
        return
    known = {(row.iteration, row.microbatch, row.metric): row for row in one.rows_from(start)}
    last = max((iteration for iteration, _, _ in known), default=start - 1)
    again = itertools.takewhile(lambda row: row.iteration <= last, two.rows_from(start))
    rows = sorted(
        (row for row in again if (row.iteration, row.microbatch, row.metric) in known),
        key=lambda row: (row.iteration, row.microbatch, int(contract_of(row.metric).phase), row.metric),
    )
    for row in rows:
        first = known[row.iteration, row.microbatch, row.metric]
        ranks_R, one_R, two_R = np.intersect1d(first.ranks_R, row.ranks_R, return_indices=True)
        if len(ranks_R):
            equal_R: Flags = first.words_R[one_R] == row.words_R[two_R]
            yield _Repeated(row, ranks_R.astype(np.int32), equal_R)


def is_same_job(one: AttemptFacts, two: AttemptFacts) -> bool:
    """Whether two attempts say that they are of one layout, one software and one world size."""
    told = ("software", "world_size", "precision")
    is_told_same = all(one.run_start.get(key) == two.run_start.get(key) for key in told)
    return is_told_same and fingerprint(one.layout) == fingerprint(two.layout)


def _explained(
    repeated: Sequence[_Repeated],
    at: int,
    one: AttemptFacts,
    two: AttemptFacts,
    before: Sequence[Incident],
) -> str:
    """Why the difference at ``at`` accuses nobody; empty where it does."""
    odd = repeated[at]
    iteration = odd.row.iteration
    if any(
        incident.first.attempt == one.attempt
        and incident.certainty is not Certainty.RECOVERED
        and incident.first.iteration <= iteration
        for incident in before
    ):
        return "the earlier attempt had gone wrong by then"
    changes = {(event.kind, event.iteration) for event in two.changes if event.kind in _EXPLAINING} ^ {
        (event.kind, event.iteration) for event in one.changes if event.kind in _EXPLAINING
    }
    if any(start <= iteration for _, start in changes if start >= repeated[0].row.iteration):
        return "the attempts differ in learning rate, batch size, data or members"
    if odd.equal_R.any():  # some ranks repeated it exactly: so it can be repeated
        return ""
    # equal data prove nothing of the state, and an iteration must have been equal as a whole
    equal = {
        one.row.iteration
        for one in repeated[:at]
        if one.row.iteration < iteration and contract_of(one.row.metric).phase > Phase.DATA
    }
    is_declared = all(facts.run_start.get("deterministic") is True for facts in (one, two))
    if not equal:
        return "nothing was equal before: another state was loaded, or other data were read"
    if not is_declared and len(equal) < PROVING_CHECKS:
        return "the job has not proved to be deterministic"
    return ""


def _evidence(repeated: Sequence[_Repeated], at: int, one: AttemptFacts, two: AttemptFacts) -> Evidence:
    odd = repeated[at]
    row, iteration = odd.row, odd.row.iteration
    clean = [each.row.iteration for each in repeated[:at]]
    ranks = tuple(odd.ranks_R[~odd.equal_R].tolist())
    is_known = bool(odd.equal_R.any())
    sight = Sight(
        metric=row.metric,
        iteration=iteration,
        microbatch=row.microbatch,
        ranks_R=odd.ranks_R,
        bad_R=~odd.equal_R,
        clean_R=odd.equal_R,
    )
    return Evidence(
        detector=NAME,
        key=f"{one.attempt}",
        pattern=Pattern.COMPUTE_MISMATCH,
        certainty=Certainty.CONFIRMED if clean else Certainty.SUSPECTED,
        metric=row.metric,
        attempt=two.attempt,
        iteration=iteration,
        first_bad=iteration,
        last_clean=min(max(clean), iteration - 1) if clean else None,
        alarm_iteration=iteration,
        microbatch=row.microbatch,
        # an update that all replicas share names nobody
        ranks=ranks if is_known else (),
        statistic=float(len(ranks)),
        threshold=0.0,
        direction=Direction.DIFFERS,
        phase=two.contracts.of(row.metric).declared_phase,
        detail={
            ATTEMPT: one.attempt,
            "equal_checks": len(clean),
            "compared_ranks": len(odd.ranks_R),
            "differing_ranks": len(ranks),
        },
        sights=(sight,) if is_known else (),
    )


def _with_check(
    findings: AttemptFindings, state: CheckState, why: str, metrics: tuple[str, ...] = ()
) -> AttemptFindings:
    check = Check(name=NAME, state=state, why=why, metrics=metrics)
    return replace(findings, checks=(*findings.checks, check))
