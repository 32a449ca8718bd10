"""A look at a workspace at rest that finds what its row says writes nothing, unless somebody goes by when it was."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import uuid4

import pytest

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.nodes import Nodes, Registration
from adapters.postgres.workspaces import WorkspaceStore
from domain.model import OperationId, WorkspaceId
from tests.integration.system import NoArchives
from workflows.messages import StepKind

LONG_AGO = "UPDATE workspaces SET observed_at = now() - interval '1 hour'"


class World:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.runtime = MemoryRuntime()
        self.nodes = Nodes(database)
        self.id = WorkspaceId(str(uuid4()))

    def reconciler(self, node: str = "a") -> Reconciler:
        return Reconciler(WorkspaceStore(self.database), self.runtime, NoArchives(), node)

    async def register(self, *names: str) -> None:
        for name in names:
            assert await self.nodes.register(Registration(name, f"engine-{name}", "127.0.0.1", None, 2, 1 << 32))

    async def looked(self, node: str = "a") -> bool:
        """Whether a look wrote anything."""
        version = "SELECT xmin::text FROM workspaces"
        before = await self.database.fetchval(version)
        step = await self.reconciler(node).step(self.id)
        assert step.kind is StepKind.WAIT
        return bool(await self.database.fetchval(version) != before)


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A workspace in STANDBY on node a, looked at once."""
    opened = await open_database(database_url)
    made = World(opened)
    await made.register("a")
    owner = await opened.fetchval("INSERT INTO users (username, password_hash) VALUES ('alice', '') RETURNING id")
    await opened.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node)"
        " VALUES ($1, $2, 'w', 'image', 'STANDBY', 'STANDBY', 'a')",
        made.id,
        owner,
    )
    await made.runtime.create_volume(made.id, OperationId(str(uuid4())))
    assert await made.looked(), "what was observed is saved"
    yield made
    await opened.close()


async def test_nothing_new_is_not_written(world: World) -> None:
    """On one node nobody asks when it was."""
    await world.database.execute(LONG_AGO)
    assert not await world.looked()
    await world.runtime.remove_volume(world.id)
    assert await world.looked(), "a home that is gone is news"


async def test_what_a_sweep_objected_to_is_vouched_for_again(world: World) -> None:
    """The row is not gone by until somebody has looked, so that somebody has is news."""
    await world.database.execute("UPDATE workspaces SET observed_at = NULL")
    assert await world.looked()
    assert await world.database.fetchval("SELECT observed_at IS NOT NULL FROM workspaces")


async def test_others_who_cannot_look_are_told_where_no_sweep_tells_them(world: World) -> None:
    """With several nodes: a worker elsewhere goes by the row's word, or by the sweep's."""
    await world.register("b")
    assert not await world.looked(), "it was looked at a moment ago"
    await world.database.execute(LONG_AGO)
    assert await world.looked()
    assert not await world.looked("b"), "whoever goes by the row adds nothing to it"
    await world.database.execute(LONG_AGO)
    assert await world.nodes.beat("a", timedelta(seconds=1))
    assert not await world.looked(), "the sweep vouches for it"
    assert (await world.reconciler("b").step(world.id)).kind is StepKind.WAIT, "and that is gone by"


async def test_waiting_for_a_place_is_written_once(world: World) -> None:
    """However often it is looked for one."""
    await world.database.execute("UPDATE nodes SET cordoned_at = now()")
    await world.database.execute(
        "UPDATE workspaces SET phase = 'PENDING', desired_state = 'RUNNING', node = NULL, conditions = '{}'"
    )
    assert await world.looked()
    assert not await world.looked()
