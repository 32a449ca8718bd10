"""Reads the audit log, which triggers write (migrations 0007 and 0012), and forgets what is older than it has to be."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import asyncpg

from adapters.postgres.database import Database
from domain.audit import ActorKind, Change
from domain.model import OperationId, WorkspaceId

_COLUMNS = "a.*, COALESCE(a.actor, u.username) AS actor_name"
_FROM = "audit a LEFT JOIN users u ON u.id = a.actor_id"

_PAGE = f"""
WITH matching AS (
    SELECT * FROM audit WHERE ($1::uuid IS NULL OR subject_id = $1) AND ($2::text IS NULL OR actor_kind = $2)
        AND ($5::text IS NULL OR subject = $5)
), page AS (SELECT * FROM matching ORDER BY at DESC, id DESC LIMIT $3 OFFSET $4)
SELECT counted.total, {_COLUMNS}
FROM (SELECT count(*) AS total FROM matching) AS counted
LEFT JOIN (page a LEFT JOIN users u ON u.id = a.actor_id) ON true
ORDER BY a.at DESC, a.id DESC
"""  # noqa: S608 - constant

# What an operation was claimed for: the last change before it that moves a workspace.
_CAUSES = f"""
SELECT o.id AS operation_id, cause.*
FROM operations o CROSS JOIN LATERAL (
    SELECT {_COLUMNS} FROM {_FROM}
    WHERE a.subject_id = o.workspace_id AND a.at <= o.started_at
      AND a.action IN ('created', 'desired_state', 'deleted', 'recovered', 'drifted', 'moved')
    ORDER BY a.at DESC, a.id DESC LIMIT 1
) AS cause
WHERE o.id = ANY($1::uuid[])
"""  # noqa: S608 - constant

_LAST = f"""
SELECT last.* FROM unnest($1::uuid[]) AS given (id) CROSS JOIN LATERAL (
    SELECT {_COLUMNS} FROM {_FROM} WHERE a.subject_id = given.id ORDER BY a.at DESC, a.id DESC LIMIT 1
) AS last
"""  # noqa: S608 - constant


@dataclass(frozen=True, slots=True)
class Audit:
    database: Database
    kept: timedelta = timedelta(days=365)

    async def page(
        self,
        *,
        limit: int,
        offset: int,
        subject: str | None = None,
        subject_id: str | None = None,
        actor_kind: ActorKind | None = None,
    ) -> tuple[list[Change], int]:
        """Latest first, and how many there are in all."""
        rows = await self.database.fetch(_PAGE, subject_id, actor_kind, limit, offset, subject)
        return [_change(row) for row in rows if row["id"] is not None], rows[0]["total"]

    async def causes(self, operations: Sequence[OperationId]) -> dict[OperationId, Change]:
        rows = await self.database.fetch(_CAUSES, list(operations))
        return {OperationId(str(row["operation_id"])): _change(row) for row in rows}

    async def last(self, workspaces: Sequence[WorkspaceId]) -> dict[WorkspaceId, Change]:
        rows = await self.database.fetch(_LAST, list(workspaces))
        return {WorkspaceId(str(row["subject_id"])): _change(row) for row in rows}

    async def prune(self) -> None:
        await self.database.execute("DELETE FROM audit WHERE at < now() - $1::interval", self.kept)


def _change(row: asyncpg.Record) -> Change:
    kinds = set(ActorKind)
    return Change(
        at=row["at"],
        subject=row["subject"],
        subject_id=str(row["subject_id"]),
        action=row["action"],
        # A newer version may know kinds that this one does not.
        actor_kind=ActorKind(row["actor_kind"]) if row["actor_kind"] in kinds else ActorKind.SYSTEM,
        actor=row["actor_name"],
        changes=row["changes"],
        reason=row["reason"],
        request_id=row["request_id"],
    )
