"""GC: never what is referred to, protected or young; in the end everything else (PROMISE 20)."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from temporalio.testing import ActivityEnvironment

from activities.bucket import OWNER_KEY
from activities.gc import RUN_KEY, GarbageCollector
from adapters.archive_store import OpenUpload, StoredObject
from adapters.postgres.database import Database, DatabaseUnavailable
from adapters.postgres.garbage import Garbage
from adapters.postgres.workspaces import WorkspaceStore
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.errors import Unreachable
from domain.gc import Claims
from domain.model import OperationId, Phase, WorkspaceId
from domain.naming import archive_key, meta_key
from tests.conftest import S3
from workflows.messages import GcInput

NOW = timedelta(0)


@pytest.fixture
async def store(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as opened:
        yield opened


def collector(database: Database, store: S3ArchiveStore, delay: timedelta = NOW) -> GarbageCollector:
    return GarbageCollector(Garbage(database), store, "ours", delay, batch=3)


async def workspace(
    database: Database, phase: Phase = Phase.ARCHIVED, key: str | None = "", **columns: str
) -> WorkspaceId:
    """A row; `key` "" gives it the archive of operation 1. Operations 1 to 9 are known from then on."""
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
    await database.execute(
        "INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at, finished_at, outcome)"
        " SELECT id, $2, 'ARCHIVING', 'STANDBY', now(), now(), 'SUCCEEDED' FROM unnest($1::uuid[]) AS id"
        " ON CONFLICT DO NOTHING",
        [op(number) for number in range(1, 10)],
        workspace_id,
    )
    return workspace_id


class Later(Garbage):
    """Three hours from now, as far as uploads are concerned: theirs is the store's clock."""

    async def now(self) -> datetime:
        return await Garbage.now(self) + timedelta(hours=3)


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


async def test_rows_that_can_not_all_be_read_delete_nothing(database: Database, store: S3ArchiveStore) -> None:
    """PostgreSQL goes away in the middle of the look: not even what was seen to be nobody's, and has long been due, is
    deleted, and no upload is ended."""
    gone = await workspace(database, Phase.DELETED)
    for number in range(1, 5):
        await put(store, gone, number)
    await store.client.create_multipart_upload(Bucket=store.bucket, Key=archive_key(gone, op(5)))
    due = collector(database, store, timedelta(seconds=-5))
    assert (await due.collect(GcInput(dry_run=True))).due == 8

    class GoesAway(Garbage):
        batches = 0

        async def claims(self, workspaces: Iterable[WorkspaceId]) -> Mapping[WorkspaceId, Claims]:
            GoesAway.batches += 1
            if GoesAway.batches == 2:
                raise DatabaseUnavailable("PostgreSQL is away")
            return await Garbage.claims(self, workspaces)

    with pytest.raises(DatabaseUnavailable):
        await replace(due, garbage=GoesAway(database)).collect(GcInput())
    assert len(await keys(store)) == 8
    assert len([upload async for upload in store.list_uploads()]) == 1
    report = await due.collect(GcInput())
    assert (report.deleted, report.aborted_uploads) == (8, 1)


async def test_a_database_from_an_older_backup_deletes_nothing_at_once(
    database: Database, store: S3ArchiveStore
) -> None:
    """The store has seen more runs than the database remembers: what it does not know may be wanted."""
    await collector(database, store).collect(GcInput())
    await collector(database, store).collect(GcInput())
    await put(store, await workspace(database, Phase.DELETED), 1)
    await database.execute("UPDATE gc_state SET run = 1")
    report = await collector(database, store).collect(GcInput())
    assert report.held
    again = await collector(database, store).collect(GcInput())
    assert (again.held, len(await keys(store))) == (True, 2)
    await Garbage(database).release()
    await collector(database, store).collect(GcInput())
    assert await keys(store) == set()


@pytest.mark.parametrize("dry_run", [True, False])
async def test_a_run_that_another_overtakes_takes_no_database_for_an_older_one(
    database: Database, store: S3ArchiveStore, dry_run: bool
) -> None:
    """By the operator's hand, or an attempt that was given up: one run begins and ends while another one asks how many
    there were."""
    other = collector(database, store, timedelta(hours=2))

    class Overtaken(S3ArchiveStore):
        async def read(self, key: str) -> bytes | None:
            if key == RUN_KEY:
                assert not (await other.collect(GcInput())).held
            return await S3ArchiveStore.read(self, key)

    await put(store, await workspace(database, Phase.DELETED), 1)
    await other.collect(GcInput())
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '1 hour'")
    since = "SELECT max(first_seen_at) FROM gc_orphans"
    before = await database.fetchval(since)
    overtaken = collector(database, Overtaken(store.client, store.bucket), timedelta(hours=2))
    report = await overtaken.collect(GcInput(dry_run=dry_run))
    assert (report.held, (await Garbage(database).state()).held) == (False, False)
    assert await database.fetchval(since) == before


