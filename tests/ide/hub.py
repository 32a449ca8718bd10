"""A whole codehub with the real IDE: worker, API and proxy as processes, on real services and a real engine."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker import APIClient

from domain.model import Phase, WorkspaceId
from domain.naming import container_name
from tests.processes.deployment import Deployment, deployed
from tests.processes.person import WORKSPACES, Person

SETTINGS = {
    # What an IDE needs.
    "WORKSPACE_MEMORY_MB": "1024",
    "WORKSPACE_CPUS": "2",
    "WORKSPACE_PIDS": "512",
    # Whether it falls asleep is to be seen soon.
    "ACTIVITY_FLUSH_INTERVAL": "1",
    "TTL_INTERVAL": "1",
}
SECONDS = 300.0
"""How long anything may take on a machine that has a lot to do."""


@dataclass
class Hub:
    deployment: Deployment
    person: Person
    engine: APIClient

    @property
    def url(self) -> str:
        return self.person.url

    async def workspace(self, name: str) -> WorkspaceId:
        found = await self.deployment.database.fetchval("SELECT id FROM workspaces WHERE name = $1", name)
        return WorkspaceId(str(found))

    async def patch(self, ws: WorkspaceId, **fields: Any) -> None:
        status, body = await self.person.ask("PATCH", f"{WORKSPACES}/{ws}", fields)
        assert status == 200, body

    async def until_phase(self, ws: WorkspaceId, phase: Phase) -> None:
        await self.deployment.until_phase(ws, phase, SECONDS)

    def inside(self, ws: WorkspaceId, command: str) -> tuple[int, str]:
        """Exit code and output of a shell command in the workspace."""
        made = self.engine.exec_create(container_name(ws), ["/bin/sh", "-c", command])
        output = self.engine.exec_start(made["Id"])
        return self.engine.exec_inspect(made["Id"])["ExitCode"], output.decode()


@asynccontextmanager
async def hub_with(env: dict[str, str], installation: str, folder: Path) -> AsyncIterator[Hub]:
    engine = APIClient(env["DOCKER_HOST"], timeout=60)
    try:
        async with deployed({**SETTINGS, **env}, installation, env["DOCKER_HOST"], folder) as deployment:
            await deployment.worker()
            async with deployment.person() as person:
                try:
                    yield Hub(deployment, person, engine)
                except BaseException as error:
                    error.add_note(deployment.words())
                    raise
    finally:
        engine.close()
