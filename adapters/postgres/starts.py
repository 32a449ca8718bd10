"""Reads from the operation log what the pace of restarts goes by."""

from dataclasses import dataclass

from adapters.postgres.database import Database
from domain.model import WorkspaceId
from domain.pacing import Ended

# What a person changed after an operation began, that operation is no answer to.
_LATEST = """
WITH latest AS (
    SELECT operation = 'STARTING' AND outcome = 'SUCCEEDED' AS started, started_at, finished_at FROM operations
    WHERE workspace_id = $1 AND outcome IS NOT NULL ORDER BY started_at DESC LIMIT $2
)
SELECT * FROM latest WHERE started_at > COALESCE((
    SELECT max(a.at) FROM audit a WHERE a.subject_id = $1 AND a.action IN ('desired_state', 'recovered')
        AND a.at >= (SELECT min(started_at) FROM latest)), '-infinity')
ORDER BY started_at DESC
"""


@dataclass(frozen=True, slots=True)
class Starts:
    database: Database

    async def latest(self, workspace_id: WorkspaceId, most: int) -> list[Ended]:
        """Operations that are over, latest first, since its desired_state was changed or it was recovered."""
        rows = await self.database.fetch(_LATEST, workspace_id, most)
        return [Ended(row["started"], row["started_at"], row["finished_at"]) for row in rows]
