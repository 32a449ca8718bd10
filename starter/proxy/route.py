"""Which workspace a request is for, and what the workspace is to see of the path.

The one place that knows where workspaces live: a pattern of host names would be another reading of (host, target).
"""

import re
from dataclasses import dataclass

from domain.model import WorkspaceId

PREFIX = b"/w/"

# The id is compared with the row's text, so it has one spelling. Whatever comes after it is the workspace's own
# business, byte for byte: encoded slashes and dots are not looked at, so they can't lead anywhere else.
_PATH = re.compile(rb"/w/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})(/[^?]*)?(\?.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Route:
    workspace_id: WorkspaceId
    prefix: bytes
    target: bytes


@dataclass(frozen=True, slots=True)
class AddSlash:
    """`/w/{id}`: relative links of the workspace's pages need the slash."""

    location: bytes


def route(_host: bytes, target: bytes) -> Route | AddSlash | None:
    """None: names no workspace."""
    found = _PATH.fullmatch(target)
    if found is None:
        return None
    workspace, path, query = found[1], found[2], found[3] or b""
    prefix = PREFIX + workspace
    if path is None:
        return AddSlash(prefix + b"/" + query)
    return Route(WorkspaceId(workspace.decode()), prefix, path + query)
