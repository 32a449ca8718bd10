"""Packages of the npm registry, as this machine is told to reach it, checked to the byte."""

import base64
import hashlib
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp

from starter.embedded.errors import EmbeddedError
from starter.ide.recipe import Pin

PUBLIC = "https://registry.npmjs.org/"
# A registry that says nothing for so long is gone.
PATIENCE = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=60)


@dataclass(frozen=True)
class Registry:
    """Only for Node and npm themselves: from then on npm reads its configuration on its own."""

    url: str = PUBLIC
    cafile: str | None = None
    token: str | None = None

    @classmethod
    def of_machine(cls, environment: Mapping[str, str]) -> "Registry":
        """What the environment says, else the user's npmrc, else the system's."""
        home = Path(environment.get("HOME", "/root"))
        given = {**_npmrc(Path("/etc/npmrc"), environment), **_npmrc(home / ".npmrc", environment)}
        for name, value in environment.items():
            if name.lower().startswith("npm_config_") and value:
                given[name.lower().removeprefix("npm_config_")] = value
        url = given.get("registry", PUBLIC).rstrip("/") + "/"
        return cls(url, given.get("cafile"), given.get(f"{url.partition(':')[2]}:_authtoken"))

    @property
    def host(self) -> str:
        """Fit to be shown: a URL may hold a password."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    async def fetch(self, pin: Pin, target: Path) -> None:
        """Download it to `target`, through the proxy that the usual variables name."""
        url = self.url + pin.path
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        digest = hashlib.sha512()
        try:
            tls = ssl.create_default_context(cafile=self.cafile)
            async with (
                aiohttp.ClientSession(trust_env=True, timeout=PATIENCE, headers=headers) as session,
                session.get(url, ssl=tls, raise_for_status=True) as answer,
            ):
                with target.open("wb") as file:
                    async for chunk in answer.content.iter_chunked(1 << 20):
                        digest.update(chunk)
                        file.write(chunk)
        except (OSError, aiohttp.ClientError, TimeoutError) as error:
            # Not its representation: that shows the request with its token.
            reason = str(error) or type(error).__name__
            raise EmbeddedError(f"{pin.name} {pin.version} can't be downloaded from {self.host}: {reason}") from error
        found = f"sha512-{base64.b64encode(digest.digest()).decode()}"
        if found != pin.integrity:
            raise EmbeddedError(
                f"{pin.path} of {self.host} is not the one of the recipe: its checksum is {found}, not {pin.integrity}"
            )


def _npmrc(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    values = {}
    for line in lines:
        name, found, value = line.partition("=")
        if found and not line.lstrip().startswith(("#", ";")):
            values[name.strip().lower()] = _expand(value.strip().strip("\"'"), environment)
    return values


def _expand(value: str, environment: Mapping[str, str]) -> str:
    for name, known in environment.items():
        value = value.replace(f"${{{name}}}", known)
    return os.path.expanduser(value) if value.startswith("~") else value  # noqa: PTH111 - may be a URL
