"""PROMISES 13 and 14: kill -9 of PostgreSQL and of Temporal in the middle of a home's way to the store and back."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from docker import APIClient

from domain.model import DesiredState, Operation, Phase, WorkspaceId
from tests.archive.bench import Bench
from tests.archive.kept import KeptHomes, is_kept
from tests.archive.scene import watched
from tests.archive.trees import grow, snapshot
from tests.archive.volumes import Volumes
from tests.conftest import S3, OwnServices
from tests.faults.proxy import FaultProxy
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, Deployment, killed
from tests.processes.process import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

MIB = 1 << 20
SIZE, MOVED = 12 * MIB, 2 * MIB


@pytest.fixture
async def store(s3: S3) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(s3.endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize(
    ("archiving", "restoring"),
    [("postgres", "temporal"), pytest.param("temporal", "postgres", marks=pytest.mark.full)],
)
async def test_a_service_that_is_killed_in_a_transfer_costs_no_byte(
    deploy: Deploy,
    own_services: OwnServices,
    store: FaultProxy,
    docker_host: str,
    tmp_path: Path,
    archiving: str,
    restoring: str,
) -> None:
    """It comes back by itself, and so does the operation: what is archived, and what is restored, is the home to the
    byte; never is a workspace said to be at rest on a part of it."""
    stack = await own_services("postgres", "temporal")
    own = {name: stack.env[name] for name in ("DATABASE_URL", "TEMPORAL_ADDRESS")}
    deployment = await deploy(S3_ENDPOINT=store.url, TEMPORAL_NAMESPACE="default", **own)
    assert deployment.archives
    worker = await deployment.worker()
    workspace = await deployment.console.create(DesiredState.STANDBY)
    await deployment.until_phase(workspace, Phase.STANDBY)
    with closing(APIClient(docker_host, timeout=60)) as api:
        runtime, volumes = deployment.runtime, Volumes(api, deployment.runtime)
        bench = Bench(deployment.database, runtime, runtime.homes(), deployment.archives, volumes)
        homes = KeptHomes(bench, deployment.archives, deployment.console.waker, tmp_path)
        await asyncio.to_thread(_fill, volumes.path(workspace))
        before = homes.truth[workspace] = snapshot(volumes.path(workspace))
        async with watched(homes):
            store.throttle(up=3 * MIB, down=3 * MIB)
            await deployment.console.want(workspace, DesiredState.ARCHIVED)
            await _in_the_middle(deployment, workspace, Operation.ARCHIVING, store)
            await killed(stack, archiving)
            store.throttle()
            await deployment.until_phase(workspace, Phase.ARCHIVED)
            assert not volumes.exists(workspace)
            await is_kept(bench, await deployment.row(workspace), before, tmp_path)

            store.throttle(down=3 * MIB)
            await deployment.console.want(workspace, DesiredState.STANDBY)
            await _in_the_middle(deployment, workspace, Operation.RESTORING, store)
            await killed(stack, restoring)
            store.throttle()
            await deployment.converged()
        assert snapshot(volumes.path(workspace)) == before
        assert not await deployment.wrong()
        assert worker.alive


async def _in_the_middle(
    deployment: Deployment, workspace: WorkspaceId, operation: Operation, store: FaultProxy
) -> None:
    """Bytes of the home have moved, and not all."""
    await deployment.until_operation(workspace, operation)
    way = "up" if operation is Operation.ARCHIVING else "down"
    moved = getattr(store, way)

    async def has_moved() -> bool:
        return bool(getattr(store, way) - moved > MOVED)

    await until(has_moved, AT_REST, "nothing moves")
    row = await deployment.row(workspace)
    assert row.operation is operation
    assert getattr(store, way) - moved < SIZE


def _fill(home: Path) -> None:
    grow(home, 41, entries=12, largest=20_000)
    for number in range(4):
        (home / f"random-{number}").write_bytes(random.Random(number).randbytes(SIZE // 4))
