"""PROMISES 13, 14 and 19: kill -9 of the object store in the middle of a transfer loses nothing. CI: at three
moments; full: while it is read back, and between the archive_key and the removal of the volume, too."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from temporalio.exceptions import ApplicationError

from activities.gc import GarbageCollector
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import open_database
from adapters.postgres.garbage import Garbage
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.model import DesiredState, ErrorReason, Operation, Phase, WorkspaceId
from starter.embedded.stack import Stack
from tests.archive.bench import Bench
from tests.archive.kept import is_kept
from tests.archive.trees import Snapshot, grow
from tests.archive.volumes import Volumes
from tests.conftest import OwnServices
from tests.faults.proxy import FaultProxy, eventually
from tests.processes.deployment import AT_REST
from tests.processes.process import until
from workflows.messages import GcInput, Step

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]

MIB = 1 << 20
SIZE = 18 * MIB
MOVED = 4 * MIB


@dataclass(frozen=True)
class Moment:
    """At a named point of a transfer (see Transfers.point), or when some bytes have passed."""

    operation: Operation
    at: str

    def __str__(self) -> str:
        return f"{self.operation.lower()} {self.at}"

    @property
    def goal(self) -> Phase:
        return Phase.ARCHIVED if self.operation is Operation.ARCHIVING else Phase.STANDBY


UPLOAD, READ_BACK = Moment(Operation.ARCHIVING, "up"), Moment(Operation.ARCHIVING, "down")
BEFORE_REMOVAL, DOWNLOAD = Moment(Operation.ARCHIVING, "archive_verified"), Moment(Operation.RESTORING, "down")
CLOSE_TO_IT = [Moment(Operation.ARCHIVING, "archive_key_saved"), Moment(Operation.ARCHIVING, "archive_removal_said")]


def in_full(*moments: Moment) -> list[ParameterSet]:
    return [pytest.param(moment, marks=pytest.mark.full) for moment in moments]


@dataclass
class Scene:
    stack: Stack
    bench: Bench
    proxy: FaultProxy

    async def strike(self, moment: Moment, workspace: WorkspaceId, step: Step, *, for_good: bool) -> str | None:
        """One attempt; the store is killed in the middle of it. What it failed with."""
        struck = asyncio.Event()

        async def kill() -> None:
            pid = self.stack.supervisor.pid("seaweed")
            assert pid
            os.kill(pid, signal.SIGKILL)
            if for_good:
                await self.stack.supervisor.pause("seaweed")
            struck.set()

        async def reached(point: str) -> None:
            if point == moment.at and not struck.is_set():
                await kill()

        self.bench.reach(reached)
        # Not so fast that it would be over before it can be struck.
        self.proxy.throttle(up=6 * MIB, down=12 * MIB)
        attempt = asyncio.create_task(self.bench.attempt(workspace, step))
        if moment.at in {"up", "down"}:
            before = getattr(self.proxy, moment.at)
            await eventually(lambda: attempt.done() or getattr(self.proxy, moment.at) - before > MOVED, 60)
            assert not attempt.done(), "it was over before it could be struck"
            await kill()
        try:
            async with asyncio.timeout(120):
                await attempt
        except ApplicationError as error:
            return error.type
        finally:
            assert struck.is_set()
            self.proxy.throttle()
        return None


@pytest.fixture
async def scene(
    own_services: OwnServices, database_url: str, docker_runtime: DockerRuntime, volumes: Volumes
) -> AsyncIterator[Scene]:
    """A store of its own, and not so fast that a kill would come too late."""
    stack = await own_services("seaweed")
    env = stack.env
    database = await open_database(database_url)
    # A narrow way: what is in its buffers when the store dies would arrive all the same.
    async with FaultProxy(env["S3_ENDPOINT"], window=64 * 1024) as proxy:
        config = S3Config(proxy.url, env["S3_ACCESS_KEY"], env["S3_BUCKET"], env["S3_SECRET_KEY"])
        async with open_store(config) as archives:
            bench = Bench(database, docker_runtime, docker_runtime.homes(), archives, volumes)
            yield Scene(stack, bench, proxy)
    await database.close()


def fill(home: Path) -> None:
    grow(home, 51, entries=10, largest=5000)
    (home / "random").write_bytes(random.Random(51).randbytes(SIZE))


async def prepared(bench: Bench, moment: Moment) -> tuple[WorkspaceId, Snapshot, Step]:
    """The operation is claimed, and has not begun."""
    made = bench.workspace if moment.operation is Operation.ARCHIVING else bench.archived
    workspace, before = await made(fill)
    step = await bench.claim(workspace, DesiredState(moment.goal))
    assert step.operation is moment.operation
    return workspace, before, step


async def is_there_and_back(bench: Bench, workspace: WorkspaceId, before: Snapshot) -> None:
    """GC leaves nothing unfinished in the store, and the home is as it was."""
    store = bench.archives
    assert isinstance(store, S3ArchiveStore)
    # A delay that is over for what was begun just now.
    gc = GarbageCollector(Garbage(bench.database), store, bench.installation, delay=timedelta(minutes=-1))
    await gc.collect(GcInput())
    assert [upload async for upload in store.list_uploads()] == []
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


@pytest.mark.parametrize("moment", [UPLOAD, DOWNLOAD, *in_full(READ_BACK, BEFORE_REMOVAL, *CLOSE_TO_IT)], ids=str)
async def test_a_store_that_is_killed_and_comes_back(scene: Scene, moment: Moment, tmp_path: Path) -> None:
    """It is back in a second or two: the attempt ends well, as its calls are tried again, or the next one does."""
    bench = scene.bench
    workspace, before, step = await prepared(bench, moment)
    former = scene.stack.supervisor.pid("seaweed")
    failed = await scene.strike(moment, workspace, step, for_good=False)

    async def is_another() -> bool:
        return scene.stack.supervisor.pid("seaweed") not in {None, former}

    await until(is_another, AT_REST, "the store did not come back")
    await scene.stack.supervisor.ready("seaweed")
    await is_kept(bench, await bench.row(workspace), before, tmp_path)
    assert failed in {None, "Unreachable"}
    assert failed is None or await bench.operate(workspace, step) is None
    await bench.drive(workspace, moment.goal)
    await is_there_and_back(bench, workspace, before)


@pytest.mark.parametrize("moment", [BEFORE_REMOVAL, DOWNLOAD, *in_full(UPLOAD, READ_BACK, *CLOSE_TO_IT)], ids=str)
async def test_a_store_that_is_killed_and_stays_away(scene: Scene, moment: Moment, tmp_path: Path) -> None:
    """Until the attempts are used up: Unreachable, and once the store is back and a person recovers it, it goes on."""
    bench = scene.bench
    workspace, before, step = await prepared(bench, moment)
    assert await scene.strike(moment, workspace, step, for_good=True) == "Unreachable"
    assert await bench.operate(workspace, step) is ErrorReason.UNREACHABLE
    await scene.stack.supervisor.resume("seaweed")
    row = await bench.row(workspace)
    await is_kept(bench, row, before, tmp_path)
    assert (row.phase, row.error_reason) == (Phase.ERROR, ErrorReason.UNREACHABLE)
    await bench.recover(workspace)
    await bench.drive(workspace, moment.goal)
    await is_there_and_back(bench, workspace, before)
