"""People who use their workspaces while workers die: what they were told has to be true in the end."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from adapters.postgres.database import Database
from domain.model import DesiredState, Phase, WorkspaceId
from domain.observation import ContainerState
from tests.harness.history import Final, Outcome, lost, watch
from tests.harness.rows import contradictions
from tests.processes.deployment import Deployment
from tests.processes.homes import files_of
from tests.processes.person import Person
from tests.processes.process import until

LEAST_PAUSE = 0.05
STATES = (DesiredState.RUNNING, DesiredState.STANDBY, DesiredState.ARCHIVED)


@dataclass
class Storm:
    deployment: Deployment
    person: Person
    limit: int
    """RUNNING workspaces that are allowed: few enough for people to be refused again and again."""
    dice: random.Random
    pause: float = 0.6
    over: list[str] = field(default_factory=list)
    contradicting: list[str] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @asynccontextmanager
    async def raging(self, workspaces: int) -> AsyncIterator[None]:
        """Inside, people give commands, and somebody watches the limit and the rows."""
        doing = [self._use_one_after_the_other() for _ in range(workspaces)]
        doing += [watch(self.limit, self._running, self.over), self._look_at_rows()]
        self._tasks = [asyncio.create_task(one) for one in doing]
        try:
            yield
            self._require_all()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _require_all(self) -> None:
        """Nobody has given up: who did is told by what they met."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def in_transition(self) -> int:
        """Workspaces that are not where they are wanted, or that something is done with."""
        self._require_all()
        return int(
            await self.deployment.database.fetchval(
                "SELECT count(*) FROM workspaces WHERE operation <> 'NONE' OR phase <> desired_state"
            )
        )

    async def full_swing(self, wanted: int, seconds: float) -> int:
        """Returns how many are in transition once so many are, and somebody was refused for the limit since. While
        there are too few, people grow impatient: how fast they have to be depends on the machine."""
        limited, pause, found = self.person.limited, self.pause, 0

        async def enough() -> bool:
            nonlocal found
            self.pause = max(self.pause * 0.97, LEAST_PAUSE)
            found = await self.in_transition()
            return found >= wanted and self.person.limited > limited

        await until(enough, seconds, f"fewer than {wanted} are in transition, or nobody is refused for the limit")
        self.pause = pause
        return found

    async def clear(self) -> None:
        """All of it is deleted: else what runs on from one storm takes the places of the next one's."""
        for row in await self.deployment.database.fetch("SELECT id FROM workspaces WHERE phase <> 'DELETED'"):
            assert await self.person.delete(WorkspaceId(str(row["id"]))) is Outcome.DONE
        await self.deployment.converged()

    async def lost(self) -> list[str]:
        """What was acknowledged and is not so, once all is at rest."""
        return lost(self.person.history, await self._final())

    async def _use_one_after_the_other(self) -> None:
        while True:
            name = f"number {next(self._numbers)}"
            workspace = await self.person.try_to_create(name, self.dice.choice(STATES))
            if workspace is None:
                await asyncio.sleep(self.pause)
                continue
            # Two windows on the same workspace: their commands cross.
            async with asyncio.TaskGroup() as windows:
                windows.create_task(self._use(workspace, until_deleted=True))
                windows.create_task(self._use(workspace, until_deleted=False))

    async def _use(self, workspace: WorkspaceId, *, until_deleted: bool) -> None:
        for number in itertools.count():
            await asyncio.sleep(self.dice.uniform(0, self.pause * 2))
            match self.dice.randrange(40):
                case 0 if until_deleted and number > 10:
                    await self.person.delete(workspace)
                case choice if choice < 6:
                    await self.person.remember(workspace, f"thought {self.dice.random()}")
                case choice if choice < 14:
                    await self._write(workspace)
                case _:
                    await self.person.want(workspace, self.dice.choice(STATES))
            row = await self.deployment.row(workspace)
            if row.desired_state is DesiredState.DELETED:
                return

    async def _write(self, workspace: WorkspaceId) -> None:
        row = await self.deployment.row(workspace)
        if row.phase is Phase.RUNNING and row.endpoint:
            # Named after its workspace: the port may be another's by the time it arrives.
            name = f"{workspace}-{self.dice.randrange(3)}"
            await self.person.write(workspace, row.endpoint, name, f"text {self.dice.random()}")

    async def _running(self) -> int:
        """Containers that count: those of workspaces that are neither being deleted nor in ERROR."""
        seen = await self.deployment.runtime.observe_all()
        running = [one for one, resources in seen.items() if resources.container is ContainerState.READY]
        return await counted(self.deployment.database, running)

    async def _look_at_rows(self) -> None:
        while True:
            self.contradicting += await contradictions(self.deployment.database)
            await asyncio.sleep(0.2)

    async def _final(self) -> Final:
        final: dict[tuple[WorkspaceId, str], str] = {}
        for workspace in {workspace for workspace, _ in self.person.history.subjects()}:
            row = await self.deployment.row(workspace)
            final[workspace, "desired_state"] = row.desired_state
            if row.memo:
                final[workspace, "memo"] = row.memo
            files = await files_of(self.deployment, row)
            if row.phase is Phase.DELETED:
                # Its home is gone because somebody said so.
                files = {
                    what.removeprefix("file "): next(iter(self.person.history.may_stand(workspace, what)))
                    for one, what in self.person.history.subjects()
                    if one == workspace and what.startswith("file ")
                }
            final |= {(workspace, f"file {name}"): text for name, text in files.items() if name.startswith(workspace)}
        return final


async def counted(database: Database, running: list[WorkspaceId]) -> int:
    return int(
        await database.fetchval(
            "SELECT count(*) FROM workspaces WHERE id = ANY($1::uuid[]) AND deleted_at IS NULL AND phase <> 'ERROR'",
            running,
        )
    )
