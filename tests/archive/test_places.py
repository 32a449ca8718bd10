"""Transfers that find no place free are sent away, come again, and are no error of their workspace."""

from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import WorkflowEnvironment

from activities.places import NoPlace, Places, transfer_places
from domain.model import Operation, OperationId, WorkspaceId
from tests.workflows.script import GONE, Script, run_step
from workflows.messages import NO_PLACE, Step, WorkspaceInput
from workflows.workspace import WorkspaceWorkflow


def ask(places: Places, name: str) -> float:
    """How long it is to stay away."""
    with pytest.raises(NoPlace) as sent, places.taken(OperationId(name)):
        raise AssertionError("there was a place")
    return sent.value.delay


def test_a_place_is_free_again_however_its_transfer_ended() -> None:
    """Also after an error."""
    places = Places(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), places.taken(OperationId("a")):
            raise ZeroDivisionError
    with places.taken(OperationId("b")):
        ask(places, "a")


def test_the_more_wait_the_longer_each_stays_away() -> None:
    """Few come back at once; a thousand cost no more than a score of questions a second, all together."""
    now = 0.0
    places = Places(1, lambda: now)
    with places.taken(OperationId("x")):
        assert ask(places, "a") < 1
        waiting = [f"op-{number}" for number in range(1000)]
        for name in waiting:
            ask(places, name)
        rate = sum(1 / ask(places, name) for name in waiting)
        assert rate < 25
        # Who never came again is forgotten.
        now = 1000.0
        assert ask(places, "b") < 1


def test_archives_do_not_take_the_places_of_restores() -> None:
    """A person waits for a restore, nobody for an archive."""
    places = transfer_places(1)
    with places[Operation.ARCHIVING].taken(OperationId("a")), places[Operation.RESTORING].taken(OperationId("b")):
        ask(places[Operation.ARCHIVING], "c")


async def test_waiting_for_a_place_longer_than_the_timeout_is_no_error(
    temporal_time_skipping: WorkflowEnvironment,
) -> None:
    """The timeout is for the operation, which has not begun: its clock starts anew, and nothing is failed."""

    async def operate(attempt: int) -> Step:
        if attempt < 30:
            raise ApplicationError("full", type=NO_PLACE, next_retry_delay=timedelta(seconds=60))
        return GONE

    # 30 minutes of waiting for an operation that may take 5.
    script = Script([run_step(timeout=300)], operate)
    queue = str(uuid4())
    async with script.worker(temporal_time_skipping.client, queue):
        await temporal_time_skipping.client.execute_workflow(
            WorkspaceWorkflow.run, WorkspaceInput(WorkspaceId("w1")), id=queue, task_queue=queue
        )
    assert (script.attempts, script.failures) == (30, [])
    assert all(request.resumed for request in script.reconciles[1:])
