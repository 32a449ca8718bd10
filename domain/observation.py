"""What was seen of the resources behind a workspace. UNKNOWN is an answer of its own: never absent."""

from dataclasses import dataclass
from enum import StrEnum


class Presence(StrEnum):
    PRESENT = "PRESENT"
    ABSENT = "ABSENT"
    UNKNOWN = "UNKNOWN"


class ContainerState(StrEnum):
    ABSENT = "ABSENT"
    STOPPED = "STOPPED"
    """Exists, does not run."""
    UNREADY = "UNREADY"
    """Runs, its port does not answer yet."""
    READY = "READY"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Resources:
    """What one Docker engine holds for one workspace."""

    container: ContainerState = ContainerState.ABSENT
    volume: Presence = Presence.ABSENT
    endpoint: str | None = None
    """`host:port` under which the container's port is reached, while it runs."""

    @property
    def known(self) -> bool:
        return self.container is not ContainerState.UNKNOWN and self.volume is not Presence.UNKNOWN

    @property
    def gone(self) -> bool:
        return self.container is ContainerState.ABSENT and self.volume is Presence.ABSENT


UNKNOWN_RESOURCES = Resources(ContainerState.UNKNOWN, Presence.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Observation:
    """Resources, and the archive named by `archive_key` (UNKNOWN also when nobody asked for it)."""

    resources: Resources
    archive: Presence = Presence.UNKNOWN
    node_lost: bool = False
    """The node has not been heard of for too long: what it holds is safe there, and out of reach."""
