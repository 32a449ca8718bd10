"""The leader dies: another leads soon, and what changes before that is seen all the same (PROMISE 23)."""

import asyncio
import time
from datetime import datetime

import aiohttp
import pytest

from adapters.postgres.lock import current_holder
from domain.model import DesiredState, Phase
from tests.events.stream import Stream
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.process import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


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
