"""Temporal Schedules for what runs by the clock. One run at a time: a slow one makes the next one skip."""

from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleSpec,
    ScheduleUpdate,
)

from workflows.messages import GC_WORKFLOW, TASK_QUEUE, TTL_WORKFLOW, GcInput


async def ensure_schedule(
    client: Client, schedule_id: str, workflow: str, arguments: list[object], every: timedelta, task_queue: str
) -> None:
    """Make the Schedule, or bring it to these settings; several workers may do it at once."""
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(workflow, args=arguments, id=schedule_id, task_queue=task_queue),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(seconds=60)),
    )
    try:
        await client.create_schedule(schedule_id, schedule)
    except ScheduleAlreadyRunningError:
        await client.get_schedule_handle(schedule_id).update(lambda _: ScheduleUpdate(schedule))


async def ensure_gc(client: Client, every: timedelta, task_queue: str = TASK_QUEUE) -> None:
    await ensure_schedule(client, "codehub-gc", GC_WORKFLOW, [GcInput()], every, task_queue)


async def ensure_ttl(client: Client, every: timedelta, task_queue: str = TASK_QUEUE) -> None:
    await ensure_schedule(client, "codehub-ttl", TTL_WORKFLOW, [], every, task_queue)
