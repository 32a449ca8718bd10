"""The name of this installation: it lives in the database, so that every process of it uses the same."""

from adapters.postgres.database import Database


async def installation_id(database: Database) -> str:
    found: str = await database.fetchval("SELECT id FROM installation")
    return found
