"""What nobody listens to any more must decide nothing: an operation claimed by it would be begun by no one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio.exceptions import ApplicationError

from activities.attempt import Actuator, Attempt
from adapters.postgres.attention import Attention
from coordinator.stragglers import Stragglers
from domain.model import DesiredState, ErrorReason, Operation, OperationId, Phase, WorkspaceId
from domain.naming import archive_key
from tests.faults.faulty import faulty
from tests.harness.bench import Bench
from tests.harness.scenarios import IMAGE
from workflows.client import Waker
from workflows.messages import OperateInput, ReconcileInput, Step, StepKind


async def _standby(bench: Bench) -> WorkspaceId:
    workspace = await bench.create(DesiredState.STANDBY, IMAGE)
    await bench.drive(workspace)
    return workspace


async def _claimed(bench: Bench, workspace: WorkspaceId, desired: DesiredState) -> Step:
    await bench.want(workspace, desired)
    return await bench.parts.operator.reconciler.step(workspace)


async def test_a_late_save_of_a_row_that_looks_the_same(direct: Bench) -> None:
    """The row was at rest, an operation came and went, it is at rest again: what was judged before that is void."""
    workspace = await _standby(direct)
    before = await direct.row(workspace)
    await direct.want(workspace, DesiredState.RUNNING)
    await direct.drive(workspace)
    await direct.want(workspace, DesiredState.STANDBY)
    await direct.drive(workspace)
    now = await direct.row(workspace)
    assert (now.phase, now.operation, now.desired_state) == (before.phase, before.operation, before.desired_state)
    assert not await direct.store.save(before, replace(before, phase=Phase.RUNNING))
    assert await direct.row(workspace) == now


@pytest.mark.parametrize("what", ["removing", "not removed", "restore marker", "clock"])
async def test_a_late_save_of_a_row_whose_attempt_has_said_something(direct: Bench, what: str) -> None:
    """Phase, operation and key look the same, and what an attempt said of the home would be written over."""
    workspace = await _standby(direct)
    step = await _claimed(direct, workspace, DesiredState.ARCHIVED)
    begun = await direct.store.begin_attempt(step.op_id)
    assert begun
    before = await direct.row(workspace)
    match what:
        case "removing":
            assert await direct.store.save_removing(workspace, step.op_id, begun.number, "a key")
        case "not removed":
            await direct.store.save_not_removed(workspace, step.op_id, begun.number, OperationId(str(uuid4())))
        case "restore marker":
            assert await direct.store.save_restore_marker(workspace, step.op_id, begun.number, "a key", {})
        case "clock":
            await direct.store.set_clock(workspace, step.op_id, timedelta(hours=1))
    said = await direct.row(workspace)
    assert not await direct.store.save(before, before)
    assert await direct.row(workspace) == said


async def test_another_node_gives_up_on_a_home_that_goes(direct: Bench) -> None:
    """Its node is taken for lost while its volume is removed, and is back in between: whoever says so keeps what was
    said of the volume. Otherwise the rest of it would be the home when the node returns."""
    workspace = await _standby(direct)
    step = await _claimed(direct, workspace, DesiredState.ARCHIVED)
    await direct.database.execute("INSERT INTO nodes (name, engine_id, lost_at) VALUES ('local', 'x', now())")
    key = archive_key(workspace, step.op_id)
    first = await direct.store.begin_attempt(step.op_id)
    assert first
    assert await direct.store.save_archive_key(workspace, step.op_id, first.number, key, {})
    archives, faults = faulty(direct.archives)
    slow = faults.pause("observe")
    elsewhere = replace(direct.parts.operator.reconciler, node="b", archives=archives)
    looking = asyncio.create_task(elsewhere.reconcile(ReconcileInput(workspace, unseen=True)))
    await slow.reached.wait()
    second = await direct.store.begin_attempt(step.op_id)
    assert second
    assert await direct.store.save_removing(workspace, step.op_id, second.number, key)
    slow.released.set()
    await looking
    row = await direct.row(workspace)
    assert (row.phase, row.error_reason) == (Phase.ERROR, ErrorReason.UNREACHABLE)
    assert row.home_ctx.removing == key


def _after_acting(bench: Bench, operation: Operation, meanwhile: Callable[[Attempt], Awaitable[None]]) -> Actuator:
    act = bench.parts.operator.actuators[operation]

    async def acting(attempt: Attempt) -> None:
        await act(attempt)
        await meanwhile(attempt)

    return acting


async def test_a_superseded_attempt_claims_nothing(direct: Bench) -> None:
    """It had acted, and stood still while another attempt finished the operation and its workspace was put to sleep
    again. It goes on, and sees a container that is not wanted: that is for the sweep to find."""
    workspace = await _standby(direct)
    step = await _claimed(direct, workspace, DesiredState.RUNNING)
    request = OperateInput(workspace, step.op_id)

    async def overtaken(_: Attempt) -> None:
        await direct.parts.operator.run(Operation.STARTING, request)
        await direct.want(workspace, DesiredState.STANDBY)
        await direct.drive(workspace)
        await direct.runtime.start(workspace, IMAGE, step.op_id)

    acts = {
        **direct.parts.operator.actuators,
        Operation.STARTING: _after_acting(direct, Operation.STARTING, overtaken),
    }
    with pytest.raises(ApplicationError) as told:
        await replace(direct.parts.operator, actuators=acts).run(Operation.STARTING, request)
    assert told.value.type == "Superseded"
    row = await direct.row(workspace)
    assert (row.phase, row.operation) == (Phase.STANDBY, Operation.NONE)
    seen = {workspace: await direct.runtime.observe(workspace, probe=False)}
    assert await Attention(direct.database).drifted("local", seen) == [workspace]


async def test_an_attempt_that_comes_too_late_claims_nothing(direct: Bench) -> None:
    """Delivered once more when its operation is over, and something has drifted since: who listens looks for itself."""
    workspace = await _standby(direct)
    step = await _claimed(direct, workspace, DesiredState.RUNNING)
    request = OperateInput(workspace, step.op_id)
    await direct.parts.operator.run(Operation.STARTING, request)
    direct.runtime.drop_container(workspace)
    late = await direct.parts.operator.run(Operation.STARTING, request)
    assert (late.kind, late.wait_seconds) == (StepKind.WAIT, 0)
    assert (await direct.row(workspace)).operation is Operation.NONE


async def test_a_claim_that_nobody_heard_of_is_taken_up(on_temporal: Bench) -> None:
    """Whoever made it died before a word of it got out, and its workflow sleeps: woken within seconds, not after the
    operation's timeout."""
    workspace = await _standby(on_temporal)
    await on_temporal.want(workspace, DesiredState.RUNNING)
    await on_temporal.parts.operator.reconciler.step(workspace)
    async with asyncio.timeout(60):
        await on_temporal.until(workspace, Phase.RUNNING)


async def test_what_waits_for_its_turn_is_woken_once(direct: Bench) -> None:
    """A thousand archives that wait for a place are no reason for a thousand signals every few seconds."""
    workspace = await _standby(direct)
    await _claimed(direct, workspace, DesiredState.RUNNING)
    stragglers = Stragglers(Attention(direct.database), Waker(direct.parts.client), patience=timedelta(0))
    assert await stragglers.look() == [workspace]
    assert await stragglers.look() == []
    await direct.drive(workspace)
    await _claimed(direct, workspace, DesiredState.STANDBY)
    assert await stragglers.look() == [workspace]


async def test_who_waits_for_long_is_woken_less_and_less_often(direct: Bench) -> None:
    """An hour in a queue: a handful of wakes, and none of them lost for good."""
    workspace = await _standby(direct)
    await _claimed(direct, workspace, DesiredState.RUNNING)
    now, woken = 0.0, []
    stragglers = Stragglers(
        Attention(direct.database), Waker(direct.parts.client), patience=timedelta(0), clock=lambda: now
    )
    for minute in range(60):
        now = minute * 60.0 + 1
        woken += [minute] * len(await stragglers.look())
    assert woken == [0, 2, 5, 10, 19, 35, 51]
