"""PostgreSQL is killed, again and again, in the middle of work (PROMISE 12)."""

import asyncio
import random

import pytest

from starter.embedded.stack import Stack
from tests.conftest import OwnServices
from tests.harness.rows import contradictions
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, killed
from tests.processes.storm import Storm

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


async def test_no_row_contradicts_itself(deploy: Deploy, own_services: OwnServices) -> None:
    """PROMISE 12, 4 kills; 20 in the full run. The limit is reached between any two of them and never passed;
    afterwards everything converges, by itself."""
    await _storm(deploy, await own_services("postgres"), workspaces=4, kills=4)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_no_row_contradicts_itself_in_twenty_kills(deploy: Deploy, own_services: OwnServices) -> None:
    """PROMISE 12."""
    await _storm(deploy, await own_services("postgres"), workspaces=10, kills=20)


async def _storm(deploy: Deploy, stack: Stack, *, workspaces: int, kills: int) -> None:
    limit = workspaces // 4
    deployment = await deploy(DATABASE_URL=stack.env["DATABASE_URL"], LIMITS_MAX_RUNNING_PER_USER=str(limit))
    worker = await deployment.worker()
    async with deployment.person() as person:
        storm = Storm(deployment, person, limit, random.Random(), pause=0.1 * workspaces)
        caught: list[int] = []
        async with storm.raging(workspaces):
            for _ in range(kills):
                await asyncio.sleep(storm.dice.uniform(1, 4))
                # What is at rest can't be torn: a kill counts only in the middle of work.
                caught.append(await storm.full_swing(workspaces // 2, AT_REST))
                await killed(stack, "postgres")
                assert not await contradictions(deployment.database)
                assert not storm.contradicting
        await deployment.converged()
        assert not await deployment.wrong()
        assert not await storm.lost()
        assert not storm.over
        assert not storm.contradicting
        assert person.limited >= kills
        print(f"in transition at the kills: {caught}")  # noqa: T201
    assert worker.alive
