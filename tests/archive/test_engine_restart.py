"""PROMISES 13, 14 and 19: the Docker engine is killed in the middle of a transfer, and comes back."""

import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from docker import APIClient
from temporalio.exceptions import ApplicationError

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import open_database
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.model import ConditionName, DesiredState, Operation, Phase
from starter.embedded.stack import Stack
from tests.archive.bench import Bench
from tests.archive.trees import bytes_in, grow, snapshot
from tests.archive.volumes import Volumes
from tests.conftest import OwnServices
from tests.faults.faulty import faulty
from tests.faults.proxy import FaultProxy
from tests.processes.deployment import AT_REST
from tests.processes.process import until

pytestmark = pytest.mark.docker

MIB = 1 << 20


@dataclass
class Killed:
    """An engine of the test's own, and operations on it."""

    stack: Stack
    bench: Bench
    former: list[int] = field(default_factory=list)

    async def kill(self) -> None:
        pid = self.stack.supervisor.pid("dockerd")
        assert pid
        self.former.append(pid)
        os.kill(pid, signal.SIGKILL)

    async def back(self) -> None:
        # Connections end before their process does: until then, the one that was killed still counts as ready.
        await until(self._is_another, AT_REST, "the engine did not come back")
        await self.stack.supervisor.ready("dockerd")

    async def _is_another(self) -> bool:
        return self.stack.supervisor.pid("dockerd") not in {None, *self.former}


@pytest.fixture
async def engine(
    own_services: OwnServices, database_url: str, archives: S3ArchiveStore, installation: str
) -> AsyncIterator[Killed]:
    stack = await own_services("docker")
    if "dockerd" not in stack.supervisor:
        pytest.skip("the engine is somebody else's")
    host = stack.env["DOCKER_HOST"]
    runtime = DockerRuntime(DockerConfig(f"{installation}-{uuid.uuid4().hex[:8]}", docker_host=host))
    database = await open_database(database_url)
    with closing(APIClient(host, timeout=60)) as api:
        yield Killed(stack, Bench(database, runtime, runtime.homes(), archives, Volumes(api, runtime)))
        await runtime.close()
    await database.close()


def fill(home: Path) -> None:
    grow(home, 31, entries=10, largest=5000)
    for number in range(4):
        (home / f"random-{number}").write_bytes(os.urandom(5 * MIB))


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "engine"])
async def test_an_engine_that_is_killed_in_the_middle(engine: Killed, direct: bool) -> None:
    """While a home is read, and before one is extracted: Unreachable, and the next attempt ends well. Whoever reads the
    volume without it may be done before the engine is missed."""
    volumes, former = engine.bench.volumes, engine.former
    bench = engine.bench.with_parts(homes=volumes.runtime.homes(direct=direct))

    async def fails_once_then_works(phase: Phase, desired: DesiredState, part: str, method: str) -> None:
        wrapped, faults = faulty(getattr(bench, part))
        faults.watch(method, engine.kill, after=True)
        other = bench.with_parts(**{part: wrapped})
        step = await other.claim(workspace, desired)
        failed, kills = None, len(former)
        try:
            await other.attempt(workspace, step)
        except ApplicationError as error:
            failed = error
        assert (failed is None and direct) or (failed and failed.type == "Unreachable"), failed
        assert len(former) > kills
        await engine.back()
        assert failed is None or await bench.operate(workspace, step) is None
        # What could not be observed while the engine was away is now.
        await bench.drive(workspace, phase)

    workspace, _ = await bench.workspace(fill)
    before = snapshot(volumes.path(workspace), nanoseconds=direct)
    await fails_once_then_works(Phase.ARCHIVED, DesiredState.ARCHIVED, "homes", "read")
    assert not volumes.exists(workspace)
    await fails_once_then_works(Phase.STANDBY, DesiredState.STANDBY, "homes", "write")
    assert snapshot(volumes.path(workspace), nanoseconds=direct) == before


async def test_an_engine_that_is_killed_with_a_part_extracted(engine: Killed, s3_config: S3Config) -> None:
    """By the engine itself, so that it is cut off. What is there is no home, whoever looks; the restore starts over,
    and nothing of the first try is left."""
    volumes = engine.bench.volumes
    async with FaultProxy(s3_config.endpoint) as proxy, open_store(replace(s3_config, endpoint=proxy.url)) as store:
        bench = engine.bench.with_parts(homes=volumes.runtime.homes(direct=False), archives=store)
        workspace, _ = await bench.workspace(fill)
        before, whole = snapshot(volumes.path(workspace), nanoseconds=False), bytes_in(volumes.path(workspace))
        await bench.want(workspace, DesiredState.ARCHIVED)
        await bench.drive(workspace, Phase.ARCHIVED)
        step = await bench.claim(workspace, DesiredState.STANDBY)
        proxy.throttle(down=8 * MIB)
        attempt = asyncio.create_task(bench.attempt(workspace, step))

        async def a_part_is_there() -> bool:
            assert not attempt.done(), "it was over before the engine could be killed"
            return volumes.exists(workspace) and bytes_in(volumes.path(workspace)) > whole / 4

        await until(a_part_is_there, AT_REST, "nothing is extracted")
        await engine.kill()
        with pytest.raises(ApplicationError) as failed:
            await attempt
        assert failed.value.type == "Unreachable"
        await engine.back()
        assert whole / 4 < bytes_in(volumes.path(workspace)) < whole
        for _ in range(2):
            row = await bench.row(workspace)
            assert (row.phase, row.operation, row.op_id) == (Phase.ARCHIVED, Operation.RESTORING, step.op_id)
            assert (row.home_ctx.restoring, row.home_ctx.restore_marker) == (row.archive_key, None)
            assert not row.condition(ConditionName.VOLUME_READY)
            # Now that the volume can be seen.
            assert (await bench.operator.reconciler.step(workspace)).op_id == step.op_id
        (volumes.path(workspace) / "of the first try").touch()
        proxy.throttle()
        assert await bench.operate(workspace, step) is None
        await bench.drive(workspace, Phase.STANDBY)
        assert snapshot(volumes.path(workspace), nanoseconds=False) == before
        assert volumes.holders(workspace) == []
