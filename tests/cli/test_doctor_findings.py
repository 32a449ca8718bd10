"""What `codehub doctor` finds on services that answer and are not right."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from aiohttp import web
from google.protobuf.duration_pb2 import Duration
from redis.asyncio import Redis
from temporalio.api.workflowservice.v1 import RegisterNamespaceRequest
from temporalio.client import Client
from temporalio.service import RPCStatusCode

from adapters.docker.network import BRIDGE, ICC
from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from settings import Settings, load_settings
from starter.commands.checks import s3 as checked_s3
from starter.commands.checks.clock import compared
from starter.commands.checks.finding import Finding, Status, collected
from starter.commands.checks.machine import check_settings
from starter.commands.checks.postgres import judged
from starter.commands.checks.s3 import check_s3
from tests.api.world import until
from tests.cli.console import Cli
from tests.cli.test_doctor import UNSET, findings
from tests.conftest import S3
from tests.namespaces import unless
from tests.transfer.test_archive_store import ignoring


async def failed(cli: Cli, part: str, **environment: str) -> list[dict[str, Any]]:
    result = await cli.having(**{**UNSET, **environment})("doctor", "--json")
    return findings(result, part)["failed"]


async def test_a_redis_that_may_not_be_written(nobody: Cli, redis_url: str) -> None:
    """A wrong password, and a user whose rights end before our keys."""
    admin: Redis = Redis.from_url(redis_url)
    place = urlsplit(redis_url).netloc.rpartition("@")[2]
    name = f"reader-{uuid4().hex[:8]}"
    await admin.acl_setuser(name, enabled=True, passwords=["+secret"], commands=["+ping", "+info"], keys=["other:*"])
    try:
        (wrong,) = await failed(nobody, "Redis", REDIS_URL=f"redis://{name}:nonsense@{place}")
        assert "password in REDIS_URL" in wrong["advice"]
        (narrow,) = await failed(nobody, "Redis", REDIS_URL=f"redis://{name}:secret@{place}")
        assert "codehub:*" in narrow["advice"]
    finally:
        await admin.acl_deluser(name)
        await admin.aclose()


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (b"-ERR syntax error\r\n", "Use Redis 6.2 or newer"),
        (b"-MISCONF Errors writing to the AOF file: No space left on device\r\n", "Give it room"),
        (b"-READONLY You can't write against a read only replica.\r\n", "this one is a replica"),
    ],
)
async def test_a_redis_that_can_not_do_it(nobody: Cli, answer: bytes, advice: str) -> None:
    """Too old, full, a replica: each has its own remedy."""

    def reply(words: list[bytes]) -> bytes:
        match words[0].upper():
            case b"PING":
                return b"+PONG\r\n"
            case b"INFO":
                return b"$21\r\nredis_version:5.0.14\n\r\n"
            case b"ZADD":
                return answer
        return b"+OK\r\n"

    async with _redis(reply) as url:
        (told,) = await failed(nobody, "Redis", REDIS_URL=url)
    assert advice in told["advice"]


async def test_a_namespace_that_is_missing_or_bare(nobody: Cli, temporal_client: Client) -> None:
    """No such namespace; one without codehub's search attributes: the commands that mend it are told."""
    address = temporal_client.service_client.config.target_host
    name = f"bare-{uuid4().hex[:8]}"
    (missing,) = await failed(nobody, "Temporal", TEMPORAL_ADDRESS=address, TEMPORAL_NAMESPACE=name)
    assert f"namespace create -n {name}" in missing["advice"]
    retention = Duration()
    retention.FromTimedelta(timedelta(days=1))
    with unless(RPCStatusCode.ALREADY_EXISTS):
        await temporal_client.workflow_service.register_namespace(
            RegisterNamespaceRequest(namespace=name, workflow_execution_retention_period=retention),
            # The server takes a few of these at once, then ten a second; other tests make theirs.
            retry=True,
        )
    found: list[dict[str, Any]] = []

    async def seen() -> bool:
        found[:] = await failed(nobody, "Temporal", TEMPORAL_ADDRESS=address, TEMPORAL_NAMESPACE=name)
        return "search attributes are missing" in found[0]["message"]

    # A server takes some seconds to know a namespace everywhere.
    await until(seen, 60)
    assert f"search-attribute create -n {name} --name Phase --type Keyword" in found[0]["advice"]


async def test_what_answers_is_no_temporal(nobody: Cli, redis_url: str) -> None:
    place = urlsplit(redis_url).netloc.rpartition("@")[2]
    (told,) = await failed(nobody, "Temporal", TEMPORAL_ADDRESS=place)
    assert "TEMPORAL_ADDRESS" in told["advice"]


