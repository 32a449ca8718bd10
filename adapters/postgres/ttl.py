"""TTL in set-based SQL: activity into the rows, then what has been idle for too long. Only desired_state changes."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from adapters.postgres.database import Database
from domain.model import WorkspaceId
from domain.ttl import TtlDefaults

# One statement each: a user's change that commits first makes its row not match any more, so it wins.
_STANDBY = """
UPDATE workspaces SET desired_state = 'STANDBY'
WHERE phase = 'RUNNING' AND operation = 'NONE' AND desired_state = 'RUNNING'
  AND phase_changed_at < now() - $2::interval
  AND COALESCE(standby_ttl_seconds, $1) > 0
  AND GREATEST(last_access_at, phase_changed_at)
      < now() - $2::interval - make_interval(secs => COALESCE(standby_ttl_seconds, $1))
RETURNING id
"""
_ARCHIVE = """
UPDATE workspaces SET desired_state = 'ARCHIVED'
WHERE phase = 'STANDBY' AND operation = 'NONE' AND desired_state = 'STANDBY'
  AND COALESCE(archive_ttl_seconds, $1) > 0
  AND phase_changed_at < now() - make_interval(secs => COALESCE(archive_ttl_seconds, $1))
RETURNING id
"""


@dataclass(frozen=True, slots=True)
class Expiry:
    database: Database
    defaults: TtlDefaults

    async def touch(self, seen: Mapping[WorkspaceId, datetime]) -> None:
        """`last_access_at` never goes back, and never into the future."""
        known = {workspace_id: moment for workspace_id, moment in seen.items() if _is_id(workspace_id)}
        await self.database.execute(
            "UPDATE workspaces w SET last_access_at = LEAST(now(), s.seen) FROM unnest($1::uuid[], $2::timestamptz[])"
            " AS s (id, seen) WHERE w.id = s.id AND (w.last_access_at IS NULL OR w.last_access_at < s.seen)",
            list(known),
            list(known.values()),
        )

    async def expire_running(self) -> list[WorkspaceId]:
        rows = await self.database.fetch(_STANDBY, int(self.defaults.standby.total_seconds()), self.defaults.lag)
        return [WorkspaceId(str(row["id"])) for row in rows]

    async def expire_standby(self) -> list[WorkspaceId]:
        rows = await self.database.fetch(_ARCHIVE, int(self.defaults.archive.total_seconds()))
        return [WorkspaceId(str(row["id"])) for row in rows]


def _is_id(text: str) -> bool:
    """What others left in Redis must not stop the tick."""
    try:
        UUID(text)
    except ValueError:
        return False
    return True
