import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.adapters.docker_world import DockerWorld, docker_world
from tests.processes.deployment import Deployment, deployed
from tests.processes.process import CodehubProcess

Deploy = Callable[..., Awaitable[Deployment]]
Launch = Callable[[str, Mapping[str, str]], CodehubProcess]


@pytest.fixture
async def deploy(
    service_env: dict[str, str], docker_host: str, test_image: str, installation: str, tmp_path: Path
) -> AsyncIterator[Deploy]:
    """`await deploy(DATABASE_URL=…)`: the run's services, but for those that are named here. `engine` is where to look
    at what the workers did, whatever stands between them and it."""
    shared = {**service_env, "WORKSPACE_IMAGE": test_image}
    async with contextlib.AsyncExitStack() as stack:

        async def start(engine: str = docker_host, **env: str) -> Deployment:
            return await stack.enter_async_context(deployed({**shared, **env}, installation, engine, tmp_path))

        yield start


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """One process with this environment and no other; what still runs at the end is killed."""
    launched: list[CodehubProcess] = []

    def start(command: str, environment: Mapping[str, str]) -> CodehubProcess:
        launched.append(CodehubProcess(command, environment, tmp_path / f"{command}-{len(launched)}.log"))
        return launched[-1]

    yield start
    for process in launched:
        process.kill()


@pytest.fixture
async def deployment(deploy: Deploy) -> Deployment:
    return await deploy()


@pytest.fixture
async def slow_image(docker_host: str, test_image: str, installation: str) -> AsyncIterator[str]:
    """Takes a few seconds before it answers."""
    async with docker_world(docker_host, test_image, installation) as world:
        yield slow(world)


def slow(world: DockerWorld) -> str:
    """So that whoever sees that its start has begun has time to act before it is over."""
    return world.image_running("/bin/sh", "-c", "sleep 8; exec /entrypoint")
