"""What the storms look at when all is at rest sees what should not be there."""

from uuid import uuid4

from activities.bucket import OWNER_KEY
from activities.gc import RUN_KEY
from adapters.memory import MemoryRuntime
from adapters.postgres.database import Database
from adapters.s3.store import S3ArchiveStore
from domain.model import Phase, WorkspaceId
from domain.naming import archive_key, meta_key
from tests.activities.test_gc import op, put, workspace
from tests.harness.world import mismatches

UNHEARD_OF = 10
"""The operations 1 to 9 are known where there is a row."""


async def test_objects_that_wait_for_gc_are_no_strays(database: Database, archives: S3ArchiveStore) -> None:
    """Superseded archives, those of a deleted workspace, and what is no archive at all."""
    deleted = await workspace(database, Phase.DELETED)
    for number in (1, 2):
        await put(archives, deleted, number)
    for key in (OWNER_KEY, RUN_KEY, "theirs"):
        await archives.write(key, b"")
    assert await mismatches(database, MemoryRuntime(), archives) == []


async def test_objects_that_nobody_knows_are_strays(database: Database, archives: S3ArchiveStore) -> None:
    """Of no workspace, or of no operation: an archive, and a marker on its own."""
    known = await workspace(database, Phase.DELETED)
    unknown = await put(archives, WorkspaceId(str(uuid4())), 1)
    marker = meta_key(archive_key(known, op(UNHEARD_OF)))
    await archives.write(marker, b"")
    found = await mismatches(database, MemoryRuntime(), archives)
    assert sorted(text.split()[0] for text in found) == sorted([unknown, meta_key(unknown), marker])


async def test_an_upload_that_is_left_open_is_a_stray(database: Database, archives: S3ArchiveStore) -> None:
    """Also of a workspace that is known: at rest nobody goes on with it."""
    key = archive_key(await workspace(database, Phase.DELETED), op(1))
    await archives.client.create_multipart_upload(Bucket=archives.bucket, Key=key)
    assert await mismatches(database, MemoryRuntime(), archives) == [f"{key} is still being uploaded"]
