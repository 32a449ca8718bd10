"""Backup and restore, in the order that docs/upgrades.md names: PostgreSQL before the bucket, Temporal not at all."""

import asyncio
import io
import subprocess
import tarfile
import uuid
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import asyncpg
from temporalio.client import Client, WorkflowExecutionStatus

from activities.gc import GarbageCollector
from adapters.memory.homes import MemoryHomes
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.attention import Attention
from adapters.postgres.garbage import Garbage
from adapters.postgres.installation import installation_id
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from coordinator.census import Census
from domain.model import DesiredState, Phase, WorkspaceId
from domain.naming import workflow_id
from starter.embedded.postgres import DISTRIBUTION
from starter.embedded.wheels import program
from tests.conftest import S3
from tests.integration.system import System, system
from tests.namespaces import own_namespace
from workflows.messages import GcInput
from workflows.namespace import ensure_search_attributes


def home(text: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        entry = tarfile.TarInfo("thesis.txt")
        entry.size = len(text)
        tar.addfile(entry, io.BytesIO(text.encode()))
    return made.getvalue()


def postgres(name: str, *arguments: str) -> None:
    command = program(DISTRIBUTION, f"pginstall18/bin/{name}", f"pginstall/bin/{name}")
    subprocess.run([str(command), *arguments], check=True, capture_output=True, timeout=60)


def another_namespace(client: Client) -> AbstractAsyncContextManager[Client]:
    """A Temporal that remembers nothing."""
    return own_namespace(client.service_client.config.target_host)


@asynccontextmanager
async def store_of(s3: S3) -> AsyncIterator[S3ArchiveStore]:
    async with open_store(S3Config(s3.endpoint, s3.access_key, s3.bucket, s3.secret_key)) as store:
        yield store


async def collector(running: System, archives: S3ArchiveStore) -> GarbageCollector:
    database = running.parts.database
    return GarbageCollector(Garbage(database), archives, await installation_id(database))


async def archived(running: System, runtime: MemoryRuntime, text: str) -> WorkspaceId:
    workspace = await running.create(DesiredState.STANDBY)
    await running.until_phase(workspace, Phase.STANDBY)
    runtime.volumes[workspace].tar = home(text)
    await running.want(workspace, DesiredState.ARCHIVED)
    await running.until_phase(workspace, Phase.ARCHIVED)
    return workspace


async def keys(s3: S3) -> set[str]:
    async with s3.client() as client:
        found = await client.list_objects_v2(Bucket=s3.bucket)
    return {item["Key"] for item in found.get("Contents", [])}


async def test_temporal_and_the_database_are_lost(
    temporal_client: Client, postgres_url: str, database_url: str, s3: S3, tmp_path: Path
) -> None:
    """From a dump that is older than the bucket, on a Temporal that remembers nothing: workflows come back from the
    rows, homes come back from the archives, and GC deletes nothing that the lost rows may have wanted."""
    runtime = MemoryRuntime()
    async with store_of(s3) as archives, another_namespace(temporal_client) as empty:
        homes = MemoryHomes(runtime)
        async with system(temporal_client, database_url, runtime, "image", archives=archives, homes=homes) as before:
            awake = await before.create()
            await before.until_phase(awake, Phase.RUNNING)
            kept = await archived(before, runtime, "kept")
            dump = tmp_path / "codehub.dump"
            await asyncio.to_thread(postgres, "pg_dump", "--format=custom", f"--file={dump}", database_url)
            # Life goes on: what happens now is in the bucket, and not in the dump.
            late = await archived(before, runtime, "late")
            await (await collector(before, archives)).collect(GcInput())
            late_key = (await before.row(late)).archive_key
        stored = await keys(s3)

        name = f"test_{uuid.uuid4().hex[:12]}"
        restored_url = f"{postgres_url.rpartition('/')[0]}/{name}"
        await _on(postgres_url, f'CREATE DATABASE "{name}"')
        try:
            postgres("pg_restore", "--no-owner", "--exit-on-error", f"--dbname={restored_url}", str(dump))
            await ensure_search_attributes(empty)
            async with system(empty, restored_url, runtime, "image", archives=archives, homes=homes) as after:
                census = Census(Attention(after.parts.database), empty, after.waker)
                await census.heal()
                for workspace in (awake, kept):
                    described = await empty.get_workflow_handle(workflow_id(workspace)).describe()
                    assert described.status is WorkflowExecutionStatus.RUNNING
                await after.want(kept, DesiredState.RUNNING)
                await after.until_phase(kept, Phase.RUNNING)
                assert runtime.volumes[kept].tar.startswith(home("kept")[:512])
                await after.want(awake, DesiredState.STANDBY)
                await after.until_phase(awake, Phase.STANDBY)

                report = await (await collector(after, archives)).collect(GcInput())
                assert report.held
                assert report.deleted == 0
                assert late_key
                assert {late_key, f"{late_key}.meta"} <= await keys(s3)
                assert stored <= await keys(s3)
        finally:
            await _on(postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)')


async def test_a_copy_of_the_bucket_that_is_younger_than_the_dump_has_all_it_refers_to(
    temporal_client: Client, database_url: str, s3: S3, tmp_path: Path
) -> None:
    """Why the order is PostgreSQL, then the bucket: archives are written before the row says so, and deleted long
    after it stopped to. A workspace that is archived while the backup runs does no harm."""
    runtime = MemoryRuntime()
    async with store_of(s3) as archives:
        homes = MemoryHomes(runtime)
        async with system(temporal_client, database_url, runtime, "image", archives=archives, homes=homes) as running:
            workspace = await archived(running, runtime, "first")
            dump = tmp_path / "codehub.sql"
            await asyncio.to_thread(postgres, "pg_dump", "--data-only", f"--file={dump}", database_url)
            referred = (await running.row(workspace)).archive_key
            await running.want(workspace, DesiredState.STANDBY)
            await running.until_phase(workspace, Phase.STANDBY)
            runtime.volumes[workspace].tar = home("second")
            await running.want(workspace, DesiredState.ARCHIVED)
            await running.until_phase(workspace, Phase.ARCHIVED)
            assert (await running.row(workspace)).archive_key != referred
            await (await collector(running, archives)).collect(GcInput())
            copied = await keys(s3)
    assert referred
    assert referred in dump.read_text()
    assert {referred, f"{referred}.meta"} <= copied


async def _on(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, ssl=False)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()
