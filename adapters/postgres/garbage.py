"""What GC remembers between its runs, and what the rows say about archives."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from adapters.postgres.database import Database
from adapters.postgres.rows import to_home_ctx
from domain.gc import Claims
from domain.model import Operation, OperationId, Phase, WorkspaceId

_KNOWN = """
SELECT id::text FROM operations WHERE id = ANY($2::uuid[])
UNION ALL
SELECT again.id FROM operations o, jsonb_array_elements_text(o.context -> 'again_as') AS again (id)
WHERE o.workspace_id = ANY($1::uuid[]) AND o.context ? 'again_as' AND again.id = ANY($2::text[])
"""


@dataclass(frozen=True, slots=True)
class GcState:
    run: int
    held: bool
    """Nothing may be deleted for now: the database is older than the store."""


@dataclass(frozen=True, slots=True)
class Orphan:
    key: str
    size: int
    unknown: bool = False
    """This database never heard of the operation that made it: it is from before, or another's."""


@dataclass(frozen=True, slots=True)
class Garbage:
    database: Database

    async def state(self) -> GcState:
        row = await self.database.fetchrow("SELECT run, COALESCE(hold_until > now(), false) AS held FROM gc_state")
        return GcState(row["run"], row["held"]) if row else GcState(0, held=False)

    async def hold(self, run: int, delay: timedelta) -> None:
        """The store has seen more runs than this database remembers: it is a backup. Everything starts anew."""
        async with self.database.transaction() as connection:
            await connection.execute("UPDATE gc_state SET run = $1, hold_until = now() + $2", run, delay)
            await connection.execute("UPDATE gc_orphans SET first_seen_at = now()")

    async def release(self) -> None:
        """A person says that the database is right."""
        await self.database.execute("UPDATE gc_state SET hold_until = NULL")

    async def begin(self) -> int:
        run: int = await self.database.fetchval("UPDATE gc_state SET run = run + 1 RETURNING run")
        return run

    async def claims(self, workspaces: Iterable[WorkspaceId]) -> Mapping[WorkspaceId, Claims]:
        rows = await self.database.fetch(
            "SELECT id, phase, operation, archive_key, archive_op_id, home_ctx FROM workspaces"
            " WHERE id = ANY($1::uuid[])",
            list(workspaces),
        )
        found = [
            Claims(
                WorkspaceId(str(row["id"])),
                Phase(row["phase"]),
                row["archive_key"],
                OperationId(str(row["archive_op_id"])) if row["archive_op_id"] else None,
                to_home_ctx(row["home_ctx"]),
                Operation(row["operation"]),
            )
            for row in rows
        ]
        return {claims.workspace_id: claims for claims in found}

    async def known(self, workspaces: Iterable[WorkspaceId], operations: Iterable[OperationId]) -> set[OperationId]:
        """Those that this database has seen begin, or that theirs went on as. They are never forgotten."""
        rows = await self.database.fetch(_KNOWN, list(set(workspaces)), list(operations))
        return {OperationId(row["id"]) for row in rows}

    async def accepted(self, keys: Iterable[str]) -> set[str]:
        """Orphans that are not unknown, or that a person took for nobody's."""
        rows = await self.database.fetch(
            "SELECT key FROM gc_orphans WHERE key = ANY($1::text[]) AND NOT unknown", list(keys)
        )
        return {row["key"] for row in rows}

    async def mark(self, orphans: Sequence[Orphan], run: int) -> None:
        await self.database.execute(
            "INSERT INTO gc_orphans (key, size, unknown, run)"
            " SELECT key, size, unknown, $4 FROM unnest($1::text[], $2::bigint[], $3::boolean[])"
            " AS seen (key, size, unknown) ON CONFLICT (key)"
            " DO UPDATE SET run = $4, size = EXCLUDED.size, unknown = EXCLUDED.unknown",
            [orphan.key for orphan in orphans],
            [orphan.size for orphan in orphans],
            [orphan.unknown for orphan in orphans],
            run,
        )

    async def forget_unseen(self, run: int) -> None:
        """What a complete run did not see as an orphan is none any more: wanted again, or gone."""
        await self.database.execute("DELETE FROM gc_orphans WHERE run < $1", run)

    async def matured(
        self, delay: timedelta, unknown_delay: timedelta, limit: int, before: str | None = None
    ) -> list[Orphan]:
        """Those whose keys come before `before`, the last of them first: so a marker comes before its archive."""
        rows = await self.database.fetch(
            "SELECT key, size FROM gc_orphans WHERE first_seen_at <= now() - $1::interval"
            " AND (NOT unknown OR first_seen_at <= now() - $2::interval)"
            " AND ($4::text IS NULL OR key < $4) ORDER BY key DESC LIMIT $3",
            delay,
            unknown_delay,
            limit,
            before,
        )
        return [Orphan(row["key"], row["size"]) for row in rows]

    async def due(
        self, orphans: Sequence[Orphan], delay: timedelta, unknown_delay: timedelta, *, anew: bool
    ) -> set[str]:
        """Which of them a run that marks them now would find `matured`. `anew`: as if none had been seen before."""
        rows = await self.database.fetch(
            "SELECT seen.key FROM unnest($1::text[], $2::boolean[]) AS seen (key, unknown)"
            " LEFT JOIN gc_orphans AS former ON former.key = seen.key AND NOT $5"
            " WHERE COALESCE(former.first_seen_at, now())"
            " <= now() - CASE WHEN seen.unknown THEN GREATEST($3::interval, $4::interval) ELSE $3 END",
            [orphan.key for orphan in orphans],
            [orphan.unknown for orphan in orphans],
            delay,
            unknown_delay,
            anew,
        )
        return {row["key"] for row in rows}

    async def forget(self, keys: Sequence[str]) -> None:
        await self.database.execute("DELETE FROM gc_orphans WHERE key = ANY($1::text[])", list(keys))

    async def finish(self, report: Mapping[str, object]) -> None:
        await self.database.execute("UPDATE gc_state SET finished_at = now(), report = $1", dict(report))

    async def now(self) -> datetime:
        now: datetime = await self.database.fetchval("SELECT now()")
        return now
