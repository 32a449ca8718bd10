"""Names of everything that belongs to a workspace (SPEC 2)."""

import re

from domain.model import OperationId, WorkspaceId

UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
"""As codehub spells its ids. What is spelled otherwise was not written by it."""
DEFAULT_NODE = "local"
"""The node of an installation on one host. Its operations run on the workflows' own queue."""


def is_workspace_id(text: str) -> bool:
    """Names and labels are anybody's: what is no id must not get as far as a query for ids."""
    return re.fullmatch(UUID, text) is not None


def container_name(workspace_id: WorkspaceId) -> str:
    return f"ws-{workspace_id}"


def volume_name(workspace_id: WorkspaceId) -> str:
    return f"ws-{workspace_id}-home"


def workflow_id(workspace_id: WorkspaceId) -> str:
    return f"ws-{workspace_id}"


def archive_key(workspace_id: WorkspaceId, archive_op_id: OperationId) -> str:
    return f"{workspace_id}/{archive_op_id}/home.tar.zst"


def archive_op_id_of(key: str) -> OperationId | None:
    """Of an archive_key, the operation that made it."""
    found = re.fullmatch(rf"{UUID}/({UUID})/home\.tar\.zst", key)
    return OperationId(found[1]) if found else None


def meta_key(key: str) -> str:
    """The commit marker beside an archive."""
    return f"{key}.meta"


def is_node_name(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", name) is not None


def node_queue(node: str) -> str:
    return f"node-{node}"
