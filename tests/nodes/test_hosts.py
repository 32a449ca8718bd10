"""Several Docker hosts: three engines, three workers and two API processes behave as one installation."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta

import aiohttp
import pytest
from temporalio.api.enums.v1 import TimeoutType
from temporalio.client import ScheduleHandle, WorkflowExecutionStatus, WorkflowHistory

from domain.model import ConditionName, DesiredState, ErrorReason, Operation, Phase, WorkspaceId
from domain.observation import ContainerState
from tests.events.stream import Stream
from tests.nodes.host import Command
from tests.nodes.world import PATIENT, World, strict_apis
from tests.processes.person import WORKSPACES, Person
from tests.processes.process import until
from tests.workflows.test_replay import HISTORIES, replayer

UNNOTICED = 20.0
"""Seconds that a stop or a start takes at most, whatever happens to another node: those of a machine that has a lot to
do, and not those of any timeout."""

RACERS = 8

pytestmark = [pytest.mark.docker, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]


async def placed(world: World, node: str, desired: DesiredState) -> WorkspaceId:
    """A new one on this host: the others take none meanwhile."""
    await world.database.execute("UPDATE nodes SET cordoned_at = now() WHERE name <> $1", node)
    try:
        workspace = await world.create(desired)
        assert (await world.until_phase(workspace, Phase(desired))).node == node
    finally:
        await world.database.execute("UPDATE nodes SET cordoned_at = NULL")
    return workspace


async def one_on_each(world: World) -> dict[str, WorkspaceId]:
    """A RUNNING workspace on every host."""
    rows = await world.database.fetch(
        "SELECT node, min(id::text) AS id FROM workspaces"
        " WHERE phase = 'RUNNING' AND desired_state = 'RUNNING' GROUP BY node"
    )
    found = {row["node"]: WorkspaceId(row["id"]) for row in rows}
    for node in world.hosts.keys() - found.keys():
        found[node] = await placed(world, node, DesiredState.RUNNING)
    return found


async def test_homes_are_spread_and_reached_wherever_they_are(world: World) -> None:
    """Placement by free capacity; an operation runs on its node, whichever API was asked and whichever worker runs
    the workflow; the proxies of both APIs reach every node by its endpoint."""
    workspaces = await asyncio.gather(*(world.create() for _ in range(6)))
    for workspace in workspaces:
        await world.until_phase(workspace, Phase.RUNNING)
    assert {node: len(ids) for node, ids in (await world.on_nodes()).items()} == {"local": 2, "b": 2, "c": 2}
    for workspace in workspaces:
        row = await world.row(workspace)
        assert await world.holders(workspace) == {row.node}
        assert row.endpoint
        assert row.endpoint.startswith(f"{world.hosts[row.node or ''].address}:")
        await world.write(workspace, f"note of {workspace}")
    for person in world.people:
        assert [await world.read(ws, person) for ws in workspaces] == [f"note of {ws}" for ws in workspaces]
    await asyncio.gather(
        *(world.people[n % 2].want(ws, DesiredState.STANDBY) for n, ws in enumerate(workspaces)),
    )
    for workspace in workspaces:
        row = await world.until_phase(workspace, Phase.STANDBY)
        assert await world.holders(workspace) == {row.node}
    listed = (await world.nodes()).values()
    assert {(node["name"], node["state"], node["homes"], node["running"]) for node in listed} == {
        (name, "ready", 2, 0) for name in ("local", "b", "c")
    }
    for workspace in workspaces[3:]:
        await world.people[0].delete(workspace)
    for workspace in workspaces[3:]:
        await world.until_phase(workspace, Phase.DELETED)
        assert await world.holders(workspace) == set()


async def test_two_apis_and_workers_that_share_a_node_behave_as_one(world: World) -> None:
    """A limit of one, raced for through both APIs: one starts, and the screens at both show it. Of the workers two
    serve one node: whatever either does is done once (issue 7)."""
    first, second = world.hosts["local"].worker, world.hosts["local"].another_worker()
    assert first
    world.commands.append(second)
    await second.said("worker_ready", PATIENT)
    await world.database.execute("UPDATE nodes SET cordoned_at = now() WHERE name <> 'local'")
    try:
        async with strict_apis(world, "racer") as people:
            await _race(world, people)
    finally:
        await world.database.execute("UPDATE nodes SET cordoned_at = NULL")
    # Both had a part in it.
    assert all(any(line["event"] == "reconciled" for line in worker.events) for worker in (first, second))
    second.kill()


async def _race(world: World, people: Sequence[Person]) -> None:
    new = await asyncio.gather(*(people[n % 2].create(f"race-{n}", DesiredState.STANDBY) for n in range(RACERS)))
    for workspace in new:
        await world.until_phase(workspace, Phase.STANDBY)
    wins: Counter[WorkspaceId] = Counter()
    async with AsyncExitStack() as stack:
        screens = [await stack.enter_async_context(screen_of(person)) for person in people]
        for _ in range(3):
            asked = {workspace: (n + len(wins)) % 2 for n, workspace in enumerate(new)}
            answers = await asyncio.gather(*(ask_to_run(people[at], workspace) for workspace, at in asked.items()))
            assert Counter(answers) == {200: 1, 429: RACERS - 1}
            winner = new[answers.index(200)]
            wins[winner] += 1
            for screen in screens:
                await screen.until(winner, phase="RUNNING", operation="NONE", seconds=PATIENT)
            on_engine = await world.hosts["local"].runtime.observe_all()
            assert [id_ for id_ in new if on_engine[id_].container is not ContainerState.ABSENT] == [winner]
            await people[1 - asked[winner]].want(winner, DesiredState.STANDBY)
            for screen in screens:
                await screen.until(winner, phase="STANDBY", operation="NONE", seconds=PATIENT)
    logged = await world.database.fetch(
        "SELECT workspace_id::text AS id, operation, outcome, attempts, count(*) AS times FROM operations"
        " WHERE workspace_id = ANY($1::uuid[]) GROUP BY 1, 2, 3, 4",
        new,
    )
    done = {(row["id"], row["operation"], row["outcome"], row["attempts"]): row["times"] for row in logged}
    once = {(id_, "PROVISIONING", "SUCCEEDED", 1): 1 for id_ in new}
    moved = {(id_, way, "SUCCEEDED", 1): n for id_, n in wins.items() for way in ("STARTING", "STOPPING")}
    assert done == {**once, **moved}
    for workspace in new:
        await people[0].delete(workspace)
    for workspace in new:
        await world.until_phase(workspace, Phase.DELETED)


async def ask_to_run(person: Person, workspace: WorkspaceId) -> int:
    status, body = await person.ask("PATCH", f"{WORKSPACES}/{workspace}", {"desired_state": "RUNNING"})
    assert status == 200 or body["error"]["code"] == "limit_per_user", body
    return status


@asynccontextmanager
async def screen_of(person: Person) -> AsyncIterator[Stream]:
    timeout = aiohttp.ClientTimeout(total=None)
    async with person.client.get(f"{person.url}/api/v1/events", timeout=timeout) as answer:
        yield Stream(answer.content)


async def test_each_node_watches_its_own_engine(world: World) -> None:
    """PROMISE 24 on every host: a container that goes is noticed by the events of its node's engine."""
    on = await one_on_each(world)
    for node, workspace in on.items():
        before = await world.row(workspace)
        await world.hosts[node].runtime.stop(workspace)
        await world.until(workspace, lambda ws, was=before: ws.op_id != was.op_id or ws.endpoint != was.endpoint)  # type: ignore[misc]
        after = await world.until_phase(workspace, Phase.RUNNING)
        assert after.node == node


