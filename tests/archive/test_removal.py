"""A volume that is being removed is not a home any more: an engine that dies over it leaves a part, and the archive has
all of it (PROMISE 13)."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from adapters.archive_store import Fence
from adapters.docker.homes import DockerHomes
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import Database
from domain.errors import Unreachable
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, Phase, WorkspaceId
from tests.archive.bench import Bench
from tests.archive.trees import Snapshot, grow

pytestmark = pytest.mark.docker


class DyingEngine(DockerHomes):
    """Its disk or its machine goes in the middle of a removal, and is back for everything else."""

    __slots__ = ()

    async def remove(self, workspace_id: WorkspaceId, fence: Fence) -> None:
        await fence()
        directory = await self._directory(workspace_id)
        assert directory is not None
        for path in sorted(directory.iterdir())[::2]:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        raise Unreachable("the engine died")


@pytest.fixture
async def half_removed(bench: Bench, docker_runtime: DockerRuntime) -> tuple[WorkspaceId, Snapshot]:
    """In ERROR, with half of a volume; what its home held."""
    workspace, before = await bench.workspace(lambda home: grow(home, 41, entries=20, largest=3000))
    plain = docker_runtime.homes()
    dying = bench.with_parts(homes=DyingEngine(plain.engine, plain.config, plain.containers, plain.volumes))
    step = await dying.claim(workspace, DesiredState.ARCHIVED)
    assert await dying.operate(workspace, step) is ErrorReason.UNREACHABLE
    assert bench.home(workspace) != before
    return workspace, before


async def test_the_rest_of_a_volume_is_not_a_home(bench: Bench, half_removed: tuple[WorkspaceId, Snapshot]) -> None:
    """Recovered, and wanted again: the home comes back from the archive, whole."""
    workspace, before = half_removed
    await bench.recover(workspace)
    step = await bench.operator.reconciler.step(workspace)
    row = await bench.row(workspace)
    assert row.phase is Phase.ARCHIVED
    assert row.conditions[ConditionName.VOLUME_READY].reason == "RemovalIncomplete"
    await bench.operate(workspace, step)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_the_rest_of_a_volume_is_never_archived(bench: Bench, half_removed: tuple[WorkspaceId, Snapshot]) -> None:
    """Recovered, and still to be ARCHIVED: the rest goes, the archive stays the one that it is."""
    workspace, before = half_removed
    key = (await bench.row(workspace)).archive_key
    await bench.recover(workspace)
    row = await bench.drive(workspace, Phase.ARCHIVED)
    assert (row.archive_key, row.home_ctx.removing) == (key, None)
    assert not bench.volumes.exists(workspace)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_a_home_wanted_running_is_restored_over_the_rest(
    bench: Bench, half_removed: tuple[WorkspaceId, Snapshot]
) -> None:
    """Straight from the error, as a node that returns does it without a person."""
    workspace, before = half_removed
    await bench.database.execute("UPDATE workspaces SET desired_state = 'STANDBY' WHERE id = $1", workspace)
    await bench.recover(workspace)
    step = await bench.operator.reconciler.step(workspace)
    assert step.operation is Operation.RESTORING
    await bench.operate(workspace, step)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


@pytest.mark.parametrize("what", ["archive_key", "restore_marker", "removing"])
async def test_a_save_waits_for_an_attempt_that_begins(bench: Bench, database: Database, what: str) -> None:
    """A later attempt that has taken its number, and is about to look: whatever the former one saves now would come
    after that look, so it saves nothing."""
    workspace, _ = await bench.workspace()
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    begun = await bench.store.begin_attempt(step.op_id)
    assert begun
    assert begun.number == 1
    saves: dict[str, Callable[..., Coroutine[Any, Any, bool]]] = {
        "archive_key": partial(bench.store.save_archive_key, context={}),
        "restore_marker": partial(bench.store.save_restore_marker, context={}),
        "removing": bench.store.save_removing,
    }
    async with database.transaction() as later:
        await later.execute("UPDATE operations SET attempts = attempts + 1 WHERE id = $1", step.op_id)
        saving = asyncio.create_task(saves[what](workspace, step.op_id, begun.number, "a key"))
        done, _ = await asyncio.wait({saving}, timeout=0.5)
        assert not done, "it did not wait"
    assert await saving is False
    row = await bench.row(workspace)
    assert (row.archive_key, row.home_ctx.restore_marker, row.home_ctx.removing) == (None, None, None)
