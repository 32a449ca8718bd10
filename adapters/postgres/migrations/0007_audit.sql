-- Who changed what, when and why. Triggers write it, so it is in the transaction of the change whoever makes it: this
-- version, the one before it, or a person with psql. The actor is the transaction's setting `codehub.actor`.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    subject text NOT NULL CHECK (subject IN ('workspace', 'user', 'token')),
    subject_id uuid NOT NULL,
    actor_kind text NOT NULL,
    actor_id uuid,
    actor text,
    action text NOT NULL,
    changes jsonb NOT NULL DEFAULT '{}',
    reason text,
    request_id text
);
CREATE INDEX audit_subject ON audit (subject_id, at DESC, id DESC);
CREATE INDEX audit_at ON audit (at DESC, id DESC);

CREATE FUNCTION audit_write(subject text, subject_id uuid, action text, changes jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- After a transaction that had set it, a session has the empty string.
    told jsonb := NULLIF(current_setting('codehub.actor', true), '')::jsonb;
BEGIN
    INSERT INTO audit (subject, subject_id, action, changes, actor_kind, actor_id, actor, reason, request_id)
    VALUES (subject, subject_id, action, changes, COALESCE(told ->> 'kind', 'database'), (told ->> 'id')::uuid,
            CASE WHEN told IS NULL THEN session_user::text ELSE told ->> 'name' END, told ->> 'reason',
            told ->> 'request_id');
END $$;

-- What differs, as {column: [before, after]}. Of long texts only that they changed.
CREATE FUNCTION audit_changes(before jsonb, after jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE AS $$
    SELECT COALESCE(jsonb_object_agg(key, CASE WHEN key IN ('description', 'memo', 'password_hash') THEN 'true'::jsonb
                                              ELSE jsonb_build_array(before -> key, value) END), '{}')
    FROM jsonb_each(after) WHERE value IS DISTINCT FROM before -> key
$$;

CREATE FUNCTION audit_workspace() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before jsonb := '{}';
    after jsonb := jsonb_build_object(
        'name', NEW.name, 'description', NEW.description, 'memo', NEW.memo, 'desired_state', NEW.desired_state,
        'standby_ttl_seconds', NEW.standby_ttl_seconds, 'archive_ttl_seconds', NEW.archive_ttl_seconds);
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM audit_write('workspace', NEW.id, 'created', jsonb_build_object(
            'name', jsonb_build_array(NULL, NEW.name), 'image_ref', jsonb_build_array(NULL, NEW.image_ref),
            'desired_state', jsonb_build_array(NULL, NEW.desired_state)));
        RETURN NULL;
    END IF;
    before := jsonb_build_object(
        'name', OLD.name, 'description', OLD.description, 'memo', OLD.memo, 'desired_state', OLD.desired_state,
        'standby_ttl_seconds', OLD.standby_ttl_seconds, 'archive_ttl_seconds', OLD.archive_ttl_seconds);
    PERFORM audit_write('workspace', NEW.id,
        CASE WHEN NEW.deleted_at IS DISTINCT FROM OLD.deleted_at THEN 'deleted'
             WHEN OLD.error_reason IS NOT NULL AND NEW.error_reason IS NULL THEN 'recovered'
             WHEN NEW.desired_state <> OLD.desired_state THEN 'desired_state'
             ELSE 'changed' END,
        audit_changes(before, after)
        || CASE WHEN OLD.error_reason IS NOT NULL AND NEW.error_reason IS NULL
                THEN jsonb_build_object('error_reason', jsonb_build_array(OLD.error_reason, NULL)) ELSE '{}' END);
    RETURN NULL;
END $$;

CREATE TRIGGER audit_created AFTER INSERT ON workspaces FOR EACH ROW EXECUTE FUNCTION audit_workspace();
-- What people and TTL change; a recover keeps phase and operation, a deletion that leaves ERROR does not.
CREATE TRIGGER audit_changed AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN ((OLD.name, OLD.description, OLD.memo, OLD.desired_state, OLD.standby_ttl_seconds, OLD.archive_ttl_seconds,
           OLD.deleted_at)
          IS DISTINCT FROM
          (NEW.name, NEW.description, NEW.memo, NEW.desired_state, NEW.standby_ttl_seconds, NEW.archive_ttl_seconds,
           NEW.deleted_at)
          OR (OLD.phase = 'ERROR' AND NEW.phase = 'ERROR'
              AND OLD.error_reason IS NOT NULL AND NEW.error_reason IS NULL))
    EXECUTE FUNCTION audit_workspace();

-- It was where it was wanted, and is not any more, and nobody asked for it: the world has changed behind its back.
CREATE FUNCTION audit_drift() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (at, subject, subject_id, actor_kind, action, changes, reason)
    VALUES (COALESCE(NEW.op_started_at, clock_timestamp()), 'workspace', NEW.id, 'drift', 'drifted',
            jsonb_build_object('phase', jsonb_build_array(OLD.phase, NEW.phase)),
            COALESCE(NEW.error_reason, NEW.conditions -> 'infra.container_ready' ->> 'message'));
    RETURN NULL;
END $$;

CREATE TRIGGER audit_drifted AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN (OLD.operation = 'NONE' AND OLD.phase = OLD.desired_state AND NEW.desired_state = OLD.desired_state
          AND NEW.phase <> OLD.phase)
    EXECUTE FUNCTION audit_drift();

-- A home that leaves a node which is being drained.
CREATE FUNCTION audit_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO audit (subject, subject_id, actor_kind, action, changes, reason)
    VALUES ('workspace', NEW.id, 'drain', 'moved', jsonb_build_object('node', jsonb_build_array(NEW.node, NEW.move_to)),
            'its node is being drained');
    RETURN NULL;
END $$;

CREATE TRIGGER audit_moved AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN (NEW.move_to IS NOT NULL AND OLD.move_to IS DISTINCT FROM NEW.move_to)
    EXECUTE FUNCTION audit_move();

CREATE FUNCTION audit_user() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM audit_write('user', NEW.id, CASE TG_OP WHEN 'INSERT' THEN 'created' ELSE 'changed' END, audit_changes(
        CASE TG_OP WHEN 'INSERT' THEN '{}' ELSE jsonb_build_object(
            'username', OLD.username, 'is_admin', OLD.is_admin, 'disabled', OLD.disabled_at IS NOT NULL,
            'password_hash', OLD.password_hash) END,
        jsonb_build_object(
            'username', NEW.username, 'is_admin', NEW.is_admin, 'disabled', NEW.disabled_at IS NOT NULL,
            'password_hash', NEW.password_hash)));
    RETURN NULL;
END $$;

CREATE TRIGGER audit_created AFTER INSERT ON users FOR EACH ROW EXECUTE FUNCTION audit_user();
CREATE TRIGGER audit_changed AFTER UPDATE ON users FOR EACH ROW
    WHEN ((OLD.is_admin, OLD.disabled_at, OLD.password_hash) IS DISTINCT FROM
          (NEW.is_admin, NEW.disabled_at, NEW.password_hash))
    EXECUTE FUNCTION audit_user();

CREATE FUNCTION audit_token() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        PERFORM audit_write('token', NEW.id, 'created', jsonb_build_object('name', NEW.name, 'user_id', NEW.user_id));
    ELSE
        PERFORM audit_write('token', OLD.id, 'revoked', jsonb_build_object('name', OLD.name, 'user_id', OLD.user_id));
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER audit_created AFTER INSERT ON api_tokens FOR EACH ROW EXECUTE FUNCTION audit_token();
CREATE TRIGGER audit_revoked AFTER DELETE ON api_tokens FOR EACH ROW EXECUTE FUNCTION audit_token();
