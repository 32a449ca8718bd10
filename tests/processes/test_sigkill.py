"""Workers that die without a word: another one, or the next, goes on where they were (PROMISE 9)."""

import asyncio
import random
import secrets

import pytest

from domain.model import Operation, Phase
from tests.harness.history import Outcome
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.storm import Storm

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


async def test_killed_in_the_middle_of_starting(deployment: Deployment, slow_image: str) -> None:
    """Issue 2: kill -9 of the only worker in STARTING; the next one finishes it, and nothing counts as an error."""
    worker = await deployment.worker()
    workspace = await deployment.console.create(image=slow_image)
    await deployment.until_operation(workspace, Operation.STARTING)
    worker.kill()
    row = await deployment.row(workspace)
    assert (row.phase, row.operation) == (Phase.STANDBY, Operation.STARTING)
    await deployment.worker()
    await deployment.converged()
    assert (await deployment.row(workspace)).phase is Phase.RUNNING
    assert not await deployment.wrong()


async def test_workers_killed_at_random_moments(deploy: Deploy) -> None:
    """PROMISE 9, short count: 6 workspaces, 3 kills of two workers; 100 kills and 50 workspaces in the full run.

    All converge, what the API acknowledged is so, the limit was reached between any two kills and never passed, and
    rows and resources agree.
    """
    await _storm(deploy, workspaces=6, moving=4, rounds=1, kills=3, within=AT_REST)


@pytest.mark.full
@pytest.mark.alone
@pytest.mark.timeout(7200)
async def test_fifty_workspaces_and_a_hundred_kills(deploy: Deploy) -> None:
    """PROMISE 9, in ten rounds: after the tenth kill of each, all converge within 30 s of the restart."""
    await _storm(deploy, workspaces=50, moving=40, rounds=10, kills=10, within=30)


async def _storm(deploy: Deploy, *, workspaces: int, moving: int, rounds: int, kills: int, within: float) -> None:
    """Each kill strikes when `moving` of them are in transition."""
    seed = secrets.randbits(32)
    limit = max(workspaces // 4, 2)
    deployment = await deploy(LIMITS_MAX_RUNNING_PER_USER=str(limit))
    async with deployment.person() as person:
        pause = 0.1 * workspaces
        storm = Storm(deployment, person, limit, random.Random(seed), pause)
        workers = [await deployment.worker(COORDINATOR_NODE_ID=f"worker-{number}") for number in range(2)]
        caught = []
        for number in range(rounds):
            async with storm.raging(workspaces):
                for _ in range(kills):
                    await asyncio.sleep(storm.dice.uniform(0, 2))
                    caught.append(await storm.full_swing(moving, AT_REST))
                    for worker in workers:
                        worker.kill()
                    # The last restart is the one that the time is taken from.
                    workers = [deployment.start("worker", COORDINATOR_NODE_ID=f"worker-{n}") for n in range(2)]
                    await asyncio.gather(*(worker.said("worker_ready") for worker in workers))
            took = await deployment.converged(within)
            print(f"seed {seed}, round {number}: converged in {took:.1f} s")  # noqa: T201
            assert not await deployment.wrong(), f"seed {seed}{deployment.words()}"
            assert not await storm.lost(), f"seed {seed}"
            assert not storm.over
            assert not storm.contradicting
            await storm.clear()
            assert not await deployment.wrong(), f"seed {seed}{deployment.words()}"
        history = person.history
        told = {outcome: history.count(outcome) for outcome in Outcome}
        print(f"in transition at the kills: {caught}; commands: {told}; over the limit: {person.limited}")  # noqa: T201
        assert len(caught) == rounds * kills
        assert min(caught) >= moving
        assert told[Outcome.DONE] > workspaces
        assert person.limited >= rounds * kills
