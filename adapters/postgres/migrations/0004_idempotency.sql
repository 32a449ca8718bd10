-- What a create answered, so that asked again with the same key it answers the same. Kept for a day.
CREATE TABLE idempotency_keys (
    user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    key text NOT NULL CHECK (char_length(key) BETWEEN 1 AND 255),
    fingerprint bytea NOT NULL,
    workspace_id uuid NOT NULL,
    answer jsonb,
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (user_id, key)
);
CREATE INDEX idempotency_keys_old ON idempotency_keys (created_at);
