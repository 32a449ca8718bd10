"""The interface to what runs workspaces. Every call is idempotent: run again after any crash, same world."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from adapters.archive_store import Fence, unfenced
from domain.model import OperationId, WorkspaceId
from domain.observation import Resources

PortsTaken = Callable[[Collection[int]], Awaitable[Collection[int]]]
"""Of these ports, those at which somebody may still look for another workspace."""


async def none_taken(_: Collection[int]) -> Collection[int]:
    return ()


class Runtime(Protocol):
    """One engine. Failures are errors of `domain.errors`; an engine that does not answer is Unreachable."""

    async def observe(self, workspace_id: WorkspaceId, *, probe: bool) -> Resources:
        """What the engine holds. With `probe`, a running container is READY only once its port answers HTTP.

        Never raises for an engine that does not answer: what could not be seen is UNKNOWN.
        """
        ...

    async def observe_all(self) -> Mapping[WorkspaceId, Resources]:
        """Everything of this installation in two calls, without probing. Raises Unreachable."""
        ...

    async def create_volume(self, workspace_id: WorkspaceId, op_id: OperationId, fence: Fence = unfenced) -> None:
        """Make the empty home, labelled with the operation that made it; one that exists is left as it is.

        The fence is asked right before: whoever is late would make a home where there is an archive.
        """
        ...

    async def start(
        self,
        workspace_id: WorkspaceId,
        image_ref: str,
        op_id: OperationId,
        fence: Fence = unfenced,
        taken: PortsTaken = none_taken,
    ) -> None:
        """Run the container on the existing volume and return once its port answers. The port is none that is `taken`.

        Never makes a volume: where it is missing, raises DataLost and leaves nothing behind. The fence is asked when
        the container is there and does not run yet: from then on whoever comes later removes it first.
        """
        ...

    async def stop(self, workspace_id: WorkspaceId, fence: Fence = unfenced) -> None:
        """SIGTERM, STOP_GRACE_SECONDS, then remove the container. The volume stays.

        The container is the one that was there before the fence let pass, never one that was started since.
        """
        ...

    async def remove_volume(self, workspace_id: WorkspaceId) -> None:
        """Remove the volume; the container must be gone."""
        ...

    async def isolate(self) -> None:
        """What keeps running workspaces from all else is in place, also where somebody has taken it away since they
        were started, and for what has come since. Raises an error of `domain.errors` where it could not be put there.
        """
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[WorkspaceId]]:
        """Workspaces whose container or volume just changed, as the engine says so. Ends with Unreachable.

        Once entered it is subscribed: whoever lists everything after that misses nothing.
        """
        ...
