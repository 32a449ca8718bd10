-- Objects that nothing refers to, since when, and in which run they were seen last.
CREATE TABLE gc_orphans (
    key text PRIMARY KEY,
    size bigint NOT NULL,
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    run bigint NOT NULL
);
CREATE INDEX gc_orphans_age ON gc_orphans (first_seen_at);

-- One row. `run` is also kept in the store: a store that is ahead tells that this database is an older backup.
CREATE TABLE gc_state (
    single boolean PRIMARY KEY DEFAULT true CHECK (single),
    run bigint NOT NULL DEFAULT 0,
    hold_until timestamptz,
    finished_at timestamptz,
    report jsonb NOT NULL DEFAULT '{}'
);
INSERT INTO gc_state DEFAULT VALUES;
