"""The crash matrix: kill -9 of a real worker before and after every call of every operation (PROMISES 6 and 9).

For each cell a workspace of its own. It must end exactly where one ends whose worker is never killed. With
CODEHUB_REPORT the outcome of each cell is kept, see `tests.report`.
"""

import asyncio
import json
import random
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from domain.model import Operation, OperationId, Phase, WorkspaceId
from tests import report
from tests.adapters.docker_world import new_workspace
from tests.harness.scenarios import IMAGE, MISSING_IMAGE, SCENARIOS, Scenario, home
from tests.processes.conftest import Deploy
from tests.processes.crash_worker import Cell
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.homes import files_of
from tests.processes.process import CodehubProcess, until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

IMPOSSIBLE_IMAGE = "Not/A:Valid:Image"
AT_ONCE = 8
"""Workspaces that share a worker, and so the deaths of it: more would keep each other from getting anywhere."""

# A worker that dies again and again, on a busy machine, is no reason for Timeout here.
PATIENT = {f"RECONCILER_{operation}_TIMEOUT": "3600" for operation in Operation if operation is not Operation.NONE}


@dataclass(frozen=True)
class Crash:
    scenario: str
    cell: Cell

    def describes(self, outcome: dict[str, Any]) -> bool:
        return {"operation": self.scenario, **self.cell.json()}.items() <= outcome.items()


async def test_killed_at_some_points(deploy: Deploy, tmp_path: Path) -> None:
    """A sample, one of each operation; all of them in the full run."""
    matrix = Matrix(await deploy(**PATIENT), tmp_path)
    possible = await matrix.possible()
    dice = random.Random(secrets.randbits(32))
    chosen = [dice.choice([crash for crash in possible if crash.scenario == name]) for name in SCENARIOS]
    await matrix.fill(chosen)
    assert not matrix.wrong, "\n".join(matrix.wrong)


@pytest.mark.full
@pytest.mark.timeout(7200)
async def test_killed_at_every_point_of_every_operation(deploy: Deploy, tmp_path: Path) -> None:
    """All of them; the table is in docs/reliability.md. What an earlier run into the same folder kept is not tried
    again: it takes an hour on a busy machine."""
    matrix = Matrix(await deploy(**PATIENT), tmp_path)
    matrix.outcomes = (report.saved("crash-matrix") or {"outcomes": []})["outcomes"]
    possible = await matrix.possible()
    left = [crash for crash in possible if not matrix.knows(crash)]
    # Whatever there is time for is a sample of all of them.
    random.shuffle(left)
    for first in range(0, len(left), AT_ONCE):
        await matrix.fill(left[first : first + AT_ONCE])
        in_order = [outcome for crash in possible for outcome in matrix.outcomes if crash.describes(outcome)]
        report.save("crash-matrix", {"possible": len(possible), "outcomes": in_order})
    assert not matrix.wrong, "\n".join(matrix.wrong)


