"""A home of 200 MB with every kind of file, as a person archives it and starts it again: through the API, with worker
and API as processes of their own."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from docker import APIClient

from domain.model import DesiredState, Phase, WorkspaceId
from domain.naming import volume_name
from tests.archive.trees import Snapshot, grow, many_files, snapshot
from tests.conftest import S3
from tests.faults.proxy import FaultProxy
from tests.harness.history import Outcome
from tests.processes.conftest import Deploy
from tests.processes.deployment import Deployment
from tests.processes.person import WORKSPACES, Person

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

MIB = 1 << 20
SECONDS = 240.0


def fill(home: Path) -> None:
    (home / "generated").mkdir()
    grow(home / "generated", 200, entries=150)
    (home / "modules").mkdir()
    many_files(home / "modules", 2000)
    for number in range(10):
        (home / f"random-{number}").write_bytes(os.urandom(10 * MIB))
    for number in range(9):
        (home / f"text-{number}").write_bytes(b"a line of text that repeats itself\n" * (10 * MIB // 35))
    with (home / "disk image").open("wb") as file:
        file.truncate(1 << 30)
        file.seek(512 * MIB)
        file.write(b"an island")
    os.setxattr(home / "random-0", "user.note", b"kept")
    with socket.socket(socket.AF_UNIX) as left_out:
        left_out.bind(str(home / "s"))
    (home / "old").touch()
    os.utime(home / "old", ns=(0, -(10**17)))
    home.chmod(0o755)
    os.chown(home, 1000, 1000)


async def followed(person: Person, workspace: WorkspaceId, phase: Phase) -> list[dict[str, Any]]:
    """Until it is there; what the API said of its progress on the way."""
    seen = []
    async with asyncio.timeout(SECONDS):
        while True:
            found = await person.look(workspace)
            if found["progress"]:
                seen.append(found["progress"])
            assert found["phase"] != "ERROR", found
            if found["phase"] == phase and found["operation"] == "NONE":
                return seen
            await asyncio.sleep(0.1)


@pytest.fixture
async def slowly(deploy: Deploy, s3: S3) -> AsyncIterator[Deployment]:
    """A store that takes some seconds for a home: else it is there before anybody could say how long it takes."""
    async with FaultProxy(s3.endpoint) as store:
        store.throttle(up=12 * MIB, down=32 * MIB)
        yield await deploy(S3_ENDPOINT=store.url)


async def test_a_home_of_every_kind_of_file_goes_there_and_back(slowly: Deployment, docker_host: str) -> None:
    """RUNNING → ARCHIVED → RUNNING: byte-identical, with progress on the way, and the log says how much it was."""
    api, deployment = APIClient(docker_host, timeout=120), slowly
    await deployment.worker()
    async with deployment.person() as person:
        workspace = await person.create("large", DesiredState.RUNNING)
        await deployment.until_phase(workspace, Phase.RUNNING)
        before = await asyncio.to_thread(filled, api, workspace)

        assert await person.want(workspace, DesiredState.ARCHIVED) is Outcome.DONE
        progress = await followed(person, workspace, Phase.ARCHIVED)
        assert {one["stage"] for one in progress} == {"TRANSFERRING", "VERIFYING"}
        assert any(one["eta_seconds"] for one in progress)
        assert api.volumes(filters={"name": volume_name(workspace)})["Volumes"] in (None, [])

        assert await person.want(workspace, DesiredState.RUNNING) is Outcome.DONE
        progress = await followed(person, workspace, Phase.RUNNING)
        assert {one["stage"] for one in progress} == {"TRANSFERRING"}
        assert any(one["eta_seconds"] and 0 < one["bytes_done"] < one["bytes_total"] for one in progress)
        assert await asyncio.to_thread(snapshot, path_of(api, workspace)) == before
        assert os.getxattr(path_of(api, workspace) / "random-0", "user.note") == b"kept"
        assert (path_of(api, workspace) / "disk image").stat().st_blocks * 512 < MIB

        row = await deployment.row(workspace)
        async with person.client.get(f"http://{row.endpoint}/text-0") as answer:
            assert answer.status == 200
        await log_says_it(person, workspace)
    api.close()


def filled(api: APIClient, workspace: WorkspaceId) -> Snapshot:
    fill(path_of(api, workspace))
    return snapshot(path_of(api, workspace))


def path_of(api: APIClient, workspace: WorkspaceId) -> Path:
    return Path(api.inspect_volume(volume_name(workspace))["Mountpoint"])


async def log_says_it(person: Person, workspace: WorkspaceId) -> None:
    status, body = await person.ask("GET", f"{WORKSPACES}/{workspace}/operations")
    assert status == 200
    done = {one["operation"]: one for one in body["items"]}
    archived = done["ARCHIVING"]
    assert (archived["outcome"], archived["attempts"]) == ("SUCCEEDED", 1), archived
    assert archived["left_out"] == {"sockets": 1, "devices": 0}
    assert archived["bytes_done"] > 190 * MIB
    assert done["RESTORING"]["bytes_done"] == archived["bytes_done"]
