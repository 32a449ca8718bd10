"""A slow or stuck transfer delays no other workspace, and ends by itself."""

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
from temporalio.client import Client

from adapters.docker.runtime import DockerRuntime
from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.model import DesiredState, ErrorReason, Operation, Phase, WorkspaceId
from settings import Settings
from tests.archive.volumes import Volumes
from tests.faults.faulty import Faults, faulty
from tests.faults.proxy import eventually
from tests.faults.s3_proxy import S3Proxy
from tests.integration.system import System, system

pytestmark = pytest.mark.docker

SECONDS = 60.0
"""For a phase, on a busy machine."""
STUCK_SECONDS = 600.0
"""Longer than any test: what is stuck stays so, and gives its place up for nobody."""
_UNDER_WAY = "SELECT count(*) FROM operations WHERE attempts > 0 AND outcome IS NULL AND operation = 'ARCHIVING'"


class Stage:
    """Systems on a store that is stuck for chosen workspaces."""

    def __init__(
        self,
        stack: AsyncExitStack,
        proxy: S3Proxy,
        client: Client,
        database_url: str,
        runtime: DockerRuntime,
        config: S3Config,
        image: str,
    ) -> None:
        self.proxy = proxy
        self.homes = Faults()
        self._stack = stack
        self._parts = (client, database_url, runtime, image)
        self._config = config

    async def system(self, **settings: float) -> System:
        config = replace(self._config, endpoint=self.proxy.url, timeout=STUCK_SECONDS)
        archives = await self._stack.enter_async_context(open_store(config))
        given = Settings.model_validate(
            {
                "coordinator_idle_interval": 1,
                "coordinator_retry_interval": 0.2,
                "reconciler_retry_backoff": 0.05,
                "archive_stall_seconds": STUCK_SECONDS,
            }
            | settings
        )
        runtime = self._parts[2]
        return await self._stack.enter_async_context(
            system(*self._parts, archives=archives, homes=faulty(runtime.homes(), self.homes)[0], settings=given)
        )

    async def stuck_archives(self, on: System, count: int) -> list[WorkspaceId]:
        """Archiving, and getting nowhere."""
        made = [await on.create(DesiredState.STANDBY) for _ in range(count)]
        for workspace in made:
            await on.until_phase(workspace, Phase.STANDBY, SECONDS)
            self.proxy.fail(0, method="PUT", contains=workspace)
            await on.want(workspace, DesiredState.ARCHIVED)
        for workspace in made:
            await on.until(workspace, lambda row: row.operation is Operation.ARCHIVING, SECONDS)
        return made

    async def stuck_restores(self, on: System, count: int) -> list[WorkspaceId]:
        """The same of restores."""
        made = [await on.create(DesiredState.ARCHIVED) for _ in range(count)]
        for workspace in made:
            await on.until_phase(workspace, Phase.ARCHIVED, SECONDS)
            self.proxy.fail(0, method="GET", contains=workspace, ends=".zst")
            await on.want(workspace, DesiredState.STANDBY)
        for workspace in made:
            await on.until(workspace, lambda row: row.operation is Operation.RESTORING, SECONDS)
        return made


@pytest.fixture
async def stage(
    temporal_client: Client,
    database_url: str,
    docker_runtime: DockerRuntime,
    volumes: Volumes,
    s3_config: S3Config,
    test_image: str,
) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(S3Proxy(s3_config.endpoint))
        yield Stage(stack, proxy, temporal_client, database_url, docker_runtime, s3_config, test_image)
        proxy.heal()


async def there_and_back(on: System) -> float:
    """A workspace's whole life; how long it took."""
    began = time.monotonic()
    workspace = await on.create(DesiredState.RUNNING)
    await on.until_phase(workspace, Phase.RUNNING, SECONDS)
    await on.want(workspace, DesiredState.ARCHIVED)
    await on.until_phase(workspace, Phase.ARCHIVED, SECONDS)
    await on.want(workspace, DesiredState.RUNNING)
    await on.until_phase(workspace, Phase.RUNNING, SECONDS)
    return time.monotonic() - began


@pytest.mark.parametrize("operation", [Operation.ARCHIVING, Operation.RESTORING])
async def test_stuck_transfers_delay_nobody_else(stage: Stage, operation: Operation) -> None:
    """Three of four places are taken by transfers that get nowhere: others start, archive and restore as ever."""
    on = await stage.system()
    alone = await there_and_back(on)
    stuck = await (stage.stuck_archives if operation is Operation.ARCHIVING else stage.stuck_restores)(on, 3)
    # A busy machine may spoil a round; transfers that stand in the way spoil all.
    besides: list[float] = []
    while len(besides) < 3 and not any(beside < alone * 3 + 5 for beside in besides):
        besides.append(await there_and_back(on))
    assert min(besides) < alone * 3 + 5, (besides, alone)
    for workspace in stuck:
        assert (await on.row(workspace)).operation is operation
    # Let go, they end well.
    stage.proxy.heal()
    for workspace in stuck:
        await on.until_phase(workspace, Phase.ARCHIVED if operation is Operation.ARCHIVING else Phase.STANDBY, 60)


async def test_a_stuck_transfer_ends_by_itself(stage: Stage) -> None:
    """It fails as Unreachable after ARCHIVE_STALL_SECONDS without a byte, three times; the home is kept."""
    # Long enough for a store on a busy machine: once it answers again, the transfer has to get through.
    on = await stage.system(archive_stall_seconds=4, reconciler_patience=0)
    (workspace,) = await stage.stuck_archives(on, 1)
    row = await on.until_phase(workspace, Phase.ERROR, 60)
    assert (row.error_reason, row.archive_key) == (ErrorReason.UNREACHABLE, None)
    stage.proxy.heal()
    await on.recover(workspace)
    await on.until_phase(workspace, Phase.ARCHIVED, 60)


@pytest.mark.parametrize("at_once", [4, 1])
async def test_transfers_that_wait_for_a_place_read_nothing_yet(stage: Stage, at_once: int) -> None:
    """Hundreds may wait: none of them holds a process, a connection or a container meanwhile. ARCHIVE_MAX_TRANSFERS are
    under way at once, four where nobody says otherwise."""
    on = await stage.system(**({} if at_once == 4 else {"archive_max_transfers": at_once}))
    await stage.stuck_archives(on, at_once + 2)
    await eventually(lambda: stage.homes.calls.count("read") == at_once)
    places = on.parts.operator.places[Operation.ARCHIVING]
    await eventually(lambda: len(places._sent_away) == 2)
    assert stage.homes.calls.count("read") == at_once
    assert await on.parts.database.fetchval(_UNDER_WAY) == at_once


async def test_transfers_that_wait_for_a_place_delay_nobody_else(stage: Stage) -> None:
    """A night's worth of archives that expire at once must not keep a person from starting a workspace."""
    on = await stage.system(worker_max_concurrent_activities=5)
    await stage.stuck_archives(on, 6)
    workspace = await on.create(DesiredState.RUNNING)
    await on.until_phase(workspace, Phase.RUNNING, SECONDS)
