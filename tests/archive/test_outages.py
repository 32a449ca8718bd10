"""PROMISE 19: a store or an engine in trouble means a clean retry or the right error_reason, never a loss."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from docker import APIClient

from activities.gc import GarbageCollector
from adapters.archive_store import Fence
from adapters.docker.homes import DockerHomes
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.garbage import Garbage
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from adapters.transfer import flush
from domain.model import ConditionName, DesiredState, ErrorReason, Operation, OperationId, Phase, WorkspaceId
from domain.naming import volume_name
from tests.archive.bench import Bench
from tests.archive.trees import Snapshot
from tests.faults.proxy import FaultProxy
from tests.faults.s3_proxy import S3Proxy
from workflows.messages import GcInput, StepKind

pytestmark = pytest.mark.docker

MIB = 1 << 20
Through = Callable[..., AbstractAsyncContextManager[Bench]]


def fill(home: Path) -> None:
    _noise(home, 6)
    (home / "small").write_text("x")


def _noise(home: Path, megabytes: int) -> None:
    """Nothing that could be compressed."""
    (home / "random").write_bytes(os.urandom(megabytes * MIB))


@pytest.fixture
def through(bench: Bench, s3_config: S3Config) -> Through:
    """The bench with its store behind another address."""

    @asynccontextmanager
    async def opened(endpoint: str, *, silent: bool = False, stall_seconds: float = 20.0) -> AsyncIterator[Bench]:
        """With little patience for a store that is to fall silent; another one may take its time on a busy machine."""
        config = replace(s3_config, endpoint=endpoint)
        async with open_store(replace(config, timeout=1.0) if silent else config) as store:
            yield replace(bench, archives=store, stall_seconds=2.0 if silent else stall_seconds)

    return opened


async def keeps_its_home(bench: Bench, workspace: WorkspaceId, before: Snapshot, reason: ErrorReason) -> None:
    """ERROR with this reason; the volume is as it was, and no archive is claimed to exist."""
    row = await bench.row(workspace)
    assert (row.phase, row.error_reason, row.archive_key) == (Phase.ERROR, reason, None)
    assert bench.home(workspace) == before


async def goes_on(bench: Bench, workspace: WorkspaceId, before: Snapshot) -> None:
    """GC leaves nothing unfinished in the store; recovered, it is archived and comes back."""
    store = bench.archives
    assert isinstance(store, S3ArchiveStore)
    # A delay that is over for what was begun just now.
    gc = GarbageCollector(Garbage(bench.database), store, bench.installation, delay=timedelta(minutes=-1))
    await gc.collect(GcInput())
    assert [upload async for upload in store.list_uploads()] == []
    await bench.recover(workspace)
    await bench.drive(workspace, Phase.ARCHIVED)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


@pytest.mark.parametrize("kind", ["refuse", "black hole", "cut"])
async def test_archiving_while_the_store_is_away(
    bench: Bench, through: Through, s3_config: S3Config, kind: str
) -> None:
    """From the middle of the upload on: three attempts, Unreachable, and the home is untouched."""
    workspace, before = await bench.workspace(fill)
    async with FaultProxy(s3_config.endpoint) as proxy, through(proxy.url, silent=kind == "black hole") as other:
        step = await other.claim(workspace, DesiredState.ARCHIVED)
        then = {"refuse": proxy.refuse_from_now_on, "black hole": proxy.black_hole, "cut": None}[kind]
        proxy.cut_after(up=3 * MIB, times=10**6, then=then)
        assert await other.operate(workspace, step) is ErrorReason.UNREACHABLE
        await keeps_its_home(bench, workspace, before, ErrorReason.UNREACHABLE)
    await goes_on(bench, workspace, before)


@pytest.mark.parametrize("kind", ["refuse", "black hole"])
async def test_restoring_while_the_store_is_away(
    bench: Bench, through: Through, s3_config: S3Config, kind: str
) -> None:
    """From the middle of the download on: Unreachable, a volume that is no home, and the archive stays."""
    workspace, before = await bench.archived(fill)
    async with FaultProxy(s3_config.endpoint) as proxy, through(proxy.url, silent=kind == "black hole") as other:
        step = await other.claim(workspace, DesiredState.STANDBY)
        then = {"refuse": proxy.refuse_from_now_on, "black hole": proxy.black_hole}[kind]
        proxy.cut_after(down=3 * MIB, then=then)
        assert await other.operate(workspace, step) is ErrorReason.UNREACHABLE
        row = await bench.row(workspace)
        assert (row.phase, row.error_reason) == (Phase.ERROR, ErrorReason.UNREACHABLE)
        assert row.home_ctx.restoring == row.archive_key
        assert not row.condition(ConditionName.VOLUME_READY)
    await bench.recover(workspace)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_a_store_that_cuts_now_and_then_delays_only(bench: Bench, through: Through, s3_config: S3Config) -> None:
    workspace, before = await bench.workspace(fill)
    async with FaultProxy(s3_config.endpoint) as proxy, through(proxy.url) as other:
        proxy.cut_after(up=4 * MIB, down=4 * MIB, times=2)
        await other.want(workspace, DesiredState.ARCHIVED)
        await other.drive(workspace, Phase.ARCHIVED)
        await other.want(workspace, DesiredState.STANDBY)
        await other.drive(workspace, Phase.STANDBY)
        assert proxy.cuts >= 3
    assert bench.home(workspace) == before


async def test_a_slow_store_is_not_taken_for_a_stuck_one(bench: Bench, through: Through, s3_config: S3Config) -> None:
    """Read-back and download take longer than the stall watch waits, and bytes move all the time."""
    workspace, before = await bench.workspace(fill)
    async with FaultProxy(s3_config.endpoint) as proxy, through(proxy.url, stall_seconds=3.0) as slow:
        proxy.throttle(down=0.75 * MIB)
        step = await slow.claim(workspace, DesiredState.ARCHIVED)
        assert await slow.operate(workspace, step) is None
        assert (await bench.row(workspace)).error_count == 0
        step = await slow.claim(workspace, DesiredState.STANDBY)
        assert await slow.operate(workspace, step) is None
    assert bench.home(workspace) == before


async def test_a_slow_upload_is_not_taken_for_a_stuck_one(bench: Bench, through: Through, s3_config: S3Config) -> None:
    """A part takes longer than the stall watch waits, the home has long been read to its end, and bytes move."""
    workspace, _ = await bench.workspace(lambda home: _noise(home, 18))
    narrow = FaultProxy(s3_config.endpoint, window=64 * 1024)
    async with narrow as proxy, through(proxy.url, stall_seconds=3.0) as slow:
        proxy.throttle(up=2 * MIB)
        step = await slow.claim(workspace, DesiredState.ARCHIVED)
        assert await slow.operate(workspace, step) is None
        assert (await bench.row(workspace)).error_count == 0


async def test_a_slow_disk_is_not_taken_for_a_stuck_transfer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """All bytes are there, and to get them onto the disk takes longer than the stall watch waits."""
    workspace, before = await bench.archived(fill)
    slow, flushed = replace(bench, stall_seconds=2.5), []

    def at_length(descriptor: int) -> int:
        time.sleep(4)
        flushed.append(descriptor)
        return int(flush.LIBC.syncfs(descriptor))

    monkeypatch.setattr(flush, "syncfs", at_length)
    step = await slow.claim(workspace, DesiredState.STANDBY)
    assert await slow.operate(workspace, step) is None
    row = await bench.row(workspace)
    assert (row.phase, row.error_count) == (Phase.STANDBY, 0)
    assert flushed
    assert bench.home(workspace) == before


STATUSES = [
    ("PUT", "partNumber", 507, "InsufficientStorage", ErrorReason.ACTION_FAILED),
    pytest.param("PUT", "partNumber", 503, "SlowDown", ErrorReason.UNREACHABLE, marks=pytest.mark.full),
    ("POST", "uploadId", 500, "InternalError", ErrorReason.UNREACHABLE),
    pytest.param("POST", "uploads", 403, "AccessDenied", ErrorReason.ACTION_FAILED, marks=pytest.mark.full),
    ("PUT", ".meta", 500, "InternalError", ErrorReason.UNREACHABLE),
    pytest.param("GET", ".meta", 503, "ServiceUnavailable", ErrorReason.UNREACHABLE, marks=pytest.mark.full),
]


@pytest.mark.parametrize(("method", "contains", "status", "code", "reason"), STATUSES)
async def test_archiving_on_a_store_that_refuses(
    bench: Bench,
    through: Through,
    s3_config: S3Config,
    method: str,
    contains: str,
    status: int,
    code: str,
    reason: ErrorReason,
) -> None:
    """Full, overloaded, broken or forbidden, at each step of an upload: the right reason, and nothing is left over."""
    workspace, before = await bench.workspace(fill)
    async with S3Proxy(s3_config.endpoint) as proxy, through(proxy.url) as other:
        step = await other.claim(workspace, DesiredState.ARCHIVED)
        proxy.fail(status, method=method, contains=contains, code=code)
        assert await other.operate(workspace, step) is reason
        proxy.heal()
        assert isinstance(other.archives, S3ArchiveStore)
        assert [upload async for upload in other.archives.list_uploads()] == []
    await keeps_its_home(bench, workspace, before, reason)
    await goes_on(bench, workspace, before)


@pytest.mark.parametrize(
    ("method", "ends", "status", "code"),
    [
        pytest.param("GET", ".zst", 503, "ServiceUnavailable", marks=pytest.mark.full),
        ("GET", ".meta", 500, "InternalError"),
        ("HEAD", ".zst", 503, "ServiceUnavailable"),
    ],
)
async def test_restoring_on_a_store_that_answers_with_errors(
    bench: Bench, through: Through, s3_config: S3Config, method: str, ends: str, status: int, code: str
) -> None:
    """For good: Unreachable after three attempts, with no home that is a part of one, and the archive stays."""
    workspace, before = await bench.archived(fill)
    async with S3Proxy(s3_config.endpoint) as proxy, through(proxy.url) as other:
        step = await other.claim(workspace, DesiredState.STANDBY)
        proxy.fail(status, method=method, ends=ends, code=code)
        assert await other.operate(workspace, step) is ErrorReason.UNREACHABLE
    row = await bench.row(workspace)
    assert (row.phase, row.error_reason, row.error_count) == (Phase.ERROR, ErrorReason.UNREACHABLE, 3)
    assert row.home_ctx.restoring == row.archive_key
    assert not row.condition(ConditionName.VOLUME_READY)
    await bench.recover(workspace)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_errors_of_the_store_that_pass_cost_a_restore_nothing(
    bench: Bench, through: Through, s3_config: S3Config
) -> None:
    """Of the download, more than the client tries again on its own. Nobody notices."""
    workspace, before = await bench.archived(fill)
    async with S3Proxy(s3_config.endpoint) as proxy, through(proxy.url) as other:
        step = await other.claim(workspace, DesiredState.STANDBY)
        proxy.fail(500, method="GET", ends=".meta", times=2)
        proxy.fail(503, method="HEAD", ends=".zst", code="ServiceUnavailable", times=2)
        proxy.fail(503, method="GET", ends=".zst", code="SlowDown", times=4)
        assert await other.operate(workspace, step) is None
    assert (await bench.row(workspace)).error_count == 0
    assert await bench.database.fetchval("SELECT attempts FROM operations WHERE id = $1", step.op_id) == 1
    assert bench.home(workspace) == before


async def test_a_store_that_does_not_say_whether_an_archive_is_there(
    bench: Bench, through: Through, s3_config: S3Config
) -> None:
    """That is unknown, and not lost: nothing is begun and nothing is an error until it says so."""
    workspace, before = await bench.archived(fill)
    async with S3Proxy(s3_config.endpoint) as proxy, through(proxy.url) as other:
        proxy.fail(503, method="HEAD", code="ServiceUnavailable")
        await other.want(workspace, DesiredState.STANDBY)
        assert (await other.operator.reconciler.step(workspace)).kind is StepKind.WAIT
        row = await bench.row(workspace)
        assert (row.phase, row.operation, row.error_reason) == (Phase.ARCHIVED, Operation.NONE, None)
        proxy.heal()
        await other.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_lost_answers_of_the_store_cost_nothing(bench: Bench, through: Through, s3_config: S3Config) -> None:
    """It did what it was asked, and said 500: for each call of an upload."""
    workspace, before = await bench.workspace(fill)
    async with S3Proxy(s3_config.endpoint) as proxy, through(proxy.url) as other:
        for method, contains in (("POST", "uploads"), ("PUT", "partNumber"), ("POST", "uploadId"), ("PUT", ".meta")):
            proxy.fail(500, method=method, contains=contains, times=1, after=True)
        await other.want(workspace, DesiredState.ARCHIVED)
        await other.drive(workspace, Phase.ARCHIVED)
        await other.want(workspace, DesiredState.STANDBY)
        await other.drive(workspace, Phase.STANDBY)
        assert bench.home(workspace) == before


@pytest.mark.parametrize("clean", [False, True], ids=["reset", "ended"])
async def test_a_connection_to_the_engine_that_breaks(
    bench: Bench, docker_runtime: DockerRuntime, docker_host: str, tmp_path: Path, clean: bool
) -> None:
    """PROMISES 18 and 19: while a home is read, and while it is written. One more attempt, and it is all there."""
    workspace, before = await bench.workspace(fill)
    async with FaultProxy(docker_host, tmp_path / "docker.sock") as proxy:
        runtime = DockerRuntime(replace(docker_runtime.config, docker_host=proxy.url))
        other = bench.with_parts(runtime=runtime, homes=runtime.homes())
        step = await other.claim(workspace, DesiredState.ARCHIVED)
        proxy.cut_after(down=4 * MIB, clean=clean)
        assert await other.operate(workspace, step) is None
        step = await other.claim(workspace, DesiredState.STANDBY)
        proxy.cut_after(up=4 * MIB, clean=clean)
        assert await other.operate(workspace, step) is None
        assert proxy.cuts == 2
        await runtime.close()
    after = bench.home(workspace)
    assert {name: entry[5] for name, entry in after.items()} == {name: entry[5] for name, entry in before.items()}


async def test_an_engine_that_is_away_leaves_everything(
    bench: Bench, docker_runtime: DockerRuntime, docker_host: str, tmp_path: Path
) -> None:
    """After the archive is there and before the volume is removed: Unreachable, and both are kept."""
    workspace, before = await bench.workspace()
    async with FaultProxy(docker_host, tmp_path / "docker.sock") as proxy:
        runtime = DockerRuntime(replace(docker_runtime.config, docker_host=proxy.url))
        other = bench.with_parts(homes=runtime.homes())
        step = await other.claim(workspace, DesiredState.ARCHIVED)

        async def away(point: str) -> None:
            if point == "archive_key_saved":
                await proxy.refuse()

        other.reach(away)
        assert await other.operate(workspace, step) is ErrorReason.UNREACHABLE
        await runtime.close()
    row = await bench.row(workspace)
    assert row.archive_key is not None
    assert bench.home(workspace) == before
    await bench.recover(workspace)
    await bench.drive(workspace, Phase.ARCHIVED)


class SmallDisk(DockerHomes):
    """Homes on a disk that is too small for them."""

    __slots__ = ()

    async def renew(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence) -> None:
        await DockerHomes.renew(self, workspace_id, op_id, fence)
        name = volume_name(workspace_id)

        def shrink(api: APIClient) -> None:
            labels = api.inspect_volume(name)["Labels"]
            api.remove_volume(name)
            size = {"type": "tmpfs", "device": "tmpfs", "o": "size=4m"}
            api.create_volume(name, driver="local", driver_opts=size, labels=labels)

        await self.engine.act(shrink)


async def test_a_full_disk_is_said_and_nothing_is_lost(bench: Bench, docker_runtime: DockerRuntime) -> None:
    workspace, before = await bench.archived(fill)
    plain = docker_runtime.homes()
    small = SmallDisk(plain.engine, plain.config, plain.containers, plain.volumes)
    step = await bench.claim(workspace, DesiredState.RUNNING)
    assert await bench.with_parts(homes=small).operate(workspace, step) is ErrorReason.ACTION_FAILED
    row = await bench.row(workspace)
    assert not row.condition(ConditionName.VOLUME_READY)
    message = await bench.database.fetchval("SELECT error_message FROM operations WHERE id = $1", step.op_id)
    assert "no space left" in message
    assert not bench.volumes.exists(workspace), "what was restored of it is worth nothing, and takes all others' room"
    await bench.want_again(workspace)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before
