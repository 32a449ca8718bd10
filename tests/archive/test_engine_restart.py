"""PROMISE 19: the Docker engine is killed in the middle of a transfer, and comes back."""

import os
import signal
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from docker import APIClient
from temporalio.exceptions import ApplicationError

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import open_database
from adapters.s3.store import S3ArchiveStore
from domain.model import DesiredState, Phase
from tests.archive.bench import Bench
from tests.archive.trees import grow, snapshot
from tests.archive.volumes import Volumes
from tests.conftest import OwnServices
from tests.faults.faulty import faulty
from tests.processes.deployment import AT_REST
from tests.processes.process import until

pytestmark = pytest.mark.docker

MIB = 1 << 20


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "engine"])
async def test_an_engine_that_is_killed_in_the_middle(
    own_services: OwnServices, database_url: str, archives: S3ArchiveStore, installation: str, direct: bool
) -> None:
    """While a home is read, and before one is extracted: Unreachable, and the next attempt ends well. Whoever reads the
    volume without it may be done before the engine is missed."""
    stack = await own_services("docker")
    if "dockerd" not in stack.supervisor:
        pytest.skip("the engine is somebody else's")
    host = stack.env["DOCKER_HOST"]
    runtime = DockerRuntime(DockerConfig(f"{installation}-{uuid.uuid4().hex[:8]}", docker_host=host))
    database = await open_database(database_url)
    with closing(APIClient(host, timeout=60)) as api:
        volumes = Volumes(api, runtime)
        bench = Bench(database, runtime, runtime.homes(direct=direct), archives, volumes)

        former: list[int | None] = []

        async def killed() -> None:
            pid = stack.supervisor.pid("dockerd")
            assert pid
            former.append(pid)
            os.kill(pid, signal.SIGKILL)

        async def is_another() -> bool:
            return stack.supervisor.pid("dockerd") not in {None, *former}

        async def fails_once_then_works(phase: Phase, desired: DesiredState, part: str, method: str) -> None:
            wrapped, faults = faulty(getattr(bench, part))
            faults.watch(method, killed, after=True)
            other = bench.with_parts(**{part: wrapped})
            step = await other.claim(workspace, desired)
            failed, kills = None, len(former)
            try:
                await other.attempt(workspace, step)
            except ApplicationError as error:
                failed = error
            assert (failed is None and direct) or (failed and failed.type == "Unreachable"), failed
            assert len(former) > kills
            # Connections end before their process does: until then, the one that was killed still counts as ready.
            await until(is_another, AT_REST, "the engine did not come back")
            await stack.supervisor.ready("dockerd")
            assert failed is None or await bench.operate(workspace, step) is None
            # What could not be observed while the engine was away is now.
            await bench.drive(workspace, phase)

        def fill(home: Path) -> None:
            grow(home, 31, entries=10, largest=5000)
            (home / "random").write_bytes(os.urandom(20 * MIB))

        workspace, _ = await bench.workspace(fill)
        before = snapshot(volumes.path(workspace), nanoseconds=direct)
        await fails_once_then_works(Phase.ARCHIVED, DesiredState.ARCHIVED, "homes", "read")
        assert not volumes.exists(workspace)
        await fails_once_then_works(Phase.STANDBY, DesiredState.STANDBY, "homes", "write")
        assert snapshot(volumes.path(workspace), nanoseconds=direct) == before
        await runtime.close()
    await database.close()
