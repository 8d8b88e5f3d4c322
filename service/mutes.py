"""Rules that mute: what they match is not told outside until they end.

A rule changes no incident. What it matches stays in lists with its state, and says that it is muted and why;
when the rule ends, or is ended, the incident is told again. A rule matches an incident if all that it names
matches: the run and every suspect's host as shell patterns (``*``, ``?``), label, pattern, and the detector
of *all* evidence: a rule against one noisy detector must not hide what another one saw too.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any

from sqlalchemy import Connection, func, insert, select, tuple_, update

from .tables import incident_log, incidents
from .triage_tables import mutes

MATCHERS = ("run", "label", "pattern", "detector", "host")
MAX_MUTE_S = 366 * 86_400.0
"""A mute that nobody would outlive is a detector to be turned off, not a mute."""
MAX_ACTIVE = 200
"""Rules at a time: each is tried on every incident that is listed or told."""

# Any: an incident's JSON, whose shape detectors/verdict.schema.json fixes.
Incident = Mapping[str, Any]


class MuteError(ValueError):
    """A rule that cannot be; the words name the field, the rule and the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mute:
    """A rule; None matches everything."""

    id: str
    run: str | None
    label: str | None
    pattern: str | None
    detector: str | None
    host: str | None
    comment: str
    who: str
    created_at: float
    until: float
    ended_at: float | None = None
    """When it was ended before its time; None where nobody did."""
    ended_by: str | None = None

    def is_active(self, now: float) -> bool:
        """Whether it mutes anything at ``now``."""
        return self.ended_at is None and now < self.until


@dataclass(frozen=True, slots=True, kw_only=True)
class Muted:
    """Why, by whom and until when an incident is muted."""

    until: float
    why: str
    who: str
    mute_id: str | None
    """The rule; None where a person muted the incident itself."""


def muted_now(db: Connection, incident_id: str, now: float) -> Muted | None:
    """Whether an incident is muted at ``now``, by a person or by a rule; None where it is not."""
    wanted = select(incidents).where(incidents.c.id == incident_id)
    row = db.execute(wanted).first()
    if row is None:
        return None
    if row.state == "muted" and row.muted_until is not None and row.muted_until > now:
        return _by_a_person(db, incident_id, float(row.muted_until))
    rule = muting_rule(db, row.run, json.loads(bytes(row.body)), now)
    if rule is None:
        return None
    return Muted(until=rule.until, why=rule.comment, who=rule.who, mute_id=rule.id)


def muting_rule(db: Connection, run: str, incident: Incident, now: float) -> Mute | None:
    """The rule that mutes an incident of ``run`` at ``now``; None where none does."""
    return mute_of(active_mutes(db, now), run, incident)


def mute_of(rules: Sequence[Mute], run: str, incident: Incident) -> Mute | None:
    """Of the rules that match an incident the one that holds longest."""
    matching = [rule for rule in rules if matches(rule, run, incident)]
    return max(matching, key=lambda rule: (rule.until, rule.id), default=None)


def matches(rule: Mute, run: str, incident: Incident) -> bool:
    """Whether all that the rule names matches the incident."""
    if rule.run is not None and not fnmatchcase(run, rule.run):
        return False
    if any(getattr(rule, name) not in (None, incident[name]) for name in ("label", "pattern")):
        return False
    if rule.detector is not None:
        detectors = {one["detector"] for one in incident.get("evidence", ())}
        if detectors != {rule.detector}:
            return False
    return rule.host is None or _is_on(rule.host, incident["first"])


def active_mutes(db: Connection, now: float) -> list[Mute]:
    """The rules that hold at ``now``, newest first."""
    return _rows(db, mutes.c.ended_at.is_(None), mutes.c.until > now)


def list_mutes(db: Connection, *, after: tuple[Any, ...] | None, limit: int) -> list[Mute]:
    """All rules there ever were, newest first."""
    place = () if after is None else (tuple_(mutes.c.created_at, mutes.c.id) < tuple_(*after),)
    return _rows(db, *place, limit=limit)


def find_mute(db: Connection, mute_id: str) -> Mute | None:
    """One rule by its id."""
    return next(iter(_rows(db, mutes.c.id == mute_id)), None)


def add_mute(db: Connection, matchers: Mapping[str, str | None], told: Muted, now: float) -> Mute:
    """Make a rule; ``db`` is inside `Database.write`.

    Raises:
        MuteError: it matches everything, has no comment, ends never or too late, or there are too many.
    """
    named = {name: matchers.get(name) for name in MATCHERS}
    if not any(named.values()):
        raise MuteError(f"a mute needs at least one of {', '.join(MATCHERS)}: else it would hide everything")
    if not told.why.strip():
        raise MuteError("comment: a mute needs one that says why")
    if not now < told.until <= now + MAX_MUTE_S:
        raise MuteError("until must be in the future, and at most a year away")
    held = db.execute(
        select(func.count()).select_from(mutes).where(mutes.c.ended_at.is_(None), mutes.c.until > now)
    )
    if int(held.scalar_one()) >= MAX_ACTIVE:
        raise MuteError(f"there may be {MAX_ACTIVE} mutes at a time: end some first")
    rule = Mute(
        id=uuid.uuid4().hex[:12],
        comment=told.why,
        who=told.who,
        created_at=now,
        until=told.until,
        run=named["run"],
        label=named["label"],
        pattern=named["pattern"],
        detector=named["detector"],
        host=named["host"],
    )
    db.execute(insert(mutes).values(**{one.name: getattr(rule, one.name) for one in fields(rule)}))
    return rule


def end_mute(db: Connection, mute_id: str, who: str, now: float) -> Mute | None:
    """End a rule before its time; None where there is none. One that is over stays as it is."""
    rule = find_mute(db, mute_id)
    if rule is None or not rule.is_active(now):
        return rule
    ended = {"ended_at": now, "ended_by": who}
    db.execute(update(mutes).where(mutes.c.id == mute_id).values(**ended))
    return find_mute(db, mute_id)


def _by_a_person(db: Connection, incident_id: str, until: float) -> Muted:
    log = incident_log
    last = select(log.c.who, log.c.note).where(log.c.incident_id == incident_id, log.c.state == "muted")
    entry = db.execute(last.order_by(log.c.seq.desc()).limit(1)).first()
    who, note = ("", "") if entry is None else (entry.who, entry.note)
    return Muted(until=until, why=note, who=who, mute_id=None)


def _is_on(pattern: str, first: Mapping[str, Any]) -> bool:
    """Whether every suspect is known to be on a host that matches."""
    suspects = first.get("suspects", ())
    if not suspects or len(suspects) != first.get("rank_count"):
        return False
    return all(one.get("host") and fnmatchcase(one["host"], pattern) for one in suspects)


def _rows(db: Connection, *wanted: Any, limit: int = MAX_ACTIVE) -> list[Mute]:
    order = (mutes.c.created_at.desc(), mutes.c.id.desc())
    found = db.execute(select(mutes).where(*wanted).order_by(*order).limit(limit))
    return [Mute(**row._mapping) for row in found]
