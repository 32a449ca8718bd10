CREATE TABLE api_tokens (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    token_hash bytea NOT NULL CHECK (octet_length(token_hash) = 32),
    created_at timestamptz NOT NULL DEFAULT now(),
    last_used_at timestamptz
);
CREATE UNIQUE INDEX api_tokens_hash ON api_tokens (token_hash);
CREATE INDEX api_tokens_list ON api_tokens (user_id, created_at DESC, id);

CREATE INDEX users_list ON users (created_at, id);
CREATE INDEX users_active_admins ON users (id) WHERE is_admin AND disabled_at IS NULL;

-- An account that does not exist is counted like one that does: the answers must not tell them apart.
CREATE TABLE login_failures (
    scope text NOT NULL CHECK (scope IN ('account', 'address')),
    subject text NOT NULL,
    failures integer NOT NULL CHECK (failures >= 0),
    counted_from timestamptz NOT NULL,
    locked_until timestamptz,
    PRIMARY KEY (scope, subject)
);
CREATE INDEX login_failures_old ON login_failures (counted_from);
