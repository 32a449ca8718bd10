-- Several hosts: every worker keeps its node's row fresh, homes are placed on nodes, and a node can be drained.
ALTER TABLE nodes
    ADD CONSTRAINT name_is_a_queue CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    ADD COLUMN address text NOT NULL DEFAULT '127.0.0.1',
    -- Homes at most; NULL: no limit.
    ADD COLUMN capacity integer CHECK (capacity > 0),
    ADD COLUMN cpus integer NOT NULL DEFAULT 0,
    ADD COLUMN memory bigint NOT NULL DEFAULT 0,
    ADD COLUMN registered_at timestamptz NOT NULL DEFAULT now(),
    -- The leader found it silent for too long; its next heartbeat clears this.
    ADD COLUMN lost_at timestamptz,
    -- When its observer last compared all its rows with the engine, and woke what differed.
    ADD COLUMN swept_at timestamptz,
    ADD COLUMN cordoned_at timestamptz,
    ADD COLUMN drain_started_at timestamptz,
    ADD COLUMN drain_homes integer,
    -- Why the drain does not go on.
    ADD COLUMN drain_message text,
    -- A person said that it will not come back.
    ADD COLUMN removed_at timestamptz,
    ADD CONSTRAINT drained_is_cordoned CHECK (drain_started_at IS NULL OR cordoned_at IS NOT NULL),
    ADD CONSTRAINT drain_has_count CHECK ((drain_started_at IS NULL) = (drain_homes IS NULL));

-- The node that keeps a place for a home that leaves a drained one.
ALTER TABLE workspaces ADD COLUMN move_to text;

-- placement counts homes by node; each node's observer reads its own
CREATE INDEX workspaces_placed ON workspaces (node) WHERE node IS NOT NULL AND phase <> 'DELETED';
CREATE INDEX workspaces_moving ON workspaces (move_to) WHERE move_to IS NOT NULL;
-- what comes back with its node
CREATE INDEX workspaces_unreachable ON workspaces (node) WHERE error_reason = 'Unreachable';
