"""The API's side of `workspaces`: create, get, list, patch, and the operation log.

Everything is the owner's own. What an admin may look at takes `None` for the owner: anybody's, said on purpose.
"""

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg

from adapters.postgres.database import Database, PooledConnection
from adapters.postgres.desired_state import DesiredStates, Refusal, Refused, counted
from adapters.postgres.idempotency import IdempotencyKey, claim, keep
from adapters.postgres.rows import to_workspace
from domain.model import DesiredState, ErrorReason, Operation, OperationId, Phase, UserId, Workspace, WorkspaceId
from domain.naming import archive_op_id_of
from domain.progress import Moved, Stage, as_told

PROGRESS = """
    o.bytes_done, o.bytes_total, o.stage, o.bytes_per_second, o.attempts,
    extract(epoch FROM now() - o.told_at)::float8 AS told_seconds_ago,
    o.attempts = 0 AND o.started_at < now() - interval '3 seconds' AS waits
"""

_GET = f"""
SELECT w.*, {PROGRESS}
FROM workspaces w LEFT JOIN operations o ON o.id = w.op_id
WHERE w.id = $1 AND ($2::uuid IS NULL OR w.owner_user_id = $2) AND w.phase <> 'DELETED'
"""  # noqa: S608 - constant

# One statement, one snapshot: the page and its total agree, also when the page is beyond the end.
_LIST = f"""
WITH page AS (
    SELECT w.*, {PROGRESS}
    FROM workspaces w LEFT JOIN operations o ON o.id = w.op_id
    WHERE w.owner_user_id = $1 AND w.phase <> 'DELETED' AND ($2::text IS NULL OR w.phase = $2)
    ORDER BY w.created_at DESC, w.id LIMIT $3 OFFSET $4
), matching AS (
    SELECT count(*) AS total FROM workspaces
    WHERE owner_user_id = $1 AND phase <> 'DELETED' AND ($2::text IS NULL OR phase = $2)
)
SELECT * FROM matching LEFT JOIN page ON true ORDER BY created_at DESC, id
"""  # noqa: S608 - constant

# Each page begins where the one before it ended: what is made or deleted meanwhile moves nothing past the reader.
_AFTER = f"""
SELECT w.*, {PROGRESS}
FROM workspaces w LEFT JOIN operations o ON o.id = w.op_id
WHERE w.owner_user_id = $1 AND w.phase <> 'DELETED' AND w.created_at <= COALESCE($2::timestamptz, 'infinity')
  AND (w.created_at < COALESCE($2::timestamptz, 'infinity') OR w.id > $3)
ORDER BY w.created_at DESC, w.id LIMIT $4
"""  # noqa: S608 - constant

_INSERT = """
INSERT INTO workspaces (id, owner_user_id, name, description, image_ref, desired_state, standby_ttl_seconds,
                        archive_ttl_seconds)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING *
"""
_INSERT_RUNNING = counted(_INSERT, "$9")

_PATCH = """
UPDATE workspaces SET
    name = CASE WHEN 'name' = ANY($3) THEN $4 ELSE name END,
    description = CASE WHEN 'description' = ANY($3) THEN $5 ELSE description END,
    memo = CASE WHEN 'memo' = ANY($3) THEN $6 ELSE memo END,
    standby_ttl_seconds = CASE WHEN 'standby_ttl_seconds' = ANY($3) THEN $7 ELSE standby_ttl_seconds END,
    archive_ttl_seconds = CASE WHEN 'archive_ttl_seconds' = ANY($3) THEN $8 ELSE archive_ttl_seconds END
WHERE id = $1 AND owner_user_id = $2 AND phase <> 'DELETED' RETURNING *
"""

_OPERATIONS = """
WITH own AS (
    SELECT id FROM workspaces WHERE id = $1 AND ($2::uuid IS NULL OR owner_user_id = $2) AND phase <> 'DELETED'
), page AS (
    SELECT o.*, extract(epoch FROM COALESCE(o.finished_at, now()) - o.started_at)::float8 AS duration_seconds
    FROM operations o JOIN own ON o.workspace_id = own.id
    ORDER BY o.started_at DESC, o.id LIMIT $3 OFFSET $4
)
SELECT own.id AS own_id, (SELECT count(*) FROM operations WHERE workspace_id = own.id) AS total, page.*
FROM own LEFT JOIN page ON true ORDER BY page.started_at DESC, page.id
"""


