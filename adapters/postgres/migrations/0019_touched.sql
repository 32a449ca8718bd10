-- A save holds only while the row is as it was loaded, which it knows by updated_at: so whatever a save writes back, and
-- somebody else may write meanwhile, counts. What an attempt says of the home (home_ctx, archive_op_id) and the clock of its
-- operation did not, and were written over. The former version compares updated_at as well, and is kept from it, too.
-- Left out is what is only observed, and told often: see tests/schema/test_updated_at.py.
CREATE OR REPLACE TRIGGER workspaces_touch BEFORE UPDATE ON workspaces FOR EACH ROW
    WHEN ((OLD.name, OLD.description, OLD.memo, OLD.desired_state, OLD.standby_ttl_seconds, OLD.archive_ttl_seconds,
           OLD.phase, OLD.operation, OLD.error_reason, OLD.error_count, OLD.archive_key, OLD.deleted_at,
           OLD.op_id, OLD.op_started_at, OLD.archive_op_id, OLD.home_ctx, OLD.node)
          IS DISTINCT FROM
          (NEW.name, NEW.description, NEW.memo, NEW.desired_state, NEW.standby_ttl_seconds, NEW.archive_ttl_seconds,
           NEW.phase, NEW.operation, NEW.error_reason, NEW.error_count, NEW.archive_key, NEW.deleted_at,
           NEW.op_id, NEW.op_started_at, NEW.archive_op_id, NEW.home_ctx, NEW.node))
    EXECUTE FUNCTION workspaces_touch();
