"""Waiting for one's turn at a node, as reconcile sees it: what nobody has taken up is never too late."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import uuid4

import pytest

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.nodes import Nodes, Registration
from adapters.postgres.workspaces import WorkspaceStore
from domain.judge import waits_for_node
from domain.model import ErrorReason, Operation, Phase, Workspace, WorkspaceId
from tests.integration.system import NoArchives
from workflows.messages import ReconcileInput, Step, StepKind


@dataclass
class Waiting:
    """A workspace that is claimed for PROVISIONING on node `b`, and waits for its turn there."""

    database: Database
    id: WorkspaceId
    here: Reconciler
    """On another node."""
    on_b: Reconciler
    step: Step

    async def row(self) -> Workspace:
        found = await self.here.store.load(self.id)
        assert found
        return found

    async def node_is(self, how: str) -> None:
        await self.database.execute(f"UPDATE nodes SET {how} WHERE name = 'b'")

    async def for_an_hour(self) -> None:
        await self.database.execute("UPDATE workspaces SET op_started_at = now() - interval '1 hour'")


@pytest.fixture
async def waiting(database_url: str) -> AsyncIterator[Waiting]:
    database = await open_database(database_url)
    for name in ("a", "b"):
        assert await Nodes(database).register(Registration(name, f"engine-{name}", "127.0.0.1", None, 2, 1 << 32))
    await database.execute("UPDATE nodes SET cordoned_at = now() WHERE name = 'a'")
    owner = await database.fetchval("INSERT INTO users (username, password_hash) VALUES ('alice', '') RETURNING id")
    id_ = WorkspaceId(str(uuid4()))
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
        " VALUES ($1, $2, 'one', 'image', 'STANDBY')",
        id_,
        owner,
    )
    store = WorkspaceStore(database)
    here, on_b = (Reconciler(store, MemoryRuntime(), NoArchives(), name) for name in ("a", "b"))
    yield Waiting(database, id_, here, on_b, await here.step(id_))
    await database.close()


async def test_it_is_taken_up_again_without_a_question(waiting: Waiting) -> None:
    """However long it has waited: its node has other things to do than to tell that it has done nothing yet."""
    assert (waiting.step.kind, waiting.step.task_queue) == (StepKind.RUN, "node-b")
    assert waiting.step.turn_within_seconds > waiting.step.timeout_seconds
    await waiting.for_an_hour()
    again = await waiting.here.step(waiting.id)
    assert (again.kind, again.op_id, again.task_queue) == (StepKind.RUN, waiting.step.op_id, "node-b")


async def test_one_that_was_begun_is_asked_for_and_may_be_too_late(waiting: Waiting) -> None:
    assert await waiting.here.store.begin_attempt(waiting.step.op_id)
    await waiting.for_an_hour()
    asked = await waiting.here.step(waiting.id)
    assert (asked.kind, asked.task_queue) == (StepKind.ASK, "node-b")
    await waiting.on_b.step(waiting.id)
    assert (await waiting.row()).error_reason is ErrorReason.TIMEOUT


async def test_a_node_that_lives_is_waited_for(waiting: Waiting) -> None:
    """Whoever is woken meanwhile changes nothing."""
    before = await waiting.row()
    for reconciler in (waiting.here, waiting.on_b):
        assert (await reconciler.reconcile(ReconcileInput(waiting.id, waiting=True))).kind is StepKind.ASK
    assert await waiting.row() == before


async def test_a_lost_node_is_not_waited_for(waiting: Waiting) -> None:
    """The operation ends Unreachable, to be recovered when the node returns."""
    await waiting.node_is("lost_at = now()")
    step = await waiting.here.reconcile(ReconcileInput(waiting.id, waiting=True))
    assert step.kind is StepKind.WAIT
    row = await waiting.row()
    assert (row.phase, row.operation, row.error_reason) == (Phase.ERROR, Operation.NONE, ErrorReason.UNREACHABLE)
    assert waits_for_node(row)


async def test_a_node_that_is_not_heard_but_answers_its_own_worker_goes_on(waiting: Waiting) -> None:
    """The attempt that is under way there is not cut off; with its engine away, there is nothing to wait for."""
    await waiting.node_is("lost_at = now()")
    request = ReconcileInput(waiting.id, waiting=True)
    assert (await waiting.on_b.reconcile(request)).kind is StepKind.ASK
    assert (await waiting.row()).op_id == waiting.step.op_id
    waiting.on_b.runtime.unreachable = True  # type: ignore[attr-defined]
    assert (await waiting.on_b.reconcile(request)).kind is StepKind.WAIT
    assert (await waiting.row()).error_reason is ErrorReason.UNREACHABLE
