"""An operation's timeout is about work: neither a queue nor a worker that died uses it up (SPEC 6)."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.attempt import Actuator, Attempt
from activities.operate import Operator
from domain.errors import ActionFailed
from domain.model import DesiredState, Operation, Phase, WorkspaceId
from tests.harness.bench import Bench
from tests.harness.scenarios import IMAGE
from workflows.messages import OperateInput, Step

HOUR = timedelta(hours=1)
NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Claimed:
    """PROVISIONING, with an hour to do it in."""

    def __init__(self, bench: Bench, workspace: WorkspaceId, step: Step) -> None:
        self.bench, self.workspace = bench, workspace
        self.request = OperateInput(workspace, step.op_id)
        operator = bench.parts.operator
        timeouts = {**operator.reconciler.timeouts, Operation.PROVISIONING: HOUR}
        self.operator = replace(operator, reconciler=replace(operator.reconciler, timeouts=timeouts))

    def acting(self, act: Actuator) -> Operator:
        return replace(self.operator, actuators={**self.operator.actuators, Operation.PROVISIONING: act})

    async def run(self, operator: Operator | None = None) -> Step:
        return await (operator or self.operator).run(Operation.PROVISIONING, self.request)

    async def ran_for(self, interval: str) -> None:
        await self.bench.database.execute(
            "UPDATE workspaces SET op_started_at = now() - $2::text::interval WHERE id = $1", self.workspace, interval
        )

    async def fails(self) -> None:
        """An attempt that is counted."""

        async def refuse(_: Attempt) -> None:
            raise ActionFailed("the engine said no")

        with pytest.raises(ApplicationError):
            await self.run(self.acting(refuse))

    async def times_out(self) -> None:
        with pytest.raises(ApplicationError) as told:
            await self.run()
        assert (told.value.type, told.value.non_retryable) == ("Timeout", True)
        assert "longer than its timeout of 3600 s" in told.value.message


@pytest.fixture
async def claimed(direct: Bench) -> Claimed:
    workspace = await direct.create(DesiredState.STANDBY, IMAGE)
    return Claimed(direct, workspace, await direct.parts.operator.reconciler.step(workspace))


async def test_it_starts_with_the_first_attempt(claimed: Claimed) -> None:
    """However long it waited for its turn; and whoever looks is told when it began."""
    await claimed.ran_for("5 hours")
    began: list[timedelta] = []

    async def provision(attempt: Attempt) -> None:
        row = await claimed.bench.row(claimed.workspace)
        now = await claimed.bench.database.fetchval("SELECT now()")
        assert row.op_started_at
        began.append(now - row.op_started_at)
        await claimed.bench.runtime.create_volume(attempt.workspace.id, attempt.op_id)

    await claimed.run(claimed.acting(provision))
    assert (await claimed.bench.row(claimed.workspace)).phase is Phase.STANDBY
    assert began[0] < timedelta(seconds=30)


async def test_failed_attempts_use_it_up(claimed: Claimed) -> None:
    """The whole operation has its timeout, not each attempt."""
    await claimed.fails()
    await claimed.ran_for("61 minutes")
    await claimed.times_out()


async def test_a_queue_does_not_use_it_up(claimed: Claimed) -> None:
    """Tried again, an attempt waits for its turn once more: 61 minutes, two of them in the queue."""
    await claimed.fails()
    await claimed.ran_for("61 minutes")
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info, current_attempt_scheduled_time=NOW, started_time=NOW + timedelta(minutes=2)
    )
    await environment.run(claimed.run)
    assert (await claimed.bench.row(claimed.workspace)).phase is Phase.STANDBY


async def test_a_worker_that_died_does_not_use_it_up(claimed: Claimed) -> None:
    """Nothing was heard of the attempt before: whoever comes next has all the time."""
    assert await claimed.bench.store.begin_attempt(claimed.request.op_id)
    await claimed.ran_for("5 hours")
    await claimed.run()
    assert (await claimed.bench.row(claimed.workspace)).phase is Phase.STANDBY


async def test_what_does_not_end_is_ended(claimed: Claimed) -> None:
    """Counted once, and for good."""

    async def hang(_: Attempt) -> None:
        await asyncio.Event().wait()

    timeouts = {**claimed.operator.reconciler.timeouts, Operation.PROVISIONING: timedelta(seconds=0.3)}
    hanging = claimed.acting(hang)
    with pytest.raises(ApplicationError) as told:
        await claimed.run(replace(hanging, reconciler=replace(hanging.reconciler, timeouts=timeouts)))
    assert (told.value.type, told.value.non_retryable) == ("Timeout", True)
    assert (await claimed.bench.row(claimed.workspace)).error_count == 1


async def test_a_timeout_of_something_else_is_not_the_operations(claimed: Claimed) -> None:
    async def slow_network(_: Attempt) -> None:
        raise TimeoutError("a connection took too long")

    with pytest.raises(ApplicationError) as told:
        await claimed.run(claimed.acting(slow_network))
    assert (told.value.type, told.value.non_retryable) == ("RetryExceeded", False)
