"""Who may write about which part of a source, and the state to go on from.

A worker *claims* the parts (partitions) it is assigned: its name is written beside each, and every later
write begins with an UPDATE that matches no row once somebody else has claimed. So a worker that was
stopped, replaced and woken again can write nothing, without asking any clock or coordinator (compare
the fencing tokens of Kleppmann, How to do distributed locking, 2016).

A *checkpoint* is one transaction: for each part the offset moves from where the checkpoint before left
it, and with it go the states of all runs that changed. The state of a run belongs to its *home*, the
first of the parts that it was seen in.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, delete, select, update

from . import tables
from .errors import OwnershipLost, SplitRun
from .rejects import FURTHER_REASONS
from .rows import upsert

_MAX_REASONS = 1000
"""Rows of ``rejected``: reasons hold no values, so more than this means that one does."""
_MAX_EXAMPLE_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """The right to write about some parts of a source, as long as nobody else claims them."""

    source: str
    owner: str
    parts: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A tenure, and where its parts stand."""

    tenure: Tenure
    offsets: Mapping[str, int]
    """Next offset of each part; absent before the first checkpoint."""
    rejected: Mapping[str, Mapping[str, int]]
    """Per part and reason, what was rejected there and could not be attributed to a run."""
    is_kept: bool
    """Whether the claimant had held exactly these parts all the while: its state in memory is good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState:
    """The state of one run at the offsets of its parts."""

    run: str
    parts: tuple[str, ...]
    version: str
    is_settled: bool
    """Whether its stored verdict counts every record."""
    snapshot: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where each part stands (offset at the checkpoint before, offset now), and what changed with it."""

    offsets: Mapping[str, tuple[int | None, int]]
    states: Sequence[RunState] = ()
    rejected: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Per part and reason, all that was rejected there and could not be attributed to a run."""
    counted: Mapping[str, tuple[int, bytes]] = field(default_factory=dict)
    """Per reason, what was rejected since the checkpoint before, and an example."""


def claim(db: Connection, source: str, parts: Iterable[str], held: Tenure | None, now: float) -> Claim:
    """Make the parts ours; ``held`` is what the claimant believes to hold."""
    wanted = frozenset(parts)
    table = tables.partitions
    mine = (table.c.source == source) & table.c.part.in_(sorted(wanted))
    rows = {row.part: row for row in db.execute(select(table).where(mine).with_for_update())}
    if held is not None and held.parts == wanted and _holds_all(held, rows):
        return Claim(tenure=held, offsets={}, rejected={}, is_kept=True)
    tenure = Tenure(source=source, owner=uuid.uuid4().hex, parts=wanted)
    if held is not None:
        _let_go(db, held)
    for part in sorted(wanted):
        row = {"source": source, "part": part, "owner": tenure.owner, "claimed_at": now}
        old = rows.get(part)
        upsert(db, table, ["source", "part"], row | {"rejected": "{}" if old is None else old.rejected})
    return Claim(
        tenure=tenure,
        offsets={part: row.next_offset for part, row in rows.items() if row.next_offset is not None},
        rejected={part: json.loads(row.rejected) for part, row in rows.items()},
        is_kept=False,
    )


def guard(db: Connection, tenure: Tenure, parts: Iterable[str]) -> None:
    """The first statement of every write: it locks the parts, or finds that they are not ours.

    Raises:
        OwnershipLost: somebody else has claimed one of them.
    """
    table, wanted = tables.partitions, sorted(set(parts))
    mine = (table.c.source == tenure.source) & table.c.part.in_(wanted) & (table.c.owner == tenure.owner)
    held = db.execute(update(table).where(mine).values(owner=tenure.owner))
    if held.rowcount != len(wanted):
        raise OwnershipLost(
            f"another worker has taken over {len(wanted) - held.rowcount} of {', '.join(wanted[:8])}"
        )


def check_home(db: Connection, tenure: Tenure, row: Any) -> None:
    """Refuse to write about a run that another living worker judges from parts of its own.

    Raises:
        SplitRun: the owner of its home is another.
    """
    if row.source != tenure.source or row.home in tenure.parts or not row.home:
        return
    table = tables.partitions
    home = (table.c.source == row.source) & (table.c.part == row.home)
    owner = db.execute(select(table.c.owner).where(home)).scalar_one_or_none()
    if owner is not None and owner != tenure.owner:
        raise SplitRun(f"run {row.run!r} is judged by the worker of {row.home}: key its messages by run")


def save(db: Connection, tenure: Tenure, checkpoint: Checkpoint, now: float) -> None:
    """Move the parts on and keep the states, all or nothing.

    Raises:
        OwnershipLost: somebody else has claimed a part, or moved it on.
    """
    guard(db, tenure, tenure.parts)
    table = tables.partitions
    for part, (start, end) in sorted(checkpoint.offsets.items()):
        at_start = table.c.next_offset.is_(None) if start is None else table.c.next_offset == start
        mine = (table.c.source == tenure.source) & (table.c.part == part) & at_start
        rejected = json.dumps(checkpoint.rejected.get(part, {}), sort_keys=True)
        moved = db.execute(update(table).where(mine).values(next_offset=end, rejected=rejected))
        if moved.rowcount != 1:
            raise OwnershipLost(f"{part} no longer stands at offset {start}: another worker has moved it on")
    for state in checkpoint.states:
        row = {"source": tenure.source, "run": state.run, "home": state.parts[0], "saved_at": now}
        kept = {"version": state.version, "is_settled": state.is_settled, "snapshot": state.snapshot}
        kept["is_retired"] = False
        parts = {"parts": json.dumps(state.parts)}
        upsert(db, tables.run_states, ["source", "run"], row | kept | parts)
    _count(db, checkpoint.counted)


def retire(db: Connection, tenure: Tenure, runs: Sequence[str]) -> None:
    """These runs need not be in memory any more; their states stay."""
    guard(db, tenure, tenure.parts)
    table = tables.run_states
    mine = (table.c.source == tenure.source) & table.c.run.in_(list(runs))
    db.execute(update(table).where(mine).values(is_retired=True))


def parts_of_runs(db: Connection, source: str, parts: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Every run at home in ``parts``, retired or not, with all the parts that it was seen in."""
    table = tables.run_states
    mine = (table.c.source == source) & table.c.home.in_(sorted(parts))
    rows = db.execute(select(table.c.run, table.c.parts).where(mine).order_by(table.c.run))
    return [(row.run, tuple(json.loads(row.parts))) for row in rows]


