"""The controller's side of `workspaces`: load, save by compare-and-set, fail, and the attempts' fences."""

from dataclasses import dataclass
from datetime import datetime

from adapters.postgres.database import Database
from adapters.postgres.rows import from_conditions, from_home_ctx, to_workspace
from domain.errors import MAX_RETRIES, TERMINAL_REASONS
from domain.model import ErrorReason, OperationId, Workspace, WorkspaceId

_SAVE = """
WITH saved AS (
    UPDATE workspaces SET
        conditions = $8, observed_at = $9, phase = $10, phase_changed_at = $11, operation = $12, op_id = $13,
        op_started_at = $14, archive_op_id = $15, error_count = $16, error_reason = $17, home_ctx = $18,
        endpoint = $19, node = $20, last_access_at = GREATEST(last_access_at, $21)
    WHERE id = $1 AND operation = $2 AND op_id IS NOT DISTINCT FROM $3 AND archive_op_id IS NOT DISTINCT FROM $4
      AND archive_key IS NOT DISTINCT FROM $5 AND desired_state = $6 AND error_reason IS NOT DISTINCT FROM $7
      AND home_ctx = $23
    RETURNING id
), finished AS (
    UPDATE operations SET
        finished_at = $9, outcome = CASE WHEN $17::text IS NULL THEN 'SUCCEEDED' ELSE 'FAILED' END,
        error_reason = $17, error_message = COALESCE($22, error_message)
    WHERE id = $3 AND outcome IS NULL AND $3 IS DISTINCT FROM $13 AND EXISTS (SELECT FROM saved)
    RETURNING id
), started AS (
    INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at)
    SELECT $13, $1, $12, $10, $14 FROM saved
    WHERE $13 IS NOT NULL AND $13 IS DISTINCT FROM $3 AND (SELECT count(*) FROM finished) >= 0
)
SELECT count(*) FROM saved
"""

_FAIL = """
WITH failed AS (
    UPDATE workspaces SET
        phase = 'ERROR', phase_changed_at = now(), operation = 'NONE', op_id = NULL, op_started_at = NULL,
        error_reason = $3, error_count = GREATEST(error_count, $4)
    WHERE id = $1 AND operation <> 'NONE' AND op_id = $2
    RETURNING id
)
UPDATE operations SET finished_at = now(), outcome = 'FAILED', error_reason = $3, error_message = $5
WHERE id = $2 AND outcome IS NULL AND EXISTS (SELECT FROM failed)
"""

_CURRENT = "EXISTS (SELECT FROM operations o WHERE o.id = $2 AND o.attempts = $3 AND o.outcome IS NULL)"


@dataclass(frozen=True, slots=True)
class WorkspaceStore:
    database: Database

    async def load(self, workspace_id: WorkspaceId) -> Workspace | None:
        loaded = await self.load_now(workspace_id)
        return loaded[0] if loaded else None

    async def load_now(self, workspace_id: WorkspaceId) -> tuple[Workspace, datetime] | None:
        """The row, and the database's time: one clock for all that compares times, whatever the workers' clocks say."""
        row = await self.database.fetchrow(
            "SELECT *, clock_timestamp() AS now FROM workspaces WHERE id = $1", workspace_id
        )
        return (to_workspace(row), row["now"]) if row else None

    async def save(self, before: Workspace, after: Workspace, message: str | None = None) -> bool:
        """Save what was observed, judged and decided, and log the operation, in one transaction.

        False when the row has moved on since it was loaded: then nothing was written.
        """
        saved = await self.database.fetchval(
            _SAVE,
            before.id,
            before.operation,
            before.op_id,
            before.archive_op_id,
            before.archive_key,
            before.desired_state,
            before.error_reason,
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
            message,
            from_home_ctx(before.home_ctx),
        )
        return bool(saved)

    async def fail(self, workspace_id: WorkspaceId, op_id: OperationId, reason: ErrorReason, message: str) -> None:
        """The operation failed for good: phase, operation and error in one statement. archive_op_id stays."""
        least = 1 if reason in TERMINAL_REASONS else MAX_RETRIES
        await self.database.execute(_FAIL, workspace_id, op_id, reason, least, message)

    async def begin_attempt(self, op_id: OperationId) -> int | None:
        """Number this attempt; a later one supersedes it. None when the operation is over."""
        number: int | None = await self.database.fetchval(
            "UPDATE operations SET attempts = attempts + 1 WHERE id = $1 AND outcome IS NULL RETURNING attempts",
            op_id,
        )
        return number

    async def is_current(self, op_id: OperationId, attempt: int) -> bool:
        found = await self.database.fetchval(
            "SELECT true FROM operations WHERE id = $1 AND attempts = $2 AND outcome IS NULL", op_id, attempt
        )
        return found is True

    async def save_archive_key(self, workspace_id: WorkspaceId, op_id: OperationId, attempt: int, key: str) -> bool:
        """After the store's copy was verified, before the volume goes. False when superseded."""
        saved = await self.database.execute(
            f"UPDATE workspaces SET archive_key = $4 WHERE id = $1 AND op_id = $2 AND {_CURRENT}",  # noqa: S608
            workspace_id,
            op_id,
            attempt,
            key,
        )
        return saved == "UPDATE 1"

    async def save_restore_marker(self, workspace_id: WorkspaceId, op_id: OperationId, attempt: int, key: str) -> bool:
        """The volume holds all of the archive: from now on it is a home. False when superseded."""
        saved = await self.database.execute(
            "UPDATE workspaces SET home_ctx = jsonb_build_object('restore_marker', $4::text)"  # noqa: S608
            f" WHERE id = $1 AND op_id = $2 AND archive_key = $4 AND {_CURRENT}",
            workspace_id,
            op_id,
            attempt,
            key,
        )
        return saved == "UPDATE 1"

    async def save_progress(self, op_id: OperationId, attempt: int, done: int, total: int | None) -> None:
        await self.database.execute(
            "UPDATE operations SET bytes_done = $3, bytes_total = $4"
            " WHERE id = $1 AND attempts = $2 AND outcome IS NULL",
            op_id,
            attempt,
            done,
            total,
        )

    async def save_context(self, op_id: OperationId, context: dict[str, object]) -> None:
        """What is worth knowing of an operation later."""
        await self.database.execute("UPDATE operations SET context = context || $2 WHERE id = $1", op_id, context)

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

    async def restart_clock(self, workspace_id: WorkspaceId) -> None:
        """Time during which no worker was alive is not the operation's."""
        await self.database.execute(
            "UPDATE workspaces SET op_started_at = now() WHERE id = $1 AND operation <> 'NONE'", workspace_id
        )
