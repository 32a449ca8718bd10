"""Homes on volumes, copied and put back by the commands of docs/upgrades.md."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.nodes import Nodes, Registration
from domain.limits import Limits
from domain.model import ErrorReason, Operation, OperationId, Phase, WorkspaceId
from domain.observation import Presence
from starter.embedded.postgres import DISTRIBUTION
from starter.embedded.wheels import program
from tests.adapters.docker_world import DockerWorld, docker_world
from tests.api.world import serving
from tests.docs.test_commands import blocks
from tests.docs.test_docs import ROOT
from tests.nodes.test_lost import Two, _run, look, two

__all__ = ["two"]

OP = OperationId("op-1")


@pytest.fixture
async def world(docker_host: str, test_image: str, installation: str) -> AsyncIterator[DockerWorld]:
    async with docker_world(docker_host, test_image, installation) as made:
        yield made


@pytest.mark.docker
async def test_homes_are_copied_and_put_back(world: DockerWorld, database_url: str, tmp_path: Path) -> None:
    """With what was in them, as homes that codehub knows for its own. No home is made up of what is archived, or is not
    in the backup, and one that is there is left as it is."""
    copying, putting_back = (
        block for block in blocks((ROOT / "docs" / "upgrades.md").read_text()) if "/backup/homes" in block
    )
    async with serving(database_url) as api:
        await api.deps.database.execute("UPDATE installation SET id = $1", world.config.installation)
        alice = await api.person("alice")
        names = ("kept", "there", "archived", "young")
        kept, there, archived, young = [WorkspaceId(await alice.workspace(name)) for name in names]
        await Nodes(api.deps.database).register(Registration("b", "engine", "127.0.0.1", None, 2, 1 << 32))
        for workspace in (kept, there, archived):
            await world.runtime.create_volume(workspace, OP)
            thesis(world, workspace).write_text(workspace)
            os.chown(thesis(world, workspace), 1000, 1000)
        mine = f"--filter label=codehub.installation={world.config.installation} --filter"
        await run(world, copying.replace("--filter", mine), database_url, tmp_path)
        for workspace in (kept, archived):
            world.drop_volume(workspace)
        thesis(world, there).write_text("newer than the backup")
        for workspace in (kept, there, young):
            await api.row(workspace, phase="STANDBY", node="b")
        await api.row(archived, phase="ARCHIVED", archive_key="its archive", node="b")
        await run(world, putting_back, database_url, tmp_path)
    assert (await world.runtime.observe(kept, probe=False)).volume is Presence.PRESENT
    assert world.volume(archived) is None
    assert world.volume(young) is None
    found = thesis(world, kept)
    assert (found.read_text(), found.stat().st_uid) == (kept, 1000)
    assert thesis(world, there).read_text() == "newer than the backup"


async def test_a_home_on_a_new_engine_of_the_old_name(two: Two) -> None:
    """It is refused until the old one is given up; then recovering goes on with the home that was put back."""
    workspace, runtime = two.ids["b"], MemoryRuntime()
    await runtime.create_volume(workspace, OP)
    new = Registration("b", "a new engine", "127.0.0.1", None, 2, 1 << 32, marker="new", holds_homes=True)
    await two.lose()
    await two.here.step(workspace)
    assert not await two.nodes.register(new)
    assert await two.nodes.remove("b")
    watch, _ = two.watch()
    await look(watch)
    await two.here.step(workspace)
    assert (await two.row("b")).error_reason is ErrorReason.DATA_LOST
    assert await two.nodes.register(new)
    await DesiredStates(two.database, Limits(9, 9)).recover(workspace)
    again = Reconciler(two.on_b.store, runtime, two.on_b.archives, "b")
    assert (await again.step(workspace)).operation is Operation.STARTING
    await _run(again, workspace)
    row = await two.row("b")
    assert (row.phase, row.node) == (Phase.RUNNING, "b")


def thesis(world: DockerWorld, workspace: WorkspaceId) -> Path:
    volume = world.volume(workspace)
    assert volume
    return Path(volume["Mountpoint"]) / "thesis.txt"


async def run(world: DockerWorld, script: str, database_url: str, folder: Path) -> None:
    """As root on the node, with the settings in the shell."""
    tools = program(DISTRIBUTION, "pginstall18/bin/psql", "pginstall/bin/psql").parent
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "DOCKER_HOST": world.host, "DATABASE_URL": database_url}
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-euc", script.replace("/backup", str(folder))],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