def versions(db: Connection, source: str, parts: Iterable[str]) -> set[str]:
    """What the states of the runs at home in ``parts``, retired or not, were made with."""
    table = tables.run_states
    mine = (table.c.source == source) & table.c.home.in_(sorted(parts))
    return set(db.execute(select(table.c.version).where(mine).distinct()).scalars())


def states(db: Connection, source: str, parts: Iterable[str], *, run: str | None = None) -> list[RunState]:
    """The states of the runs at home in ``parts`` that are not retired; of ``run`` alone, retired or not."""
    table = tables.run_states
    which = table.c.is_retired.is_(False) if run is None else table.c.run == run
    mine = (table.c.source == source) & table.c.home.in_(sorted(parts)) & which
    rows = db.execute(select(table).where(mine).order_by(table.c.run))
    return [
        RunState(
            run=row.run,
            parts=tuple(json.loads(row.parts)),
            version=row.version,
            is_settled=bool(row.is_settled),
            snapshot=bytes(row.snapshot),
        )
        for row in rows
    ]


def forget(db: Connection, tenure: Tenure) -> None:
    """Drop states and offsets of the tenure's parts, so that they are read again from their first record."""
    guard(db, tenure, tenure.parts)
    runs, parts = tables.run_states, tables.partitions
    held = sorted(tenure.parts)
    db.execute(delete(runs).where((runs.c.source == tenure.source) & runs.c.home.in_(held)))
    mine = (parts.c.source == tenure.source) & parts.c.part.in_(held)
    db.execute(update(parts).where(mine).values(next_offset=None, rejected="{}"))


def release(db: Connection, tenure: Tenure) -> None:
    """Let go of what is still ours, at a clean end."""
    _let_go(db, tenure)


def _holds_all(held: Tenure, rows: Mapping[str, Any]) -> bool:
    return len(rows) == len(held.parts) and all(row.owner == held.owner for row in rows.values())


def _let_go(db: Connection, tenure: Tenure) -> None:
    table = tables.partitions
    mine = (table.c.source == tenure.source) & (table.c.owner == tenure.owner)
    db.execute(update(table).where(mine).values(owner=None))


def _count(db: Connection, counted: Mapping[str, tuple[int, bytes]]) -> None:
    """Add to the counters of rejects, with the checkpoint: what is read again is rejected again."""
    if not counted:
        return
    table = tables.rejected
    known = set(db.execute(select(table.c.reason)).scalars())
    totals: Counter[str] = Counter()
    examples: dict[str, bytes] = {}
    for reason, (records, example) in counted.items():
        kept = reason if reason in known or len(known) < _MAX_REASONS else FURTHER_REASONS
        known.add(kept)
        totals[kept] += records
        examples.setdefault(kept, example[:_MAX_EXAMPLE_BYTES])
    for reason, records in sorted(totals.items()):  # in one order: two workers must not wait for each other
        row = {"reason": reason, "records": records, "example": examples[reason]}
        upsert(db, table, ["reason"], row, {"records": table.c.records + records})
