-- A tick finds what expires without looking at what doesn't: by how long it has been idle, in the order of the index.
-- Rows with a TTL of their own are few, and looked at one by one.
CREATE INDEX workspaces_idle_since ON workspaces (GREATEST(last_access_at, phase_changed_at))
    WHERE phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING' AND standby_ttl_seconds IS NULL;
CREATE INDEX workspaces_own_standby_ttl ON workspaces (id)
    WHERE phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING' AND standby_ttl_seconds > 0;
CREATE INDEX workspaces_asleep_since ON workspaces (phase_changed_at)
    WHERE phase = 'STANDBY' AND operation = 'NONE' AND desired_state = 'STANDBY' AND archive_ttl_seconds IS NULL;
CREATE INDEX workspaces_own_archive_ttl ON workspaces (id)
    WHERE phase = 'STANDBY' AND operation = 'NONE' AND desired_state = 'STANDBY' AND archive_ttl_seconds > 0;
DROP INDEX workspaces_ttl_standby, workspaces_ttl_archive;
