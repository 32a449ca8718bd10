-- How many homes a node has and how many workspaces count against the limits, without counting them each time: whatever
-- changes a row leaves a line here that says by how much, in its own transaction, and the sum of all lines is the number.
-- In any snapshot that sum is what a count would find.
--
-- Lines are added and taken together into one, never changed. So nobody waits for anybody's line, and lines have no part
-- in the order of locks, which is: the lock of the limits or of placement, then rows of workspaces.
CREATE TABLE tallies (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- NULL: on none.
    node text,
    homes integer NOT NULL,
    -- Of these, those that are or should be RUNNING.
    running integer NOT NULL,
    -- What counts against the limits.
    started integer NOT NULL
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- What one workspace counts for: on its node, and on the one that keeps a place for it. Nothing where there is no row.
CREATE FUNCTION tallied(w workspaces)
RETURNS TABLE (node text, homes integer, running integer, started integer) LANGUAGE sql IMMUTABLE AS $$
    SELECT w.node,
        (w.node IS NOT NULL AND w.phase <> 'DELETED')::integer,
        (w.node IS NOT NULL AND w.phase <> 'DELETED' AND (w.desired_state = 'RUNNING' OR w.phase = 'RUNNING'))::integer,
        ((w.desired_state = 'RUNNING' OR w.phase = 'RUNNING') AND w.error_reason IS NULL AND w.deleted_at IS NULL)::integer
    WHERE w.id IS NOT NULL
    UNION ALL
    SELECT w.move_to, 1, (w.desired_state = 'RUNNING' OR w.phase = 'RUNNING')::integer, 0
    WHERE w.move_to IS NOT NULL AND w.move_to IS DISTINCT FROM w.node AND w.phase <> 'DELETED'
$$;

CREATE FUNCTION tally_workspace() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO tallies (node, homes, running, started)
    SELECT node, sum(homes), sum(running), sum(started)
    FROM (SELECT * FROM tallied(NEW) UNION ALL SELECT node, -homes, -running, -started FROM tallied(OLD)) AS change
    GROUP BY node HAVING sum(homes) <> 0 OR sum(running) <> 0 OR sum(started) <> 0;
    RETURN NULL;
END $$;

-- One statement, one snapshot: what it finds missing is missing, whatever others do meanwhile. One at a time, or the same
-- correction would be made twice. Needed after triggers were switched off, as by a restore of data alone.
CREATE FUNCTION recount_tallies() RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    corrected integer;
BEGIN
    PERFORM pg_advisory_xact_lock(32758215601644915);  -- "tallies"
    INSERT INTO tallies (node, homes, running, started)
    SELECT node, sum(homes), sum(running), sum(started)
    FROM (SELECT t.* FROM workspaces w, LATERAL tallied(w) AS t
          UNION ALL SELECT node, -homes, -running, -started FROM tallies) AS difference
    GROUP BY node HAVING sum(homes) <> 0 OR sum(running) <> 0 OR sum(started) <> 0;
    GET DIAGNOSTICS corrected = ROW_COUNT;
    RETURN corrected;
END $$;

CREATE FUNCTION tally_nothing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM tallies;
    RETURN NULL;
END $$;

CREATE TRIGGER tally_made AFTER INSERT OR DELETE ON workspaces FOR EACH ROW EXECUTE FUNCTION tally_workspace();
CREATE TRIGGER tally_changed AFTER UPDATE ON workspaces FOR EACH ROW
    WHEN ((OLD.node, OLD.move_to, OLD.phase = 'DELETED', OLD.desired_state = 'RUNNING' OR OLD.phase = 'RUNNING',
           OLD.error_reason IS NULL AND OLD.deleted_at IS NULL)
          IS DISTINCT FROM
          (NEW.node, NEW.move_to, NEW.phase = 'DELETED', NEW.desired_state = 'RUNNING' OR NEW.phase = 'RUNNING',
           NEW.error_reason IS NULL AND NEW.deleted_at IS NULL))
    EXECUTE FUNCTION tally_workspace();
CREATE TRIGGER tally_emptied AFTER TRUNCATE ON workspaces FOR EACH STATEMENT EXECUTE FUNCTION tally_nothing();

-- With the triggers there, nobody who writes is under way any more: what is counted now is all there is.
SELECT recount_tallies();
