"""The controller's side of `workspaces`: load, save by compare-and-set, fail, and the attempts' fences."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from adapters.postgres.database import Database, PooledConnection
from adapters.postgres.rows import from_conditions, from_home_ctx, to_workspace
from domain.errors import MAX_RETRIES, TERMINAL_REASONS
from domain.model import ErrorReason, OperationId, Workspace, WorkspaceId
from domain.node import Node
from domain.progress import Moved

# The whole row is compared, by the time of its last change: what was judged on a row that has moved on is void, even
# where it has come back to look the same (a late answer of a whole operation ago). What a save writes back, and others
# may write meanwhile, moves that time (0019_touched.sql).
_SAVE = """
WITH saved AS (
    UPDATE workspaces SET
        conditions = $6, observed_at = CASE WHEN $20 THEN $7 ELSE observed_at END, phase = $8,
        phase_changed_at = $9, operation = $10, op_id = $11, op_started_at = $12,
        archive_op_id = $13, error_count = $14, error_reason = $15, home_ctx = $16,
        endpoint = $17, node = $18, last_access_at = GREATEST(last_access_at, $19),
        move_to = CASE WHEN $21 THEN NULL ELSE move_to END
    WHERE id = $1 AND updated_at = $2 AND op_id IS NOT DISTINCT FROM $3
      AND ($4::integer IS NULL
        OR EXISTS (SELECT FROM operations o WHERE o.id = $3 AND o.attempts = $4 AND o.outcome IS NULL))
    RETURNING id
), finished AS (
    UPDATE operations SET
        finished_at = $7, outcome = CASE WHEN $15::text IS NULL THEN 'SUCCEEDED' ELSE 'FAILED' END,
        error_reason = $15, error_message = COALESCE($5, error_message)
    WHERE id = $3 AND outcome IS NULL AND $3 IS DISTINCT FROM $11 AND EXISTS (SELECT FROM saved)
    RETURNING id
), started AS (
    INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at)
    SELECT $11, $1, $10, $8, $12 FROM saved
    WHERE $11 IS NOT NULL AND $11 IS DISTINCT FROM $3 AND (SELECT count(*) FROM finished) >= 0
)
SELECT count(*) FROM saved
"""

# One round trip: the row, the one clock, and what there is to know of its node (or of the reader's, where it has none).
_LOAD = """
SELECT w.*, clock_timestamp() AS now, n.name AS node_name, n.seen_at AS node_seen_at, n.swept_at AS node_swept_at,
    n.capacity AS node_capacity, n.cordoned_at IS NOT NULL AS node_cordoned, n.removed_at IS NOT NULL AS node_removed,
    n.lost_at IS NOT NULL AS node_lost,
    EXISTS (SELECT FROM nodes WHERE removed_at IS NULL AND name <> $2) AS several_nodes,
    o.attempts IS DISTINCT FROM 0 AS attempted, u.username AS owner_name
FROM workspaces w JOIN users u ON u.id = w.owner_user_id LEFT JOIN operations o ON o.id = w.op_id
    LEFT JOIN nodes n ON n.name = COALESCE(w.node, $2) WHERE w.id = $1
"""

# The row is only read, and locked for that: what an earlier attempt is saving at this moment is waited for and seen.
# Whoever locks both locks it first.
_BEGIN = """
WITH held AS (
    SELECT * FROM workspaces WHERE id = (SELECT workspace_id FROM operations WHERE id = $1) FOR NO KEY UPDATE
)
UPDATE operations o SET attempts = attempts + 1, stage = NULL, bytes_per_second = NULL, told_at = NULL
FROM held w WHERE o.id = $1 AND o.outcome IS NULL AND w.id = o.workspace_id
RETURNING w.*, o.attempts AS number, COALESCE(now() - w.op_started_at, interval '0') AS ran
"""

_PORTS = """
SELECT port FROM (
    SELECT split_part(endpoint, ':', -1) AS port FROM workspaces WHERE node = $1 AND phase = 'RUNNING' AND id <> $2
) AS others WHERE port = ANY($3::text[])
"""

# The message comes through Temporal, without the words of the workspace ("…"): the last attempt has logged them.
_FAIL = """
WITH failed AS (
    UPDATE workspaces SET
        phase = 'ERROR', phase_changed_at = now(), operation = 'NONE', op_id = NULL, op_started_at = NULL,
        error_reason = $3, error_count = GREATEST(error_count, $4), move_to = NULL
    WHERE id = $1 AND operation <> 'NONE' AND op_id = $2
    RETURNING id
)
UPDATE operations SET finished_at = now(), outcome = 'FAILED', error_reason = $3,
    error_message = CASE WHEN starts_with(error_message, split_part($5, '…', 1)) THEN error_message ELSE $5 END
