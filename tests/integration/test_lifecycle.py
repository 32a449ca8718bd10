"""A workspace's life on a real engine."""

import aiohttp
import pytest

from adapters.docker.runtime import DockerRuntime
from domain.model import ConditionName, DesiredState, Operation, Phase
from domain.observation import ContainerState, Presence
from tests.integration.system import System

pytestmark = pytest.mark.docker


async def test_start_stop_start_delete(on_docker: System, docker_runtime: DockerRuntime) -> None:
    """RUNNING answers on its port, STANDBY keeps its files, DELETED leaves no container and no volume."""
    workspace = await on_docker.create()
    row = await on_docker.until_phase(workspace, Phase.RUNNING)
    assert row.condition(ConditionName.CONTAINER_READY)
    await _put(row.endpoint, "notes.txt", b"kept")

    await on_docker.want(workspace, DesiredState.STANDBY)
    row = await on_docker.until_phase(workspace, Phase.STANDBY)
    seen = await docker_runtime.observe(workspace, probe=False)
    assert (seen.container, seen.volume) == (ContainerState.ABSENT, Presence.PRESENT)
    assert row.last_access_at is not None

    await on_docker.want(workspace, DesiredState.RUNNING)
    row = await on_docker.until_phase(workspace, Phase.RUNNING)
    assert await _get(row.endpoint, "notes.txt") == b"kept"

    await on_docker.delete(workspace)
    await on_docker.until_phase(workspace, Phase.DELETED)
    assert (await docker_runtime.observe(workspace, probe=False)).gone


async def test_the_operation_log_tells_what_happened(on_docker: System) -> None:
    workspace = await on_docker.create()
    await on_docker.until_phase(workspace, Phase.RUNNING)
    log = await on_docker.parts.database.fetch(
        "SELECT operation, outcome, attempts, previous_phase FROM operations"
        " WHERE workspace_id = $1 ORDER BY started_at",
        workspace,
    )
    assert [tuple(entry) for entry in log] == [
        (Operation.PROVISIONING, "SUCCEEDED", 1, Phase.PENDING),
        (Operation.STARTING, "SUCCEEDED", 1, Phase.STANDBY),
    ]


async def _put(endpoint: str | None, name: str, body: bytes) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"http://{endpoint}/cgi-bin/put?{name}", data=body) as response,
    ):
        response.raise_for_status()


async def _get(endpoint: str | None, name: str) -> bytes:
    async with aiohttp.ClientSession() as session, session.get(f"http://{endpoint}/{name}") as response:
        response.raise_for_status()
        return await response.read()
