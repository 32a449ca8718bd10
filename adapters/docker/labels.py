"""Labels on everything that codehub makes: they tell what is ours, and nothing else is ever touched."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from domain.model import OperationId, WorkspaceId

INSTALLATION = "codehub.installation"
WORKSPACE = "codehub.workspace"
ROLE = "codehub.role"
OPERATION = "codehub.operation"
MARKER = "codehub.marker"


class Role(StrEnum):
    WORKSPACE = "workspace"
    HOME = "home"
    IO = "io"
    STRAY = "stray"
    """A volume that the engine made by itself, because a container named one that was gone: never a home."""
    NETWORK = "network"
    NODE = "node"
    """The volume that tells which node's data this is."""


@dataclass(frozen=True, slots=True)
class Labels:
    installation: str

    def of(self, workspace_id: WorkspaceId, role: Role, op_id: OperationId) -> dict[str, str]:
        return {
            INSTALLATION: self.installation,
            WORKSPACE: workspace_id,
            ROLE: role,
            OPERATION: op_id,
        }

    def of_network(self) -> dict[str, str]:
        return {INSTALLATION: self.installation, ROLE: Role.NETWORK}

    def of_node(self) -> dict[str, str]:
        return {INSTALLATION: self.installation, ROLE: Role.NODE}

    def filter(self, role: Role) -> dict[str, list[str]]:
        """For the engine's listings."""
        return {"label": [f"{INSTALLATION}={self.installation}", f"{ROLE}={role}"]}

    def owns(self, found: Mapping[str, str] | None, role: Role, workspace_id: WorkspaceId | None) -> bool:
        labels = found or {}
        return (
            labels.get(INSTALLATION) == self.installation
            and labels.get(ROLE) == role
            and labels.get(WORKSPACE) == workspace_id
        )