WHERE id = $2 AND outcome IS NULL AND EXISTS (SELECT FROM failed)
RETURNING operation, extract(epoch FROM finished_at - started_at)::float8 AS seconds
"""

# What only the latest attempt may write. Its number is locked, not only read: a later attempt that begins meanwhile
# begins after this was saved, and sees it. The row comes first, as everywhere, so that nobody waits for each other.
_AS_LATEST = """
WITH held AS (
    SELECT id FROM workspaces WHERE id = $1 AND op_id = $2 FOR UPDATE
), latest AS (
    SELECT id FROM operations
    WHERE id = $2 AND attempts = $3 AND outcome IS NULL AND EXISTS (SELECT FROM held) FOR UPDATE
), noted AS (
    UPDATE operations SET context = context || {context} WHERE id IN (SELECT id FROM latest)
)
UPDATE workspaces SET {change} WHERE id = $1 AND EXISTS (SELECT FROM latest)
"""
_GIVEN = "$5::jsonb"
# By which GC knows what was archived under these ids: no operation has them.
_AGAIN = f"{_GIVEN} || jsonb_build_object('again_as', COALESCE(context -> 'again_as', '[]') || to_jsonb($4::text))"
_ARCHIVED = _AS_LATEST.format(change="archive_key = $4", context=_GIVEN)
_RESTORED = _AS_LATEST.format(change="home_ctx = jsonb_build_object('restore_marker', $4::text)", context=_GIVEN)
_REMOVING = _AS_LATEST.format(change="home_ctx = home_ctx || jsonb_build_object('removing', $4::text)", context=_GIVEN)
_NOT_REMOVED = _AS_LATEST.format(
    change="home_ctx = home_ctx - 'removing', archive_op_id = $4::text::uuid", context=_AGAIN
)


Context = dict[str, object]
"""What is worth knowing of an operation later."""


@dataclass(frozen=True, slots=True)
class Begun:
    number: int
    """The fence: a later attempt supersedes it."""
    workspace: Workspace
    """As it was then."""
    ran: timedelta
    """By the operation's clock."""

    @property
    def failed(self) -> int:
        """Attempts before it whose failure was counted. The others were not heard of again."""
        return self.workspace.error_count


@dataclass(frozen=True, slots=True)
class Loaded:
    workspace: Workspace
    now: datetime
    """The database's time: one clock for all that compares times, whatever the workers' clocks say."""
    node: Node | None
    """Its own; where it has none, that of whoever asked."""
    several: bool
    """There are other nodes than the one of whoever asked."""
    owner_name: str
    attempted: bool = True
    """False: an operation is claimed that nobody has taken up yet."""