async def test_what_was_made_after_the_backup_is_kept_longer(database: Database, store: S3ArchiveStore) -> None:
    """A backup that was taken and restored between two runs: the counts are the same, but the database has never heard
    of the operation. A person can say that it is nobody's; else it goes after GC_RESTORED_DELAY."""
    known = await workspace(database)
    await put(store, known, 2)
    for owner in (known, WorkspaceId(str(uuid4()))):
        await put(store, owner, 77)
    gc = collector(database, store)
    report = await gc.collect(GcInput())
    assert (report.held, report.unknown, report.deleted, len(await keys(store))) == (False, 4, 2, 4)
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '6 days 23 hours'")
    assert (await gc.collect(GcInput())).deleted == 0
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '8 days' WHERE key ~ $1", known)
    assert (await gc.collect(GcInput())).deleted == 2
    assert (await gc.collect(GcInput(dry_run=True))).unknown == 2
    assert (await gc.collect(GcInput(accept_restored=True))).deleted == 2
    assert await keys(store) == set()


async def test_what_was_archived_again_is_known(database: Database, store: S3ArchiveStore) -> None:
    """Where a container held the volume, the home is archived once more under an id that is no operation's: as an
    orphan it is nobody's from a backup."""
    owner, op_id, ids = await workspace(database, Phase.STANDBY, None), str(uuid4()), [str(uuid4()) for _ in range(2)]
    await database.execute(
        "INSERT INTO operations (id, workspace_id, operation, previous_phase, started_at)"
        " VALUES ($1, $2, 'ARCHIVING', 'STANDBY', now())",
        op_id,
        owner,
    )
    await database.execute(
        "UPDATE workspaces SET operation = 'ARCHIVING', op_id = $2::uuid, op_started_at = now(),"
        " archive_op_id = $2::uuid WHERE id = $1",
        owner,
        op_id,
    )
    rows = WorkspaceStore(database)
    begun = await rows.begin_attempt(OperationId(op_id))
    assert begun
    for again in ids:
        await rows.save_not_removed(owner, OperationId(op_id), begun.number, OperationId(again))
        await store.write(archive_key(owner, OperationId(again)), b"archive")
    # The last one is still wanted: its operation is under way.
    report = await collector(database, store).collect(GcInput())
    assert (report.unknown, report.deleted) == (0, 1)
    assert await keys(store) == {archive_key(owner, OperationId(ids[1]))}


async def test_what_a_person_accepted_stays_accepted(database: Database, store: S3ArchiveStore) -> None:
    await put(store, WorkspaceId(str(uuid4())), 77)
    patient = collector(database, store, timedelta(hours=2))
    assert (await patient.collect(GcInput())).unknown == 2
    assert (await patient.collect(GcInput(accept_restored=True))).unknown == 0
    await patient.collect(GcInput())
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '2 hours 1 second'")
    assert (await patient.collect(GcInput())).deleted == 2


async def test_a_bucket_of_another_installation_is_left_alone(database: Database, store: S3ArchiveStore) -> None:
    await store.write(OWNER_KEY, b"theirs")
    await put(store, WorkspaceId(str(uuid4())), 1)
    report = await collector(database, store).collect(GcInput())
    assert (report.held, len(await keys(store))) == (True, 2)


@pytest.mark.parametrize("count", [b"nonsense", b"9" * 30, b"9" * 5000])
async def test_a_count_of_runs_that_is_none_is_not_believed(
    database: Database, store: S3ArchiveStore, count: bytes
) -> None:
    """Whoever can write to the bucket can't keep GC from its work by a number that nothing can hold."""
    await put(store, await workspace(database, Phase.DELETED), 1)
    await store.write(RUN_KEY, count)
    report = await collector(database, store).collect(GcInput())
    assert (report.held, report.deleted, await keys(store)) == (False, 2, set())


async def test_a_dry_run_changes_nothing(database: Database, store: S3ArchiveStore) -> None:
    orphan = await put(store, await workspace(database, Phase.DELETED), 1)
    report = await collector(database, store).collect(GcInput(dry_run=True))
    assert set(report.keys) == {orphan, meta_key(orphan)}
    assert len(await keys(store)) == 2
    assert await database.fetchval("SELECT count(*) FROM gc_orphans") == 0
    assert await store.read(RUN_KEY) is None


async def test_a_dry_run_says_what_a_run_would_do(database: Database, store: S3ArchiveStore) -> None:
    """Which orphans go now and which wait, and which uploads end: to the key what the run then does."""
    row, gc = await workspace(database), collector(database, store, timedelta(hours=2))
    kept = await put(store, row, 1)
    old, unknown, again = await put(store, row, 2), await put(store, row, 77), await put(store, row, 3)
    await gc.collect(GcInput())
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '1 day'")
    await database.execute("UPDATE workspaces SET archive_op_id = $1", op(3))
    young = await put(store, row, 4)
    upload = archive_key(row, op(5))
    await store.client.create_multipart_upload(Bucket=store.bucket, Key=upload)
    gc = replace(gc, garbage=Later(database))

    dry = await gc.collect(GcInput(dry_run=True))

    assert set(dry.keys) == {name for key in (old, unknown, young) for name in (key, meta_key(key))}
    assert set(dry.due_keys) == {old, meta_key(old)}
    assert (dry.due, dry.due_bytes) == (2, len(b"archive") + len(b"meta"))
    assert (dry.stale_uploads, dry.upload_keys) == (1, [upload])
    before = await keys(store)
    done = await gc.collect(GcInput())
    assert before - await keys(store) == set(dry.due_keys)
    assert (done.deleted, done.deleted_bytes, done.aborted_uploads) == (dry.due, dry.due_bytes, dry.stale_uploads)
    assert {kept, unknown, again, young} <= await keys(store)


