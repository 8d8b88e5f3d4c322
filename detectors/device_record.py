"""What speaks against the device under a suspect: hardware events, and the incidents of earlier attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firstfault.device_names import is_same_device, is_same_host
from firstfault.telemetry import UNNAMED_RANK, Event

from .evidence import Certainty, Label
from .facts import AttemptFacts
from .incident import First, Incident, Scope, Suspect
from .locate import place_of

ROOT_XIDS = frozenset({48, 63, 64, 74, 79, 92, 94, 95})
"""NVIDIA Xids that tell of the device: ECC, row remapping, NVLink, off the bus, contained errors."""
CONSEQUENCE_XIDS = frozenset({13, 31, 43, 45})
"""Xids that the program mostly causes: exceptions, page faults, a channel stopped, preemptive cleanup."""
NEAR_ITERATIONS = 100
"""Hardware events up to this far from the interval of the fault count as near its onset."""
FAILED, PASSED = "fail", "pass"
"""The field ``result`` of an event that tells of a test of the device."""
_MAX_REASONS = 4
"""Events told per incident; more of them say nothing new."""


@dataclass(frozen=True, slots=True)
class Record:
    """Reasons in words, by weight."""

    near: tuple[str, ...] = ()
    """Device faults near the onset."""
    older: tuple[str, ...] = ()
    """Device faults, or incidents with the same suspect, at other times."""
    follows: tuple[str, ...] = ()
    """Another rank was the suspect on the same device: the fault follows the device."""
    weak: tuple[str, ...] = ()
    """Events that are mostly consequences, or warnings."""
    failed: tuple[str, ...] = ()
    """Tests of the devices that failed, whenever they were made."""
    is_assumed: bool = False
    """Whether the place of each of these devices was taken from the order of ranks."""
    passed: tuple[str, ...] = ()
    """Tests of the devices that found nothing."""


def device_record(
    first: First, facts: AttemptFacts, earlier: Sequence[AttemptFacts], before: Sequence[Incident]
) -> Record:
    """The record of the suspects' devices and hosts; of any device when no rank is named."""
    near, older, weak, failed, passed = [], [], [], [], []
    is_assumed = True
    for attempt in (facts, *earlier):
        for event in sorted(
            attempt.hardware, key=lambda one: (one.iteration, one.rank, str(dict(one.fields)))
        ):
            if not _is_about(event, first):
                continue
            told = tell(event)
            result = event.fields.get("result")
            if result == PASSED and has_moment(event):
                passed.append(told)
            elif result == FAILED and (has_moment(event) or (attempt is facts and _is_near(event, first))):
                failed.append(told)
                is_assumed = is_assumed and bool(event.fields.get("rank_is_assumed"))
            elif not is_device_fault(event):
                weak.append(told)
            elif has_moment(event):
                older.append(told)
            elif attempt is facts and _is_near(event, first):
                near.append(told)
            elif attempt is not facts or event.iteration <= first.interval[1]:
                older.append(told)
    older = list(dict.fromkeys(older))
    follows, again = _repeat_offender(first, before, {one.attempt: one for one in earlier})
    return Record(
        near=tuple(near[:_MAX_REASONS]),
        older=tuple([*older, *again][:_MAX_REASONS]),
        follows=tuple(follows[:_MAX_REASONS]),
        weak=tuple(dict.fromkeys(weak))[:_MAX_REASONS],
        failed=tuple(dict.fromkeys(failed))[:_MAX_REASONS],
        is_assumed=is_assumed,
        passed=() if failed else tuple(dict.fromkeys(passed))[:_MAX_REASONS],
    )


def _is_about(event: Event, first: First) -> bool:
    return first.scope is not Scope.RANKS or any(_is_of(event, suspect) for suspect in first.suspects)


def _is_of(event: Event, suspect: Suspect) -> bool:
    """Whether an event can speak of the device or the host of a suspect."""
    device, host = event.fields.get("device"), event.fields.get("host")
    if host is not None and not is_same_host(str(host), suspect.host):
        return False
    # What comes from a report was joined to its rank already, where that could be done.
    is_reported = "moment" in event.fields
    if is_reported and event.rank == suspect.rank:
        return True
    if device is not None and suspect.device is not None:
        # One host holds many devices: where both sides name one, the device decides.
        return any(is_same_device(name, suspect.device) for name in _names_of(event))
    if host is not None and suspect.host is not None:
        return not is_reported or device is None
    return host is None and event.rank == suspect.rank


def _names_of(event: Event) -> list[str]:
    others = event.fields.get("names")
    named = [str(name) for name in others] if isinstance(others, list) else []
    return [str(event.fields["device"]), *named]


