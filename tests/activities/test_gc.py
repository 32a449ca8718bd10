"""GC: never what is referred to, protected or young; in the end everything else (PROMISE 20)."""

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from activities.gc import OWNER_KEY, RUN_KEY, GarbageCollector
from adapters.archive_store import OpenUpload, StoredObject
from adapters.postgres.database import Database, open_database
from adapters.postgres.garbage import Garbage
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.errors import Unreachable
from domain.gc import Claims, is_protected, workspace_of
from domain.model import HomeContext, OperationId, Phase, WorkspaceId
from domain.naming import archive_key, meta_key
from tests.conftest import S3
from workflows.messages import GcInput

NOW = timedelta(0)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await open_database(database_url)
    await opened.execute("INSERT INTO users (id, username, password_hash) VALUES ($1, 'alice', '')", UUID(int=1))
    yield opened
    await opened.close()


@pytest.fixture
async def store(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as opened:
        yield opened


def collector(database: Database, store: S3ArchiveStore, delay: timedelta = NOW) -> GarbageCollector:
    return GarbageCollector(Garbage(database), store, "ours", delay, batch=3)


async def workspace(
    database: Database, phase: Phase = Phase.ARCHIVED, key: str | None = "", **columns: str
) -> WorkspaceId:
    """A row; `key` "" gives it the archive of operation 1."""
    workspace_id = WorkspaceId(str(uuid4()))
    gone = phase is Phase.DELETED
    await database.execute(
        "INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, deleted_at, phase, archive_key,"
        " archive_op_id, error_reason) VALUES ($1::uuid, $2, $1::uuid::text, 'i', $3, $4, $5, $6, $7, $8)",
        workspace_id,
        UUID(int=1),
        "DELETED" if gone else "ARCHIVED",
        datetime.now(UTC) if gone else None,
        phase,
        archive_key(workspace_id, op(1)) if key == "" else key,
        columns.get("archive_op_id"),
        "DataLost" if phase is Phase.ERROR else None,
    )
    return workspace_id


def op(number: int) -> OperationId:
    return OperationId(str(UUID(int=number)))


async def put(store: S3ArchiveStore, workspace_id: WorkspaceId, number: int) -> str:
    key = archive_key(workspace_id, op(number))
    await store.write(key, b"archive")
    await store.write(meta_key(key), b"meta")
    return key


async def keys(store: S3ArchiveStore) -> set[str]:
    return {found.key async for found in store.list_objects()} - {RUN_KEY, OWNER_KEY}


async def test_keeps_what_is_referred_to_and_collects_the_rest(database: Database, store: S3ArchiveStore) -> None:
    archived = await workspace(database)
    wanted = await put(store, archived, 1)
    old = await put(store, archived, 2)
    deleted = await put(store, await workspace(database, Phase.DELETED), 1)
    report = await collector(database, store).collect(GcInput())
    assert await keys(store) == {wanted, meta_key(wanted)}
    assert (report.orphans, report.deleted) == (4, 4)
    assert old != deleted


async def test_archives_of_a_workspace_in_error_are_protected_all(database: Database, store: S3ArchiveStore) -> None:
    broken = await workspace(database, Phase.ERROR)
    await put(store, broken, 1)
    await put(store, broken, 2)
    await collector(database, store).collect(GcInput())
    assert len(await keys(store)) == 4


async def test_the_archive_of_an_unfinished_operation_is_protected(database: Database, store: S3ArchiveStore) -> None:
    unfinished = await workspace(database, archive_op_id=op(7))
    await put(store, unfinished, 7)
    await collector(database, store).collect(GcInput())
    assert len(await keys(store)) == 2


async def test_an_orphan_is_deleted_only_after_the_delay(database: Database, store: S3ArchiveStore) -> None:
    """Since when it is one is remembered in PostgreSQL, over restarts."""
    await put(store, await workspace(database, Phase.DELETED), 1)
    await collector(database, store, timedelta(hours=2)).collect(GcInput())
    assert len(await keys(store)) == 2
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '1 hour 59 minutes'")
    await collector(database, store, timedelta(hours=2)).collect(GcInput())
    assert len(await keys(store)) == 2
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '2 hours 1 second'")
    await collector(database, store, timedelta(hours=2)).collect(GcInput())
    assert await keys(store) == set()


async def test_an_orphan_that_is_wanted_again_starts_anew(database: Database, store: S3ArchiveStore) -> None:
    row = await workspace(database, Phase.ARCHIVED, "elsewhere")
    key = await put(store, row, 1)
    gc = collector(database, store, timedelta(hours=2))
    await gc.collect(GcInput())
    assert await database.fetchval("SELECT count(*) FROM gc_orphans") == 2
    await database.execute("UPDATE workspaces SET archive_key = $1", key)
    await gc.collect(GcInput())
    assert await database.fetchval("SELECT count(*) FROM gc_orphans") == 0


async def test_what_codehub_did_not_make_is_never_touched(database: Database, store: S3ArchiveStore) -> None:
    for key in ("readme.txt", "a/b/home.tar.zst", f"{uuid4()}/home.tar.zst", f"{uuid4()}/{uuid4()}/other"):
        await store.write(key, b"mine")
    await collector(database, store).collect(GcInput())
    assert len(await keys(store)) == 4


async def test_a_listing_that_breaks_off_deletes_nothing(database: Database, store: S3ArchiveStore) -> None:
    """Not even what the part that was read shows to be an orphan of old."""
    deleted = await workspace(database, Phase.DELETED)
    for number in range(1, 5):
        await put(store, deleted, number)

    class Breaking(S3ArchiveStore):
        async def list_objects(self) -> AsyncIterator[StoredObject]:
            count = 0
            async for found in S3ArchiveStore.list_objects(self):
                count += 1
                if count == 6:
                    raise Unreachable("cut")
                yield found

    breaking = Breaking(store.client, store.bucket)
    with pytest.raises(Unreachable):
        await collector(database, breaking).collect(GcInput())
    assert len(await keys(store)) == 8


async def test_a_database_from_an_older_backup_deletes_nothing_at_once(
    database: Database, store: S3ArchiveStore
) -> None:
    """The store has seen more runs than the database remembers: what it does not know may be wanted."""
    await collector(database, store).collect(GcInput())
    await collector(database, store).collect(GcInput())
    await put(store, WorkspaceId(str(uuid4())), 1)
    await database.execute("UPDATE gc_state SET run = 1")
    report = await collector(database, store).collect(GcInput())
    assert report.held
    again = await collector(database, store).collect(GcInput())
    assert (again.held, len(await keys(store))) == (True, 2)
    await Garbage(database).release()
    await collector(database, store).collect(GcInput())
    assert await keys(store) == set()


async def test_a_bucket_of_another_installation_is_left_alone(database: Database, store: S3ArchiveStore) -> None:
    await store.write(OWNER_KEY, b"theirs")
    await put(store, WorkspaceId(str(uuid4())), 1)
    report = await collector(database, store).collect(GcInput())
    assert (report.held, len(await keys(store))) == (True, 2)


async def test_a_dry_run_changes_nothing(database: Database, store: S3ArchiveStore) -> None:
    orphan = await put(store, await workspace(database, Phase.DELETED), 1)
    report = await collector(database, store).collect(GcInput(dry_run=True))
    assert set(report.keys) == {orphan, meta_key(orphan)}
    assert len(await keys(store)) == 2
    assert await database.fetchval("SELECT count(*) FROM gc_orphans") == 0
    assert await store.read(RUN_KEY) is None


async def test_stale_uploads_are_aborted_and_those_of_an_operation_are_not(
    database: Database, store: S3ArchiveStore
) -> None:
    busy = await workspace(database, archive_op_id=op(7))
    for workspace_id, number in ((busy, 7), (WorkspaceId(str(uuid4())), 1)):
        await store.client.create_multipart_upload(Bucket=store.bucket, Key=archive_key(workspace_id, op(number)))
    report = await collector(database, store, timedelta(seconds=-5)).collect(GcInput())
    left: list[OpenUpload] = [upload async for upload in store.list_uploads()]
    assert report.aborted_uploads == 1
    assert [upload.key for upload in left] == [archive_key(busy, op(7))]


@pytest.mark.parametrize("steps", [2000, pytest.param(10_000, marks=pytest.mark.full)])
def test_model(steps: int) -> None:
    """PROMISE 20: over random lives of workspaces, GC deletes no referenced, protected or young archive, and in the
    end every other one."""
    world = random.Random(20)
    rows: dict[WorkspaceId, Claims] = {}
    stored: set[str] = set()
    first_seen: dict[str, int] = {}
    delay = 5

    def collect(now: int) -> None:
        nonlocal first_seen
        orphans = {key for key in stored if not is_protected(key, rows.get(workspace_of(key) or WorkspaceId("")))}
        first_seen = {key: first_seen.get(key, now) for key in orphans}
        doomed = {key for key, since in first_seen.items() if now - since >= delay}
        for claims in rows.values():
            if claims.phase is not Phase.DELETED:
                assert claims.archive_key not in doomed
            if claims.phase is Phase.ERROR:
                assert not any(key.startswith(f"{claims.workspace_id}/") for key in doomed)
        stored.difference_update(doomed)
        first_seen = {key: since for key, since in first_seen.items() if key not in doomed}

    for now in range(steps):
        _live(world, rows, stored)
        if world.random() < 0.3:
            collect(now)
    collect(steps)
    collect(steps + delay)
    living = [claims for claims in rows.values() if claims.phase is not Phase.DELETED]
    referred = {claims.archive_key for claims in living if claims.archive_key}
    assert referred <= stored
    owners = {claims.workspace_id for claims in living}
    assert {workspace_of(key) for key in stored} <= owners
    for claims in living:
        kept = {key for key in stored if workspace_of(key) == claims.workspace_id}
        if claims.phase is not Phase.ERROR:
            unfinished = {archive_key(claims.workspace_id, claims.archive_op_id)} if claims.archive_op_id else set()
            assert kept <= {claims.archive_key} | unfinished


def _live(world: random.Random, rows: dict[WorkspaceId, Claims], stored: set[str]) -> None:
    """One step in the life of a random workspace."""
    if not rows or world.random() < 0.1:
        made = WorkspaceId(str(UUID(int=world.getrandbits(128))))
        rows[made] = Claims(made, Phase.PENDING, None, None, HomeContext())
    claims = rows[world.choice(list(rows))]
    if claims.phase is Phase.DELETED:
        return
    action = world.random()
    operation = OperationId(str(UUID(int=world.getrandbits(128))))
    key = archive_key(claims.workspace_id, operation)
    phase: Phase = claims.phase
    archived, archive_op = claims.archive_key, claims.archive_op_id
    if action < 0.4:
        stored.add(key)
        phase, archived, archive_op = Phase.ARCHIVED, key, operation
    elif action < 0.6:
        stored.add(key)
        phase, archive_op = Phase.ERROR, operation
    elif action < 0.8:
        phase, archive_op = (Phase.STANDBY, None) if archived else (Phase.PENDING, None)
    else:
        phase = Phase.DELETED
    rows[claims.workspace_id] = Claims(claims.workspace_id, phase, archived, archive_op, claims.home_ctx)
