"""Host names of workspaces (`WORKSPACE_HOST_PATTERN`): an origin for each, so that the browser keeps them apart."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from domain.model import WorkspaceId

_ID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_PLACE = "{id}"
_PATTERN = re.compile(r"[a-z0-9-]*\{id\}[a-z0-9-]*(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+")


@dataclass(frozen=True, slots=True)
class Nobody:
    """A host name of the pattern's that names no workspace: nothing is served there, least of all the API."""


class Hosts:
    """`pattern` is a host name with `{id}` in its first label; `hub` is the URL where people reach codehub itself."""

    def __init__(self, pattern: str, hub: str) -> None:
        check_host_pattern(pattern, hub)
        parts = urlsplit(hub)
        self.hub = hub.rstrip("/")
        self.is_secure = parts.scheme == "https"
        self._hub_host = parts.hostname or ""
        self._pattern = pattern
        self._scheme = parts.scheme
        self._port = f":{parts.port}" if parts.port else ""
        before, after = map(re.escape, pattern.split(_PLACE))
        self._known = re.compile(f"{before}({_ID}){after}")
        self._like = re.compile(f"{before}[^.]*{after}")

    def workspace(self, host: bytes) -> WorkspaceId | Nobody | None:
        """Of a request's Host. None: it is none of these names, so it is the hub's."""
        name = host.decode("latin-1").partition(":")[0].rstrip(".").lower()
        found = self._known.fullmatch(name)
        if found is not None:
            return WorkspaceId(found[1])
        return Nobody() if name != self._hub_host and self._like.fullmatch(name) else None

    def url(self, workspace_id: WorkspaceId) -> str:
        """Without a path."""
        return f"{self._scheme}://{self._pattern.replace(_PLACE, workspace_id)}{self._port}"


def check_host_pattern(pattern: str, hub: str | None) -> None:
    """Raises ValueError: says what would be right."""
    if not _PATTERN.fullmatch(pattern) or len(pattern.partition(".")[0]) - len(_PLACE) > 63 - 36:
        raise ValueError("a host name with {id} in its first label would be right, such as {id}.ws.example.com")
    if hub is None:
        raise ValueError("it needs CODEHUB_URL as well, such as https://hub.example.com")
    before, after = map(re.escape, pattern.split(_PLACE))
    if re.fullmatch(f"{before}{_ID}{after}", urlsplit(hub).hostname or ""):
        raise ValueError("CODEHUB_URL must not be the host name of a workspace")