async def test_a_node_that_is_gone_takes_nobody_along_and_heals(world: World) -> None:
    """Unreachable within 30 s for its workspaces, at rest or not, though the leader goes with it; the others go on;
    when it returns, all is as it was. Its data is never declared lost."""
    on = await one_on_each(world)
    gone = await world.database.fetchval("SELECT holder_id FROM system_locks WHERE lock_name = 'coordinator'")
    left = world.hosts.keys() - {gone}
    lost, other = on[gone], on[min(left)]
    resting = await placed(world, gone, DesiredState.STANDBY)
    await world.write(lost, "kept by a node that was gone")
    died = await world.database.fetchval("SELECT now()")
    await world.hosts[gone].die()
    # Asked for just when the node is gone: it is claimed, and nobody takes it.
    await world.people[0].want(resting, DesiredState.RUNNING)
    # Nobody else notices: not before the node is found to be lost, and not while its workspaces hear of it.
    for desired in (DesiredState.STANDBY, DesiredState.RUNNING) * 2:
        await world.people[1].want(other, desired)
        await world.until_phase(other, Phase(desired), UNNOTICED)
    for workspace in (lost, resting):
        row = await world.until_phase(workspace, Phase.ERROR)
        assert row.error_reason is ErrorReason.UNREACHABLE, row
        assert row.phase_changed_at - died < timedelta(seconds=30), row
    new = await world.create(DesiredState.STANDBY)
    assert (await world.until_phase(new, Phase.STANDBY)).node in left
    assert (await world.nodes())[gone]["state"] == "lost"

    await world.hosts[gone].come_back()
    for workspace in (lost, resting):
        assert (await world.until_phase(workspace, Phase.RUNNING)).node == gone
    assert await world.read(lost) == "kept by a node that was gone"
    reasons = await world.database.fetch("SELECT DISTINCT error_reason FROM operations WHERE error_reason IS NOT NULL")
    assert {row["error_reason"] for row in reasons} <= {"Unreachable"}


