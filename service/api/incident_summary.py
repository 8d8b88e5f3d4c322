"""An incident in a few words: what its row says of it, and whether a rule mutes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from service import reading
from service.mutes import Mute, active_mutes, mute_of
from service.reading import IncidentRow
from service.sentence import incident_sentence

from .models import MutedBy
from .run_summary import first_fault
from .values import timestamp

# Any: an incident's JSON, whose shape detectors/verdict.schema.json fixes.
Json = Mapping[str, Any]


class Telling:
    """Tells incidents of one look at the store; what they share is read once."""

    def __init__(self, db: Connection, now: float) -> None:
        self.now = now
        self._db, self._ranks = db, dict[str, int]()
        self._rules = active_mutes(db, now)

    def summary(self, row: IncidentRow) -> dict[str, Any]:
        """The fields of an `IncidentSummary`."""
        incident = json.loads(row.body)
        return {
            "id": row.id,
            "run_id": row.run_id,
            "run": row.run,
            "state": row.state,
            "muted_until": timestamp(row.muted_until),
            "muted_by": _muted_by(mute_of(self._rules, row.run, incident)),
            "is_withdrawn": row.is_withdrawn,
            **self.told(row.run_id, incident),
            "revision": row.revision,
            "opened_at": timestamp(row.opened_at) or "",
            "updated_at": timestamp(row.updated_at) or "",
        }

    def told(self, run_id: str, incident: Json) -> dict[str, Any]:
        """What the canonical part of an incident says of it, in a sentence too."""
        return {
            **{name: incident[name] for name in ("label", "pattern", "certainty", "severity")},
            "sentence": incident_sentence(incident, self._coverage(run_id, incident["first"])),
            "first": first_fault(incident["first"]),
        }

    def _coverage(self, run_id: str, first: Json) -> dict[str, Any]:
        """The part of a verdict that the sentence of an incident is made of: how many ranks there are."""
        if first["ranks"]:
            return {"coverage": {}}
        if run_id not in self._ranks:
            run = reading.find_run(self._db, run_id)
            self._ranks[run_id] = 0 if run is None else json.loads(run.digest)["coverage"]["ranks"]
        return {"coverage": {"ranks": self._ranks[run_id]}}


def _muted_by(rule: Mute | None) -> MutedBy | None:
    if rule is None:
        return None
    return MutedBy(id=rule.id, until=timestamp(rule.until) or "", comment=rule.comment, who=rule.who)
