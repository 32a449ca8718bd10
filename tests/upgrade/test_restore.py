"""Database, bucket and Temporal are lost, and the first two restored, in the order of docs/upgrades.md."""

import asyncio
import uuid
from pathlib import Path

import pytest
from temporalio.client import Client

from adapters.postgres.database import open_database
from domain.model import DesiredState, Phase, WorkspaceId
from tests.conftest import S3, _on
from tests.processes.conftest import Deploy, deploy
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.homes import files_of
from tests.processes.person import Person
from tests.processes.process import until
from tests.upgrade.test_backup import another_namespace, postgres

__all__ = ["deploy"]

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


async def test_all_is_lost_and_all_is_back(
    deploy: Deploy, temporal_client: Client, postgres_url: str, s3: S3, tmp_path: Path
) -> None:
    """Real dumps, a real copy of the bucket, real processes and containers: workspaces are where they were, with what
    was in them, and GC deletes nothing."""
    deployment = await deploy(GC_INTERVAL="1", GC_DELAY="0")
    await deployment.worker()
    async with deployment.person() as person:
        awake, kept = await _with_a_file(deployment, person, "awake"), await _with_a_file(deployment, person, "kept")
        await person.want(kept, DesiredState.ARCHIVED)
        await deployment.until_phase(kept, Phase.ARCHIVED)
        archive = (await deployment.row(kept)).archive_key
        dump = tmp_path / "codehub.dump"
        url = deployment.env["DATABASE_URL"]
        await asyncio.to_thread(postgres, "pg_dump", "--format=custom", f"--file={dump}", url)
        copied = await _copied(s3)
        assert archive in copied
    for process in deployment.processes:
        process.kill()

    await _emptied(s3)
    await _on(url, "DROP SCHEMA public CASCADE")
    name = f"test_{uuid.uuid4().hex[:12]}"
    restored = f"{postgres_url.rpartition('/')[0]}/{name}"
    async with another_namespace(temporal_client) as empty:
        await _restored_bucket(s3, copied)
        await _on(postgres_url, f'CREATE DATABASE "{name}"')
        former = deployment.database
        try:
            await asyncio.to_thread(
                postgres, "pg_restore", "--no-owner", "--exit-on-error", f"--dbname={restored}", str(dump)
            )
            deployment.env |= {"DATABASE_URL": restored, "TEMPORAL_NAMESPACE": empty.namespace}
            deployment.database = await open_database(restored)
            await deployment.worker()
            async with deployment.person() as person:
                runs = await deployment.until_phase(awake, Phase.RUNNING)
                assert await files_of(deployment, runs) == {"thesis.txt": "awake"}
                row = await deployment.row(kept)
                assert (row.phase, row.archive_key) == (Phase.ARCHIVED, archive)
                await person.want(kept, DesiredState.RUNNING)
                row = await deployment.until_phase(kept, Phase.RUNNING)
                assert await files_of(deployment, row) == {"thesis.txt": "kept"}
                await until(lambda: _gc_has_run(deployment), AT_REST, "GC did not run")
                assert {archive, f"{archive}.meta"} <= (await _copied(s3)).keys()
        finally:
            for process in deployment.processes:
                process.kill()
            await deployment.database.close()
            deployment.database = former
            await _on(postgres_url, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _with_a_file(deployment: Deployment, person: Person, text: str) -> WorkspaceId:
    workspace = await person.create(text)
    row = await deployment.until_phase(workspace, Phase.RUNNING)
    assert row.endpoint
    await person.write(workspace, row.endpoint, "thesis.txt", text)
    return workspace


async def _gc_has_run(deployment: Deployment) -> bool:
    """Since the restore: what was restored is not recent enough."""
    found = await deployment.database.fetchval(
        "SELECT finished_at > (SELECT max(acquired_at) FROM system_locks WHERE lock_name = 'coordinator') FROM gc_state"
    )
    return bool(found)


async def _copied(s3: S3) -> dict[str, bytes]:
    async with s3.client() as client:
        listed = (await client.list_objects_v2(Bucket=s3.bucket)).get("Contents", [])
        found = {}
        for item in listed:
            answer = await client.get_object(Bucket=s3.bucket, Key=item["Key"])
            found[item["Key"]] = await answer["Body"].read()
        return found


async def _emptied(s3: S3) -> None:
    async with s3.client() as client:
        for item in (await client.list_objects_v2(Bucket=s3.bucket)).get("Contents", []):
            await client.delete_object(Bucket=s3.bucket, Key=item["Key"])
        assert not (await client.list_objects_v2(Bucket=s3.bucket)).get("Contents")


async def _restored_bucket(s3: S3, objects: dict[str, bytes]) -> None:
    async with s3.client() as client:
        for key, body in objects.items():
            await client.put_object(Bucket=s3.bucket, Key=key, Body=body)
