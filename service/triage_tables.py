"""The tables of triage: what incidents were before, rules that mute, the hosts that runs were seen on."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, LargeBinary, Table, Text

from .tables import metadata

run_hosts = Table(
    "run_hosts",
    metadata,
    Column("run_id", Text, primary_key=True),
    Column("host", Text, primary_key=True),
)
"""The hosts that the telemetry of each run named: in how many runs a host could have been at fault."""

incident_revisions = Table(
    "incident_revisions",
    metadata,
    Column("incident_id", Text, primary_key=True),
    Column("revision", Integer, primary_key=True),
    Column("at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
)
"""What each incident was before: its canonical JSON, packed by zlib, at each change that is more than the
run going on."""

mutes = Table(
    "mutes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("run", Text),
    Column("label", Text),
    Column("pattern", Text),
    Column("detector", Text),
    Column("host", Text),
    Column("comment", Text, nullable=False),
    Column("who", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("until", Double, nullable=False),
    Column("ended_at", Double),
    Column("ended_by", Text),
)
"""Rules that mute what they match until they end; NULL matches everything. Ended ones stay to be read for
a while (`RetentionConfig.mutes_s`)."""
