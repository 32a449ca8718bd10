"""The hosts that workspaces run on: each worker keeps its node's row, people drain nodes and take them back."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from adapters.postgres.actor import acting
from adapters.postgres.database import Database
from adapters.postgres.placements import Placements
from domain.audit import Actor, ActorKind
from domain.model import WorkspaceId
from domain.node import Node
from domain.placement import spread, why_nowhere

_WORKER = Actor(ActorKind.SYSTEM, "codehub", reason="its worker started")

# A node whose engine is another one would judge every home on it to be lost: only an empty one may change engines, and
# only when nobody serves it. It is the same with its marker; or without it, if there are homes on it all the same.
_REGISTER = """
INSERT INTO nodes AS n (name, engine_id, address, capacity, cpus, memory, marker) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (name) DO UPDATE SET
    engine_id = $2, address = $3, capacity = $4, cpus = $5, memory = $6, marker = $7, lost_at = NULL, removed_at = NULL,
    heard_since = CASE WHEN n.seen_at < now() - $10::interval THEN now() ELSE n.heard_since END, seen_at = now()
WHERE n.removed_at IS NOT NULL
    OR (n.engine_id = $2 AND (n.marker IS NULL OR n.marker = $7 OR $8))
    OR (n.seen_at < now() - $9::interval AND NOT EXISTS (
        SELECT FROM workspaces w WHERE w.node = n.name AND w.phase NOT IN ('DELETED', 'PENDING', 'ARCHIVED')))
RETURNING true
"""

_LIST = """
SELECT n.*, n.lost_at IS NOT NULL OR n.seen_at < now() - $2::interval AS lost,
    count(w.id) AS homes,
    count(w.id) FILTER (WHERE w.phase = 'RUNNING') AS running,
    count(w.id) FILTER (WHERE w.phase = 'ERROR') AS in_error,
    count(w.id) FILTER (WHERE w.move_to <> n.name AND w.phase <> 'ERROR') AS leaving
FROM nodes n
LEFT JOIN workspaces w ON w.node = n.name AND w.node IS NOT NULL AND w.phase <> 'DELETED'
WHERE n.removed_at IS NULL AND ($1::text IS NULL OR n.name = $1)
GROUP BY n.name ORDER BY n.name
"""

_BEAT = """
UPDATE nodes SET
    heard_since = CASE WHEN seen_at < now() - $3::interval THEN now() ELSE COALESCE(heard_since, now()) END,
    seen_at = now(), lost_at = NULL, swept_at = GREATEST(swept_at, now() - $2::interval)
WHERE name = $1 AND removed_at IS NULL AND ($4::text IS NULL OR marker IS NULL OR marker = $4)
"""

# While the database was away nobody was heard. It was there if the caller has seen it all that time ($2), or if another
# node was heard all that time: a new leader need not wait to be sure.
_DECLARE_LOST = """
UPDATE nodes n SET lost_at = now()
WHERE lost_at IS NULL AND removed_at IS NULL AND seen_at < now() - $1::interval AND ($2 OR EXISTS (
    SELECT FROM nodes o WHERE o.name <> n.name AND o.removed_at IS NULL
    AND o.seen_at >= now() - $3::interval AND o.heard_since <= now() - $1::interval))
RETURNING name
"""

_LOST = """
SELECT w.id FROM workspaces w JOIN nodes n ON n.name = w.node
WHERE (n.lost_at IS NOT NULL OR n.removed_at IS NOT NULL) AND w.node IS NOT NULL AND w.phase <> 'DELETED'
  AND (w.operation <> 'NONE' OR (n.removed_at IS NULL AND w.phase IN ('STANDBY', 'RUNNING', 'DELETING')))
ORDER BY w.operation = 'NONE', w.phase <> 'RUNNING'
"""

_RETURNED = """
SELECT w.id FROM workspaces w JOIN nodes n ON n.name = w.node
WHERE w.error_reason = 'Unreachable' AND w.conditions -> 'policy.healthy' ->> 'reason' = 'Unreachable'
  AND (n.removed_at IS NOT NULL OR n.lost_at IS NULL)
