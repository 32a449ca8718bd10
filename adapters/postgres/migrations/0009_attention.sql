-- What the leader asks for every few seconds, so that the ten thousand that rest cost nothing.
CREATE INDEX workspaces_in_operation ON workspaces (op_started_at) WHERE operation <> 'NONE';
CREATE INDEX workspaces_unattended ON workspaces (updated_at)
    WHERE operation = 'NONE' AND phase <> 'DELETED' AND (
        (phase <> 'ERROR' AND phase <> desired_state)
        OR (phase = 'ERROR' AND (error_reason IS NULL OR deleted_at > phase_changed_at))
        OR (phase IN ('STANDBY', 'RUNNING') AND move_to IS NOT NULL AND move_to <> node));
