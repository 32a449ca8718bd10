-- last_access_at changes every minute of whoever is active. While an index knows of it, each such change makes a new entry
-- in every index of the row. So the index of the TTL runner goes by another moment (0018_indexes.sql): one at which the
-- workspace was in use at least, which the runner moves on when it comes to look at it, once in a TTL.
ALTER TABLE workspaces ADD COLUMN in_use_at timestamptz;

-- codehub never takes last_access_at back. A person who does, to have a workspace sleep, is heard.
CREATE FUNCTION workspaces_used() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.in_use_at := NEW.last_access_at;
    RETURN NEW;
END $$;
CREATE TRIGGER workspaces_used BEFORE UPDATE ON workspaces FOR EACH ROW
    WHEN (NEW.in_use_at > COALESCE(NEW.last_access_at, '-infinity')) EXECUTE FUNCTION workspaces_used();

-- Who changed it: what the TTL runner changed is woken by the listener alone, and at once.
CREATE OR REPLACE FUNCTION notify_workspace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify(TG_ARGV[0], json_build_object('id', NEW.id, 'user_id', NEW.owner_user_id, 'by',
        NULLIF(current_setting('codehub.actor', true), '')::jsonb ->> 'kind')::text);
    RETURN NULL;
END $$;
