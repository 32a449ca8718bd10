"""The machine itself, and what codehub was told: settings, room on the disk, and whether the API answers."""

import asyncio
import os
import shutil
from pathlib import Path

from settings import Settings
from starter.commands.checks.finding import Findings, Watch, bad, ok, warning
from starter.commands.failure import CommandFailed
from starter.commands.server import Server
from starter.commands.words import size

LEAST_FREE_BYTES = 200 * 1000**2
LITTLE_FREE_BYTES = 2 * 1000**3


async def check_settings(settings: Settings) -> Findings:
    given = sorted(name.upper() for name in settings.model_fields_set)
    yield ok(f"{len(given)} are set: {', '.join(given)}" if given else "all have their defaults")
    # Misspelt ones are silently the default otherwise.
    families = ("COORDINATOR_", "RECONCILER_", "TTL_", "LIMITS_", "GC_", "ACTIVITY_", "WORKER_", "WORKSPACE_")
    known = {name.upper() for name in Settings.model_fields}
    for name in sorted(os.environ):
        if name.startswith(families) and name not in known:
            yield warning(f"{name} is no setting of codehub", "Check how it is spelt; settings.py has them all.")
    if settings.ttl_interval > settings.ttl_standby_seconds > 0:
        yield warning("TTL_INTERVAL is longer than TTL_STANDBY_SECONDS", "Workspaces go to sleep later than they say.")


async def check_disk(settings: Settings) -> Findings:
    folder = settings.codehub_data.resolve()
    there = next(place for place in (folder, *folder.parents) if place.exists())
    usage = shutil.disk_usage(there)
    told = f"{size(usage.free)} of {size(usage.total)} are free at {there}"
    if usage.free < LEAST_FREE_BYTES:
        yield bad(told, "Make room, or name another directory in CODEHUB_DATA.")
    elif usage.free < LITTLE_FREE_BYTES:
        yield warning(told, "Make room before homes and databases fill it.")
    else:
        yield ok(told)
    if there == folder and not os.access(Path(folder), os.W_OK):
        yield bad(f"{folder} is not writable for this user", "Use the user who started `codehub up`.")


async def check_api(settings: Settings) -> Findings:
    host = "127.0.0.1" if settings.codehub_host in {"0.0.0.0", "::"} else settings.codehub_host  # noqa: S104
    url = f"http://{host}:{settings.codehub_port}"
    with Watch() as watch:
        try:
            ready = await asyncio.to_thread(_ready, url)
        except CommandFailed as error:
            away = error.code == "unreachable"
            advice = "Start it (codehub api), or set CODEHUB_HOST and CODEHUB_PORT to where it is."
            yield bad(
                f"nobody answers at {url}" if away else error.message,
                advice if away else "Mend what it names: it can't do its work without.",
            )
            return
    yield ok(f"answers at {url}, and all of its parts: {', '.join(ready)}", watch.milliseconds)


def _ready(url: str) -> list[str]:
    with Server(url, patience=5) as server:
        return list(server.get("/health/ready")["parts"])
