"""Temporal is away: people read and are heard, and what they asked for is done when it is back (PROMISE 11)."""

import asyncio

import pytest

from domain.model import DesiredState, Operation, Phase
from tests.conftest import OwnServices
from tests.harness.history import Outcome, lost
from tests.processes.conftest import Deploy

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


async def test_nothing_that_was_acknowledged_is_lost(
    deploy: Deploy, own_services: OwnServices, slow_image: str
) -> None:
    """PROMISE 11, with the real API and worker: reads work, every kind of write is recorded within moments and carried
    out later, and an operation under way when Temporal went is finished, without anybody starting anything again."""
    stack = await own_services("temporal")
    deployment = await deploy(TEMPORAL_ADDRESS=stack.env["TEMPORAL_ADDRESS"], TEMPORAL_NAMESPACE="default")
    worker = await deployment.worker()
    async with deployment.person() as person:
        stopped, deleted, archived = [
            await person.create(name, desired)
            for name, desired in (
                ("stopped", DesiredState.RUNNING),
                ("deleted", DesiredState.STANDBY),
                ("archived", DesiredState.STANDBY),
            )
        ]
        await deployment.converged()
        under_way = await person.create("under way", image=slow_image)
        await deployment.until_operation(under_way, Operation.STARTING)

        await stack.supervisor.pause("temporal")
        created = await person.create("created")
        assert await person.want(stopped, DesiredState.STANDBY) is Outcome.DONE
        assert await person.want(archived, DesiredState.ARCHIVED) is Outcome.DONE
        assert await person.remember(archived, "later") is Outcome.DONE
        assert await person.delete(deleted) is Outcome.DONE
        for workspace in (created, stopped, archived, deleted, under_way):
            assert (await person.look(workspace))["id"] == workspace
        status, page = await person.ask("GET", "/api/v1/workspaces")
        assert (status, page["total"]) == (200, 5)
        # For as long as it takes the client to notice, and to try again less and less often.
        await asyncio.sleep(8)
        assert (await deployment.row(stopped)).phase is Phase.RUNNING

        await stack.supervisor.resume("temporal")
        await deployment.converged()
        phases = {workspace: (await deployment.row(workspace)).phase for workspace, _ in person.history.subjects()}
        assert phases == {
            created: Phase.RUNNING,
            stopped: Phase.STANDBY,
            archived: Phase.ARCHIVED,
            deleted: Phase.DELETED,
            under_way: Phase.RUNNING,
        }
        final = {(workspace, "desired_state"): str(phase) for workspace, phase in phases.items()}
        assert not lost(person.history, {**final, (archived, "memo"): (await deployment.row(archived)).memo})
        assert not await deployment.wrong()
    assert worker.alive
