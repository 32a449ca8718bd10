"""What an admin sees: every user's workspaces, and how many there are of each kind. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass

from adapters.postgres.catalog import PROGRESS, Entry, to_entry
from adapters.postgres.database import Database
from domain.model import Phase, UserId

# One statement, one snapshot: the page and its total agree, also when the page is beyond the end. The page is cut by
# index alone, and only what is on it is read.
_PAGE = f"""
WITH matching AS NOT MATERIALIZED (
    SELECT w.id, w.created_at FROM workspaces w
    WHERE w.phase <> 'DELETED' {{filters}}
), cut AS (
    SELECT id FROM matching ORDER BY created_at DESC, id LIMIT $1 OFFSET $2
), page AS (
    SELECT w.*, {PROGRESS}, u.username
    FROM cut JOIN workspaces w USING (id) JOIN users u ON u.id = w.owner_user_id
    LEFT JOIN operations o ON o.id = w.op_id
)
SELECT * FROM (SELECT count(*) AS total FROM matching) AS counted LEFT JOIN page ON true ORDER BY created_at DESC, id
"""  # noqa: S608 - constant

_COUNTS = """
SELECT phase, count(*) AS workspaces, count(*) FILTER (WHERE operation <> 'NONE') AS operating,
       count(*) FILTER (WHERE (desired_state = 'RUNNING' OR phase = 'RUNNING') AND error_reason IS NULL
                              AND deleted_at IS NULL) AS running
FROM workspaces WHERE phase <> 'DELETED' GROUP BY phase
"""


@dataclass(frozen=True, slots=True)
class OwnedEntry:
    entry: Entry
    owner: str


@dataclass(frozen=True, slots=True)
class Counts:
    phases: Mapping[Phase, int]
    operating: int
    running: int
    """What counts against the limits (SPEC 11)."""


@dataclass(frozen=True, slots=True)
class Overview:
    database: Database

    async def page(
        self, *, limit: int, offset: int, phase: Phase | None = None, owner: UserId | None = None
    ) -> tuple[list[OwnedEntry], int]:
        """Newest first. The total counts all that match, not only this page."""
        arguments: list[object] = [limit, offset]
        filters = ""
        for column, wanted in (("phase", phase), ("owner_user_id", owner)):
            if wanted is not None:
                arguments.append(wanted)
                filters += f" AND w.{column} = ${len(arguments)}"
        rows = await self.database.fetch(_PAGE.format(filters=filters), *arguments)
        items = [OwnedEntry(to_entry(row), row["username"]) for row in rows if row["id"] is not None]
        return items, rows[0]["total"]

    async def counts(self) -> Counts:
        rows = await self.database.fetch(_COUNTS)
        return Counts(
            phases={Phase(row["phase"]): row["workspaces"] for row in rows},
            operating=sum(row["operating"] for row in rows),
            running=sum(row["running"] for row in rows),
        )
