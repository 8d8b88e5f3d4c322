DROP TABLE counters;

DROP TABLE partitions;

DROP TABLE run_states;

DROP TABLE incident_ranks;

DROP TABLE evidence;

DROP TABLE incident_log;

DROP TABLE changes;

DROP TABLE outbox;

DROP TABLE tokens;

DROP TABLE health;

CREATE TABLE fence (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    owner {big} NOT NULL
){strict};

INSERT INTO fence (id, owner) VALUES (1, 0);

CREATE TABLE offsets (
    source TEXT NOT NULL,
    part TEXT NOT NULL,
    next_offset {big} NOT NULL,
    PRIMARY KEY (source, part)
){strict};

CREATE TABLE checkpoints (
    source TEXT PRIMARY KEY,
    version TEXT NOT NULL,
    snapshot {blob} NOT NULL,
    saved_at {real} NOT NULL
){strict};

DROP INDEX runs_by_age;

ALTER TABLE runs RENAME TO runs_2;

CREATE TABLE runs (
    run TEXT PRIMARY KEY,
    label TEXT NOT NULL,
    judged_to {big},
    revision INTEGER NOT NULL,
    verdict {blob} NOT NULL,
    updated_at {real} NOT NULL
){strict};

INSERT INTO runs SELECT run, label, judged_to, revision, verdict, updated_at FROM runs_2;

DROP TABLE runs_2;

DROP INDEX incidents_of_run;

DROP INDEX incidents_by_age;

ALTER TABLE incidents RENAME TO incidents_2;

CREATE TABLE incidents (
    id TEXT PRIMARY KEY,
    run TEXT NOT NULL,
    label TEXT NOT NULL,
    certainty TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'open',
    is_withdrawn INTEGER NOT NULL DEFAULT 0,
    first_attempt {big} NOT NULL,
    first_iteration {big} NOT NULL,
    body {blob} NOT NULL,
    opened_at {real} NOT NULL,
    updated_at {real} NOT NULL
){strict};

INSERT INTO incidents SELECT id, run, label, certainty, state, CAST(is_withdrawn AS INTEGER), first_attempt, first_iteration, body, opened_at, updated_at FROM incidents_2;

DROP TABLE incidents_2;

CREATE INDEX incidents_of_run ON incidents (run, first_attempt, first_iteration);
