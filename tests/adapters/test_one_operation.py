"""At most one operation in flight (PROMISE 4), by PostgreSQL's own compare-and-set: the model of `tests/domain` takes
it for granted."""

import asyncio
import random
import secrets
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from adapters.postgres.database import Database
from adapters.postgres.desired_state import DesiredStates, Refused
from adapters.postgres.workspaces import WorkspaceStore
from domain.limits import Limits
from domain.model import Condition, ConditionName, ErrorReason, Operation, OperationId, Phase, Workspace, WorkspaceId
from tests.activities.test_ttl import workspace
from tests.harness.rows import contradictions

ACTORS = 8


@pytest.mark.parametrize("steps", [400, pytest.param(10_000, marks=pytest.mark.full)])
@pytest.mark.timeout(900)
async def test_whoever_acts_at_once_one_operation_is_in_flight(database: Database, steps: int) -> None:
    """Workers that load the same row, claim, complete and fail, attempts that are late, and people who recover, all at
    once: of those that judged one state of the row, one saves. No row and no log contradicts another at any moment."""
    seed = secrets.randbits(32)
    life = Life(database, await workspace(database, Phase.STANDBY), random.Random(seed))
    await life.settle()
    watching = asyncio.create_task(life.watch())
    try:
        await asyncio.gather(*(life.act(steps // ACTORS) for _ in range(ACTORS)))
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert life.wrong == [], f"seed {seed}"
    assert {state: n for state, n in life.saved.items() if n > 1} == {}, f"seed {seed}: one state, two saves"
    claimed = await database.fetch("SELECT id::text FROM operations")
    assert sorted(row["id"] for row in claimed) == sorted(life.claimed), f"seed {seed}"
    assert min(life.lost, len(life.claimed), life.failed) > 3, f"seed {seed}: nobody met anybody"


class Life:
    def __init__(self, database: Database, one: WorkspaceId, dice: random.Random) -> None:
        self.database = database
        self.store = WorkspaceStore(database)
        self.people = DesiredStates(database, Limits())
        self.one = one
        self.dice = dice
        self.saved: Counter[datetime] = Counter()
        """By the state of the row that was judged."""
        self.claimed: list[str] = []
        self.lost = 0
        """Saves that came second."""
        self.failed = 0
        self.wrong: list[str] = []

    async def settle(self) -> None:
        ready = Condition(status=True, reason="", message="", last_transition_time=datetime.now(UTC))
        ws = await self._load()
        assert await self.store.save(ws, replace(ws, node="here", conditions={ConditionName.VOLUME_READY: ready}))

    async def act(self, steps: int) -> None:
        for _ in range(steps):
            ws = await self._load()
            # Whoever observes takes a moment: others load the same row.
            await asyncio.sleep(self.dice.choice([0, 0, 0.005]))
            match ws.operation:
                case Operation.NONE if ws.phase is Phase.ERROR and ws.error_reason is not None:
                    with suppress(Refused):
                        await self.people.recover(ws.id)
                case Operation.NONE:
                    await self._claim(ws)
                case _ if self.dice.random() < 0.2:
                    await self._fail(ws)
                case _:
                    await self._complete(ws)

    async def watch(self) -> None:
        while True:
            # Between a recover and the next save there is no reason (see `contradictions`).
            found = await contradictions(self.database)
            self.wrong += [one for one in found if not one.startswith("ERROR without a reason")]
            flying = await self.database.fetchval("SELECT count(*) FROM operations WHERE outcome IS NULL")
            self.wrong += [f"{flying} in flight"] * (flying > 1)
            await asyncio.sleep(0.005)

    async def _load(self) -> Workspace:
        ws = await self.store.load(self.one)
        assert ws
        return ws

    async def _claim(self, ws: Workspace) -> None:
        op_id, operation = OperationId(str(uuid4())), self.dice.choice([Operation.STARTING, Operation.STOPPING])
        if await self._save(ws, self._at_rest(ws, operation, op_id)):
            self.claimed.append(op_id)

    async def _complete(self, ws: Workspace) -> None:
        """As one of its attempts, or as whoever looks without one. It may go on with the next operation at once."""
        assert ws.op_id
        begun = await self.store.begin_attempt(ws.op_id)
        attempt = begun.number if begun and self.dice.random() < 0.5 else None
        op_id = OperationId(str(uuid4())) if self.dice.random() < 0.3 else None
        operation = Operation.STARTING if op_id else Operation.NONE
        if await self._save(ws, self._at_rest(ws, operation, op_id), attempt) and op_id:
            self.claimed.append(op_id)

    async def _fail(self, ws: Workspace) -> None:
        assert ws.op_id
        ended = await self.store.fail(ws.id, ws.op_id, ErrorReason.TIMEOUT, "too long")
        self.failed += ended is not None
        self.lost += ended is None

    async def _save(self, ws: Workspace, after: Workspace, attempt: int | None = None) -> bool:
        saved = await self.store.save(ws, after, attempt=attempt)
        self.saved[ws.updated_at] += saved
        self.lost += not saved
        return saved

    def _at_rest(self, ws: Workspace, operation: Operation, op_id: OperationId | None) -> Workspace:
        now = datetime.now(UTC)
        return replace(
            ws,
            observed_at=now,
            phase=Phase.STANDBY,
            operation=operation,
            op_id=op_id,
            op_started_at=now if op_id else None,
            error_reason=None,
            error_count=0,
        )
