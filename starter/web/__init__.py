"""The dashboard: plain ES modules and CSS, read once and served from memory. No build step, no other host."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from fastapi import APIRouter, Request, Response

_FOLDER = Path(__file__).parent
_KINDS = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
# Text reaches the page as text only: with Trusted Types, a browser refuses every other way.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
_PAGE_HEADERS = {
    "Content-Security-Policy": _POLICY,
    # A workspace that was opened from here has no hold on this page.
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
_PROGRAMS = ("/api/", "/health", "/metrics", "/assets/")
# Run as they are met, before the modules.
_SCRIPTS = ("loading.js", "theme.js")
_YEAR = {"Cache-Control": "public, max-age=31536000, immutable"}


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    small: bytes
    kind: str

    @classmethod
    def of(cls, body: bytes, kind: str) -> "Asset":
        return cls(body, gzip.compress(body, mtime=0), kind)

    def response(self, request: Request, headers: dict[str, str], status: int = 200) -> Response:
        headers = {"Vary": "Accept-Encoding", **headers}
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(self.small, status, media_type=self.kind, headers=headers)
        return Response(self.body, status, media_type=self.kind, headers=headers)


@cache
def dashboard() -> APIRouter:
    """`/`, and its parts under a name that changes with them: they are kept for good, and never stale."""
    router = APIRouter(include_in_schema=False)
    files = _files()
    for name, path in files.items():
        _serve(router, f"{_assets()}/{name}", Asset.of(path.read_bytes(), _KINDS[path.suffix]), _YEAR)
    modules = "\n".join(
        f'<link rel="modulepreload" href="{_assets()}/{name}">'
        for name, path in files.items()
        if path.suffix == ".js" and name not in _SCRIPTS
    )
    _serve(router, "/", _page("index.html", modules=modules), _PAGE_HEADERS)
    return router


def nothing_here(request: Request) -> Response | None:
    """For a person who typed an address, or followed an old one. None for programs, and below what is theirs."""
    wanted = request.headers.get("accept", "")
    if request.method not in {"GET", "HEAD"} or "text/html" not in wanted or request.url.path.startswith(_PROGRAMS):
        return None
    return _page("not_found.html").response(request, {**_PAGE_HEADERS, "Vary": "Accept, Accept-Encoding"}, 404)


@cache
def _page(name: str, **filled: str) -> Asset:
    page = Template((_FOLDER / name).read_text(encoding="utf-8")).substitute(assets=_assets(), **filled)
    return Asset.of(page.encode(), "text/html; charset=utf-8")


@cache
def _files() -> dict[str, Path]:
    return {path.name: path for path in sorted((_FOLDER / "assets").iterdir()) if path.suffix in _KINDS}


@cache
def _assets() -> str:
    return f"/assets/{hashlib.sha256(b''.join(path.read_bytes() for path in _files().values())).hexdigest()[:12]}"


def _serve(router: APIRouter, path: str, asset: Asset, headers: dict[str, str]) -> None:
    async def serve(request: Request) -> Response:
        return asset.response(request, headers)

    router.add_api_route(path, serve, methods=["GET", "HEAD"])
