"""`codehub migrate` on a real database."""

import asyncio

from adapters.postgres.migrate import migrations
from tests.cli.console import Cli

NAMES = [migration.name for migration in migrations()]


async def test_an_empty_database_is_brought_to_this_version(nobody: Cli, empty_database_url: str) -> None:
    """By as many at once as like to: each names what it did, and the next one finds nothing to do."""
    cli = nobody.having(DATABASE_URL=empty_database_url)
    told = await asyncio.gather(*(cli("migrate") for _ in range(2)))
    assert [one.code for one in told] == [0, 0]
    done = [line for one in told for line in one.out.splitlines() if line != "The schema is up to date."]
    assert done == NAMES
    assert (await cli("migrate")).out == "The schema is up to date.\n"
