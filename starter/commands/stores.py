"""Database and object storage, straight: for the operator's commands."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from adapters.postgres.database import Database, connect, open_database
from adapters.s3.store import S3ArchiveStore, open_store
from settings import Settings, required
from starter.commands.failure import CommandFailed
from starter.s3 import s3_config


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[Database, S3ArchiveStore]]:
    required(settings, "database_url", "s3_endpoint")
    url = settings.database_url or ""
    # A pool would tell of a wrong password only later, and less clearly.
    await (await connect(url)).close()
    database = await open_database(url, max_size=4)
    try:
        async with open_store(s3_config(settings)) as archives:
            yield database, archives
    except asyncpg.UndefinedTableError as error:
        raise CommandFailed("The database has not codehub's schema: codehub migrate, or check DATABASE_URL.") from error
    finally:
        await database.close()
