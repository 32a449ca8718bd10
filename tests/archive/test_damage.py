"""PROMISE 17: damage in the store is found, and no workspace ever runs on it. CI: 20 flips and 6 truncations through
the whole operation; full: 300 and 100."""

import random
from pathlib import Path

import pytest
import zstandard

from adapters.docker.runtime import DockerRuntime
from adapters.s3.store import S3ArchiveStore
from domain.archive import ArchiveMeta
from domain.errors import Unreachable
from domain.model import ConditionName, DesiredState, ErrorReason, Phase, WorkspaceId
from domain.naming import meta_key
from tests.archive.bench import Bench
from tests.archive.trees import Snapshot, grow
from tests.faults.faulty import faulty
from tests.transfer.tars import made, member

pytestmark = pytest.mark.docker


class Damaged:
    """One archived home, whose archive is damaged in many ways, one after the other."""

    def __init__(self, bench: Bench, archives: S3ArchiveStore) -> None:
        self.bench = bench
        self.archives = archives
        self.workspace = WorkspaceId("")
        self.before: Snapshot = {}
        self.key = ""
        self.body = b""
        self.meta = b""

    async def prepare(self) -> None:
        self.workspace, self.before = await self.bench.archived(lambda home: grow(home, 3, entries=25, largest=4000))
        self.key = (await self.bench.row(self.workspace)).archive_key or ""
        self.body = await self.archives.read(self.key) or b""
        self.meta = await self.archives.read(meta_key(self.key)) or b""

    async def restore(self) -> ErrorReason | None:
        """Towards RUNNING; what it ends with."""
        bench = self.bench
        step = await bench.claim(self.workspace, DesiredState.RUNNING)
        return await bench.operate(self.workspace, step)

    async def is_refused(self, reason: ErrorReason = ErrorReason.ARCHIVE_CORRUPTED) -> None:
        """ERROR with this reason, no volume that could be taken for a home, and the archive is kept."""
        bench = self.bench
        found = await self.archives.read(self.key)
        assert await self.restore() is reason
        row = await bench.row(self.workspace)
        assert (row.phase, row.error_reason, row.archive_key) == (Phase.ERROR, reason, self.key)
        assert not row.condition(ConditionName.VOLUME_READY)
        assert not bench.volumes.exists(self.workspace)
        assert await self.archives.read(self.key) == found
        await bench.want_again(self.workspace)

    async def is_restored(self) -> None:
        await self.archives.write(self.key, self.body)
        await self.archives.write(meta_key(self.key), self.meta)
        step = await self.bench.claim(self.workspace, DesiredState.STANDBY)
        assert await self.bench.operate(self.workspace, step) is None
        assert self.bench.home(self.workspace) == self.before


@pytest.fixture
async def damaged(bench: Bench, archives: S3ArchiveStore) -> Damaged:
    made = Damaged(bench, archives)
    await made.prepare()
    return made


