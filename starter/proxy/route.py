"""Which workspace a request is for, and what the workspace is to see of the path.

The one place that knows where workspaces live: under `/w/{id}`, and with a pattern of host names also on their own.
"""

import re
from dataclasses import dataclass

from domain.hosts import Hosts, Nobody
from domain.model import WorkspaceId

PREFIX = b"/w/"
# On a workspace's own host, what is ours. It is never passed on.
RESERVED = b"/.codehub/"

# The id is compared with the row's text, so it has one spelling. Whatever comes after it is the workspace's own
# business, byte for byte: encoded slashes and dots are not looked at, so they can't lead anywhere else.
_PATH = re.compile(rb"/w/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(/[^?]*)?(\?.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Route:
    """`may_pass`: whether this is the place where the workspace itself is reached."""

    workspace_id: WorkspaceId
    prefix: bytes
    target: bytes
    may_pass: bool = True

    @property
    def forwarded(self) -> bytes:
        """The header that tells a workspace where it is, where it is not at the root."""
        return b"X-Forwarded-Prefix: %b\r\n" % self.prefix if self.prefix else b""

    @property
    def is_hosted(self) -> bool:
        """On the workspace's own host name."""
        return not self.prefix


@dataclass(frozen=True, slots=True)
class AddSlash:
    """`/w/{id}`: relative links of the workspace's pages need the slash."""

    location: bytes


Place = Route | AddSlash | Nobody


class Places:
    def __init__(self, hosts: Hosts | None = None) -> None:
        self._hosts = hosts

    def find(self, host: bytes, target: bytes) -> Place | None:
        """None: it is the API's."""
        if self._hosts is not None:
            named = self._hosts.workspace(host)
            if isinstance(named, Nobody) or (named is not None and not target.startswith(b"/")):
                return Nobody()
            if named is not None:
                return Route(named, b"", target, may_pass=not target.startswith(RESERVED))
        if not target.startswith(PREFIX):
            return None
        return _below_prefix(target, may_pass=self._hosts is None)


def _below_prefix(target: bytes, *, may_pass: bool) -> Place:
    found = _PATH.fullmatch(target)
    if found is None:
        return Nobody()
    workspace, path, query = found[1], found[2], found[3] or b""
    prefix = PREFIX + workspace
    if path is None:
        return AddSlash(prefix + b"/" + query)
    return Route(WorkspaceId(workspace.decode()), prefix, path + query, may_pass)
