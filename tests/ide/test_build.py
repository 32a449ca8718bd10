"""Building without a registry: what is left of a build that fails. (The one that succeeds is in conftest.)"""

from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from starter.embedded.errors import EmbeddedError
from starter.ide.build import BuiltTar, build, built_file
from starter.ide.engine import Engine
from starter.ide.recipe import NODE, Recipe
from tests.ide.told import Told

MISSING = "no-such-release"


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