def has_moment(event: Event) -> bool:
    """Whether an event comes from a report that does not say that it was made while the run went on."""
    return event.fields.get("moment", "during") != "during"


def is_device_fault(event: Event) -> bool:
    """Whether an event speaks of a defective device, and not of a program or a passing state."""
    if event.fields.get("result") == FAILED:
        return True
    kind = event.fields.get("kind")
    if kind in ("ecc_uncorrectable", "mce"):
        return True
    return kind == "xid" and _code(event) in ROOT_XIDS


def _code(event: Event) -> int | None:
    code = str(event.fields.get("code", ""))
    return int(code) if code.isascii() and code.isdigit() and len(code) < 6 else None


def _is_near(event: Event, first: First) -> bool:
    low, high = first.interval
    return (high if low is None else low) - NEAR_ITERATIONS <= event.iteration <= high + NEAR_ITERATIONS


def tell(event: Event) -> str:
    """The event in words: what, where and when."""
    kind, code = event.fields.get("kind"), _code(event)
    what = f"Xid {code}" if kind == "xid" and code is not None else str(kind)[:40]
    if event.fields.get("result") in (FAILED, PASSED):
        what = f"{event.fields.get('source', 'a diagnosis')}: {str(event.fields.get('text', ''))[:120]}"
    where = event.fields.get("device") or event.fields.get("host") or f"rank {event.rank}"
    if "moment" in event.fields:
        where = _place(event)
    told = f"{what} on {str(where)[:100]} {_when(event)}".rstrip()
    return f"{told}, mostly a consequence" if kind == "xid" and code in CONSEQUENCE_XIDS else told


def _place(event: Event) -> str:
    device, host = event.fields.get("device"), event.fields.get("host")
    where = " of ".join(
        str(part) for part in (f"device {device}" if device is not None else None, host) if part
    )
    if event.rank == UNNAMED_RANK or not where:
        return where or f"rank {event.rank}"
    taken = ", taken to be its place" if event.fields.get("rank_is_assumed") else ""
    return f"{where} (rank {event.rank}{taken})"


def _when(event: Event) -> str:
    """A report that has no time in the run says nothing of when; a test is told without."""
    if event.fields.get("moment", "during") == "during":
        return f"at iteration {event.iteration}"
    return {"before": "before the run", "after": "after the run"}.get(str(event.fields["moment"]), "")


def _repeat_offender(
    first: First, before: Sequence[Incident], earlier: Mapping[int, AttemptFacts]
) -> tuple[list[str], list[str]]:
    """What followed its device to another rank, and what merely failed in the same place again."""
    follows, again = [], []
    if first.scope is not Scope.RANKS or first.tie:
        return [], []
    for incident in before:
        if incident.certainty is not Certainty.CONFIRMED or incident.first.tie:
            continue
        for old in incident.first.suspects:
            for new in first.suspects:
                if not _is_same_device(old.device, new.device, old.host, new.host):
                    continue
                where = f"{new.device or new.host} was the suspect in attempt {incident.first.attempt} too"
                if old.rank == new.rank:
                    again.append(where)
                elif _has_moved(old, new, earlier.get(incident.first.attempt)):
                    follows.append(f"{where}, as rank {old.rank}: the fault follows the device")
                else:
                    again.append(f"{where}, as rank {old.rank}")
    return follows, again


def _has_moved(old: Suspect, new: Suspect, then: AttemptFacts | None) -> bool:
    """Whether the device changed its rank. A host holds many: one that was there before has not moved."""
    if old.device is not None and new.device is not None:
        return True
    return then is None or place_of(new.rank, then)[0] != old.host


def _is_same_device(old: str | None, new: str | None, old_host: str | None, new_host: str | None) -> bool:
    if old is not None and new is not None:
        return old == new and old_host == new_host
    return old_host is not None and old_host == new_host


def failed_again(first: First, label: Label, before: Sequence[Incident]) -> str:
    """Said when an earlier attempt failed in the same place on other devices; else empty."""
    mine = _devices(first)
    for incident in before:
        low, high = incident.first.interval
        is_same = incident.label is label and (-1 if low is None else low) < first.iteration <= high
        others = _devices(incident.first)
        if incident.certainty is Certainty.CONFIRMED and is_same and mine and others and not mine & others:
            where = "host" if {host for host, _ in mine}.isdisjoint(host for host, _ in others) else "device"
            return f"attempt {incident.first.attempt} failed at the same iteration on another {where}"
    return ""


def _devices(first: First) -> set[tuple[str, str]]:
    """(host, device) of the suspects, each empty where it is unknown; none where both are."""
    return {(one.host or "", one.device or "") for one in first.suspects if one.host or one.device}
