"""The TTL runner's ticks, as the Schedule starts them."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.client import Client, ScheduleHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCStatusCode
from temporalio.worker import Worker

from tests.namespaces import unless
from workflows.messages import EXPIRE, TTL_WORKFLOW, ExpireInput, TtlReport
from workflows.registry import sandbox
from workflows.schedules import ensure_schedule
from workflows.ttl import TtlWorkflow

UNKNOWN = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)


class Ticks:
    """Answers by script, and remembers what it was told."""

    def __init__(self, *answers: TtlReport | Exception) -> None:
        self.answers = list(answers)
        self.told: list[datetime | None] = []

    @activity.defn(name=EXPIRE)
    async def tick(self, request: ExpireInput | None = None) -> TtlReport:
        self.told.append(request.unknown_at if request else None)
        answer = self.answers[len(self.told) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
async def schedule(temporal_client: Client) -> AsyncIterator[ScheduleHandle]:
    """That starts nothing by itself, on a queue of its name."""
    name = f"ttl-{uuid4()}"
    await ensure_schedule(temporal_client, name, TTL_WORKFLOW, [], timedelta(days=365), name, "a test's")
    handle = temporal_client.get_schedule_handle(name)
    yield handle
    with unless(RPCStatusCode.NOT_FOUND):
        await handle.delete()


async def test_the_next_tick_is_told_what_this_one_did_not_know(
    temporal_client: Client, schedule: ScheduleHandle
) -> None:
    """Whichever worker runs it. A tick that failed knew nothing."""
    failure = ApplicationError("PostgreSQL did not answer", non_retryable=True)
    ticks = Ticks(TtlReport(), TtlReport(unknown_at=UNKNOWN), TtlReport(), failure, TtlReport(), TtlReport())
    before = datetime.now(UTC)
    async with Worker(
        temporal_client,
        task_queue=schedule.id,
        workflows=[TtlWorkflow],
        activities=[ticks.tick],
        workflow_runner=sandbox(),
    ):
        for number in range(1, len(ticks.answers) + 1):
            await schedule.trigger()
            await _ended(schedule, number)
    *known, after_failure, last = ticks.told
    assert known == [None, None, UNKNOWN, None]
    assert after_failure is not None
    assert after_failure > before - timedelta(minutes=1)
    assert last is None


async def _ended(schedule: ScheduleHandle, number: int) -> None:
    async with asyncio.timeout(60):
        while (seen := (await schedule.describe()).info).num_actions < number or seen.running_actions:
            await asyncio.sleep(0.05)
