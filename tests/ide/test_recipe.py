"""The recipe: what makes an image a new one, and how it runs."""

import shutil
from pathlib import Path

import pytest

from starter.embedded.errors import EmbeddedError
from starter.ide import recipe as module
from starter.ide.engine import split
from starter.ide.recipe import FOLDER, SHAPING, Recipe, is_ours

RECIPE = Recipe(architecture="amd64", suite="bookworm")


def test_same_recipe_same_image() -> None:
    """An unchanged recipe is found again, on the engine and in the cache."""
    assert RECIPE.reference == Recipe(architecture="amd64", suite="bookworm").reference


@pytest.mark.parametrize("name", SHAPING)
def test_each_file_that_shapes_it(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change to any file that shapes the image makes a new one."""
    before = RECIPE.fingerprint
    copy = tmp_path / "ide"
    # Its bytecode comes and goes as other processes load it.
    shutil.copytree(FOLDER, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(module, "FOLDER", copy)
    assert RECIPE.fingerprint == before
    (copy / name).write_bytes((copy / name).read_bytes() + b"\n")
    assert RECIPE.fingerprint != before


def test_each_choice() -> None:
    """Architecture, release, public image and packages are each part of the fingerprint."""
    others = [
        Recipe(architecture="arm64", suite="bookworm"),
        Recipe(architecture="amd64", suite="trixie"),
        Recipe(architecture="amd64", suite="bookworm", public_image="elsewhere:1"),
        Recipe(architecture="amd64", suite="bookworm", packages=("git",)),
    ]
    assert len({recipe.fingerprint for recipe in [RECIPE, *others]}) == 5


def test_runs_as_nobody_special() -> None:
    """The image says by itself who runs what, so that the runtime needs no flag for it."""
    changes = RECIPE.changes(origin="built")
    assert "USER 1000" in changes
    assert "WORKDIR /home/coder" in changes
    assert 'ENTRYPOINT ["/usr/local/bin/codehub-entrypoint"]' in changes
    assert f"LABEL codehub.ide.recipe={RECIPE.fingerprint}" in changes


def test_unknown_machine() -> None:
    """Where there is no Node to build with, the message says what to do."""
    with pytest.raises(EmbeddedError, match="WORKSPACE_IMAGE"):
        _ = Recipe(architecture="riscv64", suite="bookworm").node


@pytest.mark.parametrize(
    ("reference", "ours"),
    [
        ("codehub-ide", True),
        ("codehub-ide:latest", True),
        ("codehub-ide:0123456789ab", True),
        ("codehub-ide-of-mine:latest", False),
        ("registry:5000/codehub-ide:latest", False),
        ("codercom/code-server:4.139.1", False),
    ],
)
def test_ours_or_not(reference: str, *, ours: bool) -> None:
    """Only the one name is made here; any other image is somebody's own and is pulled as it is."""
    assert is_ours(reference) is ours


@pytest.mark.parametrize(
    ("reference", "parts"),
    [
        ("codehub-ide", ("codehub-ide", "latest")),
        ("codehub-ide:1", ("codehub-ide", "1")),
        ("localhost:5000/ide", ("localhost:5000/ide", "latest")),
        ("localhost:5000/ide:2", ("localhost:5000/ide", "2")),
    ],
)
def test_reference_parts(reference: str, parts: tuple[str, str]) -> None:
    """A registry's port is no tag."""
    assert split(reference) == parts
