"""The system under the harness: real Temporal, PostgreSQL and S3; the engine is a dict; every adapter can be faulty."""

import asyncio
import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import zstandard
from redis.asyncio import Redis
from temporalio.client import Client

from activities.bucket import Bucket
from activities.transfer import Transfers
from adapters.memory import MemoryHomes, MemoryRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.workspaces import WorkspaceStore
from adapters.redis.events import EventBus
from adapters.s3.store import S3ArchiveStore
from domain.limits import Limits
from domain.model import DesiredState, Operation, Phase, UserId, Workspace, WorkspaceId
from settings import Settings
from tests.harness.cases import Case, Cases, NamedOperator, NamedReconciler
from tests.harness.scenarios import MISSING_IMAGE, Scenario, files, home
from tests.harness.world import HOLDS
from tests.integration.system import wake
from worker import Parts, actuators, pace, running
from workflows.client import Waker
from workflows.messages import OperateInput

SECONDS = 300.0


@dataclass
class Bench(ABC):
    parts: Parts
    cases: Cases
    runtime: MemoryRuntime
    archives: S3ArchiveStore
    store: WorkspaceStore
    """Without faults."""
    user: UserId

    @property
    def database(self) -> Database:
        return self.parts.database

    @property
    def desired(self) -> DesiredStates:
        return DesiredStates(self.database, Limits(100_000, 100_000))

    async def create(self, desired: DesiredState, image: str, case: Case | None = None) -> WorkspaceId:
        workspace = WorkspaceId(str(uuid4()))
        if case is not None:
            self.cases.by_workspace[workspace] = case
        await self.database.execute(
            "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state)"
            " VALUES ($1, $2, $1::uuid::text, $3, $4)",
            workspace,
            self.user,
            image,
            desired,
        )
        return workspace

    async def prepare(self, scenario: Scenario, case: Case) -> WorkspaceId:
        """Right before the operation: the last command is given, nobody has been told of it, the case counts."""
        if not scenario.before:
            case.counting = True
            return await self.create(scenario.wanted, scenario.image, case)
        workspace = await self.create(scenario.before[0], scenario.image, case)
        for number, desired in enumerate(scenario.before):
            if number:
                await self.want(workspace, desired)
            await self.drive(workspace)
            if number == 0:
                self.runtime.volumes[workspace].tar = home()
        case.counting = True
        await self.want(workspace, scenario.wanted)
        return workspace

    async def want(self, workspace: WorkspaceId, desired: DesiredState) -> None:
        if desired is DesiredState.DELETED:
            await self.desired.delete(workspace)
        else:
            await self.desired.set(workspace, desired)

    @abstractmethod
    async def drive(self, workspace: WorkspaceId) -> None:
        """To where it is wanted. Without a worker, this does what the workflow would do."""

    async def row(self, workspace: WorkspaceId) -> Workspace:
        found = await self.store.load(workspace)
        assert found
        return found

    async def until(self, workspace: WorkspaceId, phase: Phase) -> None:
        deadline = time.monotonic() + SECONDS
        while True:
            row = await self.row(workspace)
            if row.phase is phase and row.operation is Operation.NONE:
                return
            assert time.monotonic() < deadline, f"not {phase}: {row}"
            await asyncio.sleep(0.05)

    async def until_put_right(self, workspace: WorkspaceId, phase: Phase) -> None:
        """As `until`, and the engine holds what that phase says: what was done behind the workflow's back has been seen
        by the sweep, and undone."""
        deadline = time.monotonic() + SECONDS
        while True:
            await self.until(workspace, phase)
            seen = await self.runtime.observe(workspace, probe=False)
            if (seen.container, seen.volume) == HOLDS.get(phase, (seen.container, seen.volume)):
                return
            assert time.monotonic() < deadline, f"not put right: {phase} with {seen}"
            await asyncio.sleep(0.05)

    async def snapshot(self, workspace: WorkspaceId) -> dict[str, Any]:
        """What matters of a workspace and its world: nothing that differs from run to run."""
        row = await self.row(workspace)
        log = await self.database.fetch(
            "SELECT operation, outcome, error_reason, context -> 'entries', context -> 'left_out' FROM operations"
            " WHERE workspace_id = $1 ORDER BY started_at",
            workspace,
        )
        volume = self.runtime.volumes.get(workspace)
        return {
            "row": (row.phase, row.operation, row.op_id, row.op_started_at, row.desired_state),
            "errors": (row.error_reason, row.error_count),
            "conditions": {name: condition.status for name, condition in row.conditions.items()},
            "placed": (row.node, row.endpoint),
            "archive": await self._archive(row.archive_key),
            "home": (row.home_ctx.restoring, row.home_ctx.restore_marker in {None, row.archive_key}),
            "accessed": row.last_access_at is not None,
            "log": [tuple(map(str, entry)) for entry in log],
            "engine": await self.runtime.observe(workspace, probe=False),
            "volume": _digests(volume.tar) if volume else None,
            "stored": sorted([key async for key in self._stored(workspace)]),
            "uploads": [upload.key async for upload in self.archives.list_uploads() if workspace in upload.key],
        }

    async def _archive(self, key: str | None) -> dict[str, str] | None:
        if key is None:
            return None
        packed = b"".join([chunk async for chunk in self.archives.download(key)])
        tar = zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True).read()
        return _digests(tar)

    async def _stored(self, workspace: WorkspaceId) -> AsyncIterator[str]:
        """Without the operation's id, which every run has another of."""
        async for found in self.archives.list_objects():
            owner, _, rest = found.key.partition("/")
            if owner == workspace:
                yield rest.partition("/")[2]


