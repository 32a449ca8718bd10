"""Attempts that were given up and wake up late, at every step: they change nothing that a later one has made. CI: at 15
of 30 steps; full: at all."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from temporalio.exceptions import ApplicationError

from activities.integrity import is_intact, read_archive_meta
from adapters.docker.runtime import DockerRuntime
from adapters.s3.store import S3ArchiveStore
from domain.model import DesiredState, HomeContext, Operation, Phase, WorkspaceId
from domain.observation import ContainerState
from tests.archive.bench import Bench
from tests.archive.trees import Snapshot, grow
from tests.faults.faulty import Faults, Gate, faulty
from workflows.messages import Step

pytestmark = pytest.mark.docker


@dataclass(frozen=True)
class Pause:
    part: str
    method: str
    skip: int = 0
    after: bool = False
    full: bool = False
    """Close to another one: not in every run."""

    def __str__(self) -> str:
        where = "after" if self.after else "before"
        return f"{where} {self.part}.{self.method}" + (f" {self.skip + 1}" if self.skip else "")


# `is_current` is the fence: its answer is what a zombie still believes when it wakes up.
ARCHIVING = [
    Pause("archives", "look", full=True),
    Pause("archives", "upload"),
    Pause("store", "is_current", 0, after=True, full=True),
    Pause("store", "is_current", 1, after=True),
    Pause("store", "is_current", 2, after=True, full=True),
    Pause("archives", "replace"),
    Pause("archives", "replace", after=True, full=True),
    Pause("archives", "download"),
    Pause("store", "save_archive_key"),
    Pause("store", "save_archive_key", after=True, full=True),
    Pause("homes", "ensure_unused", after=True, full=True),
    Pause("store", "save_removing", full=True),
    Pause("homes", "remove"),
    Pause("store", "is_current", 3, after=True, full=True),
    Pause("store", "is_current", 4, after=True),
    Pause("homes", "remove", after=True, full=True),
]
RESTORING = [
    Pause("archives", "read", full=True),
    Pause("store", "is_current", 0, after=True, full=True),
    Pause("runtime", "stop", full=True),
    Pause("homes", "renew"),
    Pause("store", "is_current", 1, after=True, full=True),
    Pause("homes", "renew", after=True),
    Pause("homes", "write", full=True),
    Pause("homes", "write", after=True),
    Pause("store", "is_current", 2, after=True, full=True),
    Pause("store", "is_current", 3, after=True),
    Pause("store", "save_restore_marker"),
    Pause("store", "save_restore_marker", after=True),
]


LAST_FENCE = Pause("store", "is_current", 2, after=True)
"""Of RESTORING, before it makes the volume."""


def marked(pause: Pause, *given: bool) -> ParameterSet:
    name = f"{pause} directly" if any(given) else str(pause)
    return pytest.param(pause, *given, id=name, marks=[pytest.mark.full] if pause.full else [])


def fill(home: Path) -> None:
    """Times in whole seconds, which is what the engine's tars keep."""
    grow(home, 11, entries=12, largest=3000)
    for path in sorted(home.rglob("*"), reverse=True):
        os.utime(path, ns=(0, 10**18), follow_symlinks=False)
    os.utime(home, ns=(0, 10**18))


class Zombie:
    """An attempt that stands still at one step, seen by the workflow as lost. It reads homes through the engine, so
    that its archive of the same home has other bytes; or not, to write them as the others do."""

    def __init__(self, bench: Bench, pause: Pause, *, direct: bool = False) -> None:
        faults = {name: Faults() for name in ("store", "homes", "archives", "runtime")}
        self.bench = bench.with_parts(
            store=faulty(bench.store, faults["store"])[0],
            homes=faulty(bench.volumes.runtime.homes(direct=direct), faults["homes"])[0],
            archives=faulty(bench.archives, faults["archives"])[0],
            runtime=faulty(bench.runtime, faults["runtime"])[0],
        )
        self.gate: Gate = faults[pause.part].pause(pause.method, skip=pause.skip, after=pause.after)
        self.task: asyncio.Task[Step] | None = None

    async def begin(self, workspace: WorkspaceId, step: Step) -> None:
        self.task = asyncio.create_task(self.bench.attempt(workspace, step))
        await asyncio.wait(
            {self.task, asyncio.create_task(self.gate.reached.wait())},
            return_when=asyncio.FIRST_COMPLETED,
            timeout=60,
        )
        assert self.gate.reached.is_set(), self.task

    async def wake(self) -> BaseException | None:
        """What it ended with."""
        assert self.task
        self.gate.released.set()
        async with asyncio.timeout(60):
            return (await asyncio.gather(self.task, return_exceptions=True))[0]  # type: ignore[return-value]