"""

# Who takes it back waits from here on, and then finds everything that was sent off. Somebody who is changing it now is
# not waited for: all that place homes would wait, too, and its turn comes again in a few seconds.
_STILL_DRAINED = """
SELECT name FROM nodes WHERE name = $1 AND drain_started_at IS NOT NULL AND removed_at IS NULL
FOR NO KEY UPDATE SKIP LOCKED
"""

# Those that sleep go first, in the order of the index.
_LEAVERS = """
SELECT id, (desired_state = 'RUNNING' OR phase = 'RUNNING') AS runs FROM workspaces
WHERE node = $1 AND move_to IS NULL AND operation = 'NONE' AND deleted_at IS NULL
  AND phase IN ('STANDBY', 'RUNNING') AND desired_state IN ('STANDBY', 'RUNNING')
ORDER BY phase DESC, phase_changed_at LIMIT $2
"""
_SAY = "UPDATE nodes SET drain_message = $2 WHERE name = $1 AND drain_message IS DISTINCT FROM $2"

# A place on a node that takes none is no place: who is still at home gets another, who is in the store takes any.
# Again every few seconds, so that rows which somebody is changing can be passed over.
_NO_PLACES = """
UPDATE workspaces SET move_to = NULL WHERE id IN (
    SELECT w.id FROM workspaces w JOIN nodes n ON w.move_to = n.name
    WHERE w.move_to IS NOT NULL AND w.operation = 'NONE' AND w.node IS DISTINCT FROM w.move_to
      AND (n.lost_at IS NOT NULL OR n.cordoned_at IS NOT NULL OR n.removed_at IS NOT NULL)
    FOR UPDATE OF w SKIP LOCKED)
"""

# Who waits for rows while holding others goes by their ids, or two of them could wait for each other.
_STAY = """
UPDATE workspaces SET move_to = NULL WHERE id IN (
    SELECT id FROM workspaces WHERE node = $1 AND move_to <> $1 ORDER BY id FOR UPDATE)
"""

# On the way to another node. What is deleted or waits for a person goes nowhere, whatever an older version left there.
_UNDER_WAY = """
SELECT count(*) FROM workspaces
WHERE move_to IS NOT NULL AND phase NOT IN ('ERROR', 'DELETED') AND deleted_at IS NULL
"""


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of its node."""

    name: str
    engine_id: str
    address: str
    capacity: int | None
    cpus: int
    memory: int
    marker: str | None = None
    """Tells its data from any other's."""
    holds_homes: bool = False
    """Homes of this installation are on it."""


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """A node, and what is on it."""

    node: Node
    id: UUID
    address: str
    cpus: int
    memory: int
    lost: bool
    """Silent for too long; of a lone node nobody but the reader says so."""
    homes: int
    running: int
    in_error: int
    leaving: int
    """Homes that are on their way to another node."""
    registered_at: datetime
    drain_started_at: datetime | None
    drain_homes: int | None
    """How many there were when the drain began."""
    drain_message: str | None


