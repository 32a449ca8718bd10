"""A home that no archive could give back is refused at once, with a reason, and stays where it is."""

from pathlib import Path

import pytest

from adapters.docker import homes
from adapters.docker.runtime import DockerRuntime
from domain.model import DesiredState, ErrorReason, Phase
from tests.archive.bench import Bench
from tests.archive.trees import too_deep
from tests.faults.faulty import faulty

pytestmark = pytest.mark.docker

MIB = 1 << 20


async def test_what_no_retry_mends_is_not_tried_again(bench: Bench) -> None:
    """One attempt, not three uploads; the row says that it waits for a person, as after three."""
    workspace = await bench.empty_workspace()
    await bench.drive(workspace, Phase.STANDBY)
    too_deep(bench.volumes.path(workspace))
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    read, faults = faulty(bench.homes)
    assert await bench.with_parts(homes=read).operate(workspace, step) is ErrorReason.ACTION_FAILED
    row = await bench.row(workspace)
    assert (row.phase, row.error_reason, row.error_count) == (Phase.ERROR, ErrorReason.ACTION_FAILED, 3)
    assert faults.calls.count("read") == 1
    assert bench.volumes.exists(workspace)


async def test_holes_that_an_engine_would_fill_are_refused(
    bench: Bench, docker_runtime: DockerRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through the engine, holes are archived as zeros. Where that is more than the disk holds, no restore could ever
    end; read by the worker itself, the same home is archived and comes back."""
    monkeypatch.setattr(homes, "_disk_size", lambda _: 64 * MIB)

    def sparse(home: Path) -> None:
        (home / "file").write_text("x")
        with (home / "disk image").open("wb") as file:
            file.truncate(100 * MIB)

    workspace, before = await bench.workspace(sparse)
    engine = bench.with_parts(homes=docker_runtime.homes(direct=False))
    step = await bench.claim(workspace, DesiredState.ARCHIVED)
    assert await engine.operate(workspace, step) is ErrorReason.ACTION_FAILED
    said = await bench.database.fetchval("SELECT error_message FROM operations WHERE id = $1", step.op_id)
    assert "files with holes" in said
    assert bench.home(workspace) == before
    await bench.recover(workspace)
    await bench.drive(workspace, Phase.ARCHIVED)
    await bench.want(workspace, DesiredState.STANDBY)
    await bench.drive(workspace, Phase.STANDBY)
    assert bench.home(workspace) == before
