"""The machine itself, and what codehub was told: settings, room on the disk, and whether the API answers."""

import asyncio
import os
import shutil
import socket
from difflib import get_close_matches
from ipaddress import ip_address
from urllib.parse import urlsplit

from settings import Settings
from starter.commands.checks.finding import Findings, Watch, bad, ok, warning
from starter.commands.failure import CommandFailed
from starter.commands.running_stack import local_url
from starter.commands.server import Server
from starter.commands.words import size

LEAST_FREE_BYTES = 200 * 1000**2
LITTLE_FREE_BYTES = 2 * 1000**3
# With all of them, `codehub up` is not how this installation is run.
ADDRESSES = ("database_url", "redis_url", "s3_endpoint", "temporal_address")
_ALIKE = 0.85


async def check_settings(settings: Settings) -> Findings:
    given = sorted(name.upper() for name in settings.model_fields_set)
    yield ok(f"{len(given)} are set: {', '.join(given)}" if given else "all have their defaults")
    known = [name.upper() for name in Settings.model_fields]
    for name in sorted(os.environ.keys() - set(known)):
        # A misspelt one would silently be the default.
        # What begins otherwise is another program's, such as AWS_CA_BUNDLE.
        alike = [one for one in known if one[0] == name[0]]
        for meant in get_close_matches(name, alike, n=1, cutoff=_ALIKE):
            yield warning(f"{name} is no setting of codehub", f"If {meant} is meant: correct it.")
    if settings.ttl_interval > settings.ttl_standby_seconds > 0:
        yield warning("TTL_INTERVAL is longer than TTL_STANDBY_SECONDS", "Workspaces go to sleep later than they say.")
    if await asyncio.to_thread(_ports_get_logins, settings):
        yield warning(
            "codehub is reached over plain HTTP on the address that workspaces' ports are published on: browsers send "
            "its login to those, too",
            "Put HTTPS in front and name it in CODEHUB_URL, or give NODE_ADDRESS another address than people use.",
        )


async def check_disk(settings: Settings) -> Findings:
    folder = settings.codehub_data.resolve()
    if not folder.exists() and all(getattr(settings, name) for name in ADDRESSES):
        yield ok("nothing is kept on this one: every service has its address")
        return
    there = next(place for place in (folder, *folder.parents) if place.exists())
    usage = shutil.disk_usage(there)
    told = f"{size(usage.free)} of {size(usage.total)} are free at {there}"
    if usage.free < LEAST_FREE_BYTES:
        yield bad(told, "Make room, or name another directory in CODEHUB_DATA.")
    elif usage.free < LITTLE_FREE_BYTES:
        yield warning(told, "Make room before homes and databases fill it.")
    else:
        yield ok(told)
    if not os.access(there, os.W_OK):
        advice = "Use the user who started `codehub up`, or name another directory in CODEHUB_DATA."
        yield bad(f"{there} is not writable for this user", advice)


async def check_api(settings: Settings) -> Findings:
    url = local_url(settings.codehub_host, settings.codehub_port)
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


def _ports_get_logins(settings: Settings) -> bool:
    """Cookies keep hosts apart, not ports; those of HTTPS don't go to plain HTTP. A machine of one's own (loopback) is
    not warned of: docs/threat-model.md."""
    node, url = ip_address(settings.node_address), urlsplit(settings.codehub_url or "")
    if node.is_loopback or url.scheme == "https" or not (url.hostname or not settings.trusted_proxies):
        return False
    try:
        found = socket.getaddrinfo(url.hostname or settings.codehub_host, None)
    except (OSError, UnicodeError):
        return False
    hub = {ip_address(str(entry[4][0]).partition("%")[0]) for entry in found}
    return node in hub or any(address.is_unspecified for address in hub)


def _ready(url: str) -> list[str]:
    with Server(url, patience=5) as server:
        return list(server.get("/health/ready")["parts"])
