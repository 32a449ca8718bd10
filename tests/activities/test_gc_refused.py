"""A store that will not delete an object (a hold, a policy): everything else is collected (PROMISE 20)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
from temporalio.testing import ActivityEnvironment

from activities.gc import GarbageCollector
from adapters.postgres.database import Database
from adapters.postgres.garbage import Garbage
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from domain.model import Phase
from domain.naming import meta_key
from settings import Settings
from starter.commands.collecting import _told
from tests.activities.test_gc import NOW, Later, keys, put, workspace
from tests.conftest import S3
from workflows.messages import GcInput, GcReport


@dataclass
class Holding:
    """A client of the store, some of whose objects are on hold."""

    client: Any
    held: set[str]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    async def delete_objects(self, **request: Any) -> dict[str, Any]:
        asked = [each["Key"] for each in request["Delete"]["Objects"]]
        if free := [{"Key": key} for key in asked if key not in self.held]:
            await self.client.delete_objects(Bucket=request["Bucket"], Delete={"Objects": free})
        held = [{"Key": key, "Code": "AccessDenied", "Message": "on hold"} for key in asked if key in self.held]
        return {"Errors": held} if held else {}


@pytest.fixture
async def store(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as opened:
        yield replace(opened, client=cast("Any", Holding(opened.client, set())))


def held(store: S3ArchiveStore) -> set[str]:
    return cast("Holding", store.client).held


async def _orphans(database: Database, store: S3ArchiveStore, count: int) -> list[str]:
    deleted = await workspace(database, Phase.DELETED)
    return [await put(store, deleted, number) for number in range(1, count + 1)]


async def test_what_the_store_keeps_stops_nothing_else(database: Database, store: S3ArchiveStore) -> None:
    """It is counted and told, is an orphan still, and goes when the store lets it go."""
    kept, *_ = await _orphans(database, store, 3)
    held(store).add(kept)
    broken_off = f"{kept.rpartition('/')[0]}/home.tar.zst"
    await store.client.create_multipart_upload(Bucket=store.bucket, Key=broken_off)
    gc = GarbageCollector(Later(database), store, "ours", NOW, batch=3)
    for deleted, uploads in ((5, 1), (0, 0)):
        await database.execute("UPDATE gc_state SET finished_at = NULL")
        report = await gc.collect(GcInput())
        assert (report.deleted, report.refused, report.aborted_uploads) == (deleted, 1, uploads)
        assert report.refused_keys == [kept]
        assert await keys(store) == {kept}
        assert await database.fetchval("SELECT finished_at IS NOT NULL FROM gc_state")
        assert await database.fetchval("SELECT report ->> 'refused' FROM gc_state") == "1"
        assert [row["key"] for row in await database.fetch("SELECT key FROM gc_orphans")] == [kept]
    held(store).clear()
    assert (await gc.collect(GcInput())).deleted == 1
    assert await keys(store) == set()


async def test_more_than_a_batch_is_refused(database: Database, store: S3ArchiveStore) -> None:
    """The run comes to its end, and to what may go."""
    everything = await _orphans(database, store, 6)
    held(store).update(everything[:5])
    report = await GarbageCollector(Garbage(database), store, "ours", NOW, batch=2).collect(GcInput())
    assert (report.deleted, report.refused) == (7, 5)
    assert await keys(store) == set(everything[:5])


@pytest.mark.parametrize("batch", [1, 3, 100])
async def test_an_archive_stays_with_its_marker(database: Database, store: S3ArchiveStore, batch: int) -> None:
    """A marker without its archive would tell of one that is not there."""
    one, _ = await _orphans(database, store, 2)
    held(store).add(meta_key(one))
    report = await GarbageCollector(Garbage(database), store, "ours", NOW, batch=batch).collect(GcInput())
    assert await keys(store) == {one, meta_key(one)}
    assert (report.deleted, report.refused) == (2, 2)


@pytest.mark.parametrize("batch", [1, 3])
async def test_markers_go_first(
    database: Database, store: S3ArchiveStore, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """Also where an archive and its marker are in different batches."""
    await _orphans(database, store, 2)
    gone: list[str] = []
    delete = S3ArchiveStore.delete

    async def noted(self: S3ArchiveStore, keys: list[str]) -> Any:
        gone.extend(keys)
        return await delete(self, keys)

    monkeypatch.setattr(S3ArchiveStore, "delete", noted)
    await GarbageCollector(Garbage(database), store, "ours", NOW, batch=batch).collect(GcInput())
    assert len(gone) == 4
    for key in gone:
        assert key.endswith(".meta") or gone.index(meta_key(key)) < gone.index(key)


def test_a_person_is_told_what_stays() -> None:
    """By name; it is not among what merely waits."""
    told = _told(GcReport(listed=3, orphans=3, deleted=1, refused=1, refused_keys=["a/b"]), None, Settings())
    assert "  a/b" in told
    assert any(line.startswith("1 waits until") for line in told)


async def test_every_call_that_deletes_is_a_sign_of_life(
    database: Database, store: S3ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of a thousand takes a store that is slow longer than a run may be silent: it would never finish."""
    monkeypatch.setattr("activities.gc.DELETED_AT_ONCE", 2)
    await _orphans(database, store, 5)
    environment, beats, before = ActivityEnvironment(), [0], []
    environment.on_heartbeat = lambda *_: beats.append(beats[-1] + 1)
    delete = store.client.delete_objects

    async def noted(**request: Any) -> Any:
        before.append(beats[-1])
        return await delete(**request)

    monkeypatch.setattr(store.client, "delete_objects", noted, raising=False)
    gc = GarbageCollector(Later(database), store, "ours", NOW)
    report = await environment.run(gc.collect, GcInput())
    assert report.deleted == 10
    assert len(before) == 6
    assert len(set(before)) == len(before)
