"""An image registry with one image in it, as small as the protocol allows, with a login or without."""

import gzip
import hashlib
import io
import json
import tarfile
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
CONFIG = "application/vnd.docker.container.image.v1+json"
LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


@asynccontextmanager
async def image_registry(architecture: str, login: str | None = None) -> AsyncIterator[str]:
    """Yields the reference of its image: a file named /from-afar, and an entrypoint that is not ours. With a `login`,
    such as `me:password`, nobody else gets anything."""
    layer = _layer({"from-afar": b"pulled\n"})
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Entrypoint": ["/theirs"], "Cmd": ["--their-option"], "User": "0", "Env": ["THEIRS=1"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    packed = gzip.compress(layer)
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "size": len(config), "digest": _digest(config)},
            "layers": [{"mediaType": LAYER, "size": len(packed), "digest": _digest(packed)}],
        }
    ).encode()
    blobs = {_digest(config): config, _digest(packed): packed}

    async def version(_: web.Request) -> web.Response:
        return web.json_response({})

    async def manifests(_: web.Request) -> web.Response:
        headers = {"Content-Type": MANIFEST, "Docker-Content-Digest": _digest(manifest)}
        return web.Response(body=manifest, headers=headers)

    async def blob(request: web.Request) -> web.Response:
        return web.Response(body=blobs[request.match_info["digest"]], content_type="application/octet-stream")

    @web.middleware
    async def known(request: web.Request, handler: Handler) -> web.StreamResponse:
        if login and request.headers.get(hdrs.AUTHORIZATION) != f"Basic {_encoded(login)}":
            raise web.HTTPUnauthorized(headers={hdrs.WWW_AUTHENTICATE: 'Basic realm="images"'})
        return await handler(request)

    app = web.Application(middlewares=[known])
    app.router.add_get("/v2/", version)
    app.router.add_get("/v2/code-server/manifests/{reference}", manifests)
    app.router.add_get("/v2/code-server/blobs/{digest}", blob)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"127.0.0.1:{runner.addresses[0][1]}/code-server:1"
    finally:
        await runner.cleanup()


def logged_in(folder: Path, reference: str, login: str) -> Path:
    """A folder for DOCKER_CONFIG, as `docker login` leaves it."""
    folder.mkdir()
    auths = {reference.partition("/")[0]: {"auth": _encoded(login)}}
    (folder / "config.json").write_text(json.dumps({"auths": auths}))
    return folder


def _encoded(login: str) -> str:
    return b64encode(login.encode()).decode()


def _layer(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text))
    return content.getvalue()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
