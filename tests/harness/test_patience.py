"""An engine that is being restarted is waited for inside the attempt (RECONCILER_PATIENCE)."""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta

import pytest
from temporalio.exceptions import ApplicationError

from activities.attempt import Actuator, Attempt
from activities.operate import Operator
from adapters.archive_store import ArchiveObserver
from domain.errors import Unreachable
from domain.model import DesiredState, Operation, Phase, WorkspaceId
from domain.observation import Presence
from domain.progress import Stage, as_told
from tests.harness.bench import Bench
from tests.harness.scenarios import IMAGE
from workflows.messages import OperateInput, Step


def _operator(bench: Bench, patience: float, provision: Callable[[Attempt], object]) -> Operator:
    async def act(attempt: Attempt) -> None:
        if provision(attempt):
            raise Unreachable("Docker did not answer")
        await bench.runtime.create_volume(attempt.workspace.id, attempt.op_id)

    acts: dict[Operation, Actuator] = {**bench.parts.operator.actuators, Operation.PROVISIONING: act}
    return replace(bench.parts.operator, actuators=acts, patience=timedelta(seconds=patience))


async def _claimed(bench: Bench) -> tuple[WorkspaceId, Step]:
    workspace = await bench.create(DesiredState.STANDBY, IMAGE)
    return workspace, await bench.parts.operator.reconciler.step(workspace)


async def _counts(bench: Bench, workspace: WorkspaceId) -> tuple[int, int]:
    attempts = await bench.database.fetchval("SELECT attempts FROM operations WHERE workspace_id = $1", workspace)
    return attempts, (await bench.row(workspace)).error_count


async def test_it_waits_and_goes_on_in_the_same_attempt(direct: Bench) -> None:
    """Nothing is counted, and the user sees no error."""
    tries: list[Attempt] = []

    def provision(attempt: Attempt) -> bool:
        tries.append(attempt)
        return len(tries) < 3

    workspace, step = await _claimed(direct)
    await _operator(direct, 30, provision).run(step.operation, OperateInput(workspace, step.op_id))
    assert (await direct.row(workspace)).phase is Phase.STANDBY
    assert await _counts(direct, workspace) == (1, 0)
    assert len(tries) == 3


async def test_patience_ends(direct: Bench) -> None:
    """Then it is an attempt that failed, as Unreachable, to be tried again."""
    workspace, step = await _claimed(direct)
    with pytest.raises(ApplicationError) as failed:
        await _operator(direct, 1, lambda _: True).run(step.operation, OperateInput(workspace, step.op_id))
    assert (failed.value.type, failed.value.non_retryable) == ("Unreachable", False)
    assert await _counts(direct, workspace) == (1, 1)


@pytest.mark.parametrize("further", [64, 0])
async def test_patience_begins_anew_once_it_came_further(direct: Bench, further: int) -> None:
    """A second hiccup, long after the first, is another one; one that strikes at the same place goes on being it."""
    tries = 0

    async def act(attempt: Attempt) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            await direct.runtime.create_volume(attempt.workspace.id, attempt.op_id)
            return
        if tries == 2:
            # It moves for longer than patience lasts.
            await asyncio.sleep(0.6)
        attempt.pulse.tell(as_told(Stage.TRANSFERRING, (64 + further * tries) * 2**20, None, None, attempt.number))
        raise Unreachable("the store did not answer")

    workspace, step = await _claimed(direct)
    acts: dict[Operation, Actuator] = {**direct.parts.operator.actuators, Operation.PROVISIONING: act}
    operator = replace(direct.parts.operator, actuators=acts, patience=timedelta(seconds=0.5))
    with nullcontext() if further else pytest.raises(ApplicationError, match="did not answer"):
        await operator.run(step.operation, OperateInput(workspace, step.op_id))
    assert await _counts(direct, workspace) == ((1, 0) if further else (1, 1))


async def test_whoever_waited_too_long_touches_nothing(direct: Bench) -> None:
    """A later attempt has taken over meanwhile: the one that waits gives up without another try, and counts nothing."""
    workspace, step = await _claimed(direct)
    request = OperateInput(workspace, step.op_id)
    waiting, tries = asyncio.Event(), 0

    def provision(_: Attempt) -> bool:
        nonlocal tries
        tries += 1
        waiting.set()
        return True

    first = asyncio.create_task(_operator(direct, 30, provision).run(step.operation, request))
    await waiting.wait()
    await direct.parts.operator.run(step.operation, request)
    with pytest.raises(ApplicationError) as failed:
        await first
    assert failed.value.type == "Superseded"
    assert tries == 1
    assert await _counts(direct, workspace) == (2, 0)


class Silent:
    """A store that does not say, for some times, whether an archive is there."""

    def __init__(self, inner: ArchiveObserver, times: int) -> None:
        self._inner = inner
        self._times = times

    async def observe(self, key: str) -> Presence:
        self._times -= 1
        return await self._inner.observe(key) if self._times < 0 else Presence.UNKNOWN


async def _archiving(bench: Bench, patience: float, silences: int) -> tuple[WorkspaceId, Step, Operator]:
    """Claimed, on a store that keeps silent once the archiving is done but for the last look."""
    workspace = await bench.create(DesiredState.ARCHIVED, IMAGE)
    reconciler = bench.parts.operator.reconciler
    step = await reconciler.step(workspace)
    silent = replace(reconciler, archives=Silent(reconciler.archives, silences))
    operator = replace(bench.parts.operator, reconciler=silent, patience=timedelta(seconds=patience))
    return workspace, step, operator


async def test_what_can_not_be_seen_to_be_done_is_looked_at_again(direct: Bench) -> None:
    """All of it is done, and the store falls silent before the last look: it is waited for, and nothing is counted."""
    workspace, step, operator = await _archiving(direct, 30, 2)
    await operator.run(step.operation, OperateInput(workspace, step.op_id))
    assert (await direct.row(workspace)).phase is Phase.ARCHIVED
    assert await _counts(direct, workspace) == (1, 0)


async def test_what_could_not_be_seen_to_be_done_was_out_of_reach(direct: Bench) -> None:
    """Once patience ends: Unreachable, which is what it is, and not a failed action."""
    workspace, step, operator = await _archiving(direct, 0, 100)
    with pytest.raises(ApplicationError) as failed:
        await operator.run(step.operation, OperateInput(workspace, step.op_id))
    assert (failed.value.type, "object store" in failed.value.message) == ("Unreachable", True)
