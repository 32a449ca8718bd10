"""What a transfer takes of the machine does not grow with the home: memory stays flat, and nothing is staged on disk
(SPEC 5). CI: 300 MB. Full: 2 GB."""

import asyncio
import os
import resource
from pathlib import Path

import pytest
from docker import APIClient

from domain.model import DesiredState, Operation, Phase, WorkspaceId
from tests.archive.test_through_api import path_of
from tests.processes.deployment import AT_REST, Deployment
from tests.processes.process import until

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

MIB = 1 << 20
MOST_MEMORY = 150 * MIB
FILE = MIB
LARGEST_FILE = 2 * FILE
"""Less than a part of an upload, and less than the pieces that are read and written at a time are together."""


def fill(home: Path, megabytes: int) -> None:
    """Many files, none of them large, and nothing that could be compressed."""
    for number in range(megabytes):
        (home / f"random-{number}").write_bytes(os.urandom(FILE))


async def arrived(deployment: Deployment, workspace: WorkspaceId, phase: Phase) -> None:
    """At the first attempt."""

    async def is_there() -> bool:
        row = await deployment.row(workspace)
        assert row.error_count == 0, deployment.words()
        return row.phase is phase and row.operation is Operation.NONE

    await until(is_there, AT_REST, f"{workspace} is not {phase}")


@pytest.mark.parametrize("megabytes", [300, pytest.param(2000, marks=pytest.mark.full)])
async def test_a_home_goes_through_a_worker_that_can_keep_none_of_it(
    deployment: Deployment, docker_host: str, megabytes: int
) -> None:
    """There and back: the worker's peak is at most 150 MB over its rest. No file that it or a program of its writes may
    grow beyond 2 MiB, wherever it is, so that whoever stages a home, or a part of it, fails."""
    worker = await deployment.worker(RECONCILER_PATIENCE="0")
    workspace = await deployment.console.create(DesiredState.STANDBY)
    await arrived(deployment, workspace, Phase.STANDBY)
    api = APIClient(docker_host, timeout=120)
    home = path_of(api, workspace)
    await asyncio.to_thread(fill, home, megabytes)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    for desired in (DesiredState.ARCHIVED, DesiredState.STANDBY):
        worker.forget_peak()
        at_rest, _ = worker.memory()
        await deployment.console.want(workspace, desired)
        await arrived(deployment, workspace, Phase(desired))
        assert worker.memory()[1] - at_rest <= MOST_MEMORY, desired
    found = list(path_of(api, workspace).iterdir())
    assert (len(found), {path.stat().st_size for path in found}) == (megabytes, {FILE})
    api.close()
