"""`/metrics`: what a process shows of itself, on a port of its own (METRICS_PORT) or behind the API's login. On its own
port it also tells whether it lives, and a worker whether it leads."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hmac import compare_digest

import aiohttp
import structlog
from aiohttp import web
from prometheus_client import REGISTRY, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from adapters.telemetry.metrics import SKIPPED
from settings import Settings, SettingsError

log = structlog.get_logger()

Source = Callable[[], Awaitable[bytes]]
Page = Callable[[], Mapping[str, object]]
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_FETCH = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True)
class Exposition:
    """Our own metrics, and those of other `sources` by name. One that fails is left out: the others still tell."""

    sources: Mapping[str, Source] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)

    async def render(self) -> bytes:
        parts = []
        for name, source in self.sources.items():
            try:
                parts.append(await source())
            except Exception as error:  # noqa: BLE001 - whatever it is, the rest is worth showing
                SKIPPED.labels(f"metrics_{name}").inc()
                log.warning("metrics_left_out", source=name, error=str(error))
        return generate_latest(REGISTRY) + b"".join(parts)

    def is_shown_to(self, authorization: str) -> bool:
        """Whether this Authorization header names the token of METRICS_TOKEN."""
        scheme, _, given = authorization.partition(" ")
        if self.token is None or scheme.lower() != "bearer":
            return False
        return compare_digest(given.strip().encode(), self.token.encode())


def fetched(url: str) -> Source:
    async def fetch() -> bytes:
        async with aiohttp.ClientSession(timeout=_FETCH) as session, session.get(url) as response:
            response.raise_for_status()
            return await response.read()

    return fetch


@asynccontextmanager
async def serving_metrics(
    settings: Settings, sources: Mapping[str, Source], health: Mapping[str, Page] | None = None
) -> AsyncIterator[Exposition]:
    """Listens where METRICS_PORT says; without it, on no port. `health` are the pages below /health, by name."""
    token = settings.metrics_token.get_secret_value() if settings.metrics_token else None
    exposition = Exposition(sources, token)
    if settings.metrics_port is None:
        yield exposition
        return
    runner = web.AppRunner(
        _application(exposition, {"live": lambda: {"live": True}, **(health or {})}),
        access_log=None,
        handle_signals=False,
    )
    await runner.setup()
    try:
        await _listen(runner, settings.metrics_host, settings.metrics_port)
        log.info("metrics_listening", host=settings.metrics_host, port=settings.metrics_port)
        yield exposition
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise SettingsError(
            f"METRICS_HOST={host!r}, METRICS_PORT={port!r}: can't listen there ({error.strerror}); every process of "
            "codehub on a machine needs a port of its own for its metrics"
        ) from error


def _application(exposition: Exposition, health: Mapping[str, Page]) -> web.Application:
    async def metrics(request: web.Request) -> web.Response:
        if exposition.token is not None and not exposition.is_shown_to(request.headers.get("Authorization", "")):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"}, text="METRICS_TOKEN is wanted\n")
        return web.Response(body=await exposition.render(), headers={"Content-Type": CONTENT_TYPE})

    async def tell(request: web.Request) -> web.Response:
        page = health.get(request.match_info["page"])
        return web.json_response(page()) if page else web.Response(status=404)

    application = web.Application()
    application.router.add_get("/metrics", metrics)
    application.router.add_get("/health/{page}", tell)
    return application
