"""The harness itself: what each fixture gives to a test."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import docker
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from starter.embedded.record import wait_for
from tests.conftest import S3, OwnServices
from tests.embedded.engines import despite_others


@workflow.defn(sandboxed=False)
class Sleeper:
    @workflow.run
    async def run(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"


@pytest.mark.parametrize("turn", [1, 2])
async def test_database_is_migrated_and_fresh(database_url: str, turn: int) -> None:
    """Each test has a database with codehub's tables and nobody's rows."""
    connection = await asyncpg.connect(database_url)
    try:
        assert await connection.fetchval("SELECT count(*) FROM workspaces") == 0
        await connection.execute("CREATE TABLE only_here (turn integer)")
    finally:
        await connection.close()


async def test_empty_database_has_no_tables(empty_database_url: str) -> None:
    """A migration test starts from nothing."""
    connection = await asyncpg.connect(empty_database_url)
    try:
        count = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'")
    finally:
        await connection.close()
    assert count == 0


@pytest.mark.parametrize("turn", [1, 2])
async def test_redis_is_empty(redis_url: str, turn: int) -> None:
    """Each test finds no keys."""
    client = Redis.from_url(redis_url)
    try:
        assert await client.dbsize() == 0
        await client.set("left", turn)
    finally:
        await client.aclose()


@pytest.mark.parametrize("turn", [1, 2])
async def test_bucket_is_empty(s3: S3, bucket: str, turn: int) -> None:
    """Each test has an empty bucket, and what it leaves there is removed."""
    async with s3.client() as client:
        assert "Contents" not in await client.list_objects_v2(Bucket=bucket)
        await client.put_object(Bucket=bucket, Key="left/behind", Body=b"x" * 1000)
        await client.create_multipart_upload(Bucket=bucket, Key="unfinished")


@pytest.mark.parametrize("turn", [1, 2])
async def test_temporal_namespace_is_fresh(temporal_client: Client, turn: int) -> None:
    """Each test has a namespace with the search attributes and no workflows."""
    assert [found async for found in temporal_client.list_workflows("")] == []
    phase = SearchAttributePair(SearchAttributeKey.for_keyword("Phase"), "RUNNING")
    async with Worker(temporal_client, task_queue="q", workflows=[Sleeper]):
        result = await temporal_client.execute_workflow(
            Sleeper.run, 0.01, id="one", task_queue="q", search_attributes=TypedSearchAttributes([phase])
        )
    assert result == "slept"
    await temporal_client.start_workflow(Sleeper.run, 3600.0, id="left", task_queue="q")


async def test_time_skipping(temporal_time_skipping: WorkflowEnvironment) -> None:
    """A day passes in a moment."""
    began = time.monotonic()
    async with Worker(temporal_time_skipping.client, task_queue="q", workflows=[Sleeper]):
        await temporal_time_skipping.client.execute_workflow(Sleeper.run, 86400.0, id="one", task_queue="q")
    assert time.monotonic() - began < 60


async def test_own_services_can_be_taken_down(own_services: OwnServices) -> None:
    """A test may break what it alone uses: paused it refuses connections, resumed it has its data."""
    stack = await own_services("valkey")
    client = Redis.from_url(stack.env["REDIS_URL"])
    try:
        await client.set("kept", "yes")
        await stack.supervisor.pause("valkey")
        with pytest.raises(RedisConnectionError):
            await client.ping()
        await stack.supervisor.resume("valkey")
        assert await client.get("kept") == b"yes"
    finally:
        await client.aclose()


@pytest.mark.docker
def test_image_serves_its_home(docker_host: str, test_image: str, installation: str) -> None:
    """The test image answers on 8080 as user 1000 without capabilities, and stops when it is asked to."""
    with contextlib.closing(docker.DockerClient(base_url=docker_host)) as client:
        labels = {"codehub.installation": installation}
        volume = client.volumes.create(labels=labels)
        container = client.containers.create(
            test_image,
            labels=labels,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            volumes={volume.name: {"bind": "/home/coder"}},
            ports={"8080/tcp": ("127.0.0.1", 0)},
        )
        try:
            despite_others(container.start)
            container.reload()
            published = container.ports["8080/tcp"]
            assert published
            url = f"http://127.0.0.1:{published[0]['HostPort']}"
            assert _fetch(f"{url}/cgi-bin/put?hello", data=b"from the home") == b"ok\n"
            assert _fetch(f"{url}/hello") == b"from the home"
            assert b"HTTP_HOST=127.0.0.1" in _fetch(f"{url}/cgi-bin/env")
            assert container.exec_run(["id", "-u"]).output == b"1000\n"
            began = time.monotonic()
            container.stop(timeout=60)
            assert time.monotonic() - began < 30
        finally:
            container.remove(force=True)
            volume.remove()


def _fetch(url: str, data: bytes | None = None) -> bytes:
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, data=data, timeout=5) as answer:
                return bytes(answer.read())
        except (ConnectionError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


HOLDER = """
import time
from tests.services import Services, ServicesProcess
process = ServicesProcess()
print(process.root, Services(process.root, "main").need("valkey")["url"], flush=True)
time.sleep(60)
"""


def test_nothing_outlives_a_killed_run() -> None:
    """kill -9 of the test run: its services end by themselves, and their directory is removed."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        root, url = run.stdout.readline().split()
        assert is_listening(url)
        run.kill()
    wait_for(lambda: not Path(root).exists(), 60)
    assert not Path(root).exists()
    assert not is_listening(url)


def is_listening(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", urlsplit(url).port or 0)) == 0