class NameTaken(Exception):
    """The owner has another workspace of this name that is not deleted."""


@dataclass(frozen=True, slots=True)
class Entry:
    workspace: Workspace
    progress: Moved | None = None
    """How far the operation under way has come."""
    waits: bool = False
    """For its turn: nobody has taken up its operation for some seconds, which is no moment any more."""


@dataclass(frozen=True, slots=True)
class Page:
    items: list[Entry]
    total: int


@dataclass(frozen=True, slots=True)
class NewWorkspace:
    id: WorkspaceId
    owner: UserId
    name: str
    description: str
    image_ref: str
    desired_state: DesiredState
    standby_ttl_seconds: int | None
    archive_ttl_seconds: int | None


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a patch may change besides desired_state; only the fields named in `given` are changed."""

    given: frozenset[str]
    name: str = ""
    description: str = ""
    memo: str = ""
    standby_ttl_seconds: int | None = None
    archive_ttl_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    id: OperationId
    operation: Operation
    previous_phase: Phase
    started_at: datetime
    finished_at: datetime | None
    duration_seconds: float
    attempts: int
    outcome: str | None
    error_reason: ErrorReason | None
    error_message: str | None
    bytes_done: int | None
    bytes_total: int | None
    left_out: Mapping[str, int] | None
    """Of an archive: how many sockets and devices are not in it, as far as they were counted."""


@dataclass(frozen=True, slots=True)
class Catalog:
    database: Database
    desired_states: DesiredStates

    async def create(self, new: NewWorkspace, key: IdempotencyKey | None = None) -> Entry:
        """One transaction: key, limits and row. The same key again gives the first answer, at any number at once."""
        running = new.desired_state is DesiredState.RUNNING
        try:
            # Whoever waits for the same key holds up nobody else: then the limits are locked after it.
            async with self.desired_states.transaction(new.desired_state if key is None else None) as connection:
                if key is not None:
                    earlier = await claim(connection, new.owner, key, new.id)
                    if earlier is not None:
                        return Entry(to_workspace(earlier))
                    if running:
                        await self.desired_states.lock_limits(connection)
                row = _found(
                    await connection.fetchrow(
                        _INSERT_RUNNING if running else _INSERT,
                        new.id,
                        new.owner,
                        new.name,
                        new.description,
                        new.image_ref,
                        new.desired_state,
                        new.standby_ttl_seconds,
                        new.archive_ttl_seconds,
                        *([self.desired_states.limits.max_running_per_user] if running else []),
                    )
                )
                if running:
                    # After the row, so that a name which is taken is said to be so, whatever the limits.
                    await self.desired_states.check_limits(connection, row)
                if key is not None:
                    await keep(connection, new.owner, key)
                return Entry(to_workspace(row))
        except asyncpg.UniqueViolationError as error:
            raise _name_taken(error) from error

    async def get(self, workspace_id: WorkspaceId, owner: UserId | None) -> Entry:
        return to_entry(_found(await self.database.fetchrow(_GET, workspace_id, owner)))

    async def page(self, owner: UserId, *, limit: int, offset: int, phase: Phase | None = None) -> Page:
        """Newest first. `total` counts all that match, not only this page."""
        rows = await self.database.fetch(_LIST, owner, phase, limit, offset)
        return Page([to_entry(row) for row in rows if row["id"] is not None], rows[0]["total"])

    async def everything(self, owner: UserId, at_once: int = 200) -> AsyncIterator[Entry]:
        """Newest first, a page at a time: whatever lives from beginning to end is among them."""
        last: Workspace | None = None
        while True:
            since, after = (last.created_at, last.id) if last else (None, None)
            rows = await self.database.fetch(_AFTER, owner, since, after, at_once)
            for row in rows:
                entry = to_entry(row)
                last = entry.workspace
                yield entry
            if len(rows) < at_once:
                return

    async def deleted_since(self, owner: UserId, since: datetime) -> list[WorkspaceId]:
        rows = await self.database.fetch(
            "SELECT id FROM workspaces WHERE owner_user_id = $1 AND phase = 'DELETED' AND phase_changed_at >= $2",
            owner,
            since,
        )
        return [WorkspaceId(str(row["id"])) for row in rows]

    async def patch(
        self, workspace_id: WorkspaceId, owner: UserId, metadata: Metadata, desired: DesiredState | None
    ) -> Entry:
        """All of it or nothing: a refused desired_state leaves the metadata as it was."""
        ws: Workspace | None = None
        try:
            async with self.desired_states.transaction(desired) as connection:
                if desired is not None:
                    ws = await self.desired_states.set_in(connection, workspace_id, desired, owner)
                if metadata.given:
                    ws = to_workspace(_found(await _patch(connection, workspace_id, owner, metadata)))
                if ws is None or ws.op_id is not None:
                    return to_entry(_found(await connection.fetchrow(_GET, workspace_id, owner)))
                # Where no operation is under way there is nothing more to be told of it.
                return Entry(ws)
        except asyncpg.UniqueViolationError as error:
            raise _name_taken(error) from error

    async def operations(
        self, workspace_id: WorkspaceId, owner: UserId | None, *, limit: int, offset: int
    ) -> tuple[list[LoggedOperation], int]:
        """The operation log, latest first."""
        rows = await self.database.fetch(_OPERATIONS, workspace_id, owner, limit, offset)
        if not rows:
            raise Refused(Refusal.NOT_FOUND)
        return [_logged(row) for row in rows if row["id"] is not None], rows[0]["total"]

    async def archived_at(self, keys: Collection[str]) -> dict[str, datetime]:
        """Of when these archives are: nothing that was written after their operation began need be in them."""
        made_by = {key: op_id for key in keys if (op_id := archive_op_id_of(key)) is not None}
        if not made_by:
            return {}
        rows = await self.database.fetch(
            "SELECT id, started_at FROM operations WHERE id = ANY($1::uuid[])", list(made_by.values())
        )
        began = {str(row["id"]): row["started_at"] for row in rows}
        return {key: began[op_id] for key, op_id in made_by.items() if op_id in began}


async def _patch(
    connection: PooledConnection, workspace_id: WorkspaceId, owner: UserId, metadata: Metadata
) -> asyncpg.Record | None:
    return await connection.fetchrow(
        _PATCH,
        workspace_id,
        owner,
        sorted(metadata.given),
        metadata.name,
        metadata.description,
        metadata.memo,
        metadata.standby_ttl_seconds,
        metadata.archive_ttl_seconds,
    )


def to_entry(row: asyncpg.Record) -> Entry:
    progress = None
    if row["bytes_done"] is not None:
        progress = as_told(
            Stage(row["stage"]) if row["stage"] else None,
            row["bytes_done"],
            row["bytes_total"],
            row["bytes_per_second"],
            row["attempts"],
            row["told_seconds_ago"] or 0.0,
        )
    return Entry(to_workspace(row), progress, waits=row["waits"] is True)


def _logged(row: asyncpg.Record) -> LoggedOperation:
    return LoggedOperation(
        id=OperationId(str(row["id"])),
        operation=Operation(row["operation"]),
        previous_phase=Phase(row["previous_phase"]),
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        duration_seconds=row["duration_seconds"],
        attempts=row["attempts"],
        outcome=row["outcome"],
        error_reason=ErrorReason(row["error_reason"]) if row["error_reason"] else None,
        error_message=row["error_message"],
        bytes_done=row["bytes_done"],
        bytes_total=row["bytes_total"],
        left_out=row["context"].get("left_out"),
    )


def _found(row: asyncpg.Record | None) -> asyncpg.Record:
    if row is None:
        raise Refused(Refusal.NOT_FOUND)
    return row


def _name_taken(error: Any) -> Exception:
    return NameTaken() if error.constraint_name == "workspaces_name" else error