async def test_an_engine_that_is_old_and_full(nobody: Cli, tmp_path: Path) -> None:
    """As engines answer that are older than any that can be had here, and as they are on most machines: with a default
    network that is open between containers."""

    async def answer(request: web.Request) -> web.Response:
        match request.path.rpartition("/")[2]:
            case "version":
                body: Any = {"Version": "18.09.1", "ApiVersion": "1.39", "MinAPIVersion": "1.12"}
            case "info":
                body = {"ServerVersion": "18.09.1", "NCPU": 1, "MemTotal": 10**9, "ID": "x", "Name": "old"}
            case "create":
                return web.json_response({"message": "write local-kv.db: no space left on device"}, status=500)
            case "json" | "codehub-none":
                return web.json_response({"message": "there is none"}, status=404)
            case "bridge":
                body = {"EnableIPv6": False, "Options": {ICC: "true", BRIDGE: "docker0"}}
            case _:
                return web.Response(text="OK")
        return web.json_response(body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    socket = tmp_path / "docker.sock"
    await web.UnixSite(runner, str(socket)).start()
    try:
        doctor = nobody.having(**{**UNSET, "DOCKER_HOST": f"unix://{socket}"})
        result = await doctor("doctor", "--json")
        opened = await doctor.having(WORKSPACE_NETWORK="engine")("doctor", "--json")
    finally:
        await runner.cleanup()
    found = findings(result, "Docker")
    assert "18.09.1 was never tried" in found["warning"][0]["message"]
    assert "WORKSPACE_IMAGE" in found["warning"][1]["advice"]
    assert "Make room on the engine's disk" in found["failed"][0]["advice"]
    assert "--icc=false" in findings(opened, "Docker")["failed"][0]["message"]


@pytest.mark.parametrize(
    ("environment", "warned"),
    [
        ({"CODEHUB_URL": "http://10.0.0.5:8000", "NODE_ADDRESS": "10.0.0.5"}, True),
        ({"CODEHUB_HOST": "10.0.0.5", "NODE_ADDRESS": "10.0.0.5"}, True),
        ({"CODEHUB_HOST": "0.0.0.0", "NODE_ADDRESS": "10.0.0.5"}, True),
        ({"CODEHUB_URL": "https://10.0.0.5", "NODE_ADDRESS": "10.0.0.5"}, False),
        ({"CODEHUB_URL": "http://10.0.0.6", "NODE_ADDRESS": "10.0.0.5"}, False),
        ({"CODEHUB_URL": "http://nowhere.invalid", "NODE_ADDRESS": "10.0.0.5"}, False),
        ({"CODEHUB_HOST": "10.0.0.5", "NODE_ADDRESS": "10.0.0.5", "TRUSTED_PROXIES": "10.0.0.9"}, False),
        ({}, False),
    ],
)
async def test_logins_that_workspaces_ports_would_get(environment: dict[str, str], *, warned: bool) -> None:
    """Plain HTTP on the address that ports of workspaces are published on: cookies don't keep ports apart."""
    found = await collected(check_settings(load_settings(environment)))
    assert any("browsers send its login" in one.message for one in found) is warned


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting takes a privilege")
    yield place
    subprocess.run(["umount", place], check=True)


async def test_a_disk_that_is_full_or_can_not_be_written(nobody: Cli, small_disk: Path) -> None:
    (full,) = await failed(nobody, "disk", CODEHUB_DATA=str(small_disk))
    assert "1.0 MB are free" in full["message"]
    assert "Make room" in full["advice"]
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    closed = (await failed(nobody, "disk", CODEHUB_DATA=str(small_disk / "new")))[1]
    assert f"{small_disk} is not writable" in closed["message"]


def test_versions_of_postgresql() -> None:
    assert (judged(14, 0).status, judged(13, 9).status) == (Status.OK, Status.FAILED)


@pytest.mark.parametrize(("seconds", "status"), [(1, "ok"), (-3, "warning"), (40, "failed"), (-4000, "failed")])
def test_clocks(seconds: float, status: str) -> None:
    """Small differences are nothing, large ones put workspaces to sleep at the wrong time."""
    now = datetime.now(UTC)
    finding: Finding = compared(now + timedelta(seconds=seconds), now)
    assert finding.status == status
    assert (finding.advice is None) == (status == "ok")


@asynccontextmanager
async def _redis(reply: Callable[[list[bytes]], bytes]) -> AsyncIterator[str]:
    """One that says what it is told to say."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readline():
                words = []
                for _ in range(int(head[1:])):
                    length = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(length + 2))[:-2])
                writer.write(reply(words))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_store_that_ignores_conditions(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes every write: doctor says what that may cost. One that does not answer is not accused of it."""

    @asynccontextmanager
    async def opened(config: S3Config) -> AsyncIterator[S3ArchiveStore]:
        async with open_store(config) as store:
            ignoring(store, {"If-Match", "If-None-Match"})
            yield store

    settings = Settings(
        s3_endpoint=s3.endpoint, s3_access_key=s3.access_key, s3_secret_key=s3.secret_key, s3_bucket=s3.bucket
    )
    assert [found.status for found in await collected(check_s3(settings))] == [Status.OK] * 3
    monkeypatch.setattr(checked_s3, "open_store", opened)
    *_, told = await collected(check_s3(settings))
    assert (told.status, ".meta" in (told.advice or "")) == (Status.WARNING, True)
    async with s3.client() as client:
        assert (await client.list_objects_v2(Bucket=s3.bucket)).get("Contents", []) == []
