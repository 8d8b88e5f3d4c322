"""What may lie behind a stall, and how to look: the rules of `causes` and `advice` for this family."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping

from firstfault.telemetry import Phase

from .case import Case
from .evidence import Pattern
from .incident import Advice, CauseKind
from .stall_evidence import HEARTBEAT
from .standstill import COLLECTIVE_PHASES

Judged = tuple[float, list[str]]
_NOTHING: Judged = (0.0, [])
MAX_HOSTS = 4
"""Hosts that get a command of their own."""


def of_hardware(case: Case) -> Judged:
    """How far a stall speaks against a device or its host, beside what is on record against it."""
    if not case.names_ranks:
        return _NOTHING
    if case.first.rank_count > 1 and not case.is_on_one_host:
        return (0.2, ["ranks of several hosts rarely hang at once"])
    who = f"rank {case.first.ranks[0]} alone" if case.first.rank_count == 1 else "the ranks of one host"
    if _is_slow(case):
        return (0.45, [f"{who} got slower: a device that throttles, its memory or its link may be failing"])
    if case.draft.root.metric != HEARTBEAT:
        return (0.35, [f"{who} fell silent; a lost reporter would look the same"])
    if case.draft.root.detail.get("heartbeats_ended"):
        return (0.5, [f"{who} did not come to where the others wait, and its heartbeats ended"])
    return (0.4, [f"{who} did not come to where the others wait"])


def of_collective(case: Case) -> Judged:
    """Whether all wait inside one collective, with nobody missing."""
    root = case.draft.root
    if _is_slow(case) and not case.names_ranks:
        return (0.3, ["ranks that wait for each other are all as slow as the slowest link or rank"])
    is_inside = case.origin.phase in COLLECTIVE_PHASES
    if root.metric == HEARTBEAT and not case.names_ranks and is_inside and "others_wait_in" in root.detail:
        return (0.5, [_who_waits(case)])
    return _NOTHING


def _who_waits(case: Case) -> str:
    where, waiting = case.origin.phase.label, case.draft.root.detail.get("waiting_ranks")
    reporters = len(case.facts.ranks)
    if isinstance(waiting, int) and waiting < reporters:
        return f"{waiting} of {reporters} ranks say that they wait in {where}: the others may be missing"
    return f"all ranks wait in {where} and none is missing"


def of_data(case: Case) -> Judged:
    """Whether the ranks that are missing were reading data."""
    if _is_slow(case):
        return (0.2, ["longer sequences, or data that is slower to load, take longer too"])
    if case.draft.root.metric == HEARTBEAT and case.names_ranks and case.origin.phase is Phase.DATA:
        return (0.45, ["it was reading data when the others began to wait"])
    return _NOTHING


def of_software(case: Case) -> Judged:
    """A deadlock looks like any other hang, and a busy host like a slow device."""
    if _is_slow(case):
        what = "on its host" if case.names_ranks else "in what all ranks share: storage, network, code, data"
        return (0.4, [f"something else {what} may take the time"])
    if not case.names_ranks:
        return (0.3, ["a deadlock, or ranks that entered different collectives, would look the same"])
    if case.draft.root.metric != HEARTBEAT:
        return (0.4, ["its process, or only its reporter, may have ended while the others went on"])
    return (0.35, ["a deadlock, a slow disk or an exception on it would look the same"])


STALL_RULES: Mapping[CauseKind, Callable[[Case], Judged]] = {
    CauseKind.COLLECTIVE: of_collective,
    CauseKind.DATA: of_data,
    CauseKind.SOFTWARE: of_software,
}
"""In the place of what `causes` asks of values that went wrong."""


def look_into(case: Case) -> list[Advice]:
    """Where the suspects are stuck, and which collective the others wait in; why they are slow."""
    if _is_slow(case):
        return _look_at_clocks(case)
    steps = [
        Advice(action="dump_stacks", target=host, command=_dump(host))
        for host in list(dict.fromkeys(one.host for one in case.first.suspects if one.host))[:MAX_HOSTS]
    ]
    if not steps and case.first.ranks:
        steps = [Advice(action="dump_stacks", target=f"the host of rank {case.first.ranks[0]}")]
    if case.draft.root.metric == HEARTBEAT:
        target = "every rank: which collective did the suspects not enter"
        steps.append(Advice(action="read_flight_recorder", target=target))
    return steps


def _is_slow(case: Case) -> bool:
    """Whether steps take longer, in place of not ending at all."""
    return case.draft.root.pattern is Pattern.UTILIZATION_DROP


def _look_at_clocks(case: Case) -> list[Advice]:
    """What a device says of its clocks, and of why they are low."""
    hosts = list(dict.fromkeys(one.host for one in case.first.suspects if one.host))[:MAX_HOSTS]
    steps = [Advice(action="check_clocks", target=host, command=_clocks(host)) for host in hosts]
    if not steps:
        who = f"the host of rank {case.first.ranks[0]}" if case.first.ranks else "every host"
        steps = [Advice(action="check_clocks", target=who)]
    if not case.first.ranks:
        wanted = "the time each rank computes, without waiting for the others, as step_time_s"
        steps.append(Advice(action="collect_telemetry", target=wanted))
    return steps


def _clocks(host: str) -> str | None:
    if not (host.isascii() and host.isprintable()):
        return None
    return shlex.join(["ssh", "--", host, "nvidia-smi -q -d CLOCK,PERFORMANCE,TEMPERATURE"])


def _dump(host: str) -> str | None:
    # The processes are asked for on the host itself: nobody here knows their numbers.
    if not (host.isascii() and host.isprintable()):
        return None
    return shlex.join(["ssh", "--", host, "pgrep python | xargs -r -n 1 py-spy dump --pid"])
