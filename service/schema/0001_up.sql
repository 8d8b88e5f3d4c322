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

CREATE TABLE runs (
    run TEXT PRIMARY KEY,
    label TEXT NOT NULL,
    judged_to {big},
    revision INTEGER NOT NULL,
    verdict {blob} NOT NULL,
    updated_at {real} NOT NULL
){strict};

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

CREATE INDEX incidents_of_run ON incidents (run, first_attempt, first_iteration);

CREATE TABLE rejected (
    reason TEXT PRIMARY KEY,
    records {big} NOT NULL,
    example {blob} NOT NULL
){strict};
