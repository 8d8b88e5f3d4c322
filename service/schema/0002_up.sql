DROP TABLE fence;

DROP TABLE offsets;

DROP TABLE checkpoints;

CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value {big} NOT NULL
){strict};

INSERT INTO counters (name, value) VALUES ('changes', 0);

CREATE TABLE partitions (
    source TEXT NOT NULL,
    part TEXT NOT NULL,
    next_offset {big},
    owner TEXT,
    claimed_at {real} NOT NULL,
    rejected TEXT NOT NULL,
    PRIMARY KEY (source, part)
){strict};

CREATE TABLE run_states (
    source TEXT NOT NULL,
    run TEXT NOT NULL,
    home TEXT NOT NULL,
    parts TEXT NOT NULL,
    version TEXT NOT NULL,
    is_settled {bool} NOT NULL,
    is_retired {bool} NOT NULL,
    snapshot {blob} NOT NULL,
    saved_at {real} NOT NULL,
    PRIMARY KEY (source, run)
){strict};

CREATE INDEX run_states_of_home ON run_states (source, home);

ALTER TABLE runs RENAME TO runs_1;

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

-- call fill_runs;

DROP TABLE runs_1;

CREATE INDEX runs_by_age ON runs (updated_at, run_id);

DROP INDEX incidents_of_run;

ALTER TABLE incidents RENAME TO incidents_1;

CREATE TABLE incidents (
    id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    run TEXT NOT NULL,
    label TEXT NOT NULL,
    pattern TEXT NOT NULL,
    certainty TEXT NOT NULL,
    severity TEXT NOT NULL,
    state TEXT NOT NULL,
    muted_until {real},
    is_withdrawn {bool} NOT NULL,
    first_attempt {big} NOT NULL,
    first_iteration {big} NOT NULL,
    body {blob} NOT NULL,
    revision INTEGER NOT NULL,
    seq {big} NOT NULL,
    opened_at {real} NOT NULL,
    updated_at {real} NOT NULL
){strict};

-- call fill_incidents;

DROP TABLE incidents_1;

CREATE INDEX incidents_of_run ON incidents (run_id, first_attempt, first_iteration);

CREATE INDEX incidents_by_age ON incidents (opened_at, id);

CREATE TABLE incident_ranks (
    incident_id TEXT NOT NULL,
    rank {big} NOT NULL,
    host TEXT,
    PRIMARY KEY (incident_id, rank)
){strict};

CREATE INDEX incident_ranks_by_rank ON incident_ranks (rank);

CREATE INDEX incident_ranks_by_host ON incident_ranks (host);

CREATE TABLE evidence (
    incident_id TEXT NOT NULL,
    place INTEGER NOT NULL,
    detector TEXT NOT NULL,
    metric TEXT NOT NULL,
    iteration {big} NOT NULL,
    statistic_value {real},
    statistic_kind INTEGER NOT NULL,
    threshold_value {real},
    threshold_kind INTEGER NOT NULL,
    PRIMARY KEY (incident_id, place)
){strict};

CREATE TABLE incident_log (
    seq {big} PRIMARY KEY,
    incident_id TEXT NOT NULL,
    at {real} NOT NULL,
    who TEXT NOT NULL,
    state TEXT NOT NULL,
    note TEXT NOT NULL
){strict};

CREATE INDEX incident_log_of_incident ON incident_log (incident_id, seq);

CREATE TABLE changes (
    seq {big} PRIMARY KEY,
    kind TEXT NOT NULL,
    run_id TEXT NOT NULL,
    incident_id TEXT,
    revision INTEGER NOT NULL,
    at {real} NOT NULL,
    body {blob} NOT NULL
){strict};

CREATE INDEX changes_of_run ON changes (run_id, seq);

CREATE TABLE outbox (
    seq {big} PRIMARY KEY,
    channel TEXT NOT NULL,
    key TEXT NOT NULL,
    payload {blob} NOT NULL,
    created_at {real} NOT NULL,
    sent_at {real}
){strict};

CREATE INDEX outbox_by_key ON outbox (channel, key);

CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    sha256 {blob} NOT NULL UNIQUE,
    scopes TEXT NOT NULL,
    created_at {real} NOT NULL,
    expires_at {real},
    last_used_at {real}
){strict};

CREATE TABLE health (
    component TEXT PRIMARY KEY,
    at {real} NOT NULL,
    body {blob} NOT NULL
){strict};
