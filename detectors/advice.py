"""What to do about an incident: follows the ranked causes, with commands quoted for a POSIX shell.

Host names come from telemetry, which anybody may have written: they are quoted, never placed where
they could be read as an option, and one that a terminal would not show as it is gets no command.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from .case import Case
from .evaluation_causes import evaluate_again
from .evidence import Certainty, Pattern
from .incident import Advice, Cause, CauseKind, LastGood, Scope
from .linear_evidence import FAULT
from .precedence import Family
from .stall_causes import look_into

MIN_CONFIDENCE = 0.25
"""Causes below it are told but not acted upon."""
DRAIN_CONFIDENCE = 0.6
"""From it on a host is drained; below it, it is diagnosed first, since draining costs a node."""
_PLAIN_HOST = re.compile(r"[A-Za-z0-9._:-]{1,253}")
MAX_HOSTS = 4
"""Hosts that get a line of their own: a longer list is a fault of something they share."""


def advise(case: Case, causes: Sequence[Cause], good: LastGood) -> tuple[Advice, ...]:
    """Steps in the order in which to take them; none for what recovered by itself."""
    if case.draft.certainty is Certainty.RECOVERED:
        return ()
    steps: list[Advice] = look_into(case) if case.family is Family.STALL else []
    if case.is_of_evaluation:
        steps = evaluate_again(good)
    for cause in causes:
        if cause.confidence >= MIN_CONFIDENCE:
            steps += _for_cause(case, cause)
    pattern = case.draft.root.pattern
    if case.draft.certainty is Certainty.CONFIRMED and pattern is not Pattern.UTILIZATION_DROP:
        steps += _restore(case, good)
    if case.first.tie or case.first.scope is not Scope.RANKS or pattern is Pattern.PEER_DRIFT:
        steps += _collect(case)
    if case.family is Family.EXPLOSION and causes[:1] and causes[0].kind is CauseKind.UNDETERMINED:
        steps += _collect_missing(case, "lr", "grad_norm", "local_grad_norm")
    return tuple(dict.fromkeys(steps))


def _for_cause(case: Case, cause: Cause) -> list[Advice]:
    where = _where(case)
    match cause.kind:
        case CauseKind.HARDWARE:
            return _hardware(case, cause)
        case CauseKind.COLLECTIVE:
            return [
                Advice(
                    action="test_collectives", target=where, command="all_reduce_perf -b 8 -e 1G -f 2 -c 1"
                )
            ]
        case CauseKind.HYPERPARAMETER:
            return [
                Advice(action="lower_learning_rate", target=where),
                Advice(action="clip_gradients", target=where),
            ]
        case CauseKind.DATA:
            return [Advice(action="clean_data", target=f"the samples of {where}")]
        case CauseKind.LOSS_FUNCTION:
            return [Advice(action="print_in_loss", target=where)]
        case CauseKind.NUMERIC_OVERFLOW:
            return [Advice(action="use_wider_type", target=where)]
        case CauseKind.SOFTWARE:
            return [Advice(action="check_software", target=where)]
        case CauseKind.UNDETERMINED:
            return []


def _where(case: Case) -> str:
    ranks = case.first.ranks
    who = "all ranks" if not ranks else f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {_some(ranks)}"
    if case.first.scope is Scope.UNKNOWN:
        who = "the run"
    return f"{who} at iteration {case.first.iteration}"


def _some(ranks: Sequence[int]) -> str:
    shown = ", ".join(str(rank) for rank in ranks[:8])
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"


def _hardware(case: Case, cause: Cause) -> list[Advice]:
    hosts = list(dict.fromkeys(one.host for one in case.first.suspects if one.host))
    is_confirmed = case.draft.certainty is Certainty.CONFIRMED
    is_sure = is_confirmed and cause.confidence >= DRAIN_CONFIDENCE and not case.first.tie
    steps: list[Advice] = []
    for host in hosts[:MAX_HOSTS]:
        if is_sure and len(hosts) <= MAX_HOSTS:
            steps.append(Advice(action="drain_host", target=host, command=_drain(host, case)))
        steps.append(Advice(action="run_diagnostics", target=host, command=_diagnose(host)))
    if not hosts and case.first.ranks:
        who = f"the host of ranks {_some(case.first.ranks)}" if len(case.first.ranks) > 1 else ""
        who = who or f"the host of rank {case.first.ranks[0]}"
        steps.append(Advice(action="drain_host" if is_sure else "run_diagnostics", target=who))
    if case.is_one_rank_log and not hosts:
        steps.append(Advice(action="run_diagnostics", target="the host that reports"))
    return steps


def _drain(host: str, case: Case) -> str | None:
    # Slurm reads brackets and commas as a list of nodes: only a plain name drains one node.
    if not _PLAIN_HOST.fullmatch(host):
        return None
    reason = f"firstfault: {case.draft.root.pattern.value} at iteration {case.first.iteration}"
    return shlex.join(["scontrol", "update", f"nodename={host}", "state=drain", f"reason={reason}"])


def _diagnose(host: str) -> str | None:
    # Level 3: 15 minutes; the shorter levels miss most of the devices that compute wrong.
    return shlex.join(["ssh", "--", host, "dcgmi", "diag", "-r", "3"]) if _is_printable(host) else None


def _is_printable(text: str) -> bool:
    """Whether a terminal shows ``text`` as it is, so that a person sees what would be run."""
    return text.isascii() and text.isprintable()


def _restore(case: Case, good: LastGood) -> list[Advice]:
    steps = []
    low, high = case.first.interval
    if good.checkpoint_iteration is not None:
        target = good.checkpoint or f"the checkpoint of iteration {good.checkpoint_iteration}"
        steps.append(Advice(action="restore_checkpoint", target=target))
    elif good.iteration is not None:
        steps.append(
            Advice(
                action="restore_checkpoint", target=f"a checkpoint of iteration {good.iteration} or before"
            )
        )
    if (
        case.family is Family.DIFFERENCE
        and low is not None
        and not case.origin.metric.startswith("data_checksum")
    ):
        steps.append(Advice(action="replay_iterations", target=f"{low + 1} to {high} on another device"))
    return steps


def _collect(case: Case) -> list[Advice]:
    """Which telemetry would tell more the next time; none where what there is has told all."""
    if case.family is Family.CURVE:
        return [Advice(action="collect_telemetry", target="param_checksum and canary_checksum on every rank")]
    if FAULT in case.draft.root.detail:
        target = "grad_sketch_in and grad_sketch_out of smaller buckets, and grad_checksum, on every rank"
        return [Advice(action="collect_telemetry", target=target)]
    if case.draft.root.pattern is Pattern.PEER_DRIFT:
        return [
            Advice(action="collect_telemetry", target="canary_checksum and repeat_checksum on every rank")
        ]
    if case.family is Family.DIFFERENCE and not case.origin.metric.startswith("data_checksum"):
        return [Advice(action="collect_telemetry", target="repeat_checksum on every rank")]
    if case.family is Family.NONFINITE and not case.origin.is_reduce_in_clean:
        return _collect_missing(case, "local_grad_norm", "nonfinite_act", "nonfinite_grad")
    return []


def _collect_missing(case: Case, *wanted: str) -> list[Advice]:
    missing = [metric for metric in wanted if metric not in case.facts.metrics]
    if not missing:
        return []
    names = " and ".join([", ".join(missing[:-1]), missing[-1]] if missing[1:] else missing)
    return [Advice(action="collect_telemetry", target=f"{names} on every rank")]
