"""What a worker that starts makes of the Schedules that are there already."""

from datetime import timedelta

from temporalio.client import Client, ScheduleDescription

from workflows.schedules import ensure_gc

HOUR = timedelta(hours=1)


async def described(client: Client) -> ScheduleDescription:
    return await client.get_schedule_handle("codehub-gc").describe()


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
