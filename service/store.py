"""What the worker knows: claims, checkpoints, verdicts, incidents, the event stream and the outbox.

The laws it keeps:

* A *checkpoint* (offsets and the states of runs) is one transaction that begins with the guarding
  update: a zombie cannot write (`checkpoints`).
* Verdicts, incidents, the event stream and the outbox commit at once and together, and are idempotent:
  the same bytes again change nothing. They are guarded in the same way.
* Canonical verdict bytes are kept as they are. ``revision``, ``state`` and times are columns beside
  them, so what is compared byte for byte holds no clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import delete, select, update

from . import checkpoints, tables
from .alerts.config import AlertsConfig
from .alerts.outbox import tell_changes
from .checkpoints import Checkpoint, Claim, RunState, Tenure
from .crash_points import CrashPoint, reach
from .database import Database
from .digest import digest_of
from .incident_rows import (
    KAFKA_CHANNEL,
    IncidentChange,
    VerdictWrite,
    add_change,
    severity_of,
    store_incidents,
    tell_incidents,
)
from .migrations import check_schema, migrate
from .rows import lock_changes, next_seq, to_body, upsert
from .run_hosts import note_hosts
from .run_id import run_id_of
from .store_config import DATABASE, StoreConfig

__all__ = ["DATABASE", "IncidentChange", "Message", "Store", "StoreConfig", "StoredVerdict"]

_HEALTH_KEPT_S = 7 * 86_400.0
"""A worker that fell silent is told for a week: its name holds its process id, so that rows pile up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """A run's newest verdict; ``canonical`` are its canonical bytes."""

    run: str
    label: str
    revision: int
    canonical: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something that must still be told outside."""

    seq: int
    key: str
    payload: bytes


class Store:
    """The worker's side of the database; use from one thread. Readers open it beside the writer."""

    def __init__(
        self,
        data_dir: Path,
        config: StoreConfig | None = None,
        *,
        read_only: bool = False,
        alerts: AlertsConfig | None = None,
    ) -> None:
        """Open or create the store and, unless ``read_only``, bring its schema up to date; what verdicts
        change is put out for the channels of ``alerts``.

        Raises:
            StoreError: not a database, made by a newer release, or the folder cannot be written.
        """
        self.database = Database(data_dir, config, read_only=read_only)
        self._alerts = alerts or AlertsConfig()
        self.on_alert: Callable[[], None] = lambda: None  # once something was put out, after the commit
        try:
            if read_only:
                check_schema(self.database)
            else:
                migrate(self.database)
        except BaseException:
            self.database.close()
            raise

    def close(self) -> None:
        """Let go of the database; safe to call twice."""
        self.database.close()

    # -- claims and checkpoints

    def claim(self, source: str, parts: Iterable[str], held: Tenure | None = None) -> Claim:
        """Make parts of a source ours: whoever held them can write about them no more."""
        with self.database.write() as db:
            return checkpoints.claim(db, source, parts, held, time.time())

    def release(self, tenure: Tenure) -> None:
        """Let go of the parts at a clean end, so that nobody takes us for alive."""
        with self.database.write() as db:
            checkpoints.release(db, tenure)

    def save_checkpoint(self, tenure: Tenure, checkpoint: Checkpoint) -> None:
        """Offsets and states, all or nothing; and prune the event stream.

        Raises:
            OwnershipLost: another worker has claimed one of the parts.
        """
        with self.database.write() as db:
            checkpoints.save(db, tenure, checkpoint, time.time())
            newest = select(tables.counters.c.value).where(tables.counters.c.name == "changes")
            oldest = int(db.execute(newest).scalar_one()) - self.database.config.keep_changes
            db.execute(delete(tables.changes).where(tables.changes.c.seq <= oldest))
            reach(CrashPoint.IN_CHECKPOINT)

    def states(self, source: str, parts: Iterable[str]) -> list[RunState]:
        """The states of the runs at home in ``parts``, but for retired ones, as of their last checkpoint."""
        with self.database.read() as db:
            return checkpoints.states(db, source, parts)

    def state_of(self, tenure: Tenure, run: str) -> RunState | None:
        """The state of one run of ours, retired or not; None where it was never saved."""
        with self.database.read() as db:
            return next(iter(checkpoints.states(db, tenure.source, tenure.parts, run=run)), None)

    def parts_of_runs(self, source: str, parts: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
        """Every run at home in ``parts``, retired or not, with all the parts that it was seen in."""
        with self.database.read() as db:
            return checkpoints.parts_of_runs(db, source, parts)

    def versions(self, source: str, parts: Iterable[str]) -> set[str]:
        """What the states of the runs at home in ``parts``, retired or not, were made with."""
        with self.database.read() as db:
            return checkpoints.versions(db, source, parts)

    def retire(self, tenure: Tenure, runs: Sequence[str]) -> None:
        """These runs need not be in memory any more; their states stay until a record of them comes."""
        with self.database.write() as db:
            checkpoints.retire(db, tenure, runs)

    def forget(self, tenure: Tenure) -> None:
        """Drop the checkpoint of the tenure's parts, so that they are read again from their first record."""
        with self.database.write() as db:
            checkpoints.forget(db, tenure)

    # -- verdicts

    def save_verdict(
        self,
        tenure: Tenure,
        parts: Sequence[str],
        verdict: Mapping[str, Any],
        canonical: bytes,
        newest_record_at: float | None = None,
        *,
        hosts: Collection[str] = (),
    ) -> tuple[IncidentChange, ...]:
        """Store a run's newest verdict and its incidents; gives what changed about them.

        ``verdict`` is the JSON object of ``canonical``; it was seen in ``parts``, sorted, and on ``hosts``.
        The same bytes again change nothing.

        Raises:
            OwnershipLost: another worker has claimed one of the parts.
            SplitRun: another worker judges this run from other parts.
        """
        now = time.time()
        with self.database.write() as db:
            checkpoints.guard(db, tenure, parts)
            # Before anything is looked at: who triages takes this first too, so neither undoes the other.
            lock_changes(db)
            run = str(verdict["run"])
            row = db.execute(select(tables.runs).where(tables.runs.c.run == run)).one_or_none()
            if row is not None:
                checkpoints.check_home(db, tenure, row)
                if row.verdict == canonical:
                    return ()
            write = VerdictWrite(db=db, run_id=run_id_of(run), verdict=verdict, canonical=canonical, now=now)
            changes = tell_incidents(write, store_incidents(write))
            has_alerts = tell_changes(write, changes, self._alerts)
            place = {"source": tenure.source, "home": parts[0], "newest_record_at": newest_record_at}
            _write_run(write, place, row)
            note_hosts(db, write.run_id, hosts)
            reach(CrashPoint.IN_VERDICT)
        if has_alerts:
            self.on_alert()
        return changes

    def note_quiet(self, quiet_since: Mapping[str, float | None]) -> None:
        """Note of runs, by name, since when the live clock has seen nothing of them; None: they go on."""
        with self.database.write() as db:
            for run, since in quiet_since.items():
                db.execute(update(tables.runs).where(tables.runs.c.run == run).values(quiet_since=since))

    def verdicts(self) -> list[StoredVerdict]:
        """The newest verdict of every run, by run."""
        table = tables.runs
        with self.database.read() as db:
            rows = db.execute(select(table).order_by(table.c.run)).all()
        return [
            StoredVerdict(run=row.run, label=row.label, revision=row.revision, canonical=bytes(row.verdict))
            for row in rows
        ]

    def canonical_of(self, run: str) -> bytes | None:
        """The canonical bytes of a run's newest verdict; None where it has none."""
        table = tables.runs
        with self.database.read() as db:
            found = db.execute(select(table.c.verdict).where(table.c.run == run)).scalar_one_or_none()
        return None if found is None else bytes(found)

    def incidents(self, run: str | None = None) -> list[dict[str, Any]]:
        """Incidents that are not withdrawn, in order of their first position, with the person's state."""
        table = tables.incidents
        wanted = [table.c.is_withdrawn.is_(False)] + ([] if run is None else [table.c.run == run])
        order = (table.c.run, table.c.first_attempt, table.c.first_iteration, table.c.id)
        with self.database.read() as db:
            rows = db.execute(select(table).where(*wanted).order_by(*order)).all()
        return [{**json.loads(row.body), "state": row.state} for row in rows]

    def rejected(self) -> dict[str, int]:
        """Number of rejected records or values per reason."""
        table = tables.rejected
        with self.database.read() as db:
            return {row.reason: row.records for row in db.execute(select(table).order_by(table.c.reason))}

    # -- what goes out

    def is_open(self, incident_id: str) -> bool:
        """Whether somebody may still have to look at an incident."""
        table = tables.incidents
        wanted = (table.c.id == incident_id) & table.c.is_withdrawn.is_(False)
        with self.database.read() as db:
            state = db.execute(select(table.c.state).where(wanted)).scalar_one_or_none()
        return state in ("open", "acknowledged", "muted")

    def unsent(self, after: int = 0, limit: int = 1000) -> list[Message]:
        """Verdicts after number ``after`` that nobody has acknowledged yet, whoever wrote them, in order."""
        table = tables.outbox
        wanted = (table.c.channel == KAFKA_CHANNEL) & table.c.sent_at.is_(None) & (table.c.seq > after)
        with self.database.read() as db:
            rows = db.execute(select(table).where(wanted).order_by(table.c.seq).limit(limit)).all()
        return [Message(seq=row.seq, key=row.key, payload=bytes(row.payload)) for row in rows]

    def mark_sent(self, seqs: Sequence[int]) -> None:
        """The messages were acknowledged; they need no keeping."""
        with self.database.write() as db:
            for at in range(0, len(seqs), 500):  # a statement holds a bounded number of parameters
                db.execute(delete(tables.outbox).where(tables.outbox.c.seq.in_(seqs[at : at + 500])))

    def prune_health(self, older_than_s: float = _HEALTH_KEPT_S) -> None:
        """Drop what components said long ago."""
        with self.database.write() as db:
            db.execute(delete(tables.health).where(tables.health.c.at < time.time() - older_than_s))

    def say_health(self, component: str, body: Mapping[str, Any]) -> None:
        """Replace what a component last said of itself."""
        row = {"component": component, "at": time.time(), "body": to_body(body)}
        with self.database.write() as db:
            upsert(db, tables.health, ["component"], row)


def _write_run(
    write: VerdictWrite,
    place: Mapping[str, Any],
    row: Any,  # a row of the driver's, or None
) -> None:
    """The run's row, and its change in the event stream."""
    verdict, seq = write.verdict, next_seq(write.db)
    told = {"label": str(verdict["label"]), "severity": severity_of(verdict["incidents"])}
    run, judged_to = str(verdict["run"]), verdict.get("judged_to_iteration")
    change = {"seq": seq, "kind": "run_new" if row is None else "run_changed"}
    revision = 1 if row is None else row.revision + 1
    add_change(write, change | {"revision": revision}, {"run": run, "judged_to_iteration": judged_to, **told})
    values: dict[str, Any] = {
        "run_id": write.run_id,
        "run": run,
        "judged_to": judged_to,
        "revision": revision,
        "digest": to_body(digest_of(verdict)),
        "verdict": write.canonical,
        "seq": seq,
        "first_seen_at": write.now if row is None else row.first_seen_at,
        "updated_at": write.now,
        "quiet_since": None,  # it has news; and who noted that it was quiet may have been another worker
    }
    upsert(write.db, tables.runs, ["run_id"], {**values, **told, **place})
