"""Leftovers: what an engine holds of workspaces that nobody will look after any more."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from adapters.postgres.attention import Attention
from adapters.postgres.database import DatabaseUnavailable
from adapters.runtime import Runtime
from domain.errors import WorkspaceError
from domain.model import WorkspaceId
from domain.observation import ContainerState, Presence, Resources

log = structlog.get_logger()

_AT_ONCE = 8
_LONGEST = 15.0
"""Seconds for all of them, so that the next sweep is not late. It goes on with what is left."""


class _MovedOn(Exception):
    """A person recovered it meanwhile."""


@dataclass(frozen=True, slots=True)
class Leftovers:
    node: str
    attention: Attention
    runtime: Runtime

    async def clear(self, seen: Mapping[WorkspaceId, Resources]) -> None:
        await self._of_deleted(seen)
        await self._of_failed_starts(seen)

    async def _of_deleted(self, seen: Mapping[WorkspaceId, Resources]) -> None:
        """What a lost attempt made after the workspace was deleted: nobody else would remove it."""
        for workspace_id in await self.attention.deleted(list(seen)):
            try:
                await self.runtime.stop(workspace_id)
                await self.runtime.remove_volume(workspace_id)
                log.warning("removed_leftover_of_deleted", workspace=workspace_id)
            except WorkspaceError as error:
                log.warning("leftover_stays", workspace=workspace_id, error=str(error))

    async def _of_failed_starts(self, seen: Mapping[WorkspaceId, Resources]) -> None:
        """Containers that no attempt could end: its worker was lost, or the engine away, when the start failed for
        good. Not without its volume: then the container may be the last to hold the home, whatever the row says yet."""
        with_container = [
            workspace_id
            for workspace_id, resources in seen.items()
            if resources.container is not ContainerState.ABSENT and resources.volume is Presence.PRESENT
        ]
        if not with_container or not (left := await self.attention.failed_to_start(self.node, with_container)):
            return
        places = asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.timeout(_LONGEST):
                await asyncio.gather(*(self._end(workspace_id, places) for workspace_id in left))
        except TimeoutError:
            log.warning("containers_of_failed_starts_stay", node=self.node, among=len(left))

    async def _end(self, workspace_id: WorkspaceId, places: asyncio.Semaphore) -> None:
        async def fence() -> None:
            if not await self.attention.failed_to_start(self.node, [workspace_id]):
                raise _MovedOn

        async with places:
            try:
                await self.runtime.stop(workspace_id, fence)
                log.warning("ended_container_of_failed_start", workspace=workspace_id)
            except _MovedOn:
                log.info("failed_start_was_recovered", workspace=workspace_id)
            except (WorkspaceError, DatabaseUnavailable) as error:
                log.warning("container_of_failed_start_stays", workspace=workspace_id, error=str(error))