@dataclass(frozen=True, slots=True)
class WorkspaceStore:
    database: Database

    async def load(self, workspace_id: WorkspaceId) -> Workspace | None:
        row = await self.database.fetchrow("SELECT * FROM workspaces WHERE id = $1", workspace_id)
        return to_workspace(row) if row else None

    async def load_now(self, workspace_id: WorkspaceId, node: str) -> "Loaded | None":
        """With what a worker of `node` has to know to judge it."""
        row = await self.database.fetchrow(_LOAD, workspace_id, node)
        return _loaded(row) if row else None

    async def save(
        self,
        before: Workspace,
        after: Workspace,
        message: str | None = None,
        *,
        attempt: int | None = None,
        looked: bool = True,
        within: "PooledConnection | None" = None,
    ) -> bool:
        """Save what was observed, judged and decided, and log the operation, in one transaction.

        False when the row has moved on since it was loaded, or when `attempt` of its operation was superseded: then
        nothing was written. Not `looked`: judged by what was known, so a sweep that found it to be wrong meanwhile
        stays heard. `within` is the caller's transaction.
        """
        saved = await (within or self.database).fetchval(
            _SAVE,
            before.id,
            before.updated_at,
            before.op_id,
            attempt,
            message,
            from_conditions(after.conditions),
            after.observed_at,
            after.phase,
            after.phase_changed_at,
            after.operation,
            after.op_id,
            after.op_started_at,
            after.archive_op_id,
            after.error_count,
            after.error_reason,
            from_home_ctx(after.home_ctx),
            after.endpoint,
            after.node,
            after.last_access_at,
            looked,
            before.move_to is not None and after.move_to is None,
        )
        return bool(saved)

    async def fail(
        self,
        workspace_id: WorkspaceId,
        op_id: OperationId,
        reason: ErrorReason,
        message: str,
        max_retries: int = MAX_RETRIES,
    ) -> tuple[str, float] | None:
        """The operation failed for good: phase, operation and error in one statement. archive_op_id stays.

        Which operation that was, and how many seconds it took; None when it was over already.
        """
        least = 1 if reason in TERMINAL_REASONS else max_retries
        row = await self.database.fetchrow(_FAIL, workspace_id, op_id, reason, least, message)
        return (row["operation"], row["seconds"]) if row else None

    async def begin_attempt(self, op_id: OperationId) -> Begun | None:
        """Number this attempt; a later one supersedes it. None when the operation is over."""
        row = await self.database.fetchrow(_BEGIN, op_id)
        return Begun(row["number"], to_workspace(row), row["ran"]) if row else None

    async def is_current(self, op_id: OperationId, attempt: int) -> bool:
        found = await self.database.fetchval(
            "SELECT true FROM operations WHERE id = $1 AND attempts = $2 AND outcome IS NULL", op_id, attempt
        )
        return found is True

    async def ports_of_others(self, workspace_id: WorkspaceId, node: str, among: Collection[int]) -> set[int]:
        """Of these, those of this node's workspaces that are RUNNING by their rows, whether or not their containers are
        still there."""
        rows = await self.database.fetch(_PORTS, node, workspace_id, [str(port) for port in among])
        return {int(row["port"]) for row in rows}

    async def save_archive_key(
        self, workspace_id: WorkspaceId, op_id: OperationId, attempt: int, key: str, context: Context
    ) -> bool:
        """After the store's copy was verified, before the volume goes. False when superseded."""
        return await self._saved(_ARCHIVED, workspace_id, op_id, attempt, key, context)

    async def save_removing(self, workspace_id: WorkspaceId, op_id: OperationId, attempt: int, key: str) -> bool:
        """Before the first file goes: from now on the home is in the archive only. False when superseded."""
        return await self._saved(_REMOVING, workspace_id, op_id, attempt, key, {})

    async def save_not_removed(
        self, workspace_id: WorkspaceId, op_id: OperationId, attempt: int, archive_op_id: OperationId
    ) -> None:
        """The engine refused before the first file went: the volume is the home, and may have changed since it was
        read. So the archive that there is stands for it no more, and whoever tries again makes another one."""
        await self._saved(_NOT_REMOVED, workspace_id, op_id, attempt, archive_op_id, {})

    async def save_restore_marker(
        self, workspace_id: WorkspaceId, op_id: OperationId, attempt: int, key: str, context: Context
    ) -> bool:
        """The volume holds all of the archive: from now on it is a home. False when superseded."""
        return await self._saved(_RESTORED, workspace_id, op_id, attempt, key, context)

    async def save_progress(self, op_id: OperationId, told: Moved) -> None:
        await self.database.execute(
            "UPDATE operations"
            " SET bytes_done = $3, bytes_total = $4, stage = $5, bytes_per_second = $6, told_at = now()"
            " WHERE id = $1 AND attempts = $2 AND outcome IS NULL",
            op_id,
            told.attempt,
            told.bytes_done,
            told.bytes_total,
            told.stage,
            told.bytes_per_second,
        )

    async def count_error(self, workspace_id: WorkspaceId, op_id: OperationId, message: str) -> int | None:
        """Count a failed attempt while its operation is still being retried. None when the operation is over."""
        count: int | None = await self.database.fetchval(
            """
            WITH counted AS (
                UPDATE workspaces SET error_count = error_count + 1 WHERE id = $1 AND op_id = $2
                RETURNING error_count
            ), logged AS (
                UPDATE operations SET error_message = $3 WHERE id = $2 AND EXISTS (SELECT FROM counted)
            )
            SELECT error_count FROM counted
            """,
            workspace_id,
            op_id,
            message,
        )
        return count

    async def set_clock(self, workspace_id: WorkspaceId, op_id: OperationId | None, ran: timedelta) -> None:
        """Time during which nobody worked on it is not the operation's: it has had no more than `ran` by now."""
        await self.database.execute(
            "UPDATE workspaces SET op_started_at = now() - $3::interval"
            " WHERE id = $1 AND operation <> 'NONE' AND ($2::uuid IS NULL OR op_id = $2)",
            workspace_id,
            op_id,
            ran,
        )

    async def _saved(
        self,
        statement: str,
        workspace_id: WorkspaceId,
        op_id: OperationId,
        attempt: int,
        value: str,
        context: Context,
    ) -> bool:
        return await self.database.execute(statement, workspace_id, op_id, attempt, value, context) == "UPDATE 1"


def _loaded(row: asyncpg.Record) -> Loaded:
    node = None
    if row["node_name"] is not None:
        node = Node(
            name=row["node_name"],
            seen_at=row["node_seen_at"],
            swept_at=row["node_swept_at"],
            capacity=row["node_capacity"],
            cordoned=row["node_cordoned"],
            removed=row["node_removed"],
            lost=row["node_lost"],
        )
    return Loaded(to_workspace(row), row["now"], node, row["several_nodes"], row["owner_name"], row["attempted"])
