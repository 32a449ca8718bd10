"""The npm registry, as the machine is told to reach it."""

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from starter.embedded.errors import EmbeddedError
from starter.ide.npm import PUBLIC, Registry
from starter.ide.recipe import Pin

CONTENT = b"a package" * 1000
INTEGRITY = f"sha512-{base64.b64encode(hashlib.sha512(CONTENT).digest()).decode()}"


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """A registry with one package, for those who bring the token."""

    async def serve(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer secret":
            return web.Response(status=401)
        return web.Response(body=CONTENT)

    app = web.Application()
    app.router.add_get("/npm/thing/-/thing-1.0.0.tgz", serve)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/npm/"
    finally:
        await runner.cleanup()


def test_no_configuration(tmp_path: Path) -> None:
    """Without any configuration it is the public registry."""
    assert Registry.of_machine({"HOME": str(tmp_path)}).url == PUBLIC


def test_npmrc(tmp_path: Path) -> None:
    """The user's npmrc names registry, certificates and token, and may take them from the environment."""
    (tmp_path / ".npmrc").write_text(
        "# ours\n; and\nregistry = https://npm.example/all\ncafile=/etc/ca.pem\n//npm.example/all/:_authToken=${TOKEN}\n"
    )
    found = Registry.of_machine({"HOME": str(tmp_path), "TOKEN": "t0"})
    assert found == Registry("https://npm.example/all/", "/etc/ca.pem", "t0")


def test_environment_first(tmp_path: Path) -> None:
    """As with npm itself, a variable beats a file."""
    (tmp_path / ".npmrc").write_text("registry=https://npm.example/\n")
    environment = {"HOME": str(tmp_path), "NPM_CONFIG_REGISTRY": "https://other.example"}
    assert Registry.of_machine(environment).url == "https://other.example/"


async def test_fetch(url: str, tmp_path: Path) -> None:
    """What was downloaded is what was pinned."""
    await Registry(url, token="secret").fetch(Pin("thing", "1.0.0", INTEGRITY), tmp_path / "thing.tgz")
    assert (tmp_path / "thing.tgz").read_bytes() == CONTENT


async def test_something_else(url: str, tmp_path: Path) -> None:
    """A package that isn't the pinned one, byte for byte, is refused in one line."""
    with pytest.raises(EmbeddedError, match="is not the one of the recipe") as caught:
        await Registry(url, token="secret").fetch(Pin("thing", "1.0.0", "sha512-other"), tmp_path / "thing.tgz")
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_refused(url: str, token: str | None, tmp_path: Path) -> None:
    """A registry that refuses is named, its token is not."""
    with pytest.raises(EmbeddedError, match=r"thing 1\.0\.0 can't be downloaded from 127.*401") as caught:
        await Registry(url, token=token).fetch(Pin("thing", "1.0.0", INTEGRITY), tmp_path / "thing.tgz")
    assert "wrong" not in caught.value.message


async def test_unreachable(tmp_path: Path) -> None:
    """So is one that isn't there, without the password in its URL."""
    with pytest.raises(EmbeddedError, match=r"can't be downloaded from 127\.0\.0\.1:9:") as caught:
        await Registry("http://user:word@127.0.0.1:9/").fetch(Pin("thing", "1.0.0", INTEGRITY), tmp_path / "thing.tgz")
    assert "word" not in caught.value.message
