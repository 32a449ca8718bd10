"""What runs by the clock runs once at a time; what a worker that starts makes of the Schedules that are there."""

import asyncio
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, ScheduleDescription, ScheduleHandle, ScheduleOverlapPolicy
from temporalio.worker import Worker

from adapters.postgres.database import Database
from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from settings import Settings
from starter.patience import Patience
from tests.conftest import S3
from worker import _temporal, garbage_collector
from workflows.gc import GcWorkflow
from workflows.messages import COLLECT_GARBAGE, GcInput, GcReport
from workflows.registry import sandbox
from workflows.schedules import ensure_gc

QUEUE = "chores of the test"
HOUR = timedelta(hours=1)


class Slow:
    """A run of GC that takes as long as the test wants."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()

    @activity.defn(name=COLLECT_GARBAGE)
    async def collect(self, request: GcInput) -> GcReport:
        assert request == GcInput()
        self.runs += 1
        self.begun.set()
        await self.goes_on.wait()
        return GcReport()


async def test_a_run_of_gc_that_takes_long_makes_the_next_one_skip(temporal_client: Client) -> None:
    """It is neither run beside it nor made up for afterwards; the one after that is run again."""
    await ensure_gc(temporal_client, timedelta(days=365), QUEUE)
    schedule, slow = temporal_client.get_schedule_handle("codehub-gc"), Slow()
    async with (
        asyncio.timeout(120),
        Worker(
            temporal_client,
            task_queue=QUEUE,
            workflows=[GcWorkflow],
            activities=[slow.collect],
            workflow_runner=sandbox(),
        ),
    ):
        await schedule.trigger()
        await slow.begun.wait()
        await schedule.trigger()
        await _skipped(schedule, 1)
        assert slow.runs == 1
        slow.goes_on.set()
        await _idle(schedule)
        assert slow.runs == 1
        await schedule.trigger()
        while slow.runs < 2:
            await asyncio.sleep(0.05)
        await _idle(schedule)
    assert (await schedule.describe()).info.num_actions_skipped_overlap == 1


async def test_a_pause_outlasts_the_start_of_a_worker(temporal_client: Client) -> None:
    """What a person paused, for a backup say, stays paused and keeps their reason, while a changed interval is taken
    over; it runs again when they say so, and not before."""
    await ensure_gc(temporal_client, HOUR)
    handle = temporal_client.get_schedule_handle("codehub-gc")
    await handle.pause(note="backup")
    await ensure_gc(temporal_client, 2 * HOUR)
    found = (await described(temporal_client)).schedule
    assert (found.state.paused, found.state.note) == (True, "backup")
    assert [one.every for one in found.spec.intervals] == [2 * HOUR]
    await handle.unpause()
    await ensure_gc(temporal_client, HOUR)
    found = (await described(temporal_client)).schedule
    assert not found.state.paused
    assert [one.every for one in found.spec.intervals] == [HOUR]
    await handle.delete()


async def test_gc_runs_every_four_hours_and_an_orphan_waits_for_two(
    temporal_client: Client, database: Database, s3: S3
) -> None:
    """Where nobody says otherwise; a run that is due while another one goes on is left out."""
    given = Settings.model_validate({"temporal_address": temporal_client.service_client.config.target_host})
    settings = given.model_copy(update={"temporal_namespace": temporal_client.namespace})
    client = await _temporal(settings, Patience(), None)
    schedule = (await described(client)).schedule
    assert [one.every for one in schedule.spec.intervals] == [4 * HOUR]
    assert schedule.policy.overlap is ScheduleOverlapPolicy.SKIP
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as archives:
        assert garbage_collector(settings, database, archives, "ours").delay == 2 * HOUR
    await client.get_schedule_handle("codehub-gc").delete()
    await client.get_schedule_handle("codehub-ttl").delete()


async def described(client: Client) -> ScheduleDescription:
    return await client.get_schedule_handle("codehub-gc").describe()


async def _skipped(schedule: ScheduleHandle, number: int) -> None:
    while (await schedule.describe()).info.num_actions_skipped_overlap < number:
        await asyncio.sleep(0.05)


async def _idle(schedule: ScheduleHandle) -> None:
    while (await schedule.describe()).info.running_actions:
        await asyncio.sleep(0.05)
