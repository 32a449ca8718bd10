"""How often PostgreSQL is asked where it counts: others wait while the limits are locked, and a person for a start."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from uuid import UUID, uuid4

import asyncpg
import pytest
from asyncpg.connection import LoggedQuery

from adapters.postgres.actor import acting
from adapters.postgres.catalog import Catalog, Metadata, NewWorkspace
from adapters.postgres.database import Connection, Database, _leave, _prepare
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.workspaces import WorkspaceStore
from domain.audit import Actor, ActorKind
from domain.limits import Limits
from domain.model import DesiredState, OperationId, UserId, WorkspaceId

USER = UserId(str(UUID(int=1)))
SOMEBODY = Actor(ActorKind.USER, "alice", USER)

_UNDER_WAY = """
INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at)
VALUES ($1, $2, 'PROVISIONING', 'PENDING', now())
"""

_WAITING = "SELECT true FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Trips:
    def __init__(self, database: Database, asked: list[str]) -> None:
        self.database = database
        self.catalog = Catalog(database, DesiredStates(database, Limits(10, 10)))
        self._asked = asked

    @contextmanager
    def most(self, count: int) -> Iterator[None]:
        """Beside BEGIN and COMMIT, which every transaction takes."""
        self._asked.clear()
        yield
        asked = [sql for sql in self._asked if sql not in {"BEGIN;", "COMMIT;"}]
        assert len(asked) <= count, asked

    async def create(self, desired: DesiredState) -> WorkspaceId:
        id_ = WorkspaceId(str(uuid4()))
        with acting(SOMEBODY):
            await self.catalog.create(NewWorkspace(id_, USER, id_, "", "image", desired, None, None))
        return id_


@pytest.fixture
async def trips(database: Database, database_url: str) -> AsyncIterator[Trips]:
    asked: list[str] = []

    def note(one: LoggedQuery) -> None:
        asked.append(one.query)

    async def prepare(connection: Connection) -> None:
        await _prepare(connection)
        connection.add_query_logger(note)

    # The fixture `database` has made the user.
    assert await database.fetchval("SELECT count(*) FROM users") == 1
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1, init=prepare, reset=_leave) as pool:
        yield Trips(Database(pool), asked)


async def test_whoever_asks_for_running_keeps_others_waiting_for_few_trips(trips: Trips) -> None:
    """The actor and the lock; the row and the count; the change. What is created has no row to be locked."""
    await trips.create(DesiredState.STANDBY)
    with trips.most(2):
        await trips.create(DesiredState.RUNNING)
    asleep = await trips.create(DesiredState.STANDBY)
    await trips.database.execute("UPDATE workspaces SET phase = 'STANDBY', node = 'a' WHERE id = $1", asleep)
    with trips.most(3), acting(SOMEBODY):
        entry = await trips.catalog.patch(asleep, USER, Metadata(frozenset()), DesiredState.RUNNING)
    assert (entry.workspace.id, entry.workspace.desired_state) == (asleep, DesiredState.RUNNING)


async def test_an_attempt_begins_with_one_trip(trips: Trips, database: Database) -> None:
    """Its number, and the row that it is about."""
    workspace, op_id = await trips.create(DesiredState.STANDBY), OperationId(str(uuid4()))
    await database.execute(_UNDER_WAY, op_id, workspace)
    with trips.most(1):
        begun = await WorkspaceStore(trips.database).begin_attempt(op_id)
    assert begun
    assert (begun.number, begun.workspace.id) == (1, workspace)


async def test_an_attempt_sees_what_the_one_before_it_was_saving(trips: Trips, database: Database) -> None:
    """An archive that is verified at this very moment is not made again: whoever begins waits for what is being
    saved."""
    workspace, op_id = await trips.create(DesiredState.STANDBY), OperationId(str(uuid4()))
    await database.execute(_UNDER_WAY, op_id, workspace)
    async with asyncio.timeout(30):
        async with database.transaction() as earlier:
            await earlier.execute("SELECT FROM workspaces WHERE id = $1 FOR UPDATE", workspace)
            await earlier.execute("SELECT FROM operations WHERE id = $1 FOR UPDATE", op_id)
            beginning = asyncio.create_task(WorkspaceStore(trips.database).begin_attempt(op_id))
            while not await database.fetchval(_WAITING):
                await asyncio.sleep(0.01)
            await earlier.execute("UPDATE workspaces SET archive_key = 'saved' WHERE id = $1", workspace)
        begun = await beginning
    assert begun
    assert begun.workspace.archive_key == "saved"
