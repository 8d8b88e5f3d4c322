"""What may lie behind a stall, and how to look: the rules of `causes` and `advice` for this family."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping

from firstfault.telemetry import Phase

from .case import Case
from .endings import LAST_WORDS
from .evidence import Evidence, Pattern
from .incident import Advice, CauseKind
from .stall_evidence import HEARTBEAT
from .standstill import COLLECTIVE_PHASES

Judged = tuple[float, list[str]]
_NOTHING: Judged = (0.0, [])
_OF_DEVICE = re.compile(
    r"\becc\b|uncorrectable|xid|hardware error|misaligned address|illegal (memory|instruction)|bus error"
    r"|device-side|launch failure|fell off|nvlink",
    re.IGNORECASE,
)
"""Words by which an exception speaks of the device, or of what a defective one makes of a sound program."""
MAX_HOSTS = 4
"""Hosts that get a command of their own."""


def of_hardware(case: Case) -> Judged:
    """How far a stall speaks against a device or its host, beside what is on record against it."""
    if (death := _death(case)) is not None:
        return _of_device(case, death)
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
    if (death := _death(case)) is not None:
        if death.detail.get("is_of_others") and not case.names_ranks:
            return (0.5, [f"{_exception(death)}: of what ended the first of them nothing was told"])
        return _NOTHING
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
    if (death := _death(case)) is not None:
        is_reading = death.phase is Phase.DATA and not death.detail.get("is_of_others")
        return (0.65, [f"it was reading data: {_exception(death)}"]) if is_reading else _NOTHING
    if case.draft.root.metric == HEARTBEAT and case.names_ranks and case.origin.phase is Phase.DATA:
        return (0.45, ["it was reading data when the others began to wait"])
    return _NOTHING


def of_software(case: Case) -> Judged:
    """A deadlock looks like any other hang, and a busy host like a slow device."""
    if (death := _death(case)) is not None:
        if death.detail.get("is_of_others"):
            return (0.4, ["a process that the system ends, for want of memory for instance, says nothing"])
        return (0.6, [f"an exception that nobody caught ended the process: {_exception(death)}"])
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
    if _death(case) is not None:
        return _read_traceback(case)
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


def _death(case: Case) -> Evidence | None:
    """What a process said last, where it is the root or tells of the same ranks as the root does."""
    told = (one for one in case.draft.members if one.metric == LAST_WORDS)
    return next((one for one in told if set(one.ranks) == set(case.draft.root.ranks)), None)


def _exception(death: Evidence) -> str:
    name, text = death.detail["exception"], death.detail["text"]
    return f"{name}: {text}" if text else str(name)


def _of_device(case: Case, death: Evidence) -> Judged:
    """What an exception says of a device, by its words."""
    if death.detail.get("is_of_others"):
        who = "a process of a device or host that fails ends without a word, and so does one that was killed"
        return (0.4, [who]) if case.names_ranks else _NOTHING
    told = _exception(death)
    return (0.65, [f"the exception speaks of the device: {told}"]) if _OF_DEVICE.search(told) else _NOTHING


def _is_slow(case: Case) -> bool:
    """Whether steps take longer, in place of not ending at all."""
    return case.draft.root.pattern is Pattern.UTILIZATION_DROP


def _read_traceback(case: Case) -> list[Advice]:
    """Of a process that is gone only what it printed is left."""
    who = ", ".join(str(rank) for rank in case.first.ranks[:MAX_HOSTS])
    whose = f"rank {who}" if who else "the rank that died first"
    return [Advice(action="read_traceback", target=f"what {whose} printed last")]


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
