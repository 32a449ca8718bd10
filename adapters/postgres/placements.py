"""Where homes go: one transaction at a time, so that no node gets more than its capacity."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from adapters.postgres.database import Database, PooledConnection
from domain.placement import Place

_LOCK = 0x706C616365

# A home that is on its way counts where a place is kept for it, and where it still is.
_PLACES = """
SELECT n.name, n.capacity, n.memory, n.cordoned_at IS NOT NULL AS cordoned, n.lost_at IS NOT NULL AS lost,
    count(w.id) AS homes,
    count(w.id) FILTER (WHERE w.desired_state = 'RUNNING' OR w.phase = 'RUNNING') AS running
FROM nodes n
LEFT JOIN LATERAL (
    SELECT id, desired_state, phase FROM workspaces
    WHERE node = n.name AND node IS NOT NULL AND phase <> 'DELETED'
    UNION ALL
    SELECT id, desired_state, phase FROM workspaces
    WHERE move_to = n.name AND node IS DISTINCT FROM n.name AND phase <> 'DELETED'
) AS w ON true
WHERE n.removed_at IS NULL
GROUP BY n.name
"""


@dataclass(frozen=True, slots=True)
class Placements:
    database: Database

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator["Deciding"]:
        """Nobody else places anything until the transaction ends."""
        async with self.database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            yield Deciding(connection)


@dataclass(frozen=True, slots=True)
class Deciding:
    connection: PooledConnection

    async def places(self) -> list[Place]:
        rows = await self.connection.fetch(_PLACES)
        return [Place(**row) for row in rows]