async def test_an_engine_without_its_data_is_silent_and_loses_nothing(world: World) -> None:
    """It is started without its disk, and answers as the one it was: its homes are not there, and not lost either. When
    the disk is back, all is as it was."""
    workspace = (await one_on_each(world))["b"]
    await world.write(workspace, "on a disk that was away")
    host = world.hosts["b"]
    data = host.dockerd.folder / "root"
    await host.without_engine()
    data.rename(data.with_name("away"))
    await host.supervisor.resume("dockerd")
    row = await world.until_phase(workspace, Phase.ERROR)
    assert (row.error_reason, row.condition(ConditionName.VOLUME_READY)) == (ErrorReason.UNREACHABLE, True)
    assert (await world.nodes())["b"]["state"] == "lost"
    await host.without_engine()
    data.rename(data.with_name("empty"))
    data.with_name("away").rename(data)
    await host.supervisor.resume("dockerd")
    assert (await world.until_phase(workspace, Phase.RUNNING)).node == "b"
    assert await world.read(workspace) == "on a disk that was away"
    lost = await world.database.fetchval("SELECT count(*) FROM operations WHERE error_reason = 'DataLost'")
    assert lost == 0


async def test_a_drain_moves_every_home_and_loses_nothing(world: World) -> None:
    """RUNNING ones run again elsewhere, STANDBY ones are STANDBY elsewhere, with their files; nothing new comes."""
    on = await one_on_each(world)
    running = on["b"]
    await world.write(running, "moved while it ran")
    await placed(world, "b", DesiredState.STANDBY)
    homes = [WorkspaceId(id_) for id_ in (await world.on_nodes())["b"]]
    before = {workspace: (await world.row(workspace)).desired_state for workspace in homes}
    assert set(before.values()) == {DesiredState.RUNNING, DesiredState.STANDBY}

    code, said = await world.codehub("node", "drain", "b")
    assert (code, "b is empty." in said) == (0, True), said + world.words()
    for workspace, desired in before.items():
        row = await world.until_phase(workspace, Phase(desired))
        assert row.node in {"local", "c"}
        assert await world.holders(workspace) == {row.node}
        assert row.desired_state is desired
    assert await world.read(running) == "moved while it ran"
    assert await world.hosts["b"].runtime.observe_all() == {}
    assert (await world.nodes())["b"]["state"] == "drained"
    new = await world.create(DesiredState.STANDBY)
    assert (await world.until_phase(new, Phase.STANDBY)).node != "b"

    code, said = await world.codehub("node", "uncordon", "b")
    assert code == 0, said
    new = await world.create(DesiredState.STANDBY)
    assert (await world.until_phase(new, Phase.STANDBY)).node == "b"


async def test_a_drain_that_is_cut_off_again_and_again_loses_nothing(world: World) -> None:
    """The worker is killed while homes are archived, an engine while they are restored: every byte arrives."""
    on = await one_on_each(world)
    await placed(world, "b", DesiredState.RUNNING)
    homes = [WorkspaceId(id_) for id_ in (await world.on_nodes())["b"]]
    running = [workspace for workspace in homes if (await world.row(workspace)).phase is Phase.RUNNING]
    assert on["b"] in running
    notes = {workspace: random.Random(workspace).randbytes(1 << 18).hex() for workspace in running}
    for workspace, note in notes.items():
        await world.write(workspace, note)
    # Beside the command: until that has ended, all may be archived.
    killing = asyncio.create_task(kill_while_archiving(world, "b"))
    code, said = await world.codehub("node", "drain", "b", "--no-wait")
    assert code == 0, said
    await killing
    node = await until_operation(world, Operation.RESTORING)
    engine = world.hosts[node].supervisor.pid("dockerd")
    assert engine
    os.kill(engine, signal.SIGKILL)
    await world.hosts[node].supervisor.ready("dockerd")

    await world.until_state("b", "drained")
    for workspace, note in notes.items():
        row = await world.until_it_runs(workspace)
        assert (row.node in {"local", "c"}, await world.holders(workspace)) == (True, {row.node})
        assert await world.read(workspace) == note
    await world.codehub("node", "uncordon", "b")


async def kill_while_archiving(world: World, node: str) -> None:
    """Its worker; another one begins at once."""
    await until_operation(world, Operation.ARCHIVING)
    worker = world.hosts[node].worker
    assert worker
    worker.kill()
    world.hosts[node].start_worker()


