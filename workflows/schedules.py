"""Temporal Schedules for what runs by the clock. One run at a time: a slow one makes the next one skip."""

from dataclasses import replace
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
    ScheduleUpdateInput,
)

from workflows.messages import CHORES_QUEUE, GC_WORKFLOW, TTL_WORKFLOW, GcInput


async def ensure_schedule(
    client: Client,
    schedule_id: str,
    workflow: str,
    arguments: list[object],
    every: timedelta,
    task_queue: str,
    summary: str,
) -> None:
    """Make the Schedule, or bring it to these settings; several workers may do it at once. One that a person paused
    stays paused: a worker that starts in the middle of a backup must not let GC loose."""
    schedule = Schedule(
        action=ScheduleActionStartWorkflow(
            workflow, args=arguments, id=schedule_id, task_queue=task_queue, static_summary=summary
        ),
        spec=ScheduleSpec(intervals=[ScheduleIntervalSpec(every=every)]),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=timedelta(seconds=60)),
    )

    def updated(found: ScheduleUpdateInput) -> ScheduleUpdate:
        return ScheduleUpdate(replace(schedule, state=found.description.schedule.state))

    try:
        await client.create_schedule(schedule_id, schedule)
    except ScheduleAlreadyRunningError:
        await client.get_schedule_handle(schedule_id).update(updated)


async def ensure_gc(client: Client, every: timedelta, task_queue: str = CHORES_QUEUE) -> None:
    summary = "Deletes archives that nothing refers to any more"
    await ensure_schedule(client, "codehub-gc", GC_WORKFLOW, [GcInput()], every, task_queue, summary)


async def ensure_ttl(client: Client, every: timedelta, task_queue: str = CHORES_QUEUE) -> None:
    summary = "Puts idle workspaces to sleep, and archives those that have slept for long"
    await ensure_schedule(client, "codehub-ttl", TTL_WORKFLOW, [], every, task_queue, summary)
