"""A network that cuts, slows down or swallows what codehub says to PostgreSQL, Redis, S3 and Docker (issue 6).

Whatever is away, it is waited for: no operation fails because of it, nothing contradicts itself, and what was asked
for meanwhile is done afterwards, without anybody starting anything again.
"""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from domain.model import DesiredState
from tests.conftest import S3
from tests.faults.proxy import FaultProxy, server_of, through
from tests.harness.history import lost
from tests.harness.rows import contradictions
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.person import Person
from tests.processes.process import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

AWAY_SECONDS = 1.5
LOCK_SECONDS = 3.5
"""Longer than the leader's patience with its lock's connection (SPEC 10)."""
FAULTS = ("cut", "slow", "silent")


async def test_whatever_is_cut_off_is_waited_for(
    deploy: Deploy, database_url: str, redis_url: str, s3: S3, docker_host: str, tmp_path: Path
) -> None:
    """Each service in turn, in each of three ways, while workspaces are on their way up and down."""
    async with AsyncExitStack() as stack:
        proxies = {
            "PostgreSQL": await stack.enter_async_context(FaultProxy(server_of(database_url))),
            "Redis": await stack.enter_async_context(FaultProxy(server_of(redis_url))),
            "S3": await stack.enter_async_context(FaultProxy(s3.endpoint)),
            "Docker": await stack.enter_async_context(FaultProxy(docker_host, tmp_path / "docker.sock")),
        }
        deployment = await deploy(
            DATABASE_URL=through(database_url, proxies["PostgreSQL"]),
            REDIS_URL=through(redis_url, proxies["Redis"]),
            S3_ENDPOINT=proxies["S3"].url,
            DOCKER_HOST=proxies["Docker"].url,
            RECONCILER_PATIENCE="60",
        )
        await deployment.worker()
        person = await stack.enter_async_context(deployment.person())
        workspaces = [await person.create(f"number {number}", DesiredState.STANDBY) for number in range(2)]
        await deployment.converged()
        turn = 0
        for name, proxy in proxies.items():
            for how in FAULTS:
                # One on its way up or down, the other into the store or out of it.
                wanted = (
                    (DesiredState.RUNNING, DesiredState.ARCHIVED)
                    if turn % 2 == 0
                    else (DesiredState.STANDBY, DesiredState.STANDBY)
                )
                turn += 1
                for workspace, desired in zip(workspaces, wanted, strict=True):
                    await person.want(workspace, desired)
                await _fault(proxy, how, LOCK_SECONDS if name == "PostgreSQL" else AWAY_SECONDS)
                assert not await contradictions(deployment.database), f"{name} {how}"
                await _settled(deployment, f"{name} {how}")
        assert not await deployment.wrong()
        final = {(one, "desired_state"): str((await deployment.row(one)).phase) for one in workspaces}
        assert not lost(person.history, final)
        await until(lambda: _is_ready(person), AT_REST, "the API does not get ready again")
    assert all(proxy.connections for proxy in proxies.values())


async def _fault(proxy: FaultProxy, how: str, seconds: float) -> None:
    """For a while, from a moment when much is under way."""
    match how:
        case "cut":
            for _ in range(6):
                await proxy.cut()
                await asyncio.sleep(seconds / 6)
        case "slow":
            proxy.delay(0.1)
            await asyncio.sleep(seconds)
        case "silent":
            proxy.black_hole()
            await asyncio.sleep(seconds)
    await proxy.heal()


async def _settled(deployment: Deployment, what: str) -> None:
    try:
        await deployment.converged(2 * AT_REST)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


async def _is_ready(person: Person) -> bool:
    try:
        status, _ = await person.ask("GET", "/health/ready")
    except aiohttp.ClientError:
        return False
    return status == 200
