"""Redis or S3 is away: what does not need them goes on, what does waits (issue 2, PROMISE 25)."""

import aiohttp
import pytest

from domain.model import DesiredState, Operation, Phase
from tests.conftest import S3, OwnServices
from tests.faults.proxy import FaultProxy
from tests.ports import free_port
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST
from tests.processes.person import Person
from tests.processes.process import until
from tests.telemetry.exposed import TOKEN, samples, scraped

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


async def test_without_redis_workspaces_come_and_go(deploy: Deploy, own_services: OwnServices) -> None:
    """Worker and API start and work without it, and count what they left out; live events come back with it."""
    stack = await own_services("valkey")
    await stack.supervisor.pause("valkey")
    deployment = await deploy(REDIS_URL=stack.env["REDIS_URL"], TTL_INTERVAL="1", METRICS_TOKEN=TOKEN)
    port = free_port()
    worker = await deployment.worker(METRICS_PORT=str(port))
    await worker.said("waiting_for", service="Redis")
    async with deployment.person() as person:
        workspace = await person.create("one")
        await deployment.until_phase(workspace, Phase.RUNNING)
        await person.want(workspace, DesiredState.ARCHIVED)
        await deployment.until_phase(workspace, Phase.ARCHIVED)
        await until(lambda: _only_redis_is_away(person), AT_REST, "Redis is not all that does not answer")
        await until(lambda: _left_out(port), AT_REST, "neither the TTL runner nor a loop counted that Redis was away")
        await stack.supervisor.resume("valkey")
        await worker.said("found", service="Redis")
        timeout = aiohttp.ClientTimeout(AT_REST)
        async with person.client.get(f"{person.url}/api/v1/events", timeout=timeout) as events:
            await person.want(workspace, DesiredState.RUNNING)
            await deployment.until_phase(workspace, Phase.RUNNING)
            async for line in events.content:
                if b'"phase":"RUNNING"' in line.replace(b" ", b""):
                    break
        assert not await deployment.wrong()


async def _only_redis_is_away(person: Person) -> bool:
    """On a busy machine another one may take longer than the API waits for it, once."""
    status, ready = await person.ask("GET", "/health/ready")
    return (status, ready["error"]["message"]) == (503, "redis does not answer")


async def _left_out(port: int) -> bool:
    shown = samples((await scraped(f"http://127.0.0.1:{port}/metrics"))[1])
    skipped = shown.get("codehub_skipped_total", {})
    return shown["codehub_ttl_standby_skipped_total"][()] > 0 and sum(skipped.values()) > 0


async def test_without_s3_workspaces_start_and_stop(deploy: Deploy, s3: S3) -> None:
    """Only what needs the store waits for it: an archive asked for meanwhile is made when it is back, without error."""
    async with FaultProxy(s3.endpoint) as proxy:
        await proxy.refuse()
        deployment = await deploy(S3_ENDPOINT=proxy.url)
        worker = await deployment.worker()
        await worker.said("waiting_for", service="S3", address=proxy.url)
        one, other = await deployment.console.create(), await deployment.console.create(DesiredState.STANDBY)
        await deployment.converged()
        await deployment.console.want(other, DesiredState.ARCHIVED)
        await deployment.until_operation(other, Operation.ARCHIVING)
        await deployment.console.want(one, DesiredState.STANDBY)
        await deployment.until_phase(one, Phase.STANDBY)
        await deployment.console.want(one, DesiredState.RUNNING)
        await deployment.until_phase(one, Phase.RUNNING)
        await proxy.heal()
        await worker.said("found", service="S3")
        await deployment.converged()
        assert not await deployment.wrong()
