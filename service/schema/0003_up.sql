ALTER TABLE runs RENAME TO runs_2;

DROP INDEX runs_by_age;

CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    home TEXT NOT NULL,
    label TEXT NOT NULL,
    severity TEXT NOT NULL,
    judged_to {big},
    revision INTEGER NOT NULL,
    seq {big} NOT NULL,
    first_seen_at {real} NOT NULL,
    updated_at {real} NOT NULL,
    newest_record_at {real},
    quiet_since {real},
    digest {blob} NOT NULL,
    verdict {blob} NOT NULL
){strict};

-- call fill_digests;

DROP TABLE runs_2;

CREATE INDEX runs_by_age ON runs (first_seen_at, run_id);

CREATE TABLE run_hosts (
    run_id TEXT NOT NULL,
    host TEXT NOT NULL,
    PRIMARY KEY (run_id, host)
){strict};

CREATE INDEX run_hosts_by_host ON run_hosts (host);

ALTER TABLE incidents ADD COLUMN judged TEXT;

ALTER TABLE incidents ADD COLUMN suspect_hosts INTEGER NOT NULL DEFAULT 0;

ALTER TABLE incident_ranks ADD COLUMN device TEXT;

-- call fill_suspects;

ALTER TABLE incident_log ADD COLUMN muted_until {real};

ALTER TABLE incident_log ADD COLUMN by_system {bool} NOT NULL DEFAULT FALSE;

-- call guard_log;

CREATE TABLE incident_revisions (
    incident_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    at {real} NOT NULL,
    kind TEXT NOT NULL,
    body {blob} NOT NULL,
    PRIMARY KEY (incident_id, revision)
){strict};

CREATE TABLE mutes (
    id TEXT PRIMARY KEY,
    run TEXT,
    label TEXT,
    pattern TEXT,
    detector TEXT,
    host TEXT,
    comment TEXT NOT NULL,
    who TEXT NOT NULL,
    created_at {real} NOT NULL,
    until {real} NOT NULL,
    ended_at {real},
    ended_by TEXT
){strict};

CREATE INDEX mutes_by_age ON mutes (created_at, id);
