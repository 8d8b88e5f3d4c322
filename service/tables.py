"""The tables of the store, as of the newest migration.

Times are seconds since 1970. Numbers that may be non-finite are two columns, a nullable value and a
kind (`FloatKind`): SQLite stores a NaN as NULL, and JSON has none.
"""

from __future__ import annotations

import math
from enum import IntEnum

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()


class FloatKind(IntEnum):
    """What a number is, beside its value."""

    FINITE = 0
    NAN = 1
    POSITIVE_INFINITY = 2
    NEGATIVE_INFINITY = 3
    MISSING = 4


_SPECIAL = {
    FloatKind.NAN: math.nan,
    FloatKind.POSITIVE_INFINITY: math.inf,
    FloatKind.NEGATIVE_INFINITY: -math.inf,
    FloatKind.MISSING: None,
}


def to_columns(value: float | None) -> tuple[float | None, int]:
    """A number as value and kind.

    >>> to_columns(2.5), to_columns(float("nan")), to_columns(None)
    ((2.5, 0), (None, 1), (None, 4))
    """
    if value is None:
        return None, int(FloatKind.MISSING)
    if math.isnan(value):
        return None, int(FloatKind.NAN)
    if math.isinf(value):
        return None, int(FloatKind.POSITIVE_INFINITY if value > 0 else FloatKind.NEGATIVE_INFINITY)
    return float(value), int(FloatKind.FINITE)


def from_columns(value: float | None, kind: int) -> float | None:
    """The number that `to_columns` was given."""
    return value if kind == FloatKind.FINITE else _SPECIAL[FloatKind(kind)]


counters = Table(
    "counters",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""Sequences that follow the order of commits, which those of PostgreSQL do not."""

partitions = Table(
    "partitions",
    metadata,
    Column("source", Text, primary_key=True),
    Column("part", Text, primary_key=True),
    Column("next_offset", BigInteger),
    Column("owner", Text),
    Column("claimed_at", Double, nullable=False),
    Column("rejected", Text, nullable=False),
)
"""Where each part of a source stands, and which worker may write about it. ``rejected`` (JSON: reason,
number) is what was rejected there and could not be attributed to a run."""

run_states = Table(
    "run_states",
    metadata,
    Column("source", Text, primary_key=True),
    Column("run", Text, primary_key=True),
    Column("home", Text, nullable=False),
    Column("parts", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("is_settled", Boolean, nullable=False),
    Column("is_retired", Boolean, nullable=False),
    Column("snapshot", LargeBinary, nullable=False),
    Column("saved_at", Double, nullable=False),
)
"""The pipeline's state of each run at exactly the offsets of its parts (JSON list); ``home`` is the first.
The state of a retired run stays here until a record of it comes."""

runs = Table(
    "runs",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("run", Text, nullable=False, unique=True),
    Column("source", Text, nullable=False),
    Column("home", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("judged_to", BigInteger),
    Column("revision", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("first_seen_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("newest_record_at", Double),
    Column("quiet_since", Double),
    Column("digest", LargeBinary, nullable=False),
    Column("verdict", LargeBinary, nullable=False),
)
"""The newest verdict of each run. ``severity`` is the worst of its incidents' that are not recovered,
``none`` without. ``quiet_since``: when the live clock last saw a record of a run that has gone quiet.
``digest`` (JSON) is what lists show of the verdict, which stands last: SQLite then reads a row's other
columns without it."""

incidents = Table(
    "incidents",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("pattern", Text, nullable=False),
    Column("certainty", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("muted_until", Double),
    Column("is_withdrawn", Boolean, nullable=False),
    Column("first_attempt", BigInteger, nullable=False),
    Column("first_iteration", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("revision", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("opened_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("judged", Text),
    Column("suspect_hosts", Integer, nullable=False),
)
"""Incidents by id; ``body`` is canonical JSON, ``state`` is the person's. ``judged`` is what a person last
concluded of it, ``real`` or ``false_alarm``: it stays when new evidence opens the incident again.
``suspect_hosts`` counts the hosts of its suspects; 0 where not all are known."""

incident_ranks = Table(
    "incident_ranks",
    metadata,
    Column("incident_id", Text, primary_key=True),
    Column("rank", BigInteger, primary_key=True),
    Column("host", Text),
    Column("device", Text),
)
"""The suspects of each incident: which incidents a rank, a host or a device was in."""

evidence = Table(
    "evidence",
    metadata,
    Column("incident_id", Text, primary_key=True),
    Column("place", Integer, primary_key=True),
    Column("detector", Text, nullable=False),
    Column("metric", Text, nullable=False),
    Column("iteration", BigInteger, nullable=False),
    Column("statistic_value", Double),
    Column("statistic_kind", Integer, nullable=False),
    Column("threshold_value", Double),
    Column("threshold_kind", Integer, nullable=False),
)
"""The evidence of each incident as rows: what each detector fires on, over all runs."""

incident_log = Table(
    "incident_log",
    metadata,
    Column("seq", BigInteger, primary_key=True),
    Column("incident_id", Text, nullable=False),
    Column("at", Double, nullable=False),
    Column("who", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("note", Text, nullable=False),
    Column("muted_until", Double),
    Column("by_system", Boolean, nullable=False),
)
"""What people did with incidents, and what opened them again. A trigger refuses to change an entry."""

changes = Table(
    "changes",
    metadata,
    Column("seq", BigInteger, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("incident_id", Text),
    Column("revision", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""What changed, in the order of commits: the event stream. The oldest are pruned."""

outbox = Table(
    "outbox",
    metadata,
    Column("seq", BigInteger, primary_key=True),
    Column("channel", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("sent_at", Double),
)
"""What must still be told outside, committed with the incident it is about. A newer message of a key
replaces an unsent older one."""

alert_deliveries = Table(
    "alert_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("channel", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("due_at", Double, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("give_up_at", Double),
    Column("lease_owner", Text),
    Column("lease_until", Double),
    Column("finished_at", Double),
    Column("detail", Text, nullable=False),
)
"""Messages to alert channels, committed with what they tell. Whoever holds the lease sends; ``id`` is what a
receiver knows a message by when it comes twice."""

alert_told = Table(
    "alert_told",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("incident_id", Text, primary_key=True),
    Column("is_firing", Boolean, nullable=False),
    Column("certainty", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("has_ranks", Boolean, nullable=False),
    Column("alert", LargeBinary, nullable=False),
    Column("labels", Text),
    Column("told_at", Double, nullable=False),
)
"""What each channel was last told of each incident. ``labels`` (JSON) are those under which an Alertmanager
holds it now."""

alert_results = Table(
    "alert_results",
    metadata,
    Column("channel", Text, primary_key=True),
    Column("result", Text, primary_key=True),
    Column("messages", BigInteger, nullable=False),
    Column("at", Double, nullable=False),
    Column("detail", Text, nullable=False),
)
"""How often each channel took or refused a message, when last, and in words."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("prefix", Text, nullable=False),
    Column("sha256", LargeBinary, nullable=False, unique=True),
    Column("scopes", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("last_used_at", Double),
)
"""Access tokens by their hash; ``scopes`` are words separated by spaces."""

health = Table(
    "health",
    metadata,
    Column("component", Text, primary_key=True),
    Column("at", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""What each component last said of itself (JSON)."""

rejected = Table(
    "rejected",
    metadata,
    Column("reason", Text, primary_key=True),
    Column("records", BigInteger, nullable=False),
    Column("example", LargeBinary, nullable=False),
)
"""Rejected records and values, counted by reason, with the first example."""
