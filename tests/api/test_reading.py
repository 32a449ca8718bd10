"""Everything a user has, page by page, while it changes: what lives is never taken for deleted."""

from uuid import UUID

from adapters.postgres.catalog import Catalog
from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates
from domain.limits import Limits
from domain.model import UserId, WorkspaceId

ALICE = UserId(str(UUID(int=1)))
# Some were made at the very same time.
FILL = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, created_at)
SELECT gen_random_uuid(), $1, gen_random_uuid()::text, 'image', 'STANDBY', now() - (n / 7) * interval '1 second'
FROM generate_series(1, $2::integer) AS n
"""
GONE = (
    "UPDATE workspaces SET phase = 'DELETED', desired_state = 'DELETED', deleted_at = now() WHERE id = ANY($1::uuid[])"
)


async def test_what_is_deleted_or_made_meanwhile_hides_nobody(database: Database) -> None:
    """A deletion on a page that was read moves all later ones up, and a new one moves them down: by number, one would
    be passed over, or told twice."""
    await database.execute(FILL, ALICE, 100)
    everyone = {WorkspaceId(str(row["id"])) for row in await database.fetch("SELECT id FROM workspaces")}
    told: list[WorkspaceId] = []
    async for entry in Catalog(database, DesiredStates(database, Limits())).everything(ALICE, at_once=10):
        told.append(entry.workspace.id)
        if len(told) % 10 == 5:
            await database.execute(GONE, told[-2:])
            await database.execute(FILL, ALICE, 1)
    assert len(told) == len(set(told))
    assert set(told) == everyone
