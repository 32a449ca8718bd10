"""The few calls to a Docker engine that an image takes."""

import asyncio
import io
import json
import os
import ssl
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp

from adapters.docker.spec import NEVER_RUN
from starter.embedded.errors import EmbeddedError
from starter.ide.logins import login_for
from starter.ide.recipe import File

DEFAULT_HOST = "unix:///var/run/docker.sock"
# For calls that are not about moving an image.
SHORT = aiohttp.ClientTimeout(total=60)
ENDLESS = aiohttp.ClientTimeout(total=None)


class EngineRefused(Exception):
    """The engine answered, and said no: `status` as in HTTP."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Engine:
    """`async with Engine(host) as engine`. None: what DOCKER_HOST names, or the usual socket."""

    def __init__(self, host: str | None) -> None:
        self.host = host or os.environ.get("DOCKER_HOST") or DEFAULT_HOST
        self._session: aiohttp.ClientSession | None = None
        self._base = ""

    async def __aenter__(self) -> Self:
        self._base, connector = _connector(self.host)
        self._session = aiohttp.ClientSession(connector=connector)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session:
            await self._session.close()

    async def architecture(self) -> str:
        """As in amd64, arm64."""
        return str((await self._call("GET", "/version"))["Arch"])

    async def labels(self, reference: str) -> dict[str, str] | None:
        """Those of an image; None when the engine doesn't have it."""
        try:
            image = await self._call("GET", f"/images/{_quoted(reference)}/json")
        except EngineRefused as refused:
            if refused.status == 404:
                return None
            raise
        return dict(image.get("Config", {}).get("Labels") or {})

    async def tag(self, source: str, reference: str) -> None:
        repository, tag = split(reference)
        await self._call("POST", f"/images/{_quoted(source)}/tag", params={"repo": repository, "tag": tag})

    async def load(self, tar: AsyncIterator[bytes], reference: str, changes: list[str]) -> None:
        """Make an image of one layer from a filesystem's tar."""
        repository, tag = split(reference)
        params = [("fromSrc", "-"), ("repo", repository), ("tag", tag), *(("changes", change) for change in changes)]
        async for line in self._stream("/images/create", params, tar):
            if "error" in line:
                raise EngineRefused(str(line["error"]), 500)

    async def pull(self, reference: str) -> AsyncGenerator[dict[str, Any], None]:
        """The engine's own words on how far it is."""
        repository, tag = split(reference)
        # A credential helper is a program, and may take its time.
        login = await asyncio.to_thread(login_for, repository)
        headers = {"X-Registry-Auth": login} if login else None
        params = [("fromImage", repository), ("tag", tag)]
        async for line in self._stream("/images/create", params, headers=headers):
            if "error" in line:
                raise EngineRefused(str(line["error"]), 500)
            yield line

    async def derive(self, source: str, reference: str, changes: list[str], files: Sequence[File], via: str) -> None:
        """An image from another one, by way of a container named `via` that never runs."""
        await self._remove_container(via)
        body = {"Image": source, "HostConfig": NEVER_RUN}
        made = await self._call("POST", "/containers/create", params={"name": via}, body=body)
        try:
            await self._call("PUT", f"/containers/{made['Id']}/archive", params={"path": "/"}, data=_tar(files))
            repository, tag = split(reference)
            params = [("container", made["Id"]), ("repo", repository), ("tag", tag)]
            params += [("changes", change) for change in changes]
            await self._call("POST", "/commit", params=params, body={}, patience=ENDLESS)
        finally:
            await self._remove_container(via)

    async def _remove_container(self, name: str) -> None:
        try:
            await self._call("DELETE", f"/containers/{name}", params={"force": "1", "v": "1"})
        except EngineRefused as refused:
            if refused.status != 404:
                raise

    async def _call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | list[tuple[str, str]] = (),  # type: ignore[assignment] # nothing is nothing
        body: Mapping[str, Any] | None = None,
        data: bytes | None = None,
        patience: aiohttp.ClientTimeout = SHORT,
    ) -> Any:
        async with self._request(method, path, params=params, json=body, data=data, timeout=patience) as answer:
            await _check(answer)
            text = await answer.text()
        return json.loads(text) if text.strip() else None

    async def _stream(
        self,
        path: str,
        params: list[tuple[str, str]],
        data: AsyncIterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        async with self._request("POST", path, params=params, data=data, headers=headers, timeout=ENDLESS) as answer:
            await _check(answer)
            async for line in answer.content:
                if line.strip():
                    yield json.loads(line)

    def _request(self, method: str, path: str, **arguments: Any) -> Any:
        if self._session is None:
            raise EmbeddedError("The engine is not connected.")
        return self._session.request(method, self._base + path, **arguments)


def split(reference: str) -> tuple[str, str]:
    """Repository and tag: a colon before a slash belongs to a registry's port."""
    repository, colon, tag = reference.rpartition(":")
    return (repository, tag) if colon and "/" not in tag else (reference, "latest")


def _connector(host: str) -> tuple[str, aiohttp.BaseConnector]:
    scheme, _, place = host.partition("://")
    if scheme == "unix":
        return "http://docker", aiohttp.UnixConnector(place)
    if scheme not in {"tcp", "http", "https"}:
        raise EmbeddedError(f"DOCKER_HOST={host} is not right: unix:// or tcp:// would be.")
    if scheme == "http" or (scheme == "tcp" and not os.environ.get("DOCKER_TLS_VERIFY")):
        return f"http://{place}", aiohttp.TCPConnector()
    folder = Path(os.environ.get("DOCKER_CERT_PATH") or Path.home() / ".docker")
    tls = ssl.create_default_context(cafile=folder / "ca.pem")
    tls.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return f"https://{place}", aiohttp.TCPConnector(ssl=tls)


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status < 400:
        return
    text = await answer.text()
    try:
        text = json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        text = text.strip() or str(answer.reason)
    raise EngineRefused(text, answer.status)


def _tar(files: Sequence[File]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for file in files:
            entry = tarfile.TarInfo(file.path.lstrip("/"))
            entry.size, entry.mode = len(file.content), file.mode
            tar.addfile(entry, io.BytesIO(file.content))
    return content.getvalue()


def _quoted(reference: str) -> str:
    return quote(reference, safe="/:@")