@asynccontextmanager
async def unharmed(bench: Bench, archives: S3ArchiveStore, workspace: WorkspaceId) -> AsyncIterator[None]:
    """What is there before is there afterwards: row, home, archive."""
    row, home = await bench.row(workspace), bench.home(workspace)
    key = row.archive_key or ""
    body = await archives.read(key)
    yield
    after = await bench.row(workspace)
    assert replace(after, updated_at=row.updated_at, observed_at=row.observed_at) == row
    assert bench.home(workspace) == home
    assert await archives.read(key) == body
    assert await is_intact(archives, key, await read_archive_meta(archives, workspace, key))
    assert [upload async for upload in archives.list_uploads()] == []
    assert bench.volumes.holders(workspace) == []


async def used_home(bench: Bench, workspace: WorkspaceId) -> Snapshot:
    """Somebody works with the home, after everything that the zombie knows of."""
    (bench.volumes.path(workspace) / "written since").write_text("must not be lost")
    return bench.home(workspace)


@pytest.mark.parametrize("pause", [marked(pause) for pause in ARCHIVING])
async def test_a_zombie_of_archiving_harms_nothing(bench: Bench, archives: S3ArchiveStore, pause: Pause) -> None:
    """Another attempt archives the home, it is restored and used; then the zombie goes on where it stood."""
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    zombie = Zombie(bench, pause)
    await zombie.begin(workspace, step)
    assert await bench.operate(workspace, step) is None
    assert (await bench.row(workspace)).phase is Phase.ARCHIVED
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before
    await used_home(bench, workspace)
    async with unharmed(bench, archives, workspace):
        await zombie.wake()
    # What the zombie left behind, if anything, is not in the way.
    await bench.want(workspace, DesiredState.ARCHIVED)
    await bench.drive(workspace, Phase.ARCHIVED)


@pytest.mark.parametrize(
    ("pause", "direct"),
    [
        *(marked(pause, False) for pause in RESTORING),
        # It has the directory open that the volume had then.
        marked(Pause("homes", "write", after=True), True),
        marked(Pause("archives", "download"), True),
    ],
)
async def test_a_zombie_of_restoring_harms_nothing(
    bench: Bench, archives: S3ArchiveStore, pause: Pause, direct: bool
) -> None:
    """Another attempt restores the home and it is used; then the zombie goes on where it stood."""
    workspace, before = await bench.archived(fill)
    step = await bench.claim(workspace, DesiredState.STANDBY)
    zombie = Zombie(bench, pause, direct=direct)
    await zombie.begin(workspace, step)
    if pause.method == "save_restore_marker" and pause.after:
        # Done but for the answer: the next attempt finds it so.
        assert (await bench.row(workspace)).home_ctx == HomeContext(None, (await bench.row(workspace)).archive_key)
    assert await bench.operate(workspace, step) is None
    assert (await bench.row(workspace)).phase is Phase.STANDBY
    assert bench.home(workspace) == before
    await used_home(bench, workspace)
    async with unharmed(bench, archives, workspace):
        await zombie.wake()
    await bench.want(workspace, DesiredState.ARCHIVED)
    await bench.drive(workspace, Phase.ARCHIVED)


@pytest.fixture
async def runnable(bench: Bench, test_image: str) -> tuple[WorkspaceId, Snapshot]:
    workspace, _ = await bench.workspace()
    (bench.volumes.path(workspace) / "file").write_text("x")
    await bench.database.execute("UPDATE workspaces SET image_ref = $2 WHERE id = $1", workspace, test_image)
    return workspace, bench.home(workspace)


