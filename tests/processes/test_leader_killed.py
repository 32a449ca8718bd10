"""The leader dies: another leads soon, and what changes before that is seen all the same (PROMISE 23)."""

import time

import aiohttp
import pytest

from adapters.postgres.lock import current_holder
from domain.model import DesiredState, Phase
from settings import Settings
from starter.api.health import COORDINATOR_LOCK
from tests.events.stream import Stream
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.process import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


async def test_another_leads_within_ten_seconds_of_the_kill(deployment: Deployment) -> None:
    """kill -9, and whoever waits for its place tries no more often than in any installation. The record is believed
    only where somebody holds the lock, which is how health and doctor read it, too."""
    settings = Settings()
    usual = str(settings.coordinator_retry_interval)
    leader = await deployment.worker(COORDINATOR_NODE_ID="leader", COORDINATOR_RETRY_INTERVAL=usual)
    await leader.said("leading", lock=COORDINATOR_LOCK)
    other = await deployment.worker(COORDINATOR_NODE_ID="other", COORDINATOR_RETRY_INTERVAL=usual)

    async def leads(node: str) -> bool:
        holder = await current_holder(deployment.database, COORDINATOR_LOCK, settings.coordinator_lock_id)
        return holder is not None and holder.alive and holder.holder_id == node

    assert await leads("leader")
    leader.kill()
    killed_at = time.monotonic()
    await until(lambda: leads("other"), 10, "nobody else leads ten seconds after the kill")
    assert time.monotonic() - killed_at < 10
    assert other.alive


async def test_what_changes_while_nobody_listens_reaches_who_watches(deployment: Deployment) -> None:
    leader = await deployment.worker(COORDINATOR_NODE_ID="leader")
    await leader.said("leading", lock="coordinator")
    other = await deployment.worker(COORDINATOR_NODE_ID="other")
    async with deployment.person() as person:
        workspace = await person.create("one", DesiredState.STANDBY)
        await deployment.until_phase(workspace, Phase.STANDBY)
        timeout = aiohttp.ClientTimeout(total=None)
        async with person.client.get(f"{person.url}/api/v1/events", timeout=timeout) as answer:
            stream = Stream(answer.content)
            await stream.until(workspace, phase="STANDBY", seconds=AT_REST)
            other.pause()
            leader.kill()
            # Nobody listens: no notification of these changes is ever heard.
            await person.remember(workspace, "meanwhile")
            await person.want(workspace, DesiredState.RUNNING)
            other.resume()
            await stream.until(workspace, memo="meanwhile", seconds=AT_REST)
            await stream.until(workspace, phase="RUNNING", operation="NONE", seconds=AT_REST)
        await other.said("leading", lock="coordinator")
