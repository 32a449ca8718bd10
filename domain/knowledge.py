"""What the row itself says of a workspace's resources, for those who can't look at its node's engine. Pure."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from types import MappingProxyType

from domain.model import ConditionName, Operation, Phase, Workspace
from domain.observation import ContainerState, Presence, Resources
from domain.pacing import KEEPS_ENDING

_CONTAINERS: Mapping[str, ContainerState] = MappingProxyType(
    {
        "ContainerReady": ContainerState.READY,
        "PortNotAnswering": ContainerState.UNREADY,
        "ContainerStopped": ContainerState.STOPPED,
        "ContainerAbsent": ContainerState.ABSENT,
        # It may be there or not: whoever goes by the row removes what there is.
        KEEPS_ENDING: ContainerState.STOPPED,
    }
)
_VOLUMES: Mapping[str, Presence] = MappingProxyType(
    {
        "VolumePresent": Presence.PRESENT,
        "RestoreIncomplete": Presence.PRESENT,
        "RemovalIncomplete": Presence.PRESENT,
        "VolumeAbsent": Presence.ABSENT,
    }
)


def remembered(ws: Workspace) -> Resources:
    """What was observed last."""
    container = ws.conditions.get(ConditionName.CONTAINER_READY)
    volume = ws.conditions.get(ConditionName.VOLUME_READY)
    return Resources(
        container=_CONTAINERS.get(container.reason, ContainerState.UNKNOWN) if container else ContainerState.UNKNOWN,
        volume=_VOLUMES.get(volume.reason, Presence.UNKNOWN) if volume else Presence.UNKNOWN,
        endpoint=ws.endpoint,
    )


def is_recent(ws: Workspace, swept_at: datetime | None, now: datetime, max_age: timedelta) -> bool:
    """Whether what is remembered will do. A workspace at rest is as its row says as long as its node's observer sweeps:
    the sweep that finds a difference clears `observed_at`. What changes, or failed, has to be looked at."""
    if ws.operation is not Operation.NONE or ws.phase not in {Phase.STANDBY, Phase.RUNNING}:
        return False
    if ws.observed_at is None or ws.deleted_at is not None or not remembered(ws).known:
        return False
    return now - max(ws.observed_at, swept_at or ws.observed_at) <= max_age


def says_nothing_new(before: Workspace, after: Workspace) -> bool:
    """Whether all that a look has added is that somebody looked."""
    return replace(after, observed_at=before.observed_at) == before


def has_home(ws: Workspace) -> bool:
    """Whether its node may hold data of its own: a volume that is filled or emptied holds none but the archive's."""
    return ws.condition(ConditionName.VOLUME_READY) and not ws.home_ctx.partial
