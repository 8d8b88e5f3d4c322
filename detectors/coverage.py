"""What was looked at and what was not: checks with reasons, and what this telemetry can never show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from firstfault.mesh import Layout
from firstfault.telemetry import Kind, MetricContract, Phase, Relation, contract_of

from .cause_graph import phase_of
from .determinism import unsure_computations
from .evidence import Check, CheckState
from .facts import AttemptFacts, AttemptFindings, InputFacts
from .hardware_notes import ending_notes
from .incident import MAX_LISTED_RANKS
from .nonfinite_sites import CHECKED
from .repeat_cadence import REPEATED
from .roles import Role
from .verdict import Coverage

STATE_CHECKSUMS = frozenset({"param_checksum", "optim_checksum"})
MAX_METRICS = 1000
"""Metrics listed; a run with more of them is writing names that hold numbers."""


_OF_PRESENCE = frozenset({"stall"})
"""Checks that look at whether anything was reported: they say nothing of any value."""


def has_judged(attempts: Iterable[AttemptFindings]) -> bool:
    """Whether any detector could run on any value."""
    return any(
        one.facts.positions > 0
        and any(check.state is CheckState.RAN and check.name not in _OF_PRESENCE for check in one.checks)
        for one in attempts
    )


def cover(attempts: Sequence[AttemptFindings], inputs: InputFacts) -> Coverage:
    """The coverage of a run over its attempts, which come in order."""
    every = [one.facts for one in attempts]
    ranks = sorted({rank for facts in every for rank in facts.ranks})
    metrics = sorted({metric for facts in every for metric in facts.metrics})
    # Who is silent is a matter of the present: an attempt that ended has no ranks any more.
    silent, since = (every[-1].silent_ranks, every[-1].silent_since) if every else ((), ())
    return Coverage(
        ranks=len(ranks),
        metrics=tuple(metrics[:MAX_METRICS]),
        checks=_checks(attempts),
        records=inputs.records,
        rejected=inputs.rejected,
        rejected_by={rule: inputs.rejected_by[rule] for rule in sorted(inputs.rejected_by)},
        late=inputs.late,
        duplicates=inputs.duplicates,
        conflicts=inputs.conflicts,
        padding=inputs.padding,
        silent_ranks=silent[:MAX_LISTED_RANKS],
        silent_rank_count=len(silent),
        silent_since=since[:MAX_LISTED_RANKS],
        notes=_unique(_notes(facts) for facts in every),
        blind_to=_unique(
            _blind_to(one.facts) + _unwatched(one) + _uncompared(one) + _unsure(one) for one in attempts
        ),
    )


def _unique(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(line for group in groups for line in group))


def _checks(attempts: Sequence[AttemptFindings]) -> tuple[Check, ...]:
    """Each check once: it ran if it ran in any attempt; the reason is that of the last attempt."""
    merged: dict[str, Check] = {}
    for findings in attempts:
        for check in findings.checks:
            old = merged.get(check.name)
            if old is not None and old.state is CheckState.RAN:
                metrics = tuple(sorted({*old.metrics, *check.metrics}))
                merged[check.name] = Check(name=check.name, state=old.state, why=old.why, metrics=metrics)
            else:
                merged[check.name] = check
    return tuple(merged.values())


def _notes(facts: AttemptFacts) -> list[str]:
    """How the telemetry was read where its names promise something else."""
    notes = ending_notes(facts.hardware)
    for metric, role in sorted(facts.roles.items()):
        if role is Role.LOCAL:
            local = "norm" if metric.endswith("norm") else "value"
            notes.append(f"{metric} differs between ranks from the start: read as a local {local}")
        elif role is Role.GLOBAL:
            notes.append(f"{metric} is bit-equal on all ranks from the start: read as the reduced value")
    if any(metric.endswith(CHECKED) for metric in facts.metrics):
        notes.append("a check of the trainer names the rank it stopped at; ranks are silent where it passes")
    elif facts.positions and len(facts.ranks) <= 1:
        notes.append("one rank reports: there is no peer to compare it with, and no rank can be named")
    elif facts.positions and facts.layout is None:
        notes.append("no layout was given: equality groups are learned, ranks are taken as data parallel")
    expected = facts.world_size or (len(facts.layout.coordinates) if facts.layout else 0)
    if facts.silent_ranks:
        notes.append(_silence(facts))
    if expected > len(facts.ranks) > 0:
        notes.append(f"{len(facts.ranks)} of {expected} ranks report")
    return [*notes, *_unmeasured(facts), *facts.probe_losses]


def _unmeasured(facts: AttemptFacts) -> list[str]:
    """What the probe of the lowest rank says it cannot measure."""
    told = facts.run_start.get("not_measured")
    if not isinstance(told, Mapping):
        return []
    return [f"the probe does not measure {what}: {why}"[:200] for what, why in sorted(told.items())][:20]


def _silence(facts: AttemptFacts) -> str:
    first = min(facts.silent_since, default=0)
    who = f"{len(facts.silent_ranks)} of {len(facts.ranks)} ranks"
    return f"{who} fell silent, the first after iteration {first}: of them nothing is judged beyond"


def _blind_to(facts: AttemptFacts) -> list[str]:
    """What can go wrong without any trace in this telemetry."""
    if not facts.positions:
        return ["everything: no usable record"]
    roles, metrics = facts.roles, facts.metrics
    contracts = [facts.contracts.of(metric) for metric in metrics]
    bases = {metric.partition("/")[0] for metric in metrics}
    blind = []
    is_repeated = any(base.startswith(REPEATED) for base in bases)
    others = [facts.contracts.of(metric) for metric in metrics if not metric.startswith(REPEATED)]
    is_checked = _declares_checksum(others, Phase.FORWARD, Phase.BACKWARD)
    if not is_repeated and not is_checked:
        blind.append("compute faults before the reduction: no canary")
    if facts.unrepeated_since is not None and not is_checked:
        blind.append(
            f"compute faults before the reduction after iteration {facts.unrepeated_since}: no canary since"
        )
    if len(facts.ranks) <= 1:
        blind.append("which rank was first, and replicas that differ: one rank reports")
    else:
        has_checksum = bool(bases & STATE_CHECKSUMS)
        if not has_checksum and not _declares_checksum(contracts, Phase.OPTIMIZER, Phase.STATE):
            blind.append("replicas that differ: no checksums")
        if not bases >= {"grad_sketch_in", "grad_sketch_out"}:
            blind.append(
                "a reduction that goes wrong alike on all ranks: no grad_sketch_in and grad_sketch_out"
            )
        if not any(_is_before_reduction(contract, roles) for contract in contracts):
            blind.append("which rank was first: no metric is taken before the reduction")
    # explosion and drift watch curves by their built-in names, whatever else is declared
    if not any(
        contract_of(metric).kind is Kind.CURVE or metric in ("grad_norm", "global_loss") for metric in metrics
    ):
        blind.append("explosion and drift of the curves: no loss and no gradient norm")
    return blind + _hidden_by(facts.layout)


def _unwatched(findings: AttemptFindings) -> list[str]:
    """That one of several ranks may compute a little wrong unseen: its values met no others."""
    if len(findings.facts.ranks) <= 1:
        return []
    return [
        f"a rank whose losses or norms part from those of its peers: {check.why}"
        for check in findings.checks
        if check.name == "peer_outlier" and check.state is CheckState.NOT_RUN
    ]


def _uncompared(findings: AttemptFindings) -> list[str]:
    """That replicas may differ unseen although they report checksums: no two of them can be compared."""
    facts = findings.facts
    reported = {metric for metric in facts.metrics if metric.partition("/")[0] in STATE_CHECKSUMS}
    is_told = len(facts.ranks) <= 1 or any(
        line.startswith("replicas that differ") for line in _hidden_by(facts.layout)
    )
    for check in findings.checks:
        if check.name == "checksum_vote" and reported and not is_told:
            if check.state is CheckState.NOT_RUN:
                return [f"replicas that differ: {check.why}"]
            if reported.isdisjoint(check.metrics):
                return ["replicas that differ: no two ranks that report a checksum must be equal"]
    return []


def _unsure(findings: AttemptFindings) -> list[str]:
    """That a canary is there and says nothing: the job computes something else each time."""
    if not unsure_computations(findings.annotations) & set(findings.facts.metrics):
        return []
    return [
        "compute faults before the reduction: the job is not deterministic, most ranks differ from themselves"
    ]


def _declares_checksum(contracts: Iterable[MetricContract], *phases: Phase) -> bool:
    """Whether a run declares a checksum of replicas that is taken in one of ``phases``."""
    return any(
        contract.kind is Kind.CHECKSUM
        and contract.declared_phase in phases
        and "dp" in contract.axes(Relation.EQUAL)
        for contract in contracts
    )


def _is_before_reduction(contract: MetricContract, roles: Mapping[str, Role]) -> bool:
    if contract.kind not in (Kind.CURVE, Kind.AGREED, Kind.NONFINITE_COUNT):
        return False
    role = roles.get(contract.name, Role.AS_NAMED)
    return phase_of(contract.name, role, contract.declared_phase) <= Phase.REDUCE_IN


def _hidden_by(layout: Layout | None) -> list[str]:
    """What the layout hides from checksums."""
    if layout is None:
        return []
    if layout.local_iterations > 1:
        alone = f"ranks train alone for {layout.local_iterations} iterations, then it enters the mean"
        return [f"what a rank gets wrong between two outer steps: {alone}"]
    match layout.sharding:
        case "zero1" | "zero2":
            return [
                f"a corrupted optimizer shard: under {layout.sharding} everybody gathers the owner's result",
                "a flip in one rank's gathered parameters: the next gather heals it",
            ]
        case "zero3":
            return ["replicas that differ: under zero3 no rank holds a copy of another's parameters"]
        case "hsdp":
            return [
                "corrupted parameters inside a shard group: under hsdp replicas exist along one axis only"
            ]
    return [] if layout.size("dp") > 1 else ["replicas that differ: the layout has one data-parallel rank"]
