"""The nodes that workers have registered: who has to poll which queue, and who has an engine."""

import asyncpg

from adapters.postgres.database import DatabaseRefused, DatabaseUnavailable, open_database
from adapters.postgres.nodes import NodeEntry, Nodes
from settings import Settings


async def registered(settings: Settings) -> list[NodeEntry]:
    """Empty while PostgreSQL does not answer: that is told where PostgreSQL is looked at."""
    if not settings.database_url:
        return []
    try:
        database = await open_database(settings.database_url, max_size=1)
    except (DatabaseUnavailable, DatabaseRefused):
        return []
    try:
        return await Nodes(database, settings.node_lost_after).entries()
    except (DatabaseUnavailable, asyncpg.PostgresError):
        return []
    finally:
        await database.close()