FULL = [pytest.mark.full, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("count", [20, pytest.param(300, marks=FULL)])
async def test_a_flipped_byte_is_found(damaged: Damaged, count: int) -> None:
    """Anywhere, any bit. Mended, the home comes back identical."""
    chance = random.Random(count)
    for _ in range(count):
        body = bytearray(damaged.body)
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        await damaged.archives.write(damaged.key, bytes(body))
        await damaged.is_refused()
    await damaged.is_restored()


@pytest.mark.parametrize("count", [6, pytest.param(100, marks=FULL)])
async def test_a_truncated_archive_is_found(damaged: Damaged, count: int) -> None:
    """Also where the .meta was made to agree with its length: the checksum does not."""
    chance = random.Random(count)
    meta = ArchiveMeta.model_validate_json(damaged.meta)
    for number in range(count):
        body = damaged.body[: chance.randrange(len(damaged.body))]
        await damaged.archives.write(damaged.key, body)
        if number % 2:
            agreeing = meta.model_copy(update={"size": len(body)})
            await damaged.archives.write(meta_key(damaged.key), agreeing.model_dump_json().encode())
        await damaged.is_refused()
        await damaged.archives.write(meta_key(damaged.key), damaged.meta)
    await damaged.is_restored()


@pytest.mark.parametrize("direct", [True, False])
async def test_a_tar_that_ends_before_its_archive_is_found(
    damaged: Damaged, docker_runtime: DockerRuntime, direct: bool
) -> None:
    """Whoever extracts it has seen an end, and does not want the rest: that all went well for them says nothing."""
    end = made([(member("home/part"), b"of a home")]) + random.Random(7).randbytes(48 << 20)
    body = zstandard.ZstdCompressor(level=1).compress(end)
    sizes = {"size": len(body), "raw_size": len(end)}
    meta = ArchiveMeta.model_validate_json(damaged.meta).model_copy(update=sizes)
    await damaged.archives.write(damaged.key, body)
    await damaged.archives.write(meta_key(damaged.key), meta.model_dump_json().encode())
    whole = damaged.bench
    damaged.bench = whole.with_parts(homes=docker_runtime.homes(direct=direct))
    await damaged.is_refused()
    damaged.bench = whole
    await damaged.is_restored()


async def test_an_archive_of_another_home_is_found(damaged: Damaged, bench: Bench) -> None:
    """Bytes that are a perfect archive, but not this one's."""
    other, _ = await bench.archived(_little)
    key = (await bench.row(other)).archive_key or ""
    await damaged.archives.write(damaged.key, await damaged.archives.read(key) or b"")
    await damaged.is_refused()
    await damaged.archives.write(meta_key(damaged.key), await damaged.archives.read(meta_key(key)) or b"")
    await damaged.is_refused()
    await damaged.is_restored()


async def test_a_meta_that_is_missing_or_wrong_is_found(damaged: Damaged) -> None:
    """Without its commit marker an archive was never completed, however whole it looks."""
    meta = ArchiveMeta.model_validate_json(damaged.meta)
    for body in (
        None,
        b"",
        b"{}",
        b"\xff\xfe",
        damaged.meta[:-5],
        b'{"sha256": "' + b"0" * 5_000_000 + b'"}',
        meta.model_copy(update={"raw_size": 10**30}).model_dump_json().encode(),
        meta.model_copy(update={"sha256": "0" * 64}).model_dump_json().encode(),
        meta.model_copy(update={"size": meta.size + 1}).model_dump_json().encode(),
        meta.model_copy(update={"raw_size": meta.raw_size + 512}).model_dump_json().encode(),
        meta.model_copy(update={"format_version": 2}).model_dump_json().encode(),
        meta.model_copy(update={"workspace_id": "00000000-0000-0000-0000-000000000000"}).model_dump_json().encode(),
    ):
        if body is None:
            await damaged.archives.delete([meta_key(damaged.key)])
        else:
            await damaged.archives.write(meta_key(damaged.key), body)
        await damaged.is_refused()
    await damaged.is_restored()


async def test_what_an_attempt_before_had_filled_in_part_goes_with_it(damaged: Damaged) -> None:
    """Its worker died, and by the next attempt there is no whole archive any more: a partial home keeps no room."""
    bench, workspace = damaged.bench, damaged.workspace
    step = await bench.claim(workspace, DesiredState.RUNNING)
    await bench.runtime.create_volume(workspace, step.op_id)
    (bench.volumes.path(workspace) / "a part").write_text("of a home")
    await damaged.archives.write(meta_key(damaged.key), b"{}")
    assert await bench.operate(workspace, step) is ErrorReason.ARCHIVE_CORRUPTED
    assert not bench.volumes.exists(workspace)
    await bench.want_again(workspace)
    await damaged.is_restored()


@pytest.mark.parametrize("times", [1, 10])
async def test_an_engine_that_is_away_just_then_does_not_hide_the_damage(damaged: Damaged, times: int) -> None:
    """The partial volume goes as soon as it answers; what the person is told is what they have to mend."""
    whole = damaged.bench
    homes, faults = faulty(whole.homes)
    faults.fail("remove", Unreachable("away"), times=times)
    damaged.bench = whole.with_parts(homes=homes)
    await damaged.archives.write(damaged.key, damaged.body[:-1] + bytes([damaged.body[-1] ^ 1]))
    assert await damaged.restore() is ErrorReason.ARCHIVE_CORRUPTED
    row = await whole.row(damaged.workspace)
    assert (row.phase, row.error_count) == (Phase.ERROR, 1)
    assert whole.volumes.exists(damaged.workspace) == (times > 1)
    damaged.bench = whole
    await whole.want_again(damaged.workspace)
    await damaged.is_restored()


async def test_an_older_archive_of_the_same_home_is_refused(damaged: Damaged) -> None:
    """Whole and right by its own .meta, but of another operation: it would be a silently older home."""
    meta = ArchiveMeta.model_validate_json(damaged.meta)
    older = meta.model_copy(update={"archive_op_id": "11111111-1111-4111-8111-111111111111"})
    await damaged.archives.write(meta_key(damaged.key), older.model_dump_json().encode())
    await damaged.is_refused()
    await damaged.is_restored()


async def test_an_archive_that_is_gone_is_lost_data(damaged: Damaged) -> None:
    """And only when the store says so. Put back, it is restored."""
    await damaged.archives.delete([damaged.key])
    bench = damaged.bench
    await bench.want(damaged.workspace, DesiredState.RUNNING)
    await bench.operator.reconciler.step(damaged.workspace)
    row = await bench.row(damaged.workspace)
    assert (row.phase, row.error_reason) == (Phase.ERROR, ErrorReason.DATA_LOST)
    await damaged.archives.write(damaged.key, damaged.body)
    await bench.want_again(damaged.workspace)
    await damaged.is_restored()


async def test_an_archive_that_goes_away_while_it_is_restored_is_lost_data(damaged: Damaged) -> None:
    step = await damaged.bench.claim(damaged.workspace, DesiredState.RUNNING)
    await damaged.archives.delete([damaged.key])
    assert await damaged.bench.operate(damaged.workspace, step) is ErrorReason.DATA_LOST
    assert not (await damaged.bench.row(damaged.workspace)).condition(ConditionName.VOLUME_READY)
    await damaged.archives.write(damaged.key, damaged.body)
    await damaged.bench.want_again(damaged.workspace)
    await damaged.is_restored()


async def test_archiving_replaces_a_meta_that_can_not_be_read(bench: Bench, archives: S3ArchiveStore) -> None:
    """What an earlier attempt left half-written, or somebody put there, is no commit marker."""
    workspace, before = await bench.workspace(_little)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    key = f"{workspace}/{step.op_id}/home.tar.zst"
    await archives.write(meta_key(key), b'{"sha256": 1}')
    assert await bench.operate(workspace, step) is None
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_archiving_does_not_trust_a_committed_archive_whose_bytes_are_bad(
    bench: Bench, archives: S3ArchiveStore
) -> None:
    """An earlier attempt committed, then the store lost or changed its bytes: made anew, as long as the volume is."""
    workspace, before = await bench.workspace(_little)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    key = f"{workspace}/{step.op_id}/home.tar.zst"
    meta = {
        "format_version": 1,
        "workspace_id": workspace,
        "archive_op_id": step.op_id,
        "sha256": "0" * 64,
        "size": 5,
        "raw_size": 10240,
        "entries": 0,
        "codehub_version": "0",
        "created_at": "2026-01-01T00:00:00Z",
    }
    await archives.write(key, b"wrong")
    await archives.write(meta_key(key), ArchiveMeta.model_validate(meta).model_dump_json().encode())
    assert await bench.operate(workspace, step) is None
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before


async def test_what_the_store_stored_wrongly_is_never_the_only_copy(bench: Bench, archives: S3ArchiveStore) -> None:
    """The read-back is what allows the volume to go: a store that keeps other bytes than it was given."""
    workspace, before = await bench.workspace(_little)
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    key = f"{workspace}/{step.op_id}/home.tar.zst"

    async def rot() -> None:
        body = bytearray(await archives.read(key) or b"")
        body[len(body) // 2] ^= 4
        await archives.write(key, bytes(body))

    rotting, faults = faulty(archives)
    faults.watch("upload", rot, after=True)
    assert await bench.with_parts(archives=rotting).operate(workspace, step) is ErrorReason.ACTION_FAILED
    row = await bench.row(workspace)
    assert row.archive_key is None
    assert bench.home(workspace) == before
    assert faults.calls.count("upload") == 3


def _little(home: Path) -> None:
    grow(home, 5, entries=10, largest=2000)
