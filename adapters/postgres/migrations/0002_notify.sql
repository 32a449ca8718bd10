-- Payloads are ids only: NOTIFY takes at most 8,000 bytes, and the receiver wants the current row anyway.
CREATE FUNCTION workspaces_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := now();
    RETURN NEW;
END $$;

CREATE TRIGGER workspaces_touch BEFORE UPDATE ON workspaces FOR EACH ROW
    WHEN ((OLD.name, OLD.description, OLD.memo, OLD.desired_state, OLD.standby_ttl_seconds, OLD.archive_ttl_seconds,
           OLD.phase, OLD.operation, OLD.error_reason, OLD.error_count, OLD.archive_key, OLD.deleted_at)
          IS DISTINCT FROM
          (NEW.name, NEW.description, NEW.memo, NEW.desired_state, NEW.standby_ttl_seconds, NEW.archive_ttl_seconds,
           NEW.phase, NEW.operation, NEW.error_reason, NEW.error_count, NEW.archive_key, NEW.deleted_at))
    EXECUTE FUNCTION workspaces_touch();

CREATE FUNCTION notify_workspace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], json_build_object('id', NEW.id, 'user_id', NEW.owner_user_id)::text);
    RETURN NULL;
END $$;

CREATE TRIGGER ws_created AFTER INSERT ON workspaces FOR EACH ROW EXECUTE FUNCTION notify_workspace('ws_sse');
CREATE TRIGGER ws_created_wake AFTER INSERT ON workspaces FOR EACH ROW EXECUTE FUNCTION notify_workspace('ws_wake');

CREATE TRIGGER ws_sse AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN (NEW.phase <> 'DELETED' AND
          (OLD.phase, OLD.operation, OLD.error_reason, OLD.error_count, OLD.name, OLD.description, OLD.memo,
           OLD.desired_state, OLD.standby_ttl_seconds, OLD.archive_ttl_seconds)
          IS DISTINCT FROM
          (NEW.phase, NEW.operation, NEW.error_reason, NEW.error_count, NEW.name, NEW.description, NEW.memo,
           NEW.desired_state, NEW.standby_ttl_seconds, NEW.archive_ttl_seconds))
    EXECUTE FUNCTION notify_workspace('ws_sse');

-- A new desired_state, a deletion asked for again, or a recover.
CREATE TRIGGER ws_wake AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN (OLD.desired_state IS DISTINCT FROM NEW.desired_state OR OLD.deleted_at IS DISTINCT FROM NEW.deleted_at
          OR (OLD.error_reason IS NOT NULL AND NEW.error_reason IS NULL AND NEW.operation = 'NONE'))
    EXECUTE FUNCTION notify_workspace('ws_wake');

CREATE TRIGGER ws_deleted AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN (OLD.phase <> 'DELETED' AND NEW.phase = 'DELETED')
    EXECUTE FUNCTION notify_workspace('ws_deleted');
