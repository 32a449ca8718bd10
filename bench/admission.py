"""What is done one at a time in the whole installation, so that it is exact: counting against the limits where a start
is asked for, and placing a home where there is a choice of nodes.

Several ask at once, as in a rush: what one of them takes then is what bounds the rate of all (see bench.million).
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from uuid import uuid4

from activities.reconcile import Reconciler
from adapters.memory.runtime import MemoryRuntime
from adapters.postgres.desired_state import DesiredStates
from adapters.postgres.workspaces import WorkspaceStore
from bench.installation import MANY
from bench.part import Part
from bench.population import NODES, Population
from bench.row import Row
from domain.limits import Limits
from domain.model import DesiredState, Operation, WorkspaceId
from domain.observation import Presence
from workflows.messages import StepKind

ADMITTED = "start admitted under the limits"
PLACED = "home placed on one of three nodes"
AT_ONCE = 8
_ROUNDS = 5
_BATCH = 40

_NEW = """
INSERT INTO workspaces (id, owner_user_id, name, image_ref, desired_state, phase, node)
SELECT id, $2, id::text, 'none', 'STANDBY', $3, $4 FROM unnest($1::uuid[]) AS new (id)
"""


async def measure(population: Population, part: Part, *, last: bool) -> None:
    for what, batch in ((ADMITTED, _admitted), (PLACED, _placed)):
        await batch(population)
        taken = [await batch(population) for _ in range(_ROUNDS)]
        part.growth.add(what, population.count, statistics.median(taken), each=True)
        if last:
            note = f"{AT_ONCE} ask at once; {population.count:,} rows"
            part.add(Row(what, taken, unit="ms", note=note))


async def _admitted(population: Population) -> float:
    """Of a user who has few, among all those of others."""
    new = await _made(population, "STANDBY", NODES[0])
    desired = DesiredStates(population.database, Limits(int(MANY), int(MANY)))
    taken = await _each(new, lambda workspace: desired.set(workspace, DesiredState.RUNNING))
    await _removed(population, new)
    return taken


async def _placed(population: Population) -> float:
    """Each by the reconcile that claims its PROVISIONING."""
    new = await _made(population, "PENDING", None)
    reconciler = Reconciler(WorkspaceStore(population.database), MemoryRuntime(), _NoArchives(), NODES[0])

    async def place(workspace: WorkspaceId) -> None:
        step = await reconciler.step(workspace)
        if (step.kind, step.operation) != (StepKind.RUN, Operation.PROVISIONING):
            raise RuntimeError(f"{workspace} was not placed: {step}")

    taken = await _each(new, place)
    await _removed(population, new)
    return taken


async def _each(workspaces: list[WorkspaceId], work: Callable[[WorkspaceId], Awaitable[object]]) -> float:
    """Milliseconds that one takes of all: a few of them at a time."""
    waiting = list(workspaces)

    async def serve() -> None:
        while waiting:
            await work(waiting.pop())

    began = time.monotonic()
    await asyncio.gather(*(serve() for _ in range(AT_ONCE)))
    return (time.monotonic() - began) * 1000 / len(workspaces)


async def _made(population: Population, phase: str, node: str | None) -> list[WorkspaceId]:
    new = [WorkspaceId(str(uuid4())) for _ in range(_BATCH)]
    await population.database.execute(_NEW, new, population.few, phase, node)
    return new


async def _removed(population: Population, workspaces: list[WorkspaceId]) -> None:
    await population.database.execute("DELETE FROM operations WHERE workspace_id = ANY($1::uuid[])", workspaces)
    await population.database.execute("DELETE FROM workspaces WHERE id = ANY($1::uuid[])", workspaces)


class _NoArchives:
    async def observe(self, key: str) -> Presence:
        raise AssertionError(f"a home that was never archived has no {key}")
