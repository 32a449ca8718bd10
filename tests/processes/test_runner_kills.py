"""GC and TTL whose worker is killed: kill -9 of a real one before and after every call of a run (PROMISE 6).

The worlds are those of tests/harness/test_runners.py. A run that died is ended, as its time-out would have ended it,
and the next one starts on the next worker: the world must then be as after two runs without a fault. With
CODEHUB_REPORT the outcome of each kill is kept, see `tests.report`.
"""

import json
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from redis.asyncio import Redis
from temporalio.client import Client

from tests import report
from tests.harness.cases import Cases
from tests.harness.test_runners import GcWorld, TtlWorld, World
from tests.processes.conftest import Deploy
from tests.processes.crash_worker import Cell
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.process import CodehubProcess, until
from workflows.messages import CHORES_QUEUE, COLLECT_GARBAGE, EXPIRE, GC_WORKFLOW, TTL_WORKFLOW, GcInput

pytestmark = pytest.mark.timeout(900)

SAMPLE = 1
"""Kills of each, in an ordinary run."""
NEVER = str(10 * 365 * 86400)
BY_HAND = {"TTL_INTERVAL": NEVER, "GC_INTERVAL": NEVER, "GC_DELAY": "0", "CRASH_ELECT": "0"}
"""Runs begin when the test says so; and nobody wakes the workspaces, whose rows have nothing at the engine."""


@dataclass(frozen=True)
class Runner:
    activity: str
    workflow: str
    arguments: tuple[object, ...] = ()


RUNNERS = (Runner(COLLECT_GARBAGE, GC_WORKFLOW, (GcInput(),)), Runner(EXPIRE, TTL_WORKFLOW))


@pytest.fixture
async def runs(deploy: Deploy, temporal_client: Client, redis_url: str, tmp_path: Path) -> AsyncIterator["Runs"]:
    deployment = await deploy(**BY_HAND)
    await deployment.database.execute(
        "INSERT INTO users (id, username, password_hash) VALUES ($1, 'alice', '')", UUID(int=1)
    )
    assert deployment.archives
    redis = Redis.from_url(redis_url)
    worlds: dict[str, World] = {
        COLLECT_GARBAGE: GcWorld(deployment.database, deployment.archives),
        EXPIRE: TtlWorld(deployment.database, redis),
    }
    yield Runs(deployment, temporal_client, worlds, tmp_path / "marks")
    await redis.aclose()


async def test_the_next_run_makes_up_for_one_that_was_killed(runs: "Runs") -> None:
    """PROMISE 6: SAMPLE kills of each; all of them in the full run."""
    possible = await runs.possible()
    dice = random.SystemRandom()
    await runs.fill([kill for runner in RUNNERS for kill in dice.sample(possible[runner], SAMPLE)])
    assert not runs.wrong, "\n".join(runs.wrong)


@pytest.mark.full
@pytest.mark.timeout(3600)
async def test_the_next_run_makes_up_for_one_that_was_killed_anywhere(runs: "Runs") -> None:
    """PROMISE 6: before and after every call; the table is in docs/reliability.md."""
    possible = [kill for kills in (await runs.possible()).values() for kill in kills]
    try:
        await runs.fill(possible)
    finally:
        report.save("runner-kills", {"possible": len(possible), "outcomes": runs.outcomes})
    assert not runs.wrong, "\n".join(runs.wrong)


@dataclass(frozen=True)
class Kill:
    runner: Runner
    cell: Cell

    @property
    def run(self) -> str:
        """The id of the workflow that dies."""
        return f"{self.cell.activity} {self.cell.call} {'after' if self.cell.after else 'before'}"


@dataclass
class Runs:
    deployment: Deployment
    client: Client
    worlds: Mapping[str, World]
    marks: Path
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    _expected: dict[Runner, Any] = field(default_factory=dict)

    async def possible(self) -> dict[Runner, list[Kill]]:
        """Every call that each makes when nothing goes wrong, before its effect and after it."""
        self.marks.mkdir()
        worker = await self._worker([])
        found = {}
        for runner in RUNNERS:
            world = await self._filled(runner)
            await self._run(runner, runner.activity)
            reached = [line for line in worker.events if line["event"] == "reached"]
            calls = [line["call"] for line in reached if line["workspace"] == runner.activity]
            cells = [Cell(runner.activity, call, after) for call in calls for after in (False, True)]
            found[runner] = [Kill(runner, cell) for cell in cells]
            await self._run(runner, f"{runner.activity} again")
            self._expected[runner] = await world.snapshot()
        worker.kill()
        return found

    async def fill(self, kills: list[Kill]) -> None:
        worker = await self._worker(kills)
        for kill in kills:
            world = await self._filled(kill.runner)
            dying = await self.client.start_workflow(
                kill.runner.workflow, args=kill.runner.arguments, id=kill.run, task_queue=CHORES_QUEUE
            )
            await until(partial(_died, worker), AT_REST, f"{kill.run}: the call is not made")
            assert (self.marks / kill.run).exists(), f"{kill.run}: it died of something else\n{worker.output[-3000:]}"
            await dying.terminate("its worker is dead")
            worker = await self._worker(kills)
            await self._run(kill.runner, f"{kill.run}, the next")
            self._judge(kill, await world.snapshot())
        worker.kill()

    async def _filled(self, runner: Runner) -> World:
        """As it was before any run: also the bucket that the worker took for its own when it started."""
        world = self.worlds[runner.activity]
        await world.clear()
        await world.fill(Cases())
        return world

    def _judge(self, kill: Kill, found: object) -> None:
        right = found == self._expected[kill.runner]
        if not right:
            self.wrong.append(f"{kill.run}:\n   {found}\n   {self._expected[kill.runner]}")
        outcome = "as without a fault" if right else "WRONG"
        self.outcomes.append(
            {"operation": kill.runner.workflow, **kill.cell.json(), "outcome": outcome, "attempts": None}
        )

    async def _run(self, runner: Runner, name: str) -> None:
        """From its beginning to its end."""
        await self.client.execute_workflow(runner.workflow, args=runner.arguments, id=name, task_queue=CHORES_QUEUE)

    async def _worker(self, kills: list[Kill]) -> CodehubProcess:
        worker = self.deployment.start(
            "worker",
            "tests.processes.crash_worker",
            CRASH_CELLS=json.dumps({kill.run: kill.cell.json() for kill in kills}),
            CRASH_MARKS=str(self.marks),
        )
        await worker.said("worker_ready")
        return worker


async def _died(worker: CodehubProcess) -> bool:
    return not worker.alive
