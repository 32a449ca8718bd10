"""The one place where desired_state changes (SPEC 2). API, TTL runner and proxy auto-wake all come through here."""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import StrEnum

import asyncpg

from adapters.postgres.database import Database, PooledConnection
from adapters.postgres.rows import to_workspace
from adapters.postgres.tallies import take_together
from domain.judge import waits_for_node
from domain.limits import Limits
from domain.model import DesiredState, Operation, Phase, UserId, Workspace, WorkspaceId

# Serialises every change that adds a RUNNING workspace, so that limits are exact.
_LIMITS_LOCK = 0x6C696D697473

# How many there are beside `w`. Of the user no more are looked at than may run. How many there are in all is kept, not
# counted (0016_tallies.sql), and `w` may be among them.
_OTHERS = """
    t.lines, t.started - (
        SELECT count(*) FROM workspaces
        WHERE (desired_state = 'RUNNING' OR phase = 'RUNNING') AND error_reason IS NULL AND deleted_at IS NULL
          AND id = w.id
    ) AS in_all, (
        SELECT count(*) FROM (
            SELECT FROM workspaces
            WHERE (desired_state = 'RUNNING' OR phase = 'RUNNING') AND error_reason IS NULL AND deleted_at IS NULL
              AND owner_user_id = w.owner_user_id AND id <> w.id LIMIT {most}
        ) AS others
    ) AS of_user
"""
_TALLIED = "(SELECT count(*) AS lines, COALESCE(sum(started), 0) AS started FROM tallies) AS t"

_LOCKED = "WHERE w.id = $1 AND w.phase <> 'DELETED' AND ($2::uuid IS NULL OR w.owner_user_id = $2) FOR UPDATE OF w"
_LOCK = f"SELECT w.* FROM workspaces w {_LOCKED}"  # noqa: S608 - constant
# One trip, as everybody else waits meanwhile. What is counted may be from before the row could be locked: with the
# limits locked it can only have become less.
_LOCK_AND_COUNT = f"SELECT w.*, {_OTHERS.format(most='$3')} FROM workspaces w CROSS JOIN {_TALLIED} {_LOCKED}"  # noqa: S608 - constant


def counted(new: str, most: str) -> str:
    """With how many there are beside it: of a statement that makes a workspace, `most` the number of its parameter."""
    return f"WITH w AS ({new}) SELECT w.*, {_OTHERS.format(most=most)} FROM w CROSS JOIN {_TALLIED}"  # noqa: S608 - constant


class Refusal(StrEnum):
    """Why nothing was changed."""

    NOT_FOUND = "not_found"
    OPERATION_RUNNING = "operation_running"
    IN_ERROR = "in_error"
    NOT_IN_ERROR = "not_in_error"
    DELETING = "deleting"
    USER_LIMIT = "limit_per_user"
    GLOBAL_LIMIT = "limit_global"


class Refused(Exception):
    def __init__(self, refusal: Refusal, limit: int | None = None) -> None:
        super().__init__(refusal)
        self.refusal = refusal
        self.limit = limit


