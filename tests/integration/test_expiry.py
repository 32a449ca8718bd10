"""What TTL puts to sleep is woken by whoever hears of it; the tick itself wakes nobody (SPEC 7, 9)."""

import asyncio
from datetime import timedelta

from temporalio.client import Client

from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.ttl import Expiry
from domain.model import Phase, WorkspaceId
from domain.ttl import TtlDefaults
from settings import Settings
from tests.integration.system import System, system
from tests.integration.test_drift import _somebody_listens


async def _expired(running: System) -> list[WorkspaceId]:
    """All that run are idle for long, and the tick finds them."""
    database = running.parts.database
    await database.execute(
        "UPDATE workspaces SET last_access_at = now() - interval '1 day', phase_changed_at = now() - interval '1 day'"
    )
    expiry = Expiry(database, TtlDefaults(standby=timedelta(hours=1)))
    return await expiry.expire_running(await expiry.now())


async def test_what_expires_is_woken_by_the_listener(temporal_client: Client, database_url: str) -> None:
    """All of them; nobody looks for stragglers here, and nobody else wakes."""
    settings = Settings(coordinator_idle_interval=3600, coordinator_retry_interval=0.2)
    async with system(temporal_client, database_url, MemoryRuntime(), "image", settings=settings) as running:
        workspaces = [await running.create() for _ in range(5)]
        await asyncio.gather(*(running.until_phase(one, Phase.RUNNING) for one in workspaces))
        await _somebody_listens(running)
        assert set(await _expired(running)) == set(workspaces)
        await asyncio.gather(*(running.until_phase(one, Phase.STANDBY) for one in workspaces))


async def test_what_expires_while_nobody_listens_is_found_by_the_sweep(
    temporal_client: Client, database_url: str
) -> None:
    """The leader was away: the next one finds that phase is not what is desired."""
    runtime = MemoryRuntime()
    async with system(temporal_client, database_url, runtime, "image", coordinator=False) as running:
        workspace = await running.create()
        await running.until_phase(workspace, Phase.RUNNING)
        assert await _expired(running) == [workspace]
    async with system(temporal_client, database_url, runtime, "image") as running:
        await running.until_phase(workspace, Phase.STANDBY)