async def test_a_dry_run_says_what_accepting_would_do(database: Database, store: S3ArchiveStore) -> None:
    """Before the person says it for good: from then on all is counted anew, so nothing goes at once."""
    unknown = await put(store, WorkspaceId(str(uuid4())), 77)
    gc = collector(database, store, timedelta(hours=2))
    await gc.collect(GcInput())
    await database.execute("UPDATE gc_orphans SET first_seen_at = now() - interval '1 day'")
    assert (await gc.collect(GcInput(dry_run=True))).due_keys == []
    accepted = await gc.collect(GcInput(dry_run=True, accept_restored=True))
    assert (accepted.unknown, set(accepted.due_keys)) == (0, {unknown, meta_key(unknown)})
    assert (await gc.collect(GcInput(dry_run=True))).unknown == 2, "it was accepted by a dry run"

    await store.write(RUN_KEY, b"41")
    held = await gc.collect(GcInput(dry_run=True))
    assert (held.held, held.due_keys) == (True, [])
    released = await gc.collect(GcInput(dry_run=True, accept_restored=True))
    assert (released.held, released.due_keys) == (False, [])
    done = await gc.collect(GcInput(accept_restored=True))
    assert (done.held, done.deleted) == (False, 0)


async def test_a_dry_run_names_no_more_than_a_message_can_hold(database: Database, store: S3ArchiveStore) -> None:
    """It counts all of them, and whoever asks in this process is told all of them."""
    row = await workspace(database, Phase.DELETED)
    for number in range(1, 5):
        await put(store, row, number)
        await store.client.create_multipart_upload(Bucket=store.bucket, Key=archive_key(row, op(number)))
    gc = replace(collector(database, store, timedelta(seconds=-5)), named=3)
    few = await gc.collect(GcInput(dry_run=True))
    assert (few.orphans, few.due, few.stale_uploads) == (8, 8, 4)
    assert (len(few.keys), len(few.due_keys), len(few.upload_keys)) == (3, 3, 3)
    everything = await replace(gc, named=None).collect(GcInput(dry_run=True))
    assert (len(everything.keys), len(everything.due_keys), len(everything.upload_keys)) == (8, 8, 4)


async def test_ending_uploads_shows_that_it_lives(database: Database, store: S3ArchiveStore) -> None:
    """A store full of broken-off uploads takes longer than a heartbeat may be missing."""
    row = await workspace(database, Phase.DELETED)
    for number in range(1, 6):
        await store.client.create_multipart_upload(Bucket=store.bucket, Key=archive_key(row, op(number)))
    beats, seen = 0, list[int]()

    class Noting(S3ArchiveStore):
        async def abort(self, upload: OpenUpload) -> None:
            seen.append(beats)
            await S3ArchiveStore.abort(self, upload)

    def beat(*_details: object) -> None:
        nonlocal beats
        beats += 1

    environment = ActivityEnvironment()
    environment.on_heartbeat = beat
    gc = collector(database, Noting(store.client, store.bucket), timedelta(seconds=-5))
    assert (await environment.run(gc.collect, GcInput())).aborted_uploads == 5
    assert sorted(set(seen)) == seen


async def test_only_the_operation_under_way_keeps_its_upload(database: Database, store: S3ArchiveStore) -> None:
    """An operation that failed never goes on with what it uploaded, whatever else of it is protected."""
    busy = await workspace(database, archive_op_id=op(7))
    await database.execute(
        "UPDATE workspaces SET operation = 'ARCHIVING', op_id = archive_op_id, op_started_at = now() WHERE id = $1",
        busy,
    )
    failed = await workspace(database, Phase.ERROR, archive_op_id=op(7))
    over = await workspace(database, archive_op_id=op(7))
    for workspace_id, number in ((busy, 7), (busy, 6), (failed, 7), (over, 7), (WorkspaceId(str(uuid4())), 1)):
        await store.client.create_multipart_upload(Bucket=store.bucket, Key=archive_key(workspace_id, op(number)))
    assert (await collector(database, store, timedelta(minutes=5)).collect(GcInput())).aborted_uploads == 0
    report = await collector(database, store, timedelta(seconds=-5)).collect(GcInput())
    left: list[OpenUpload] = [upload async for upload in store.list_uploads()]
    assert report.aborted_uploads == 4
    assert [upload.key for upload in left] == [archive_key(busy, op(7))]
