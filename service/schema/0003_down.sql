DROP TABLE mutes;

DROP TABLE incident_revisions;

-- call unguard_log;

ALTER TABLE incident_log DROP COLUMN by_system;

ALTER TABLE incident_log DROP COLUMN muted_until;

ALTER TABLE incident_ranks DROP COLUMN device;

ALTER TABLE incidents DROP COLUMN suspect_hosts;

ALTER TABLE incidents DROP COLUMN judged;

DROP TABLE run_hosts;

ALTER TABLE runs RENAME TO runs_3;

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
    verdict {blob} NOT NULL,
    seq {big} NOT NULL,
    first_seen_at {real} NOT NULL,
    updated_at {real} NOT NULL,
    newest_record_at {real},
    quiet_since {real}
){strict};

INSERT INTO runs SELECT run_id, run, source, home, label, severity, judged_to, revision, verdict, seq, first_seen_at, updated_at, newest_record_at, quiet_since FROM runs_3;

DROP TABLE runs_3;

CREATE INDEX runs_by_age ON runs (updated_at, run_id);
