"""A container that answers and then ends, again and again, is started again at a pace (ADR 22)."""

import asyncio
from itertools import pairwise

from temporalio.client import Client

from adapters.archive_store import Fence, unfenced
from adapters.memory.runtime import MemoryRuntime
from adapters.runtime import PortsTaken, none_taken
from domain.explain import explain
from domain.model import OperationId, Phase, Workspace, WorkspaceId
from domain.pacing import is_paused
from domain.ttl import TtlDefaults
from tests.integration.system import System, system

FIVE_TIMES = "the container ended 5 times in a row"

_STARTINGS = """
SELECT started_at, finished_at FROM operations WHERE workspace_id = $1 AND operation = 'STARTING' ORDER BY started_at
"""
_DRIFTS = "SELECT reason FROM audit WHERE subject_id = $1 AND action = 'drifted' ORDER BY at, id"


class EndingRuntime(MemoryRuntime):
    """Its containers vanish a moment after they answered."""

    ending = True

    async def start(
        self,
        workspace_id: WorkspaceId,
        image_ref: str,
        op_id: OperationId,
        fence: Fence = unfenced,
        taken: PortsTaken = none_taken,
    ) -> None:
        await super().start(workspace_id, image_ref, op_id, fence, taken)
        if self.ending:
            asyncio.get_running_loop().call_later(0.2, self.drop_container, workspace_id)


async def test_a_container_that_keeps_ending_is_started_at_a_pace(temporal_client: Client, database_url: str) -> None:
    """Twice at once, then after a pause that doubles, which everybody is told of; and it runs when it holds."""
    runtime = EndingRuntime()
    async with system(temporal_client, database_url, runtime, "image") as running:
        workspace = await running.create()
        row = await running.until(workspace, lambda ws: is_paused(ws) and FIVE_TIMES in _told(ws))
        assert row.phase is Phase.STANDBY
        _, _, third, fourth = await _pauses(running, workspace)
        assert (third >= 1, fourth >= 2) == (True, True)
        drifts = [drift["reason"] or "" for drift in await running.parts.database.fetch(_DRIFTS, workspace)]
        assert ["in a row" in reason for reason in drifts] == [False, False, True, True, True]
        runtime.ending = False
        await running.until_phase(workspace, Phase.RUNNING)
        *_, last = await _pauses(running, workspace)
        assert last >= 4


async def _pauses(running: System, workspace: WorkspaceId) -> list[float]:
    """Seconds between each STARTING and the next."""
    rows = await running.parts.database.fetch(_STARTINGS, workspace)
    return [(after["started_at"] - before["finished_at"]).total_seconds() for before, after in pairwise(rows)]


def _told(ws: Workspace) -> str:
    return explain(ws, TtlDefaults()).waiting_for or ""
