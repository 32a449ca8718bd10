"""After the commit: tell the workflow. What was recorded is carried out even when Temporal could not be told."""

import asyncio
from typing import Protocol

import structlog

from domain.model import WorkspaceId
from workflows.client import TemporalUnavailable

log = structlog.get_logger()


class Waker(Protocol):
    async def wake(self, workspace_id: WorkspaceId) -> None: ...
    async def start(self, workspace_id: WorkspaceId) -> None: ...


class Wakes:
    """The answer waits a moment for the wake, not for a Temporal that is away: the coordinator wakes it later."""

    def __init__(self, waker: Waker, patience: float = 1.0) -> None:
        self._waker = waker
        self._patience = patience
        self._under_way: set[asyncio.Task[None]] = set()

    async def after_commit(self, workspace_id: WorkspaceId, *, new: bool = False) -> None:
        task = asyncio.create_task(self._wake(workspace_id, new=new))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        await asyncio.wait({task}, timeout=self._patience)

    async def drain(self, seconds: float) -> None:
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=seconds)
        for task in list(self._under_way):
            task.cancel()

    async def _wake(self, workspace_id: WorkspaceId, *, new: bool) -> None:
        try:
            await (self._waker.start(workspace_id) if new else self._waker.wake(workspace_id))
        except TemporalUnavailable as error:
            log.warning("wake_not_sent", workspace=workspace_id, error=str(error))
        except Exception:
            # The change is committed: whatever is wrong here must not turn it into an error.
            log.exception("wake_failed", workspace=workspace_id)
