"""codehub as it is deployed: worker and API processes on real services, and a person who looks at all of them."""

import asyncio
import itertools
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import asyncpg
import pytest

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import Database, DatabaseUnavailable, open_database
from adapters.postgres.migrate import migrate
from adapters.postgres.rows import to_workspace
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.model import Operation, Phase, Workspace, WorkspaceId
from domain.naming import DEFAULT_NODE, workflow_id
from starter.embedded.stack import Stack
from tests.harness.rows import contradictions, failures, unsettled
from tests.harness.world import mismatches
from tests.ports import free_port
from tests.processes.console import Console
from tests.processes.person import Person
from tests.processes.process import CodehubProcess, until

T = TypeVar("T")

PASSWORD = "a password for tests"
QUICK = {
    "COORDINATOR_IDLE_INTERVAL": "2",
    "COORDINATOR_RETRY_INTERVAL": "0.5",
    "RECONCILER_RETRY_BACKOFF": "0.3",
    "STOP_GRACE_SECONDS": "1",
    "WORKSPACE_MEMORY_MB": "64",
    "WORKSPACE_CPUS": "1",
    "WORKSPACE_PIDS": "64",
    "LIMITS_MAX_RUNNING_PER_USER": "1000",
    "LIMITS_MAX_RUNNING_GLOBAL": "1000",
    "CODEHUB_ADMIN_PASSWORD": PASSWORD,
}
AT_REST = 300.0
"""How long anything may take on a machine that has a lot to do."""


class PatientDatabase(Database):
    """For looking: while the server is away it waits."""

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        return await _patiently(lambda: super(PatientDatabase, self).fetch(sql, *args))

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        return await _patiently(lambda: super(PatientDatabase, self).fetchrow(sql, *args))

    async def fetchval(self, sql: str, *args: Any) -> Any:
        return await _patiently(lambda: super(PatientDatabase, self).fetchval(sql, *args))


@dataclass
class Deployment:
    env: dict[str, str]
    folder: Path
    database: Database
    runtime: DockerRuntime
    """Straight to the engine, whatever stands between it and the workers."""
    archives: S3ArchiveStore | None
    console: Console
    processes: list[CodehubProcess] = field(default_factory=list)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def start(self, command: str, module: str = "starter.cli", **env: str) -> CodehubProcess:
        log = self.folder / f"{command.split(maxsplit=1)[0]}-{next(self._numbers)}.log"
        process = CodehubProcess(command, {**self.env, **env}, log, module)
        self.processes.append(process)
        return process

    async def worker(self, node: str = DEFAULT_NODE, **env: str) -> CodehubProcess:
        process = self.start(f"worker --node {node}", **env)
        await process.said("worker_ready")
        return process

    @asynccontextmanager
    async def person(self, **env: str) -> AsyncIterator[Person]:
        """Logged in at an API process of their own."""
        env = {"CODEHUB_PORT": str(free_port()), **env}
        port = int(env["CODEHUB_PORT"])
        api = self.start("api", **env)
        await api.said("api_listening")
        async with aiohttp.ClientSession(
            cookie_jar=aiohttp.CookieJar(unsafe=True), timeout=aiohttp.ClientTimeout(60)
        ) as client:
            person = Person(client, f"http://127.0.0.1:{port}")
            await person.log_in("admin", PASSWORD)
            yield person

    async def row(self, workspace: WorkspaceId) -> Workspace:
        found = await self.database.fetchrow("SELECT * FROM workspaces WHERE id = $1", workspace)
        assert found
        return to_workspace(found)

    async def until_phase(self, workspace: WorkspaceId, phase: Phase, seconds: float = AT_REST) -> Workspace:
        async def is_there() -> bool:
            row = await self.row(workspace)
            return row.phase is phase and row.operation is Operation.NONE

        await until(is_there, seconds, f"{workspace} is not {phase}")
        return await self.row(workspace)

    async def until_operation(self, workspace: WorkspaceId, operation: Operation, seconds: float = AT_REST) -> None:
        async def is_under_way() -> bool:
            """Also for a worker: it was claimed before one took it up."""
            found = await self.database.fetchval(
                "SELECT attempts FROM operations WHERE workspace_id = $1 AND operation = $2 AND outcome IS NULL",
                workspace,
                operation,
            )
            return bool(found)

        await until(is_under_way, seconds, f"{workspace} is not in {operation}")

    async def converged(self, seconds: float = AT_REST) -> float:
        """Everything is where it is wanted, with nothing under way and no error; how long that took."""
        began = time.monotonic()
        while waiting := await unsettled(self.database):
            if time.monotonic() - began > seconds:
                pytest.fail("\n".join([*waiting, *await self._attempts()]) + self.words())
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def wrong(self) -> list[str]:
        """All that should not be so once everything is at rest."""
        return [
            *await contradictions(self.database),
            *await failures(self.database),
            *await mismatches(self.database, self.runtime, self.archives),
        ]

    async def _attempts(self) -> list[str]:
        """What Temporal says of those that are not at rest: which attempt, since when, and how the last one ended."""
        found = await self.database.fetch("SELECT id::text FROM workspaces WHERE operation <> 'NONE'")
        client = self.console.waker.client
        described = [await client.get_workflow_handle(workflow_id(row["id"])).describe() for row in found]
        return [f"{one.id}: {one.raw_description.pending_activities}" for one in described]

    def words(self) -> str:
        """What the processes said last."""
        return "".join(f"\n--- {process.log.name}\n{process.output[-3000:]}" for process in self.processes)


@asynccontextmanager
async def deployed(env: dict[str, str], installation: str, docker_host: str, folder: Path) -> AsyncIterator[Deployment]:
    """On the services that `env` names. Ends its processes, and removes what they made at the engine."""
    async with AsyncExitStack() as stack:
        await migrate(env["DATABASE_URL"])
        database = PatientDatabase((await open_database(env["DATABASE_URL"])).pool)
        stack.push_async_callback(database.close)
        # Of the run, so that the run's end finds what a killed test left.
        name = f"{installation}-{uuid.uuid4().hex[:8]}"
        await database.execute("UPDATE installation SET id = $1", name)
        runtime = DockerRuntime(DockerConfig(name, docker_host=docker_host, stop_grace_seconds=0))
        stack.push_async_callback(_clean, runtime)
        archives = await stack.enter_async_context(open_store(_s3(env))) if "S3_BUCKET" in env else None
        deployment = Deployment(
            {**QUICK, **env}, folder, database, runtime, archives, await Console.opened(database, env)
        )
        try:
            yield deployment
        finally:
            for process in deployment.processes:
                process.kill()


async def killed(stack: Stack, name: str) -> None:
    """kill -9 of one of the test's own services; returns when it is back."""
    former = stack.supervisor.pid(name)
    assert former
    os.kill(former, signal.SIGKILL)

    async def is_another() -> bool:
        return stack.supervisor.pid(name) not in {None, former}

    await until(is_another, AT_REST, f"{name} did not come back")
    await stack.supervisor.ready(name)


async def _patiently(call: Callable[[], Awaitable[T]]) -> T:
    deadline = time.monotonic() + AT_REST
    while True:
        try:
            return await call()
        except DatabaseUnavailable:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


def _s3(env: dict[str, str]) -> S3Config:
    return S3Config(env["S3_ENDPOINT"], env["S3_ACCESS_KEY"], env["S3_BUCKET"], env["S3_SECRET_KEY"])


async def _clean(runtime: DockerRuntime) -> None:
    for workspace in await runtime.observe_all():
        await runtime.stop(workspace)
        await runtime.remove_volume(workspace)
    await runtime.remove_network()
    await runtime.close()
