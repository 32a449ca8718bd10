"""What is known of workspaces for a moment, so that no request costs a query.

A change is told by `invalidate` (see invalidation.py); the ages are for the case that nobody tells. A view that is too
old could lead to a port that another container has got since: all others are handed out first (adapters.docker.ports),
so seconds are safe, minutes would not be.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from domain.model import Operation, Phase, WorkspaceId
from starter.proxy.decide import View

Load = Callable[[WorkspaceId], Awaitable[View | None]]

_RUNNING_SECONDS = 3.0
_OTHER_SECONDS = 1.0
_MOST = 20_000


@dataclass(frozen=True, slots=True)
class Known:
    """`view` is None for an id that names nothing."""

    view: View | None
    until: float


class Directory:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._known: dict[WorkspaceId, Known] = {}
        self._loading: dict[WorkspaceId, asyncio.Task[View | None]] = {}

    def cached(self, workspace_id: WorkspaceId) -> Known | None:
        found = self._known.get(workspace_id)
        return found if found is not None and found.until > time.monotonic() else None

    async def find(self, workspace_id: WorkspaceId) -> View | None:
        """One query, however many ask at once. Raises DatabaseUnavailable."""
        found = self.cached(workspace_id)
        if found is not None:
            return found.view
        task = self._loading.get(workspace_id)
        if task is None:
            task = asyncio.create_task(self._find(workspace_id))
            self._loading[workspace_id] = task
            task.add_done_callback(lambda done: self._loaded(workspace_id, done))
        # One of them may go away while the others wait.
        return await asyncio.shield(task)

    def invalidate(self, workspace_id: WorkspaceId) -> None:
        """What is being loaded may be from before: whoever asks from now on loads again."""
        self._known.pop(workspace_id, None)
        self._loading.pop(workspace_id, None)

    def invalidate_all(self) -> None:
        self._known.clear()
        self._loading.clear()

    async def _find(self, workspace_id: WorkspaceId) -> View | None:
        # Its age counts from the question, not from the answer.
        asked = time.monotonic()
        me = asyncio.current_task()
        view = await self._load(workspace_id)
        if self._loading.get(workspace_id) is me:
            self._keep(workspace_id, Known(view, asked + _age(view)))
        return view

    def _keep(self, workspace_id: WorkspaceId, known: Known) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[workspace_id] = known

    def _loaded(self, workspace_id: WorkspaceId, task: "asyncio.Task[View | None]") -> None:
        if self._loading.get(workspace_id) is task:
            del self._loading[workspace_id]
        # Whoever waited for it has its error; with nobody waiting it is nobody's.
        if not task.cancelled():
            task.exception()


def _age(view: View | None) -> float:
    running = view is not None and view.phase is Phase.RUNNING and view.operation is Operation.NONE
    return _RUNNING_SECONDS if running else _OTHER_SECONDS
