-- Who drained, took back or gave up a host. A node is known by its name, and a line of the audit log has the id of what it is
-- about, also for the version before this one: so a node gets an id. The table has a row per host.
ALTER TABLE nodes ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid();

-- NOT VALID: the lines that are there were checked by the former one.
ALTER TABLE audit
    DROP CONSTRAINT audit_subject_check,
    ADD CONSTRAINT audit_subject_check CHECK (subject IN ('workspace', 'user', 'token', 'node')) NOT VALID;

CREATE FUNCTION audit_node() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM audit_write('node', NEW.id,
        CASE WHEN TG_OP = 'INSERT' OR (OLD.removed_at IS NOT NULL AND NEW.removed_at IS NULL) THEN 'registered'
             WHEN OLD.removed_at IS NULL AND NEW.removed_at IS NOT NULL THEN 'removed'
             WHEN OLD.drain_started_at IS NULL AND NEW.drain_started_at IS NOT NULL THEN 'drained'
             WHEN OLD.cordoned_at IS NULL THEN 'cordoned'
             ELSE 'uncordoned' END,
        jsonb_build_object('name', NEW.name));
    RETURN NULL;
END $$;

CREATE TRIGGER audit_created AFTER INSERT ON nodes FOR EACH ROW EXECUTE FUNCTION audit_node();
-- What people decide. Heartbeats, and a node that is silent or back, are no decisions.
CREATE TRIGGER audit_changed AFTER UPDATE ON nodes FOR EACH ROW
    WHEN ((OLD.cordoned_at IS NULL, OLD.drain_started_at IS NULL, OLD.removed_at IS NULL)
          IS DISTINCT FROM
          (NEW.cordoned_at IS NULL, NEW.drain_started_at IS NULL, NEW.removed_at IS NULL))
    EXECUTE FUNCTION audit_node();
