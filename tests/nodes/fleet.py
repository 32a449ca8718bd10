"""Nodes without engines: workers on real Temporal and PostgreSQL, each with a runtime in memory and a heartbeat."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

from redis.asyncio import Redis
from temporalio.client import Client

from activities.attempt import Actuator
from activities.operate import Operator
from activities.reconcile import Reconciler
from adapters.docker.engine import EngineInfo, Identity
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.nodes import Nodes
from adapters.postgres.rows import to_workspace
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.events import EventBus
from coordinator.heart import Heart
from domain.model import DesiredState, Operation, Phase, Workspace, WorkspaceId
from domain.naming import workflow_id
from settings import Settings
from tests.integration.system import NoArchives
from tests.resources import resources
from worker import Parts, pace, running
from workflows.client import TemporalAddress, Waker, connect

Actuators = Mapping[Operation, Actuator]


@dataclass
class MemoryEngine:
    """What a node's heart asks."""

    name: str

    async def identify(self) -> Identity:
        return Identity(EngineInfo(self.name, "1", "1", 2, 1 << 32), self.name, holds_homes=True)

    def registered(self, marker: str) -> None:
        assert marker == self.name

    async def confirm(self) -> None:
        """It always answers."""


@dataclass
class Fleet:
    client: Client
    database: Database
    database_url: str
    owner: str
    redis_url: str
    runtimes: dict[str, MemoryRuntime] = field(default_factory=dict)
    """What a node holds stays when its worker goes."""

    @asynccontextmanager
    async def worker(
        self,
        node: str,
        settings: Settings | None = None,
        actuators: Callable[[MemoryRuntime], Actuators] | None = None,
    ) -> AsyncIterator[Parts]:
        """Registered and at work; on leaving, neither heard of nor seen any more."""
        settings = settings or quick()
        runtime = self.runtimes.setdefault(node, MemoryRuntime())
        async with AsyncExitStack() as stack:
            database = await open_database(self.database_url)
            stack.push_async_callback(database.close)
            redis: Redis = Redis.from_url(self.redis_url)
            stack.push_async_callback(redis.aclose)
            reconciler = Reconciler(
                WorkspaceStore(database), runtime, NoArchives(), node, settings.timeouts, pace(settings)
            )
            acts = {**resources(runtime).by_operation(), **(actuators(runtime) if actuators else {})}
            operator = Operator(reconciler, acts, timedelta(seconds=settings.reconciler_retry_backoff))
            heart = Heart(
                Nodes(database, settings.node_lost_after),
                MemoryEngine(node),
                node,
                interval=settings.node_lost_seconds / 3,
            )
            await heart.register()
            # Of its own, as another process has one: two workers of one client can't poll the same queue.
            target = self.client.service_client.config.target_host
            client = await connect(TemporalAddress(target, self.client.namespace))
            parts = Parts(
                settings, client, database, self.database_url, runtime, operator, EventBus(redis), node, heart=heart
            )
            async with running(parts):
                yield parts

    async def create(self, node: str, number: int) -> list[WorkspaceId]:
        """Rows of workspaces that are to run, on this node: from now on no other takes any. Nobody was told of them."""
        await self.database.execute("UPDATE nodes SET cordoned_at = CASE WHEN name <> $1 THEN now() END", node)
        ids = [WorkspaceId(str(uuid4())) for _ in range(number)]
        await self.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " SELECT id, $2, id::text, 'image', 'RUNNING' FROM unnest($1::uuid[]) AS id",
            ids,
            self.owner,
        )
        return ids

    async def wake(self, workspaces: Sequence[WorkspaceId]) -> None:
        await Waker(self.client).wake_all(workspaces)

    async def want(self, workspace: WorkspaceId, desired: DesiredState) -> None:
        await self.database.execute("UPDATE workspaces SET desired_state = $2 WHERE id = $1", workspace, desired)
        await self.wake([workspace])

    async def rows(self, workspaces: Sequence[WorkspaceId]) -> list[Workspace]:
        found = await self.database.fetch("SELECT * FROM workspaces WHERE id = ANY($1::uuid[])", list(workspaces))
        return [to_workspace(row) for row in found]

    async def until(self, workspaces: Sequence[WorkspaceId], phase: Phase, seconds: float) -> float:
        """All are there, at rest; how long that took."""
        began = time.monotonic()
        while True:
            others = [
                row
                for row in await self.rows(workspaces)
                if row.phase is not phase or row.operation is not Operation.NONE
            ]
            if not others:
                return time.monotonic() - began
            assert time.monotonic() - began < seconds, f"{len(others)} are not {phase}, such as {others[0]}"
            await asyncio.sleep(0.05)

    async def events(self, workspace: WorkspaceId) -> list[str]:
        """The kinds of events in the history of its workflow's latest run."""
        history = await self.client.get_workflow_handle(workflow_id(workspace)).fetch_history()
        return [event.WhichOneof("attributes") or "" for event in history.events]


def quick(**others: object) -> Settings:
    limits = {"limits_max_running_per_user": 1000, "limits_max_running_global": 1000}
    waits = {"coordinator_retry_interval": 0.2, "reconciler_retry_backoff": 0.05, "worker_drain_seconds": 1}
    return Settings.model_validate({**limits, **waits, **others})


@asynccontextmanager
async def fleet(client: Client, database_url: str, redis_url: str = "redis://127.0.0.1:1") -> AsyncIterator[Fleet]:
    database = await open_database(database_url)
    try:
        owner = await database.fetchval(
            "INSERT INTO users (username, password_hash) VALUES ('alice', '') RETURNING id::text"
        )
        yield Fleet(client, database, database_url, owner, redis_url)
    finally:
        await database.close()