@pytest.mark.parametrize(
    "pause",
    [
        Pause("runtime", "start"),
        Pause("store", "is_current", 0, after=True),
        Pause("store", "is_current", 1, after=True),
    ],
    ids=str,
)
async def test_a_zombie_of_starting_runs_nothing_on_a_home_that_is_restored(
    bench: Bench, runnable: tuple[WorkspaceId, Snapshot], pause: Pause
) -> None:
    """Started by another attempt, stopped, archived, and half restored: then the zombie finds a volume."""
    workspace, before = runnable
    zombie = Zombie(bench, pause)
    await zombie.begin(workspace, await bench.claim(workspace, DesiredState.RUNNING))
    await bench.drive(workspace, Phase.RUNNING)
    await bench.want(workspace, DesiredState.ARCHIVED)
    await bench.drive(workspace, Phase.ARCHIVED)
    step = await bench.claim(workspace, DesiredState.STANDBY)
    assert step.operation is Operation.RESTORING
    restoring = Zombie(bench, Pause("store", "save_restore_marker"), direct=True)
    await restoring.begin(workspace, step)
    ended = await zombie.wake()
    assert isinstance(ended, ApplicationError)
    assert ended.type == "Superseded"
    seen = await bench.runtime.observe(workspace, probe=False)
    assert seen.container in {ContainerState.ABSENT, ContainerState.STOPPED}
    await restoring.wake()
    await bench.drive(workspace, Phase.STANDBY)
    assert (await bench.runtime.observe(workspace, probe=False)).container is ContainerState.ABSENT
    assert bench.home(workspace) == before


@pytest.mark.parametrize("pause", [Pause("runtime", "stop"), Pause("store", "is_current", 0, after=True)], ids=str)
async def test_a_zombie_of_stopping_ends_nothing_that_was_started_since(
    bench: Bench, runnable: tuple[WorkspaceId, Snapshot], pause: Pause
) -> None:
    workspace, _ = runnable
    await bench.want(workspace, DesiredState.RUNNING)
    await bench.drive(workspace, Phase.RUNNING)
    zombie = Zombie(bench, pause)
    await zombie.begin(workspace, await bench.claim(workspace, DesiredState.STANDBY))
    await bench.drive(workspace, Phase.STANDBY)
    await bench.want(workspace, DesiredState.RUNNING)
    await bench.drive(workspace, Phase.RUNNING)
    await zombie.wake()
    seen = await bench.runtime.observe(workspace, probe=True)
    assert seen.container is ContainerState.READY
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)


@pytest.mark.parametrize("operation", [Operation.PROVISIONING, Operation.RESTORING])
async def test_a_zombie_makes_no_empty_home(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, operation: Operation
) -> None:
    """It was about to make the volume when it fell silent; by now the home is in the archive, and a volume would be
    taken for it."""
    workspace = await bench.empty_workspace()
    if operation is Operation.RESTORING:
        await bench.want(workspace, DesiredState.ARCHIVED)
        await bench.drive(workspace, Phase.ARCHIVED)
    step = await bench.claim(workspace, DesiredState.STANDBY)
    assert step.operation is operation
    zombie = Zombie(bench, Pause("runtime", "create_volume") if operation is Operation.PROVISIONING else LAST_FENCE)
    await zombie.begin(workspace, step)
    await bench.drive(workspace, Phase.STANDBY)
    fill(bench.volumes.path(workspace))
    before = bench.home(workspace)
    await bench.want(workspace, DesiredState.ARCHIVED)
    await bench.drive(workspace, Phase.ARCHIVED)
    # As when it had been silent for hours.
    monkeypatch.setattr("adapters.docker.volumes.monotonic", lambda: time.monotonic() + 3600)
    await zombie.wake()
    monkeypatch.undo()
    assert not bench.volumes.exists(workspace)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_a_zombie_that_still_extracts_holds_the_next_attempt_up_and_harms_nothing(
    bench: Bench, archives: S3ArchiveStore, docker_runtime: DockerRuntime
) -> None:
    """The engine does not let go of a container while it extracts into it: Unreachable until the zombie is gone."""
    workspace, before = await bench.archived(fill)
    step = await bench.claim(workspace, DesiredState.STANDBY)
    zombie = Zombie(bench, Pause("archives", "download"))
    await zombie.begin(workspace, step)
    impatient = DockerRuntime(replace(docker_runtime.config, call_timeout=1.0))
    other = bench.with_parts(runtime=impatient, homes=impatient.homes())
    with pytest.raises(ApplicationError) as failed:
        await other.attempt(workspace, step)
    assert failed.value.type == "Unreachable"
    assert (await bench.row(workspace)).home_ctx.restoring
    ended = await zombie.wake()
    assert isinstance(ended, ApplicationError)
    assert ended.type == "Superseded"
    await impatient.close()
    assert await bench.operate(workspace, step) is None
    assert bench.home(workspace) == before


