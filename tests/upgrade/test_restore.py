"""Database, bucket and Temporal are lost, and the first two restored, in the order of docs/upgrades.md."""

import asyncio
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from temporalio.client import Client

from adapters.postgres.database import open_database
from domain.model import DesiredState, Phase, WorkspaceId
from starter.embedded.postgres import DISTRIBUTION
from starter.embedded.wheels import program
from tests.conftest import S3, _on
from tests.processes.conftest import Deploy, deploy
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.homes import files_of
from tests.processes.person import Person
from tests.processes.process import ROOT, until
from tests.upgrade.test_backup import another_namespace, keys

__all__ = ["deploy"]

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


async def test_all_is_lost_and_all_is_back(
    deploy: Deploy, temporal_client: Client, postgres_url: str, s3: S3, tmp_path: Path
) -> None:
    """The commands of the document, real processes and containers: workspaces are where they were, with what
    was in them, and GC deletes nothing."""
    deployment = await deploy(GC_INTERVAL="1", GC_DELAY="0")
    await deployment.worker()
    async with deployment.person() as person:
        awake, kept = await _with_a_file(deployment, person, "awake"), await _with_a_file(deployment, person, "kept")
        await person.want(kept, DesiredState.ARCHIVED)
        await deployment.until_phase(kept, Phase.ARCHIVED)
        archive = (await deployment.row(kept)).archive_key
        url = deployment.env["DATABASE_URL"]
        await asyncio.to_thread(_typed, "pg_dump", deployment.env, tmp_path)
        assert archive
        assert (tmp_path / "bucket" / archive).exists()
        for name in ("codehub.dump", "bucket"):
            assert (tmp_path / name).stat().st_mode & 0o077 == 0, f"{name} can be read by others"
    for process in deployment.processes:
        process.kill()

    await _gone(s3)
    await _on(url, "DROP SCHEMA public CASCADE")
    name = f"test_{uuid.uuid4().hex[:12]}"
    restored = f"{postgres_url.rpartition('/')[0]}/{name}"
    async with another_namespace(temporal_client) as empty:
        former = deployment.database
        try:
            await asyncio.to_thread(_typed, "aws s3 mb", deployment.env, tmp_path)
            await asyncio.to_thread(_typed, "pg_restore", {**deployment.env, "DATABASE_URL": restored}, tmp_path)
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
                assert {archive, f"{archive}.meta"} <= await keys(s3)
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


def _typed(word: str, env: dict[str, str], folder: Path) -> None:
    """The commands of docs/upgrades.md among which this one stands: a block, or one within a line. Only the places are
    the test's own."""
    section = (ROOT / "docs" / "upgrades.md").read_text().partition("## Backup and restore")[2]
    blocks = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    blocks = [block for block in blocks if f"\n{word} " in block and "docker" not in block]
    (script,) = blocks or re.findall(rf"`({word} [^`]+)`", section)
    url = urlsplit(env["DATABASE_URL"])
    script = re.sub(r"^((?:dropdb|createdb) .*)codehub\b", rf"\g<1>{url.path[1:]}", script, flags=re.MULTILINE)
    tools = program(DISTRIBUTION, "pginstall18/bin/psql", "pginstall/bin/psql").parent
    places = {
        "PATH": f"{Path(sys.executable).parent}:{tools}:{os.environ['PATH']}",
        "PGHOST": url.hostname or "",
        "PGPORT": str(url.port),
        "PGUSER": url.username or "",
        "PGPASSWORD": url.password or "",
        "HOME": str(folder),
        "S3_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": env["S3_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": env["S3_SECRET_KEY"],
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    done = subprocess.run(
        ["sh", "-eu", "-c", script.replace("/backup", str(folder))],
        cwd=folder,
        env={**env, **places},
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def _gone(s3: S3) -> None:
    """The bucket, with all that is in it."""
    async with s3.client() as client:
        for item in (await client.list_objects_v2(Bucket=s3.bucket)).get("Contents", []):
            await client.delete_object(Bucket=s3.bucket, Key=item["Key"])
        await client.delete_bucket(Bucket=s3.bucket)