async def until_operation(world: World, operation: Operation) -> str:
    """It is under way somewhere; returns on which node."""
    found: list[str] = []

    async def is_under_way() -> bool:
        rows = await world.database.fetch(
            "SELECT w.node FROM workspaces w JOIN operations o ON o.id = w.op_id"
            " WHERE w.operation = $1 AND o.attempts > 0",
            operation,
        )
        found[:] = [row["node"] for row in rows]
        return bool(found)

    await until(is_under_way, PATIENT, f"nothing is in {operation}")
    return found[0]


async def test_a_drain_without_room_elsewhere_stops_and_says_why(world: World) -> None:
    """Nothing is stopped or archived for which there is no place; with room, it goes on by itself."""
    await one_on_each(world)
    homes = await world.on_nodes()
    await world.database.execute(
        "UPDATE nodes SET capacity = m.homes FROM unnest($1::text[], $2::int[]) AS m (name, homes)"
        " WHERE nodes.name = m.name AND nodes.name <> 'b'",
        list(homes),
        [len(ids) for ids in homes.values()],
    )
    phases = {id_: (await world.row(WorkspaceId(id_))).phase for id_ in homes["b"]}
    code, said = await world.codehub("node", "drain", "b")
    assert (code, "is full" in said) == (4, True), said
    assert {id_: (await world.row(WorkspaceId(id_))).phase for id_ in homes["b"]} == phases
    assert (await world.on_nodes())["b"] == homes["b"]
    await world.database.execute("UPDATE nodes SET capacity = NULL")
    await world.until_state("b", "drained")
    await world.codehub("node", "uncordon", "b")


async def test_a_name_belongs_to_one_engine(world: World) -> None:
    """A worker that serves another engine under the name of one with homes ends: else these would count as lost."""
    await one_on_each(world)
    await world.database.execute("UPDATE nodes SET engine_id = 'another' WHERE name = 'c'")
    env = {**world.env, "DOCKER_HOST": world.hosts["c"].dockerd.host}
    imposter = Command(["worker", "--node", "c"], env, world.folder / "imposter.log")
    world.commands.append(imposter)
    assert await imposter.ended(PATIENT) == 1
    assert "is another Docker engine" in imposter.output
    code, listed = await world.codehub("node", "ls")
    assert code == 0
    assert [line.split()[0] for line in listed.splitlines()] == ["NODE", "b", "c", "local"]
    for id_ in (await world.on_nodes())["c"]:
        assert (await world.row(WorkspaceId(id_))).error_reason is None


async def test_chores_are_done_whatever_the_node(world: World) -> None:
    """TTL and GC are nobody's in particular: they run on a queue that every worker polls, also without `local`."""
    for schedule in ("codehub-ttl", "codehub-gc"):
        handle = world.temporal.get_schedule_handle(schedule)
        before = (await handle.describe()).info.num_actions
        await handle.trigger()

        async def is_done(handle: ScheduleHandle = handle, before: int = before) -> bool:
            info = (await handle.describe()).info
            return info.num_actions > before and not info.running_actions

        await until(is_done, PATIENT, f"{schedule} was not run")
    done: list[WorkflowExecutionStatus | None] = []

    async def are_listed() -> bool:
        """The listing is late."""
        listed = world.temporal.list_workflows("TaskQueue = 'codehub-chores'")
        done[:] = [found.status async for found in listed]
        return done.count(WorkflowExecutionStatus.COMPLETED) >= 2

    await until(are_listed, PATIENT, "what was run is not listed")
    assert set(done) <= {WorkflowExecutionStatus.COMPLETED, WorkflowExecutionStatus.RUNNING}


async def test_every_history_of_these_hosts_replays(world: World) -> None:
    """PROMISE 7: what was asked of other nodes, what no worker took, and what moved."""
    ids = [workflow.id async for workflow in world.temporal.list_workflows("WorkflowType = 'WorkspaceWorkflow'")]
    histories = [await world.temporal.get_workflow_handle(id_).fetch_history() for id_ in ids]
    assert len(histories) >= 6
    for history in histories:
        await replayer().replay_workflow(history)
    kinds = {name: [history for history in histories if asks(history)] for name, asks in RECORDED.items()}
    if os.environ.get("RECORD"):
        for name, found in kinds.items():
            if found:
                shortest = min(found, key=lambda history: len(history.events))
                (HISTORIES / f"{name}.json").write_text(shortest.to_json())


def _asked(history: WorkflowHistory) -> bool:
    scheduled = (event.activity_task_scheduled_event_attributes for event in history.events)
    return any(attributes.activity_type.name == "reconcile" for attributes in scheduled)


def _not_taken(history: WorkflowHistory) -> bool:
    timed_out = (event.activity_task_timed_out_event_attributes for event in history.events)
    return any(
        attributes.failure.timeout_failure_info.timeout_type == TimeoutType.TIMEOUT_TYPE_SCHEDULE_TO_START
        for attributes in timed_out
    )


RECORDED = {"asked": _asked, "not_taken": _not_taken}