class DirectBench(Bench):
    """No Temporal: the test is the workflow, and runs what it wants as often as it wants."""

    async def drive(self, workspace: WorkspaceId) -> None:
        step = await self.parts.operator.reconciler.step(workspace)
        while step.operation is not Operation.NONE:
            step = await self.parts.operator.run(step.operation, OperateInput(workspace, step.op_id))


class TemporalBench(Bench):
    async def drive(self, workspace: WorkspaceId) -> None:
        await self.wake(workspace)
        row = await self.row(workspace)
        await self.until(workspace, Phase(row.desired_state))

    async def wake(self, workspace: WorkspaceId) -> None:
        await wake(Waker(self.parts.client), workspace)


@asynccontextmanager
async def bench(client: Client, database_url: str, archives: S3ArchiveStore, *, temporal: bool) -> AsyncIterator[Bench]:
    """With `temporal`, worker and coordinator run inside."""
    settings = Settings(coordinator_idle_interval=1, coordinator_retry_interval=0.2, reconciler_retry_backoff=0.1)
    cases = Cases()
    runtime = MemoryRuntime()
    runtime.missing_images.add(MISSING_IMAGE)
    async with AsyncExitStack() as stack:
        database = await open_database(database_url, max_size=20)
        stack.push_async_callback(database.close)
        redis: Redis = Redis.from_url("redis://127.0.0.1:1")
        stack.push_async_callback(redis.aclose)
        store = WorkspaceStore(database)
        faulty_store, faulty_runtime = cases.wrap("store", store), cases.wrap("runtime", runtime)
        faulty_archives = cases.wrap("archives", archives)
        reconciler = NamedReconciler(
            faulty_store, faulty_runtime, faulty_archives, timeouts=settings.timeouts, pace=pace(settings)
        )
        transfers = Transfers(faulty_store)
        homes = cases.wrap("homes", MemoryHomes(runtime))
        operator = NamedOperator(
            reconciler,
            actuators(faulty_runtime, homes, Bucket(faulty_archives, "harness"), transfers),
            timedelta(seconds=settings.reconciler_retry_backoff),
        )
        # The coordinator sees the engine as it is.
        parts = Parts(settings, client, database, database_url, runtime, operator, EventBus(redis))
        user = await database.fetchval(
            "INSERT INTO users (username, password_hash) VALUES ('somebody', '') RETURNING id::text"
        )
        kind = TemporalBench if temporal else DirectBench
        if temporal:
            await stack.enter_async_context(running(parts))
        yield kind(parts, cases, runtime, archives, store, UserId(user))


def _digests(tar: bytes) -> dict[str, str]:
    """Each file's content, in a form that can be read when a comparison fails."""
    return {name: hashlib.sha256(content).hexdigest()[:12] for name, content in files(tar).items()}