async def test_a_zombie_that_wakes_while_the_next_attempt_uploads_costs_it_nothing(
    bench: Bench, archives: S3ArchiveStore
) -> None:
    """It stood right behind its fence, about to end what others have open: not the upload that is under way now."""
    workspace, _ = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    zombie = Zombie(bench, Pause("store", "is_current", 0, after=True))
    await zombie.begin(workspace, step)
    newer = Zombie(bench, Pause("store", "is_current", 1, after=True))
    await newer.begin(workspace, step)
    assert len([upload async for upload in archives.list_uploads()]) == 1
    ended = await zombie.wake()
    assert isinstance(ended, ApplicationError)
    assert ended.type == "Superseded"
    assert isinstance(await newer.wake(), Step)
    row = await bench.drive(workspace, Phase.ARCHIVED)
    assert row.error_count == 0


async def test_two_zombies_of_archiving_harm_nothing(bench: Bench, archives: S3ArchiveStore) -> None:
    """The first commits its archive while the second stands right before the end of its own upload; a third adopts
    what the first committed. Then the second wakes up."""
    workspace, before = await bench.workspace(fill)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    first = Zombie(bench, Pause("archives", "replace"))
    await first.begin(workspace, step)
    second = Zombie(bench, Pause("store", "is_current", 1, after=True))
    await second.begin(workspace, step)
    assert isinstance(await first.wake(), ApplicationError)
    assert await bench.operate(workspace, step) is None
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before
    async with unharmed(bench, archives, workspace):
        await second.wake()


@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=[pytest.mark.full, pytest.mark.timeout(900)])])
async def test_the_same_operation_twice_at_the_same_time(bench: Bench, archives: S3ArchiveStore, rounds: int) -> None:
    """Two workers that both believe the attempt is theirs: the later one wins, the home goes there and back unchanged,
    and what the other one was cut off with is no error of the workspace."""
    workspace, before = await bench.workspace(lambda home: grow(home, 15, entries=8, largest=300_000))
    other = bench.with_parts()

    async def at_once(desired: DesiredState, delay: float) -> None:
        step = await bench.claim(workspace, desired)

        async def late() -> None:
            await asyncio.sleep(delay)
            assert await bench.operate(workspace, step) is None

        ended = await asyncio.gather(other.attempt(workspace, step), late(), return_exceptions=True)
        errors = [error for error in ended if isinstance(error, BaseException)]
        assert all(isinstance(error, ApplicationError) and error.type == "Superseded" for error in errors), errors

    for number in range(rounds):
        await at_once(DesiredState.ARCHIVED, number * 0.03)
        row = await bench.row(workspace)
        assert (row.phase, row.operation) == (Phase.ARCHIVED, Operation.NONE)
        assert not bench.volumes.exists(workspace)
        key = row.archive_key or ""
        assert await is_intact(archives, key, await read_archive_meta(archives, workspace, key))
        await at_once(DesiredState.STANDBY, number * 0.03)
        assert (await bench.row(workspace)).phase is Phase.STANDBY
        assert bench.home(workspace) == before
    assert [upload async for upload in archives.list_uploads()] == []
