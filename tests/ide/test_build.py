"""Building without a registry: what is left of a build that fails. (The one that succeeds is in conftest.)"""

import asyncio
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from starter.embedded.errors import EmbeddedError
from starter.ide.build import BuiltTar, build, built_file
from starter.ide.engine import Engine
from starter.ide.recipe import NODE, Recipe
from starter.ide.rootfs import machine_suite
from tests.adapters.docker_world import eventually
from tests.cli.installation import stalled
from tests.ide.told import Told

MISSING = "no-such-release"
BUILDER = """
import asyncio, pathlib, sys
from starter.ide.build import build
from starter.ide.recipe import Recipe
class Show:
    def step(self, name, text): print(text, flush=True)
    def done(self, name, seconds): pass
asyncio.run(build(Recipe(architecture=sys.argv[1], suite=sys.argv[2]), pathlib.Path(sys.argv[3]), Show()))
"""


@pytest.fixture
async def recipe(docker_host: str) -> Recipe:
    """Of a release that Debian doesn't have."""
    async with Engine(docker_host) as engine:
        architecture = await engine.architecture()
    return Recipe(architecture=architecture, suite=MISSING)


@pytest.mark.docker
@pytest.mark.timeout(600)
async def test_failed_build(recipe: Recipe, tmp_path: Path) -> None:
    """A build that fails says why in one line with the log's place, and leaves nothing but its logs.

    Nor does it stumble over what a killed one left.
    """
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "editor").touch()
    with pytest.raises(EmbeddedError, match=MISSING) as caught:
        await build(recipe, tmp_path, Told())
    log = tmp_path / "logs" / "ide-debian.log"
    assert "\n" not in caught.value.message
    assert str(log) in caught.value.message
    assert MISSING in log.read_text()
    assert {file.name for file in tmp_path.iterdir()} == {"logs", "run"}
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.docker
@pytest.mark.timeout(600)
async def test_cancelled_build(recipe: Recipe, tmp_path: Path) -> None:
    """Ctrl-C ends a build at once, with all of its processes and files."""
    told = Told()
    building = asyncio.create_task(build(replace(recipe, suite=machine_suite()), tmp_path, told))
    await eventually(lambda: bool(_processes(tmp_path)), 60)
    began, waited = time.monotonic(), stalled()
    building.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(building, 60)
    took, waited = time.monotonic() - began, stalled() - waited
    # What other programs made it wait for a processor is not its own.
    assert took < 10 + min(waited, 20), (took, waited)
    assert not _processes(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"logs", "run"}


@pytest.mark.docker
@pytest.mark.timeout(600)
async def test_killed_build(recipe: Recipe, tmp_path: Path) -> None:
    """One that is killed -9 leaves no process and no mount behind."""
    arguments = [recipe.architecture, machine_suite(), str(tmp_path)]
    builder = subprocess.Popen([sys.executable, "-c", BUILDER, *arguments], stdout=subprocess.PIPE, text=True)
    assert builder.stdout
    try:
        for line in builder.stdout:
            if "unpacking the base system" in line:
                break
        assert _processes(tmp_path) - {builder.pid}
    finally:
        builder.kill()
        builder.wait()
        # Not before: what it says next would be its end.
        builder.stdout.close()
    await eventually(lambda: not _processes(tmp_path), 60)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


@pytest.mark.docker
async def test_wrong_machine(recipe: Recipe, tmp_path: Path) -> None:
    """An engine of another architecture gets a message, not an image that can't run."""
    (other,) = NODE.keys() - {recipe.architecture}
    with pytest.raises(EmbeddedError, match="can't be built on this"):
        await build(replace(recipe, architecture=other), tmp_path, Told())


async def test_read(tmp_path: Path) -> None:
    """The file is read as it was written."""
    content = bytes(range(256)) * 20_000
    file = built_file(Recipe(architecture="amd64", suite="bookworm"), tmp_path)
    file.write_bytes(zstandard.compress(content))
    assert b"".join([chunk async for chunk in BuiltTar(file)]) == content


def _processes(folder: Path) -> set[int]:
    """Those that were started for a build in `folder`."""
    found = set()
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder).encode() in arguments.read_bytes():
                found.add(int(arguments.parent.name))
    return found
