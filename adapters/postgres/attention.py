"""Which workspaces need their workflow's attention: set-based, so that ten thousand idle ones cost one query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from adapters.postgres.database import Database
from adapters.postgres.placements import WAITS_FOR_PLACE
from domain.model import WorkspaceId
from domain.observation import ContainerState, Presence, Resources
from domain.pacing import KEEPS_ENDING, LONGEST
from domain.recovering import ACCEPTS_LOSS

# Somewhere to go and nobody on the way: phase is not what is desired, a person recovered it, or asked (again) for
# its deletion, or it is to leave its node.
_UNATTENDED = """
    w.operation = 'NONE' AND w.phase <> 'DELETED' AND (
        (w.phase <> 'ERROR' AND w.phase <> w.desired_state)
        OR (w.phase = 'ERROR' AND (w.error_reason IS NULL OR w.deleted_at > w.phase_changed_at))
        OR (w.phase IN ('STANDBY', 'RUNNING') AND w.move_to IS NOT NULL AND w.move_to <> w.node))
"""

AWAITED_SINCE = f"""
    updated_at + CASE WHEN phase = 'STANDBY' AND desired_state = 'RUNNING'
        AND conditions -> 'infra.container_ready' ->> 'reason' = '{KEEPS_ENDING}'
        THEN interval '{LONGEST.total_seconds():g} seconds' ELSE interval '0' END
"""
"""From when on somebody should be on the way: nobody need be while the next start waits (domain.pacing)."""

# What a phase at rest says about the engine; a part of a home is none. ERROR says nothing, but whoever recovers is told
# what is there: a volume that is put back, or goes, is looked at. Not on a node that takes none: nobody looks there.
_HOME = "COALESCE(s.volume AND w.home_ctx ->> 'restoring' IS NULL AND w.home_ctx ->> 'removing' IS NULL, false)"
_DRIFTED = f"""
    w.operation = 'NONE' AND (
        (w.phase IN ('PENDING', 'ARCHIVED', 'STANDBY', 'RUNNING') AND (
            (w.phase = 'RUNNING') <> COALESCE(s.running, false)
            OR (w.phase = 'RUNNING' AND s.endpoint <> w.endpoint)
            OR (w.phase IN ('STANDBY', 'RUNNING')) <> {_HOME}))
        OR (w.phase = 'ERROR'
            AND COALESCE(w.conditions -> 'storage.volume_ready' ->> 'status' = 'True', false) <> {_HOME}
            AND NOT EXISTS (
                SELECT FROM nodes n WHERE n.name = w.node
                AND (n.cordoned_at IS NOT NULL OR n.lost_at IS NOT NULL OR n.removed_at IS NOT NULL))))
"""

# An operation's end is told by the database's clock; `ago` was measured before this is asked, so that a change is taken
# for later than it was, if anything.
_IN_OPERATION = """
SELECT w.id, w.operation <> 'NONE' AS busy
FROM unnest($1::uuid[], $2::interval[]) AS changed (id, ago) JOIN workspaces w ON w.id = changed.id
WHERE w.operation <> 'NONE' OR (
    SELECT o.outcome = 'SUCCEEDED' AND o.finished_at > clock_timestamp() - changed.ago FROM operations o
    WHERE o.workspace_id = w.id ORDER BY o.started_at DESC LIMIT 1)
"""

# Its last operation, and the one that made it ERROR, which says so with the same time in both rows: after a recovery
# that found its container answering it was RUNNING without another operation.
_FAILED_TO_START = """
SELECT w.id FROM workspaces w, LATERAL (
    SELECT * FROM operations WHERE workspace_id = w.id ORDER BY started_at DESC LIMIT 1) AS o
WHERE w.id = ANY($1::uuid[]) AND w.node = $2 AND w.phase = 'ERROR' AND w.operation = 'NONE'
  AND w.error_reason IS NOT NULL AND w.error_reason <> ALL($3::text[])
  AND o.operation = 'STARTING' AND o.outcome = 'FAILED' AND o.finished_at = w.phase_changed_at