@dataclass(frozen=True, slots=True)
class Nodes:
    database: Database
    lost_after: timedelta = timedelta(seconds=15)

    @property
    def gap(self) -> timedelta:
        """The longest pause between two heartbeats that leaves time for everybody else's in a `lost_after`."""
        return self.lost_after / 2

    async def register(self, told: Registration) -> bool:
        """False when the name is that of another engine that holds homes or is served, and nobody has given it up."""
        with acting(_WORKER):
            async with self.database.transaction() as connection:
                found = await connection.fetchval(
                    _REGISTER,
                    told.name,
                    told.engine_id,
                    told.address,
                    told.capacity,
                    told.cpus,
                    told.memory,
                    told.marker,
                    told.holds_homes,
                    self.lost_after,
                    self.gap,
                )
        return found is True

    async def beat(self, name: str, swept: timedelta | None, marker: str | None = None) -> bool:
        """It lives; `swept` ago its observer began its last sweep. False when the node was removed, or is another's."""
        return await self.database.execute(_BEAT, name, swept, self.gap, marker) == "UPDATE 1"

    async def several(self) -> bool:
        """More than one, or one whose removal some workspaces have not heard of."""
        return bool(await self.database.fetchval("SELECT count(*) > 1 FROM nodes"))

    async def entries(self) -> list[NodeEntry]:
        return [_entry(row) for row in await self.database.fetch(_LIST, None, self.lost_after)]

    async def addresses(self) -> list[str]:
        """Where workspaces' ports are published, also of nodes that are lost."""
        rows = await self.database.fetch("SELECT DISTINCT address FROM nodes WHERE removed_at IS NULL")
        return [row["address"] for row in rows]

    async def get(self, name: str) -> NodeEntry | None:
        row = await self.database.fetchrow(_LIST, name, self.lost_after)
        return _entry(row) if row else None

    async def declare_lost(self, *, heard: bool) -> list[str]:
        """Those that said nothing for too long, and would have been heard: `heard` by the caller, or as another was."""
        rows = await self.database.fetch(_DECLARE_LOST, self.lost_after, heard, self.gap)
        return [row["name"] for row in rows]

    async def lost(self) -> list[WorkspaceId]:
        """On a lost node, and not known to be so yet."""
        return _ids(await self.database.fetch(_LOST))

    async def returned(self) -> list[WorkspaceId]:
        """In ERROR for the want of a node that is back (or never will be)."""
        return _ids(await self.database.fetch(_RETURNED))

    async def drain(self, name: str) -> bool:
        """Nothing new is placed on it, and what is on it leaves. Asked for again, it goes on."""
        async with self.database.transaction() as connection:
            done = await connection.execute(
                "UPDATE nodes n SET cordoned_at = COALESCE(cordoned_at, now()),"
                " drain_started_at = COALESCE(drain_started_at, now()), drain_message = NULL,"
                " drain_homes = COALESCE(drain_homes, (SELECT count(*) FROM workspaces w"
                "   WHERE w.node = n.name AND w.node IS NOT NULL AND w.phase <> 'DELETED'))"
                " WHERE name = $1 AND removed_at IS NULL",
                name,
            )
        return str(done) == "UPDATE 1"

    async def uncordon(self, name: str) -> bool:
        """It takes homes again; those that have not left stay."""
        async with self.database.transaction() as connection:
            done = await connection.execute(
                "UPDATE nodes SET cordoned_at = NULL, drain_started_at = NULL, drain_homes = NULL,"
                " drain_message = NULL WHERE name = $1 AND removed_at IS NULL",
                name,
            )
            await connection.execute(_STAY, name)
        return str(done) == "UPDATE 1"

    async def remove(self, name: str) -> bool:
        """A person says that it will not come back. Refused while it is heard of."""
        async with self.database.transaction() as connection:
            done = await connection.execute(
                "UPDATE nodes SET removed_at = now() WHERE name = $1 AND removed_at IS NULL"
                " AND seen_at < now() - $2::interval",
                name,
                self.lost_after,
            )
        return str(done) == "UPDATE 1"

    async def draining(self) -> Sequence[str]:
        rows = await self.database.fetch(
            "SELECT name FROM nodes WHERE drain_started_at IS NOT NULL AND removed_at IS NULL ORDER BY name"
        )
        return [row["name"] for row in rows]

    async def send_off(self, name: str, at_once: int) -> list[WorkspaceId]:
        """Keep a place elsewhere for the next homes of a drained node, and let them go there. None of one that was
        taken back since somebody looked."""
        await self.database.execute(_NO_PLACES)
        if not await self.database.fetch(_LEAVERS, name, 1):
            # It is drained, as a rule: nobody else has to wait for a look at where nothing goes.
            await self.database.execute(_SAY, name, None)
            return []
        async with Placements(self.database).deciding() as deciding:
            connection = deciding.connection
            if await connection.fetchval(_STILL_DRAINED, name) is None:
                return []
            under_way = await connection.fetchval(_UNDER_WAY)
            leavers = await connection.fetch(f"{_LEAVERS} FOR UPDATE SKIP LOCKED", name, max(0, at_once - under_way))
            places = await deciding.places()
            chosen, left = spread(places, [row["runs"] for row in leavers], leaving=name)
            ids = [row["id"] for row in leavers[: len(chosen)]]
            await connection.execute(
                "UPDATE workspaces w SET move_to = m.node FROM unnest($1::uuid[], $2::text[]) AS m (id, node)"
                " WHERE w.id = m.id",
                ids,
                chosen,
            )
            message = why_nowhere(left, leaving=name) if len(chosen) < len(leavers) else None
            await connection.execute(_SAY, name, message)
        return [WorkspaceId(str(id_)) for id_ in ids]


def _ids(rows: Sequence[asyncpg.Record]) -> list[WorkspaceId]:
    return [WorkspaceId(str(row["id"])) for row in rows]


def _entry(row: asyncpg.Record) -> NodeEntry:
    return NodeEntry(
        node=Node(
            name=row["name"],
            seen_at=row["seen_at"],
            swept_at=row["swept_at"],
            capacity=row["capacity"],
            cordoned=row["cordoned_at"] is not None,
        ),
        **{name: row[name] for name in NodeEntry.__dataclass_fields__ if name != "node"},
    )