class Matrix:
    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self._deployment = deployment
        self._marks = folder / "marks"
        self._marks.mkdir()
        self._expected: dict[str, dict[str, Any]] = {}
        self.outcomes: list[dict[str, Any]] = []
        self.wrong: list[str] = []

    def knows(self, crash: Crash) -> bool:
        return any(crash.describes(outcome) for outcome in self.outcomes)

    async def possible(self) -> list[Crash]:
        """Every call of each operation when nothing goes wrong, before its effect and after it."""
        worker = self._worker({})
        await worker.said("worker_ready")
        workspaces = await self._prepared(SCENARIOS)
        known = len(worker.events)
        await self._command(workspaces)
        await until(lambda: self._at_rest(workspaces), AT_REST, "without a fault it gets nowhere")
        for workspace, name in workspaces.items():
            self._expected[name] = await self._snapshot(workspace)
        reached = [line for line in worker.events[known:] if line["event"] == "reached"]
        worker.kill()
        crashes = [
            Crash(name, Cell(line["activity"], line["call"], after))
            for workspace, name in workspaces.items()
            for line in _until_the_end([line for line in reached if line["workspace"] == workspace])
            # What is named is one moment, not a call.
            for after in ((False,) if line["call"].startswith("point.") else (False, True))
        ]
        return list(dict.fromkeys(crashes))

    async def fill(self, crashes: list[Crash]) -> None:
        """Let them all happen, on one worker after the other, and look where the workspaces end."""
        plain = await self._deployment.worker()
        workspaces = await self._prepared(crash.scenario for crash in crashes)
        plain.kill()
        await self._command(workspaces)
        cells = dict(zip(workspaces, crashes, strict=True))
        await self._until_all_are_over(workspaces, cells)
        for workspace, crash in cells.items():
            await self._judge(workspace, crash)

    async def _until_all_are_over(self, workspaces: dict[WorkspaceId, str], cells: dict[WorkspaceId, Crash]) -> None:
        given = {workspace: crash.cell.json() for workspace, crash in cells.items()}
        for _ in range(len(cells) + 1):
            worker = self._worker(given)

            async def is_over(worker: CodehubProcess = worker) -> bool:
                return not worker.alive or await self._at_rest(workspaces)

            try:
                await until(is_over, 2 * AT_REST)
            except AssertionError:
                raise AssertionError(f"{await self._unfinished(workspaces)}{worker.output[-3000:]}") from None
            if worker.alive:
                worker.kill()
                return
        raise AssertionError("more deaths than cells")

    async def _judge(self, workspace: WorkspaceId, crash: Crash) -> None:
        struck = (self._marks / workspace).exists()
        found, expected = await self._snapshot(workspace), self._expected[crash.scenario]
        right = found == expected
        if not right:
            self.wrong.append(f"{crash}:\n   {found}\n   {expected}")
        attempts = await self._deployment.database.fetchval(
            "SELECT max(attempts) FROM operations WHERE workspace_id = $1", workspace
        )
        outcome = "not reached" if not struck else "as without a fault" if right else "WRONG"
        self.outcomes.append(
            {"operation": crash.scenario, **crash.cell.json(), "outcome": outcome, "attempts": attempts}
        )

    def _worker(self, cells: dict[WorkspaceId, dict[str, Any]]) -> CodehubProcess:
        return self._deployment.start(
            "worker", "tests.processes.crash_worker", CRASH_CELLS=json.dumps(cells), CRASH_MARKS=str(self._marks)
        )

    async def _prepared(self, names: Iterable[str]) -> dict[WorkspaceId, str]:
        """A workspace for each, right before its operation."""
        names = list(names)
        made = await asyncio.gather(*(self._prepare(_scenario(name)) for name in names))
        return dict(zip(made, names, strict=True))

    async def _prepare(self, scenario: Scenario) -> WorkspaceId:
        console = self._deployment.console
        if not scenario.before:
            # Nothing comes before: it is made by the command.
            return new_workspace()
        workspace = await console.create(scenario.before[0], scenario.image)
        for number, desired in enumerate(scenario.before):
            if number:
                await console.want(workspace, desired)
            await self._deployment.until_phase(workspace, Phase(desired))
            if number == 0:
                async with self._deployment.runtime.homes().write(workspace, OperationId("test")) as sink:
                    await sink.extract([home()])
        return workspace

    async def _command(self, workspaces: dict[WorkspaceId, str]) -> None:
        for workspace, name in workspaces.items():
            scenario = _scenario(name)
            if not scenario.before:
                await self._deployment.console.create(scenario.wanted, scenario.image, workspace)
            elif scenario.ends_in is Phase.DELETED:
                await self._deployment.console.delete(workspace)
            else:
                await self._deployment.console.want(workspace, scenario.wanted)

    async def _at_rest(self, workspaces: dict[WorkspaceId, str]) -> bool:
        return not await self._unfinished(workspaces)

    async def _unfinished(self, workspaces: dict[WorkspaceId, str]) -> list[str]:
        rows = [(await self._deployment.row(workspace), name) for workspace, name in workspaces.items()]
        return [
            f"{name}: {row.phase} {row.operation} {row.error_reason}"
            for row, name in rows
            if (row.phase, row.operation) != (SCENARIOS[name].ends_in, Operation.NONE)
        ]

    async def _snapshot(self, workspace: WorkspaceId) -> dict[str, Any]:
        """What matters of a workspace, and nothing that differs from run to run."""
        row = await self._deployment.row(workspace)
        log = await self._deployment.database.fetch(
            "SELECT operation, outcome, error_reason, context -> 'entries', context -> 'left_out' FROM operations"
            " WHERE workspace_id = $1 ORDER BY started_at",
            workspace,
        )
        archives = self._deployment.archives
        assert archives
        seen = await self._deployment.runtime.observe(workspace, probe=True)
        return {
            "row": (row.phase, row.operation, row.op_id, row.desired_state),
            # Of what is tried again because its worker died, two attempts did fail.
            "errors": (row.error_reason, row.error_count > 0),
            "conditions": {name: condition.status for name, condition in row.conditions.items()},
            "home": (row.home_ctx.restoring, row.home_ctx.restore_marker in {None, row.archive_key}),
            "files": await files_of(self._deployment, row),
            "log": [tuple(map(str, entry)) for entry in log],
            "engine": replace(seen, endpoint=None),
            "reached at": row.endpoint == seen.endpoint,
            "stored": sorted(
                [found.key.rpartition("/")[2] async for found in archives.list_objects() if workspace in found.key]
            ),
            "uploads": [upload.key async for upload in archives.list_uploads() if workspace in upload.key],
        }


def _scenario(name: str) -> Scenario:
    scenario = SCENARIOS[name]
    return replace(scenario, image={IMAGE: None, MISSING_IMAGE: IMPOSSIBLE_IMAGE}[scenario.image] or "")


def _until_the_end(reached: list[dict[str, str]]) -> list[dict[str, str]]:
    """What comes after the operation (another look, because somebody was told) is no part of it."""
    last = max((number for number, line in enumerate(reached) if line["activity"] != "reconcile"), default=-1)
    return reached[: last + 1]
