"""Where homes go: one transaction at a time, so that no node gets more than its capacity."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from adapters.postgres.database import Database, PooledConnection
from adapters.postgres.tallies import take_together
from domain.model import WorkspaceId
from domain.placement import NO_PLACE, Place

_LOCK = 0x706C616365

# A home that is on its way counts where a place is kept for it, and where it still is.
_PLACES = """
SELECT n.name, n.capacity, n.memory, n.cordoned_at IS NOT NULL AS cordoned, n.lost_at IS NOT NULL AS lost,
    COALESCE(t.homes, 0) AS homes, COALESCE(t.running, 0) AS running, (SELECT count(*) FROM tallies) AS lines
FROM nodes n LEFT JOIN (
    SELECT node, sum(homes) AS homes, sum(running) AS running FROM tallies GROUP BY node
) AS t ON t.node = n.name
WHERE n.removed_at IS NULL
"""

WAITS_FOR_PLACE = f"""
    operation = 'NONE' AND phase IN ('PENDING', 'ARCHIVED') AND desired_state IN ('STANDBY', 'RUNNING')
    AND conditions -> 'storage.volume_ready' ->> 'reason' = '{NO_PLACE}'
"""
"""One that is wanted elsewhere since does not. In the words of its index."""

_WAITING = f"SELECT id, move_to FROM workspaces WHERE {WAITS_FOR_PLACE} ORDER BY updated_at LIMIT $1"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Waiting:
    """A workspace that found no place for its home."""

    id: WorkspaceId
    kept: str | None
    """The node that keeps one for it."""


@dataclass(frozen=True, slots=True)
class Placements:
    database: Database

    @asynccontextmanager
    async def deciding(self) -> AsyncIterator["Deciding"]:
        """Nobody else places anything until the transaction ends."""
        async with self.database.transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            yield Deciding(connection)

    async def places(self) -> list[Place]:
        """As they are at the moment, for whoever decides nothing."""
        return [_place(row) for row in await self.database.fetch(_PLACES)]

    async def waiting(self, most: int) -> list[Waiting]:
        """Those that wait for a place, whoever has waited for longest first."""
        rows = await self.database.fetch(_WAITING, most)
        return [Waiting(WorkspaceId(str(row["id"])), row["move_to"]) for row in rows]


@dataclass(frozen=True, slots=True)
class Deciding:
    connection: PooledConnection

    async def places(self) -> list[Place]:
        rows = await self.connection.fetch(_PLACES)
        await take_together(self.connection, rows[0]["lines"] if rows else 0)
        return [_place(row) for row in rows]


def _place(row: asyncpg.Record) -> Place:
    return Place(**{name: row[name] for name in Place.__dataclass_fields__})
