CREATE TABLE alert_deliveries (
    id TEXT PRIMARY KEY,
    seq {big} NOT NULL,
    channel TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    run_id TEXT NOT NULL,
    run TEXT NOT NULL,
    payload {blob} NOT NULL,
    state TEXT NOT NULL,
    created_at {real} NOT NULL,
    due_at {real} NOT NULL,
    attempts INTEGER NOT NULL,
    give_up_at {real},
    lease_owner TEXT,
    lease_until {real},
    finished_at {real},
    detail TEXT NOT NULL
){strict};

CREATE INDEX alert_deliveries_due ON alert_deliveries (channel, state, due_at);

CREATE INDEX alert_deliveries_of_run ON alert_deliveries (channel, run_id);

CREATE TABLE alert_told (
    channel TEXT NOT NULL,
    incident_id TEXT NOT NULL,
    is_firing {bool} NOT NULL,
    certainty TEXT NOT NULL,
    severity TEXT NOT NULL,
    has_ranks {bool} NOT NULL,
    alert {blob} NOT NULL,
    labels TEXT,
    told_at {real} NOT NULL,
    PRIMARY KEY (channel, incident_id)
){strict};

CREATE TABLE alert_results (
    channel TEXT NOT NULL,
    result TEXT NOT NULL,
    messages {big} NOT NULL,
    at {real} NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (channel, result)
){strict};
