"""Evidence becomes incidents, incidents become the verdict of a run.

`fuse` is a pure function of the findings: the order in which they come has no say, and neither do
the clock and the cutting of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from firstfault.telemetry import Phase

from .advice import advise
from .agreed_before import confirm_agreed
from .case import Case
from .cause_graph import phase_of
from .causes import rank_causes
from .coverage import cover, has_judged
from .crowd import doubt_crowds
from .determinism import doubt_computations
from .drafts import Draft, draft_incidents, interval_of
from .evidence import LABEL_OF, Annotation, Certainty, Evidence, Label
from .facts import AttemptFacts, AttemptFindings, InputFacts
from .hardware_notes import hardware_notes
from .incident import (
    MAX_LISTED_EVIDENCE,
    MAX_LISTED_RANKS,
    ChainLink,
    EvidenceItem,
    First,
    Incident,
    Severity,
)
from .locate import first_of, locate, named, place_of
from .objective import doubt_objectives
from .precedence import Family, family, position
from .reference import meet
from .remedy import cost_of, last_good
from .reports import spread
from .roles import Role
from .verdict import AttemptVerdict, Verdict, incident_id

_WEIGHT = {Certainty.CONFIRMED: 0, Certainty.SUSPECTED: 1, Certainty.RECOVERED: 2}
"""Confirmed incidents are listed first, so that the first one listed is the root; each by first position."""
MAX_ANNOTATIONS = 1000
"""Annotations listed: a series is one annotation, so more than this is a flood."""


def fuse(run: str, attempts: Sequence[AttemptFindings], inputs: InputFacts) -> Verdict:
    """The verdict of ``run`` over its ``attempts``, in whatever order these and their findings come."""
    sorted_by_attempt = sorted(attempts, key=lambda one: one.facts.attempt)
    ordered = spread(sorted_by_attempt)
    incidents: list[Incident] = []
    judged: list[AttemptVerdict] = []
    for at, alone in enumerate(ordered):
        findings = meet(confirm_agreed(alone, ordered[:at]), ordered[:at], incidents)
        ordered[at] = findings
        earlier = [one.facts for one in ordered if one.facts.attempt < findings.facts.attempt]
        found = _incidents(run, findings, earlier, incidents)
        incidents.extend(found)
        judged.append(
            AttemptVerdict(
                attempt=findings.facts.attempt,
                label=_label(found, has_judged([findings])),
                first_iteration=findings.facts.first_iteration,
                last_iteration=findings.facts.judged_to,
            )
        )
    ends = [one.facts.judged_to for one in ordered if one.facts.judged_to is not None]
    return Verdict(
        run=run,
        label=_label(incidents, has_judged(ordered)),
        judged_to_iteration=ends[-1] if ends else None,
        attempts=tuple(judged),
        incidents=tuple(sorted(incidents, key=lambda one: _WEIGHT[one.certainty])),
        annotations=_annotations(ordered, [one.facts for one in sorted_by_attempt]),
        coverage=cover(ordered, inputs),
    )


def _label(incidents: Sequence[Incident], is_judged: bool) -> Label:
    """The label of the first confirmed incident; without one healthy, if anything could be judged."""
    confirmed = (one.label for one in incidents if one.certainty is Certainty.CONFIRMED)
    return next(confirmed, Label.HEALTHY if is_judged else Label.UNDETERMINED)


def _annotations(
    attempts: Iterable[AttemptFindings], facts: Sequence[AttemptFacts]
) -> tuple[Annotation, ...]:
    every = [one for findings in attempts for one in findings.annotations]
    every += hardware_notes(facts)
    every.sort(key=lambda one: (one.attempt, one.iteration, one.kind, one.key))
    return tuple(every[:MAX_ANNOTATIONS])


def _incidents(
    run: str, findings: AttemptFindings, earlier: Sequence[AttemptFacts], before: Sequence[Incident]
) -> list[Incident]:
    """The incidents of one attempt by first position; ``before`` are those of earlier attempts."""
    facts = findings.facts
    hosts = {rank: place_of(rank, facts)[0] for rank in facts.ranks} if findings.evidence else {}
    certain = doubt_computations(findings.evidence, findings.annotations)
    doubted = doubt_objectives(certain, facts.metrics)
    drafts = draft_incidents(doubt_crowds(doubted, hosts, facts.layout))
    # The ordinal counts incidents as they were detected: one found later leaves the ids of others alone.
    by_alarm = sorted(range(len(drafts)), key=lambda at: (drafts[at].alarm_iteration, at))
    ordinal = {at: place for place, at in enumerate(by_alarm)}
    built = [
        _incident(incident_id(run, facts.attempt, ordinal[at]), draft, findings, earlier, before)
        for at, draft in enumerate(drafts)
    ]
    order = {phase.label: int(phase) for phase in Phase}
    return sorted(
        built,
        key=lambda one: (one.first.iteration, order[one.first.phase], one.detected_at_iteration, one.id),
    )


def _incident(
    name: str,
    draft: Draft,
    findings: AttemptFindings,
    earlier: Sequence[AttemptFacts],
    before: Sequence[Incident],
) -> Incident:
    facts, root = findings.facts, draft.root
    origin = locate(draft, facts)
    first = first_of(origin, draft, facts)
    good = last_good(draft, first, [*earlier, facts], before)
    case = Case(
        draft=draft,
        origin=origin,
        first=first,
        findings=findings,
        earlier=tuple(earlier),
        before=tuple(before),
    )
    causes = rank_causes(case)
    every = sorted([*draft.members, *draft.attached], key=lambda one: (one is not root, *position(one)))
    return Incident(
        id=name,
        label=LABEL_OF[root.pattern],
        pattern=root.pattern,
        certainty=draft.certainty,
        severity=_severity(draft),
        first=first,
        detected_at_iteration=draft.alarm_iteration,
        chain=_chain(draft, first),
        causes=causes,
        last_good=good,
        cost=cost_of(first, good, facts),
        evidence=tuple(_item(one, facts.roles) for one in every[:MAX_LISTED_EVIDENCE]),
        evidence_count=len(every),
        advice=advise(case, causes, good),
    )


def _severity(draft: Draft) -> Severity:
    if draft.certainty is Certainty.CONFIRMED:
        # The shape of a curve alone is the weakest of confirmed evidence: look at it, do not page for it.
        return (
            Severity.WARNING
            if all(family(one) is Family.CURVE for one in draft.members)
            else Severity.CRITICAL
        )
    return Severity.WARNING if draft.certainty is Certainty.SUSPECTED else Severity.INFO


_LOUDNESS = (Label.SILENT_DRIFT, Label.GRADIENT_EXPLOSION, Label.NAN, Label.STALL)
"""What a fault grows into; a quieter label behind a louder one is part of it and no link of its own."""


def _chain(draft: Draft, first: First) -> tuple[ChainLink, ...]:
    """The root's label, and each louder one from where it held."""
    links = [ChainLink(LABEL_OF[draft.root.pattern], first.iteration)]
    for member in sorted(draft.members, key=lambda one: (one.iteration, *position(one))):
        label = LABEL_OF[member.pattern]
        is_louder = _LOUDNESS.index(label) > _LOUDNESS.index(links[-1].label)
        if is_louder and member.iteration >= first.iteration:
            links.append(ChainLink(label, member.iteration))
    return tuple(links)


def _item(evidence: Evidence, roles: Mapping[str, Role]) -> EvidenceItem:
    ranks = named(evidence.ranks)
    low, high = interval_of(evidence)
    return EvidenceItem(
        detector=evidence.detector,
        metric=evidence.metric,
        pattern=evidence.pattern,
        certainty=evidence.certainty,
        phase=phase_of(evidence.metric, roles.get(evidence.metric, Role.AS_NAMED), evidence.phase).label,
        ranks=ranks[:MAX_LISTED_RANKS],
        rank_count=len(ranks),
        iteration=evidence.iteration,
        interval=(None if low < 0 else low, high),
        statistic=evidence.statistic,
        threshold=evidence.threshold,
        direction=evidence.direction,
        detail=evidence.detail,
    )
