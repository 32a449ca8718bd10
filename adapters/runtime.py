"""The interface to what runs workspaces. Every call is idempotent: run again after any crash, same world."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from domain.model import OperationId, WorkspaceId
from domain.observation import Resources


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

    async def create_volume(self, workspace_id: WorkspaceId, op_id: OperationId) -> None:
        """Make the empty home, labelled with the operation that made it; one that exists is left as it is."""
        ...

    async def start(self, workspace_id: WorkspaceId, image_ref: str, op_id: OperationId) -> None:
        """Run the container on the existing volume and return once its port answers.

        Never makes a volume: where it is missing, raises DataLost and leaves nothing behind.
        """
        ...

    async def stop(self, workspace_id: WorkspaceId) -> None:
        """SIGTERM, STOP_GRACE_SECONDS, then remove the container. The volume stays."""
        ...

    async def remove_volume(self, workspace_id: WorkspaceId) -> None:
        """Remove the volume; the container must be gone."""
        ...

    def watch(self) -> AbstractAsyncContextManager[AsyncIterator[WorkspaceId]]:
        """Workspaces whose container or volume just changed, as the engine says so. Ends with Unreachable.

        Once entered it is subscribed: whoever lists everything after that misses nothing.
        """
        ...