"""


@dataclass(frozen=True, slots=True)
class Attention:
    database: Database

    async def unattended(self, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        rows = await self.database.fetch(
            f"SELECT w.id FROM workspaces w WHERE w.id = ANY($1::uuid[]) AND {_UNATTENDED}",  # noqa: S608 - constant
            list(among),
        )
        return [WorkspaceId(str(row["id"])) for row in rows]

    async def drifted(self, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        """Workspaces of this node at rest whose phase is not what the engine holds now. What their rows say is not
        gone by any more: whoever reconciles them has to look."""
        return await self._drifted("LEFT JOIN", node, seen)

    async def drifted_among(self, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        """As `drifted`, looking only at what was seen."""
        return await self._drifted("JOIN", node, seen)

    async def _drifted(self, join: str, node: str, seen: Mapping[WorkspaceId, Resources]) -> list[WorkspaceId]:
        rows = await self.database.fetch(
            f"""
            WITH drifted AS (
                SELECT w.id FROM workspaces w
                {join} unnest($1::uuid[], $2::boolean[], $3::boolean[], $5::text[])
                    AS s (id, running, volume, endpoint) ON s.id = w.id
                WHERE w.node = $4 AND {_DRIFTED}
            ), forgotten AS (
                UPDATE workspaces SET observed_at = NULL WHERE id IN (
                    SELECT id FROM workspaces
                    WHERE id IN (SELECT id FROM drifted) AND operation = 'NONE' AND observed_at IS NOT NULL
                    ORDER BY id FOR UPDATE)
            )
            SELECT id FROM drifted
            """,  # noqa: S608 - constant
            list(seen),
            [resources.container is ContainerState.READY for resources in seen.values()],
            [resources.volume is Presence.PRESENT for resources in seen.values()],
            node,
            [resources.endpoint for resources in seen.values()],
        )
        return [WorkspaceId(str(row["id"])) for row in rows]

    async def in_operation(self, changed: Mapping[WorkspaceId, timedelta]) -> tuple[set[WorkspaceId], set[WorkspaceId]]:
        """Of these, which changed at their engine so long ago: those in an operation, and those at rest whose operation
        was seen to be complete by a look that began after the change."""
        rows = await self.database.fetch(_IN_OPERATION, list(changed), list(changed.values()))
        busy = {WorkspaceId(str(row["id"])) for row in rows if row["busy"]}
        return busy, {WorkspaceId(str(row["id"])) for row in rows if not row["busy"]}

    async def stuck(self, patience: timedelta, timeouts: Mapping[str, timedelta]) -> dict[WorkspaceId, str]:
        """Unattended for longer than a wake should take, or in an operation for longer than its timeout: each with
        what it has been like since. Those who wait for a place may be thousands, and are woken when there is one."""
        rows = await self.database.fetch(
            f"""
            SELECT w.id, w.updated_at FROM workspaces w
            WHERE ({_UNATTENDED}) AND ({WAITS_FOR_PLACE}) IS NOT TRUE AND w.updated_at < now() - $1::interval
              AND {AWAITED_SINCE} < now() - $1::interval
            UNION ALL
            SELECT w.id, w.updated_at FROM workspaces w
            JOIN unnest($2::text[], $3::interval[]) AS t (operation, timeout) ON t.operation = w.operation
            WHERE w.operation <> 'NONE' AND w.op_started_at < now() - t.timeout - $1::interval
            """,  # noqa: S608 - constant
            patience,
            list(timeouts),
            list(timeouts.values()),
        )
        return {WorkspaceId(str(row["id"])): row["updated_at"].isoformat() for row in rows}

    async def not_begun(self, patience: timedelta) -> dict[WorkspaceId, str]:
        """Operations that nobody took up for that long: they wait for a place or a worker, or were claimed by somebody
        whose word was lost."""
        rows = await self.database.fetch(
            "SELECT w.id, w.op_id FROM workspaces w JOIN operations o ON o.id = w.op_id"
            " WHERE w.operation <> 'NONE' AND o.attempts = 0 AND w.op_started_at < now() - $1::interval",
            patience,
        )
        return {WorkspaceId(str(row["id"])): str(row["op_id"]) for row in rows}

    async def living(self) -> list[WorkspaceId]:
        """Everything that should have a running workflow."""
        rows = await self.database.fetch("SELECT id FROM workspaces WHERE phase <> 'DELETED'")
        return [WorkspaceId(str(row["id"])) for row in rows]

    async def count_living(self) -> int:
        count: int = await self.database.fetchval("SELECT count(*) FROM workspaces WHERE phase <> 'DELETED'")
        return count

    async def deleted(self, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        """Of these, the deleted ones: an engine should hold nothing of them."""
        rows = await self.database.fetch(
            "SELECT id FROM workspaces WHERE id = ANY($1::uuid[]) AND phase = 'DELETED'", list(among)
        )
        return [WorkspaceId(str(row["id"])) for row in rows]

    async def failed_to_start(self, node: str, among: Sequence[WorkspaceId]) -> list[WorkspaceId]:
        """Of these on this node, those in ERROR by a STARTING that failed, and not recovered: nobody has been in their
        containers. One that was RUNNING since, or failed on its way down, is not among them, nor one whose home is in
        doubt."""
        rows = await self.database.fetch(_FAILED_TO_START, list(among), node, list(ACCEPTS_LOSS))
        return [WorkspaceId(str(row["id"])) for row in rows]
