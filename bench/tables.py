"""What asks or changes the rows of all workspaces. At 100 to 100,000 rows, in a database of their own, with three nodes
and a user who has a few of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID

import asyncpg

from adapters.postgres.database import Database, connect, open_database
from adapters.postgres.migrate import migrate
from adapters.postgres.nodes import Nodes, Registration
from bench import admission, garbage, listing, lists, ticks
from bench.installation import Simulation
from bench.part import Part
from bench.population import NODES, Population
from bench.sizes import Sizes

# The first ones are RUNNING, so that as many can expire at every size; of the others a third each RUNNING, STANDBY and
# ARCHIVED. All were archived once, and touched just now.
_FILL = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node, last_access_at, archive_key)
SELECT id, $1, 'w' || n, 'none', state, state, CASE WHEN state <> 'ARCHIVED' THEN ($5::text[])[1 + (n / 3) % 3] END,
       now(), id || '/' || gen_random_uuid() || '/home.tar.zst'
FROM generate_series($2::int, $3::int - 1) AS n,
     LATERAL (SELECT gen_random_uuid(), CASE WHEN n < $4 THEN 'RUNNING'
                                        ELSE (ARRAY['RUNNING', 'STANDBY', 'ARCHIVED'])[1 + n % 3] END) AS s (id, state)
"""
_FEW = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node)
SELECT gen_random_uuid(), $1, 'few' || n, 'none', 'STANDBY', 'STANDBY', 'a' FROM generate_series(1, $2::int) AS n
"""
_TRIGGERS = """
SELECT tgname FROM pg_trigger
WHERE tgrelid = 'workspaces'::regclass AND NOT tgisinternal AND tgname ~ '^(ws|audit)_'
"""


async def run(simulation: Simulation, part: Part, sizes: Sizes) -> None:
    server = simulation.env["DATABASE_URL"]
    async with _database(server) as database:
        for name in NODES:
            told = Registration(name, f"engine-{name}", "127.0.0.1", 10**6, cpus=2, memory=2**32)
            if not await Nodes(database).register(told):
                raise RuntimeError(f"{name} was not registered")
        many, few = await _user(database, "many"), await _user(database, "few")
        await database.execute(_FEW, few, sizes.few)
        population = Population(simulation, database, many, few, sizes.few)
        async with ticks.ticking(population, sizes.expiring) as ttl:
            for size in sizes.rows:
                await _fill(server, population.owner, population.count, size, sizes.expiring)
                population.count, last = size, size == sizes.rows[-1]
                await ttl.measure(part, sizes.ticks, last=last)
                await lists.measure(population, part, last=last)
                await admission.measure(population, part, last=last)
                await garbage.measure(population, part, last=last)
        await listing.measure(simulation, part, sizes.listed)


async def _user(database: Database, name: str) -> UUID:
    found: UUID = await database.fetchval(
        "INSERT INTO users (username, password_hash) VALUES ($1, '') RETURNING id", name
    )
    return found


async def _fill(server: str, owner: UUID, first: int, end: int, running: int) -> None:
    """Without those triggers that tell others of it: nobody listens, and it is not what is measured."""
    connection: asyncpg.Connection[asyncpg.Record] = await asyncpg.connect(_url(server))
    try:
        telling = [row["tgname"] for row in await connection.fetch(_TRIGGERS)]
        for name in telling:
            await connection.execute(f"ALTER TABLE workspaces DISABLE TRIGGER {name}")
        await connection.execute(_FILL, owner, first, end, running, list(NODES))
        for name in telling:
            await connection.execute(f"ALTER TABLE workspaces ENABLE TRIGGER {name}")
        await connection.execute("VACUUM ANALYZE workspaces")
    finally:
        await connection.close()


@asynccontextmanager
async def _database(server: str) -> AsyncIterator[Database]:
    url = _url(server)
    admin = await connect(server)
    try:
        await admin.execute("CREATE DATABASE bench_tables")
        await migrate(url)
        database = await open_database(url, max_size=10)
        try:
            yield database
        finally:
            await database.close()
            await admin.execute("DROP DATABASE bench_tables")
    finally:
        await admin.close()


def _url(server: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path="/bench_tables"))
