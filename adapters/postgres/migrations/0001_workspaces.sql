CREATE TABLE users (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    username text NOT NULL CHECK (username ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
    password_hash text NOT NULL,
    is_admin boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz
);
CREATE UNIQUE INDEX users_username ON users (username);

CREATE TABLE sessions (
    token_hash bytea PRIMARY KEY,
    user_id uuid NOT NULL REFERENCES users ON DELETE CASCADE,
    created_at timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX sessions_user ON sessions (user_id);
CREATE INDEX sessions_expiry ON sessions (expires_at);

CREATE TABLE workspaces (
    id uuid PRIMARY KEY,
    owner_user_id uuid NOT NULL REFERENCES users,
    name text NOT NULL CHECK (char_length(name) BETWEEN 1 AND 100),
    description text NOT NULL DEFAULT '' CHECK (char_length(description) <= 1000),
    memo text NOT NULL DEFAULT '' CHECK (char_length(memo) <= 10000),
    image_ref text NOT NULL CHECK (char_length(image_ref) BETWEEN 1 AND 512),
    desired_state text NOT NULL CHECK (desired_state IN ('RUNNING', 'STANDBY', 'ARCHIVED', 'DELETED')),
    standby_ttl_seconds integer CHECK (standby_ttl_seconds >= 0),
    archive_ttl_seconds integer CHECK (archive_ttl_seconds >= 0),
    last_access_at timestamptz,
    deleted_at timestamptz,
    phase text NOT NULL DEFAULT 'PENDING' CHECK (
        phase IN ('PENDING', 'ARCHIVED', 'STANDBY', 'RUNNING', 'ERROR', 'DELETING', 'DELETED')),
    phase_changed_at timestamptz NOT NULL DEFAULT now(),
    operation text NOT NULL DEFAULT 'NONE' CHECK (
        operation IN ('NONE', 'PROVISIONING', 'RESTORING', 'STARTING', 'STOPPING', 'ARCHIVING',
                      'CREATE_EMPTY_ARCHIVE', 'DELETING')),
    op_id uuid,
    op_started_at timestamptz,
    conditions jsonb NOT NULL DEFAULT '{}',
    observed_at timestamptz,
    archive_op_id uuid,
    archive_key text,
    error_reason text CHECK (
        error_reason IN ('Timeout', 'RetryExceeded', 'ActionFailed', 'Unreachable', 'DataLost', 'ImagePullFailed',
                         'ContainerWithoutVolume', 'ArchiveCorrupted')),
    error_count integer NOT NULL DEFAULT 0 CHECK (error_count >= 0),
    home_ctx jsonb NOT NULL DEFAULT '{}',
    endpoint text,
    node text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT operation_has_start CHECK (
        (operation = 'NONE') = (op_started_at IS NULL) AND (operation = 'NONE') = (op_id IS NULL)),
    CONSTRAINT error_has_no_operation CHECK (phase <> 'ERROR' OR operation = 'NONE'),
    CONSTRAINT reason_is_in_error CHECK (error_reason IS NULL OR phase = 'ERROR'),
    CONSTRAINT deleted_is_desired CHECK ((desired_state = 'DELETED') = (deleted_at IS NOT NULL)),
    CONSTRAINT deletion_was_asked CHECK (phase NOT IN ('DELETING', 'DELETED') OR deleted_at IS NOT NULL),
    CONSTRAINT deleted_is_at_rest CHECK (phase <> 'DELETED' OR operation = 'NONE'),
    CONSTRAINT archiving_has_archive_op_id CHECK (
        operation NOT IN ('ARCHIVING', 'CREATE_EMPTY_ARCHIVE') OR archive_op_id IS NOT NULL),
    CONSTRAINT restoring_is_marked CHECK (
        operation <> 'RESTORING' OR home_ctx ->> 'restoring' IS NOT NULL
        OR home_ctx ->> 'restore_marker' = archive_key),
    CONSTRAINT restoring_has_archive_key CHECK (home_ctx ->> 'restoring' IS NULL OR archive_key IS NOT NULL),
    CONSTRAINT deleting_was_asked CHECK (operation <> 'DELETING' OR deleted_at IS NOT NULL),
    CONSTRAINT provisioning_has_no_archive CHECK (operation <> 'PROVISIONING' OR archive_key IS NULL),
    CONSTRAINT archived_has_archive_key CHECK (phase <> 'ARCHIVED' OR archive_key IS NOT NULL)
) WITH (fillfactor = 80);

CREATE UNIQUE INDEX workspaces_name ON workspaces (owner_user_id, name) WHERE deleted_at IS NULL;
CREATE INDEX workspaces_list ON workspaces (owner_user_id, created_at DESC, id) WHERE phase <> 'DELETED';
-- limits: what is, or is on its way to be, RUNNING; a recovered workspace counts again at once
CREATE INDEX workspaces_running ON workspaces (owner_user_id)
    WHERE (desired_state = 'RUNNING' OR phase = 'RUNNING') AND error_reason IS NULL AND deleted_at IS NULL;
-- observer: everything that may hold resources or has somewhere to go
CREATE INDEX workspaces_observed ON workspaces (id) WHERE phase <> 'DELETED';
-- TTL: what is at rest where it was wanted
CREATE INDEX workspaces_ttl_standby ON workspaces (phase_changed_at)
    WHERE phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING';
CREATE INDEX workspaces_ttl_archive ON workspaces (phase_changed_at)
    WHERE phase = 'STANDBY' AND operation = 'NONE' AND desired_state = 'STANDBY';

CREATE TABLE operations (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL REFERENCES workspaces ON DELETE CASCADE,
    operation text NOT NULL,
    previous_phase text NOT NULL,
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    outcome text CHECK (outcome IN ('SUCCEEDED', 'FAILED')),
    attempts integer NOT NULL DEFAULT 0,
    error_reason text,
    error_message text,
    bytes_done bigint,
    bytes_total bigint,
    context jsonb NOT NULL DEFAULT '{}',
    CONSTRAINT finished_has_outcome CHECK ((finished_at IS NULL) = (outcome IS NULL))
);
CREATE INDEX operations_log ON operations (workspace_id, started_at DESC);
CREATE UNIQUE INDEX operations_in_flight ON operations (workspace_id) WHERE outcome IS NULL;

CREATE TABLE system_locks (
    lock_name text PRIMARY KEY,
    holder_id text NOT NULL,
    acquired_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE nodes (
    name text PRIMARY KEY,
    engine_id text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
);

-- Labels every resource of this installation, so that two of them can share an engine.
CREATE TABLE installation (
    id text PRIMARY KEY DEFAULT left(replace(gen_random_uuid()::text, '-', ''), 12),
    single boolean NOT NULL DEFAULT true UNIQUE CHECK (single)
);
INSERT INTO installation DEFAULT VALUES;
