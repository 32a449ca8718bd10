"""The system on real parts: PostgreSQL, Temporal, and a runtime; its worker runs in the test's own process."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from redis.asyncio import Redis
from temporalio.client import Client

from activities.attempt import Actuator
from activities.bucket import Bucket
from activities.operate import Operator
from activities.places import transfer_places
from activities.reconcile import Reconciler
from activities.transfer import Transfers
from adapters.homes import Homes
from adapters.postgres.database import Database, open_database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.installation import installation_id
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.events import EventBus
from adapters.runtime import Runtime
from adapters.s3.store import S3ArchiveStore
from domain.limits import Limits
from domain.model import DesiredState, Operation, Phase, UserId, Workspace, WorkspaceId
from domain.observation import Presence
from settings import Settings
from tests.resources import resources
from worker import Parts, pace, running
from worker import actuators as all_actuators
from workflows.client import TemporalUnavailable, Waker


class NoArchives:
    """Nothing was ever archived."""

    async def observe(self, key: str) -> Presence:
        raise AssertionError(f"nobody should ask for {key}")


@dataclass
class System:
    parts: Parts
    user: UserId
    image: str
    waker: Waker
    desired: DesiredStates
    store: WorkspaceStore

    @property
    def runtime(self) -> Runtime:
        return self.parts.runtime

    async def create(self, desired: DesiredState = DesiredState.RUNNING, image: str | None = None) -> WorkspaceId:
        workspace_id = await self.insert(desired, image)
        await self.wake(workspace_id)
        return workspace_id

    async def insert(self, desired: DesiredState = DesiredState.RUNNING, image: str | None = None) -> WorkspaceId:
        """A row, and nobody told."""
        workspace_id = WorkspaceId(str(uuid4()))
        await self.parts.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " VALUES ($1, $2, $1::uuid::text, $3, $4)",
            workspace_id,
            self.user,
            image or self.image,
            desired,
        )
        return workspace_id

    async def want(self, workspace_id: WorkspaceId, desired: DesiredState) -> None:
        await self.desired.set(workspace_id, desired)
        await self.wake(workspace_id)

    async def delete(self, workspace_id: WorkspaceId) -> None:
        await self.desired.delete(workspace_id)
        await self.wake(workspace_id)

    async def recover(self, workspace_id: WorkspaceId) -> None:
        await self.desired.recover(workspace_id)
        await self.wake(workspace_id)

    async def wake(self, workspace_id: WorkspaceId) -> None:
        await wake(self.waker, workspace_id)

    async def row(self, workspace_id: WorkspaceId) -> Workspace:
        found = await self.store.load(workspace_id)
        assert found is not None
        return found

    async def until(
        self, workspace_id: WorkspaceId, condition: Callable[[Workspace], bool], seconds: float = 30
    ) -> Workspace:
        deadline = time.monotonic() + seconds
        while True:
            found = await self.row(workspace_id)
            if condition(found):
                return found
            assert time.monotonic() < deadline, f"still {found}"
            await asyncio.sleep(0.02)

    async def until_phase(self, workspace_id: WorkspaceId, phase: Phase, seconds: float = 30) -> Workspace:
        return await self.until(workspace_id, lambda ws: ws.phase is phase and ws.operation is Operation.NONE, seconds)


async def wake(waker: Waker, workspace_id: WorkspaceId, seconds: float = 60) -> None:
    """Until it is taken. A server that has a lot to do may take longer than people are made to wait, and not everywhere
    is there somebody who makes up for it.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await waker.wake(workspace_id)
        except TemporalUnavailable:
            if time.monotonic() > deadline:
                raise


@asynccontextmanager
async def system(
    client: Client,
    database_url: str,
    runtime: Runtime,
    image: str,
    *,
    actuators: Callable[[Runtime], Mapping[Operation, Actuator]] | None = None,
    archives: S3ArchiveStore | None = None,
    homes: Homes | None = None,
    coordinator: bool = True,
    settings: Settings | None = None,
    redis_url: str = "redis://127.0.0.1:1",
) -> AsyncIterator[System]:
    settings = settings or Settings(
        coordinator_idle_interval=1, coordinator_retry_interval=0.2, reconciler_retry_backoff=0.05
    )
    async with AsyncExitStack() as stack:
        database = await open_database(database_url)
        stack.push_async_callback(database.close)
        store = WorkspaceStore(database)
        reconciler = Reconciler(
            store,
            runtime,
            archives or NoArchives(),
            timeouts=settings.timeouts,
            pace=pace(settings),
            max_retries=settings.reconciler_max_retries,
        )
        acts = actuators(runtime) if actuators else resources(runtime).by_operation()
        if archives and homes:
            transfers = Transfers(store, stall_seconds=settings.archive_stall_seconds)
            bucket = Bucket(archives, await installation_id(database))
            acts = {**all_actuators(runtime, homes, bucket, transfers), **(actuators(runtime) if actuators else {})}
        operator = Operator(
            reconciler,
            acts,
            timedelta(seconds=settings.reconciler_retry_backoff),
            places=transfer_places(settings.archive_max_transfers),
        )
        redis: Redis = Redis.from_url(redis_url)
        stack.push_async_callback(redis.aclose)
        parts = Parts(settings, client, database, database_url, runtime, operator, EventBus(redis))
        await stack.enter_async_context(running(parts, elect=coordinator))
        yield System(
            parts, await _user(database), image, Waker(client), DesiredStates(database, Limits(1000, 1000)), store
        )


async def _user(database: Database) -> UserId:
    found = await database.fetchval(
        "INSERT INTO users (username, password_hash) VALUES ('alice', '')"
        " ON CONFLICT (username) DO UPDATE SET username = 'alice' RETURNING id"
    )
    return UserId(str(found))
