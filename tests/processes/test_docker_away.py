"""The engine is away, or is restarted: never a wrong phase, nothing lost, and it heals by itself (issue 2)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from domain.model import DesiredState, Operation, Phase, WorkspaceId
from domain.observation import ContainerState
from starter.embedded.dockerd import Dockerd
from tests.adapters.docker_world import docker_world
from tests.conftest import OwnServices
from tests.embedded import image
from tests.embedded.engines import ensure_network
from tests.faults.proxy import FaultProxy
from tests.harness.rows import failures
from tests.processes.conftest import Deploy, slow
from tests.processes.deployment import AT_REST, Deployment, killed
from tests.processes.process import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


@pytest.mark.parametrize("how", [pytest.param("refused", marks=pytest.mark.full), "silent"])
async def test_what_is_not_seen_is_not_gone(deploy: Deploy, docker_host: str, tmp_path: Path, how: str) -> None:
    """An engine that does not answer is unknown: rows stay as they are, and what was asked for is done afterwards."""
    async with FaultProxy(docker_host, tmp_path / "docker.sock") as proxy:
        deployment = await deploy(DOCKER_HOST=proxy.url)
        await deployment.worker()
        create = deployment.console.create
        running, standby, archived = [await create(state) for state in (RUNNING, STANDBY, ARCHIVED)]
        wanted = await create(STANDBY)
        await deployment.converged()
        if how == "refused":
            await proxy.refuse()
        else:
            proxy.black_hole()
        async with _unchanged(deployment, running, standby, archived, wanted):
            await deployment.console.want(wanted, RUNNING)
            # Several sweeps and looks; each of these would have been a chance to get it wrong.
            await asyncio.sleep(8)
        await proxy.heal()
        await deployment.converged()
        assert (await deployment.row(wanted)).phase is Phase.RUNNING
        assert not await deployment.wrong()


async def test_an_operation_under_way_waits_for_the_engine(
    deploy: Deploy, docker_host: str, tmp_path: Path, slow_image: str
) -> None:
    """Connections break in the middle of STARTING, STOPPING and DELETING, and the engine stays away for a while: the
    attempts wait, and none of it counts as an error."""
    async with FaultProxy(docker_host, tmp_path / "docker.sock") as proxy:
        deployment = await deploy(DOCKER_HOST=proxy.url)
        worker = await deployment.worker()
        workspace = await deployment.console.create(image=slow_image)
        await deployment.until_operation(workspace, Operation.STARTING)
        await proxy.refuse()
        await worker.said("attempt_waits", operation=Operation.STARTING)
        await asyncio.sleep(3)
        row = await deployment.row(workspace)
        assert (row.operation, row.error_count) == (Operation.STARTING, 0)
        await proxy.heal()
        await deployment.converged()
        proxy.black_hole()
        await deployment.console.delete(workspace)
        await proxy.cut()
        await asyncio.sleep(1)
        await proxy.heal()
        await deployment.converged()
        assert not await deployment.wrong()


@pytest.mark.usefixtures("dockerd")
@pytest.mark.parametrize("how", [pytest.param("restarted", marks=pytest.mark.full), "killed"])
async def test_an_engine_that_comes_back_without_its_containers(
    own_services: OwnServices, deploy: Deploy, tmp_path: Path, installation: str, how: str
) -> None:
    """The engine ends and takes the containers along: they are started again on their homes, and nothing else changes.
    An operation that was under way is finished."""
    stack = await own_services()
    dockerd = Dockerd.from_state(stack.data, stack.state)
    await stack.add(dockerd.child())
    name = await asyncio.to_thread(image.build, dockerd.host, installation)
    deployment = await deploy(dockerd.host, DOCKER_HOST=dockerd.host, WORKSPACE_IMAGE=name)
    await ensure_network(deployment.runtime)
    async with docker_world(dockerd.host, name, installation) as world:
        await deployment.worker()
        create = deployment.console.create
        running, standby, archived = [await create(state) for state in (RUNNING, STANDBY, ARCHIVED)]
        await deployment.converged()
        under_way = await create(RUNNING, slow(world))
        await deployment.until_operation(under_way, Operation.STARTING)
        if how == "restarted":
            await stack.supervisor.pause("dockerd")
            await asyncio.sleep(3)
            await stack.supervisor.resume("dockerd")
        else:
            await killed(stack, "dockerd")
        # Its row says RUNNING until somebody has looked.
        await until(lambda: _runs(deployment, running), AT_REST, "it is not started again")
        await deployment.converged()
        phases = [(await deployment.row(one)).phase for one in (running, standby, archived, under_way)]
        assert phases == [Phase.RUNNING, Phase.STANDBY, Phase.ARCHIVED, Phase.RUNNING]
        assert not await deployment.wrong()
        for workspace in (running, standby, archived, under_way):
            await deployment.console.delete(workspace)
        await deployment.converged()


RUNNING, STANDBY, ARCHIVED = DesiredState.RUNNING, DesiredState.STANDBY, DesiredState.ARCHIVED


async def _runs(deployment: Deployment, workspace: WorkspaceId) -> bool:
    return (await deployment.runtime.observe(workspace, probe=True)).container is ContainerState.READY


@asynccontextmanager
async def _unchanged(deployment: Deployment, *workspaces: WorkspaceId) -> AsyncIterator[None]:
    """Whatever is seen in here: phase, operation and errors are as before."""

    async def states() -> list[tuple[object, ...]]:
        rows = [await deployment.row(workspace) for workspace in workspaces]
        return [(row.id, row.phase, row.operation, row.error_reason, row.error_count) for row in rows]

    before = await states()
    seen: list[list[tuple[object, ...]]] = []

    async def look() -> None:
        while True:
            seen.append(await states())
            await asyncio.sleep(0.05)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    assert all(each == before for each in seen)
    assert not await failures(deployment.database)
