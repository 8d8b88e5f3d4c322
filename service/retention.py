"""Removes what has been kept long enough: runs with all that hangs on them, changes, messages for outside.

Small transactions, each of which looks anew at what it removes, so that it works beside any number of
workers. A run goes only when no worker holds it. What belongs to a run or an incident is found by the
columns ``run_id`` and ``incident_id``: a table that is added later needs no word here.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import takewhile
from pathlib import Path

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, exists, func, or_, select

from . import tables
from .database import Database
from .errors import StoreError
from .history_names import run_folders, windows
from .incident_rows import KAFKA_CHANNEL
from .retention_config import RetentionConfig
from .tables import changes, incidents, outbox, run_states, runs
from .triage_tables import mutes

log = logging.getLogger(__name__)

_YOUNG_S = 86_400.0
"""A folder of history younger than this may be that of a run whose verdict is yet to come."""
_RUNS_AT_ONCE = 20
"""Runs removed in one transaction; each may have hundreds of rows."""


def prune(
    database: Database, config: RetentionConfig, history: Path | None, now: float, *, dry: bool = False
) -> Counter[str]:
    """Remove all that may go, or with ``dry`` only count it; gives how many, by kind.

    Raises:
        StoreError: the store refuses.
    """
    if dry:
        return _counted(database, config, history, now)
    gone: Counter[str] = Counter()
    for _ in pruning(database, config, history, now, gone):
        pass
    return gone


def pruning(
    database: Database, config: RetentionConfig, history: Path | None, now: float, gone: Counter[str]
) -> Iterator[None]:
    """The same step by step: between two of them others may write, or the caller may stop."""
    while _has_old_runs(database, config, now):  # without the lock: there are many runs, and few are old
        with database.write() as db:
            _remove_runs(db, config, now, gone)
        yield
    for kind, table, at, before in _outdated(config, now):
        while found := _oldest(database, table, at, before, config.prune_rows):
            with database.write() as db:
                db.execute(delete(table).where(table.c.seq.in_(found)))
            gone[kind] += len(found)
            yield
    while ended := _ended_mutes(database, config, now):
        with database.write() as db:
            db.execute(delete(mutes).where(mutes.c.id.in_(ended)))
        gone["mutes"] += len(ended)
        yield
    for path in _orphans(database, history, now):
        _remove_files(path)
        gone["history"] += 1
        yield


class Pruner:
    """Prunes on a thread of its own until closed; a store that refuses is tried again the next time."""

    def __init__(
        self,
        database: Database,
        config: RetentionConfig,
        history: Path | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._database, self._config, self._history, self._now = database, config, history, now
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pruner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the transaction that is under way; safe to call twice."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._config.prune_every_s):
            gone: Counter[str] = Counter()
            try:
                for _ in pruning(self._database, self._config, self._history, self._now(), gone):
                    if self._stop.is_set():
                        break
            except (StoreError, OSError) as error:
                log.warning("what is old could not be removed", extra={"reason": str(error)})
            if gone.total():
                log.info("what is old was removed", extra=dict(gone))


def _old_runs(config: RetentionConfig, now: float) -> ColumnElement[bool]:
    """Runs that nobody looks at any more, and that no worker holds."""
    of_run = incidents.c.run_id == runs.c.run_id
    is_undecided = and_(
        incidents.c.state.in_(("open", "acknowledged", "muted")),
        incidents.c.certainty == "confirmed",
        incidents.c.is_withdrawn.is_(False),
    )
    matters = exists().where(of_run, or_(is_undecided, incidents.c.state == "false_alarm"))
    is_held = exists().where(
        run_states.c.source == runs.c.source,
        run_states.c.run == runs.c.run,
        run_states.c.is_retired.is_(False),
    )
    is_old = or_(
        runs.c.updated_at < now - max(config.runs_s, config.judged_runs_s),
        and_(runs.c.updated_at < now - config.runs_s, ~matters),
    )
    return and_(is_old, ~is_held)


def _has_old_runs(database: Database, config: RetentionConfig, now: float) -> bool:
    with database.read() as db:
        return db.execute(select(runs.c.run_id).where(_old_runs(config, now)).limit(1)).first() is not None


def _remove_runs(db: Connection, config: RetentionConfig, now: float, gone: Counter[str]) -> None:
    rows = db.execute(
        select(runs.c.run_id, runs.c.run, runs.c.source)
        .where(_old_runs(config, now))
        .order_by(runs.c.updated_at)
        .limit(_RUNS_AT_ONCE)
    ).all()
    ids = [row.run_id for row in rows]
    told = list(db.execute(select(incidents.c.id).where(incidents.c.run_id.in_(ids))).scalars())
    for table in tables.metadata.sorted_tables:
        if "incident_id" in table.c:
            db.execute(delete(table).where(table.c.incident_id.in_(told)))
        if "run_id" in table.c:
            db.execute(delete(table).where(table.c.run_id.in_(ids)))
    db.execute(delete(outbox).where(outbox.c.channel == KAFKA_CHANNEL, outbox.c.key.in_(told)))
    for row in rows:
        mine = (run_states.c.source == row.source) & (run_states.c.run == row.run)
        db.execute(delete(run_states).where(mine))
    gone["runs"] += len(ids)
    gone["incidents"] += len(told)


def _outdated(config: RetentionConfig, now: float) -> Iterator[tuple[str, Table, Column[float], float]]:
    """What goes by its own age: the kind, its table, when a row was made, and before when it is old."""
    yield "changes", changes, changes.c.at, now - config.changes_s
    yield "outbox", outbox, outbox.c.created_at, now - config.outbox_s


def _oldest(database: Database, table: Table, at: Column[float], before: float, limit: int) -> list[int]:
    """The numbers of the oldest rows as far as they are old: numbers follow time, so no more is looked at."""
    with database.read() as db:
        rows = db.execute(select(table.c.seq, at).order_by(table.c.seq).limit(limit)).all()
    return [seq for seq, made_at in takewhile(lambda row: row[1] < before, rows)]


def _is_over(config: RetentionConfig, now: float) -> ColumnElement[bool]:
    """Rules that have long ended, by themselves or by somebody."""
    return func.coalesce(mutes.c.ended_at, mutes.c.until) < now - config.mutes_s


def _ended_mutes(database: Database, config: RetentionConfig, now: float) -> list[str]:
    with database.read() as db:
        wanted = select(mutes.c.id).where(_is_over(config, now)).limit(config.prune_rows)
        return list(db.execute(wanted).scalars())


def _orphans(database: Database, history: Path | None, now: float, going: Collection[str] = ()) -> list[Path]:
    """Folders and windows of history on this machine whose run the store does not know, or is ``going``."""
    if history is None or not history.exists():
        return []
    with database.read() as db:
        known = set(db.execute(select(runs.c.run_id)).scalars()) - set(going)
    found = [path for path in run_folders(history) if path.name not in known]
    found += [one.path for one in windows(history) if one.run_id not in known]
    return [path for path in found if _age_s(path, now) > _YOUNG_S]


def _age_s(path: Path, now: float) -> float:
    """Seconds since anything in it changed; what vanished meanwhile is as good as new."""
    try:
        inner = path.rglob("*") if path.is_dir() else iter(())
        return now - max(one.stat().st_mtime for one in (path, *inner))
    except OSError:
        return 0.0


def _remove_files(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _counted(database: Database, config: RetentionConfig, history: Path | None, now: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    with database.read() as db:
        old = select(runs.c.run_id).where(_old_runs(config, now))
        going = list(db.execute(old).scalars())
        counts["runs"] = len(going)
        theirs = select(func.count()).where(incidents.c.run_id.in_(old))
        counts["incidents"] = db.execute(theirs).scalar_one()
        for kind, table, at, before in _outdated(config, now):
            counted = select(func.count()).select_from(table).where(at < before)
            counts[kind] = db.execute(counted).scalar_one()
        over = select(func.count()).select_from(mutes).where(_is_over(config, now))
        counts["mutes"] = db.execute(over).scalar_one()
    counts["history"] = len(_orphans(database, history, now, going))
    return counts