@dataclass(frozen=True, slots=True)
class DesiredStates:
    database: Database
    limits: Limits

    async def set(self, workspace_id: WorkspaceId, desired: DesiredState, owner: UserId | None = None) -> Workspace:
        """Change desired_state, limits checked in the same transaction. The value it already has is a no-op."""
        async with self.transaction(desired) as connection:
            return await self.set_in(connection, workspace_id, desired, owner)

    def transaction(self, desired: DesiredState | None) -> AbstractAsyncContextManager[PooledConnection]:
        """Where RUNNING ones may become more, with the limits locked before any row is locked or made: the order of
        every such change."""
        return self.database.transaction(_LIMITS_LOCK if desired is DesiredState.RUNNING else None)

    async def set_in(
        self,
        connection: PooledConnection,
        workspace_id: WorkspaceId,
        desired: DesiredState,
        owner: UserId | None = None,
    ) -> Workspace:
        """As `set`, in a `transaction` for this desired_state."""
        if desired is DesiredState.RUNNING:
            ws, others = await self._locked_and_counted(connection, workspace_id, owner)
        else:
            ws, others = await self._locked(connection, workspace_id, owner), None
        if ws.deleted_at is not None:
            raise Refused(Refusal.DELETING)
        if ws.desired_state is desired and desired is not DesiredState.RUNNING:
            return ws
        if ws.desired_state is desired:
            return await _update(connection, ws.id, desired)
        if ws.phase is Phase.ERROR:
            raise Refused(Refusal.IN_ERROR)
        if ws.operation is not Operation.NONE:
            raise Refused(Refusal.OPERATION_RUNNING)
        if others is not None:
            await self.check_limits(connection, others)
        return await _update(connection, ws.id, desired)

    async def lock_limits(self, connection: PooledConnection) -> None:
        """In a transaction that waits for something else first."""
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _LIMITS_LOCK)

    async def delete(self, workspace_id: WorkspaceId, owner: UserId | None = None) -> Workspace:
        """From any phase, also ERROR; asked for again, it wakes again."""
        async with self.database.transaction() as connection:
            ws = await self._locked(connection, workspace_id, owner)
            if ws.operation is not Operation.NONE:
                raise Refused(Refusal.OPERATION_RUNNING)
            # Later than whatever the row says, or it would read as a deletion that failed: the transaction may have
            # begun, and its now() be, before the operation failed.
            row = await connection.fetchrow(
                "UPDATE workspaces SET desired_state = 'DELETED', deleted_at ="
                " GREATEST(clock_timestamp(), phase_changed_at + interval '1 microsecond') WHERE id = $1 RETURNING *",
                workspace_id,
            )
            return to_workspace(_found(row))

    async def recover(self, workspace_id: WorkspaceId, owner: UserId | None = None) -> Workspace:
        """A person accepts what happened; the workflow observes, recomputes the phase and goes on.

        A workspace in ERROR holds no place among the RUNNING ones, so it needs one to come back to it.
        """
        async with self.transaction(DesiredState.RUNNING) as connection:
            return await self._recovered(connection, *await self._locked_and_counted(connection, workspace_id, owner))

    async def recover_with_node(
        self, workspaces: Sequence[WorkspaceId]
    ) -> tuple[list[WorkspaceId], dict[WorkspaceId, Refusal]]:
        """Those that wait for nothing but their node, each as by `recover`, in one transaction; and who was refused."""
        recovered, refused = [], {}
        async with self.transaction(DesiredState.RUNNING) as connection:
            for workspace_id in sorted(workspaces):
                try:
                    ws, others = await self._locked_and_counted(connection, workspace_id, None)
                    if waits_for_node(ws):
                        await self._recovered(connection, ws, others)
                        recovered.append(workspace_id)
                except Refused as error:
                    refused[workspace_id] = error.refusal
        return recovered, refused

    async def _recovered(self, connection: PooledConnection, ws: Workspace, others: asyncpg.Record) -> Workspace:
        if ws.phase is not Phase.ERROR:
            raise Refused(Refusal.NOT_IN_ERROR)
        if ws.desired_state is DesiredState.RUNNING:
            await self.check_limits(connection, others)
        row = await connection.fetchrow(
            "UPDATE workspaces SET error_reason = NULL, error_count = 0 WHERE id = $1 RETURNING *", ws.id
        )
        return to_workspace(_found(row))

    async def _locked(
        self,
        connection: PooledConnection,
        workspace_id: WorkspaceId,
        owner: UserId | None,
    ) -> Workspace:
        return to_workspace(_found(await connection.fetchrow(_LOCK, workspace_id, owner)))

    async def _locked_and_counted(
        self, connection: PooledConnection, workspace_id: WorkspaceId, owner: UserId | None
    ) -> tuple[Workspace, asyncpg.Record]:
        """With what there is beside it, for `check_limits`; with the limits locked."""
        row = await connection.fetchrow(_LOCK_AND_COUNT, workspace_id, owner, self.limits.max_running_per_user)
        return to_workspace(_found(row)), _found(row)

    async def check_limits(self, connection: PooledConnection, others: asyncpg.Record) -> None:
        """Whether there is a place for one more beside these, counted with the limits locked."""
        limits = self.limits
        if others["of_user"] >= limits.max_running_per_user:
            raise Refused(Refusal.USER_LIMIT, limits.max_running_per_user)
        if others["in_all"] >= limits.max_running_global:
            raise Refused(Refusal.GLOBAL_LIMIT, limits.max_running_global)
        await take_together(connection, others["lines"])


async def _update(connection: PooledConnection, workspace_id: WorkspaceId, desired: DesiredState) -> Workspace:
    """Whoever asks for RUNNING, even once more, is using it: TTL must not take it away at that moment."""
    row = await connection.fetchrow(
        "UPDATE workspaces SET desired_state = $2, last_access_at ="
        " CASE WHEN $2 = 'RUNNING' THEN GREATEST(last_access_at, now()) ELSE last_access_at END"
        " WHERE id = $1 RETURNING *",
        workspace_id,
        desired,
    )
    return to_workspace(_found(row))


def _found(row: asyncpg.Record | None) -> asyncpg.Record:
    if row is None:
        raise Refused(Refusal.NOT_FOUND)
    return row
