"""The hosts that a run was seen on: in how many runs a host could have been at fault."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import Connection, insert, select

from ingest.alignment import AttemptAligner

from .database import storable
from .triage_tables import run_hosts

MAX_HOSTS = 20_000
"""Of one run: 160 000 ranks at eight a host. The first by name are kept of a run that names more."""


def hosts_of(aligners: Iterable[AttemptAligner]) -> frozenset[str]:
    """The hosts that the labels and the layouts of a run's attempts name."""
    found: set[str] = set()
    for aligner in aligners:
        found.update(names["host"][1] for names in aligner.labels.values() if "host" in names)
        layout = aligner.events.terms.layout
        if layout is not None:
            found.update(layout.hosts.values())
    return frozenset(found)


def note_hosts(db: Connection, run_id: str, hosts: Collection[str]) -> None:
    """Add what is not known yet of the hosts of a run; ``db`` is inside `Database.write`."""
    if not hosts:
        return
    mine = select(run_hosts.c.host).where(run_hosts.c.run_id == run_id)
    known = set(db.execute(mine).scalars())
    fresh = sorted(set(map(storable, hosts)) - known)[: max(0, MAX_HOSTS - len(known))]
    if fresh:
        db.execute(insert(run_hosts), [{"run_id": run_id, "host": host} for host in fresh])
