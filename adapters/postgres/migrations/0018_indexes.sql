-- TTL: see 0017_in_use_at.sql.
CREATE INDEX workspaces_unused_since ON workspaces (GREATEST(in_use_at, phase_changed_at))
    WHERE phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING' AND standby_ttl_seconds IS NULL;

-- Who waits for a place on a node, as the leader asks every few seconds.
CREATE INDEX workspaces_waiting ON workspaces (updated_at)
    WHERE operation = 'NONE' AND phase IN ('PENDING', 'ARCHIVED') AND desired_state IN ('STANDBY', 'RUNNING')
        AND conditions -> 'storage.volume_ready' ->> 'reason' = 'NoPlace';

-- What was deleted while a screen was away, of one user.
CREATE INDEX workspaces_deleted ON workspaces (owner_user_id, phase_changed_at) WHERE phase = 'DELETED';

-- Everything that lives, in the order in which it is shown; a phase is looked for without reading the rows.
CREATE INDEX workspaces_living ON workspaces (created_at DESC, id) INCLUDE (phase) WHERE phase <> 'DELETED';

-- What is on a node, and who leaves it first: those that sleep, as STANDBY comes after all other phases.
CREATE INDEX workspaces_on_node ON workspaces (node, phase DESC, phase_changed_at)
    WHERE node IS NOT NULL AND phase <> 'DELETED';

-- Each is replaced by one of these. Last, as nobody can even read until the end. The former version's TTL runner reads all
-- that are RUNNING until it is replaced; all else that it asks for is answered by the new ones.
DROP INDEX workspaces_idle_since, workspaces_observed, workspaces_placed;
