"""Workspaces whose homes are known to the byte, and what must hold of them at every moment."""

import asyncio
import os
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from activities.integrity import is_intact, read_archive_meta
from adapters.archive_store import ArchiveStore
from adapters.s3.store import S3ArchiveStore
from domain.model import DesiredState, Operation, Phase, Workspace, WorkspaceId
from domain.naming import archive_key, meta_key
from tests.archive.bench import Bench
from tests.archive.trees import Snapshot, snapshot
from tests.integration.system import wake
from workflows.client import Waker

_BEGUN = """
SELECT o.id, o.operation, o.attempts FROM operations o
WHERE o.outcome IS NULL AND o.attempts > 0 AND o.operation IN ('ARCHIVING', 'RESTORING')
"""


@dataclass
class KeptHomes:
    bench: Bench
    archives: S3ArchiveStore
    waker: Waker
    folder: Path
    truth: dict[WorkspaceId, Snapshot] = field(default_factory=dict)
    stages: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many operations were cut off at which stage."""
    kills: Counter[str] = field(default_factory=Counter)
    """How many kills cut off at least one operation of a kind."""
    lost: list[str] = field(default_factory=list)
    run: set[WorkspaceId] = field(default_factory=set)
    """Those that go to RUNNING, and not only to STANDBY."""
    seen_running: int = 0
    _attempts: dict[str, int] = field(default_factory=dict)

    async def want(self, workspace: WorkspaceId, desired: DesiredState) -> None:
        await self.bench.want(workspace, desired)
        await wake(self.waker, workspace)

    async def turn(self) -> None:
        """Who has arrived goes back."""
        for workspace in self.truth:
            row = await self.bench.row(workspace)
            if row.operation is Operation.NONE and row.phase == row.desired_state.value:
                up = DesiredState.RUNNING if workspace in self.run else DesiredState.STANDBY
                back = up if row.phase is Phase.ARCHIVED else DesiredState.ARCHIVED
                await self.want(workspace, back)

    async def until(self, phase: Phase, seconds: float = 240) -> None:
        async with asyncio.timeout(seconds):
            for workspace in self.truth:
                while True:
                    row = await self.bench.row(workspace)
                    if row.phase is phase and row.operation is Operation.NONE:
                        break
                    assert row.phase is not Phase.ERROR, row
                    await asyncio.sleep(0.05)

    async def until_at_rest(self, seconds: float = 600) -> None:
        deadline = time.monotonic() + seconds
        for workspace in self.truth:
            while (row := await self.bench.row(workspace)).phase != row.desired_state.value or row.op_id:
                assert time.monotonic() < deadline, f"not at rest: {row}"
                await asyncio.sleep(0.05)

    async def begun(self) -> dict[str, str]:
        """What the worker that runs now, or ran last, has begun and not ended: operation ids and kinds."""
        found = await self.bench.database.fetch(_BEGUN)
        return {
            str(row["id"]): row["operation"] for row in found if row["attempts"] > self._attempts.get(str(row["id"]), 0)
        }

    async def struck(self) -> None:
        """The worker is dead: note what it was in the middle of, and that nothing is lost."""
        begun = await self.begun()
        for operation in set(begun.values()):
            self.kills[operation] += 1
        for workspace in self.truth:
            row = await self.bench.row(workspace)
            if row.op_id in begun:
                self.stages[row.operation, await self._stage(row)] += 1
        try:
            await self.nothing_is_lost()
        except AssertionError as error:
            self.lost.append(str(error))
            raise
        self._attempts = {str(row["id"]): row["attempts"] for row in await self.bench.database.fetch(_BEGUN)}

    async def nothing_is_lost(self) -> None:
        """While no worker runs: each home is complete in its volume, or complete and verified in the store."""
        for workspace, before in self.truth.items():
            row = await self.bench.row(workspace)
            assert row.phase is not Phase.ERROR, row
            await is_kept(self.bench, row, before, self.folder)

    async def watch(self) -> None:
        """Whenever a workspace is said to be STANDBY or RUNNING at rest, its home is whole."""
        while True:
            for workspace, before in self.truth.items():
                row = await self.bench.row(workspace)
                at_rest = row.operation in {Operation.NONE, Operation.STARTING}
                if row.phase in {Phase.STANDBY, Phase.RUNNING} and at_rest:
                    self.seen_running += row.phase is Phase.RUNNING
                    whole = await asyncio.to_thread(self._looks_whole, workspace, before)
                    # Unless it has gone on meanwhile, and the volume with it.
                    if not whole and await self.bench.row(workspace) == row:
                        self.lost.append(f"{row} has a partial home")
                        raise AssertionError(f"{row} has a partial home")
            await asyncio.sleep(0.2)

    async def _stage(self, row: Workspace) -> str:
        volume = self.bench.volumes.exists(row.id)
        if row.operation is Operation.RESTORING:
            if row.home_ctx.restoring is None:
                return "volume marked as restored"
            return "volume being filled" if volume else "no volume yet"
        assert row.archive_op_id is not None
        key = archive_key(row.id, row.archive_op_id)
        if row.archive_key == key:
            return "archive_key saved, volume there" if volume else "volume removed"
        committed = await self.archives.read(meta_key(key)) is not None
        return ".meta written, archive being verified" if committed else "home being read and uploaded"

    def _looks_whole(self, workspace: WorkspaceId, before: Snapshot) -> bool:
        try:
            return holds(self.bench.volumes.path(workspace), before)
        except (OSError, LookupError):
            return False


async def is_kept(bench: Bench, row: Workspace, before: Snapshot, folder: Path) -> None:
    """With nobody at work on it, it is complete in its volume, or complete and verified in the store."""
    if bench.volumes.exists(row.id) and not row.home_ctx.partial:
        assert holds(bench.volumes.path(row.id), before), f"{row} has a partial home"
    else:
        await _archive_is_whole(bench.archives, row, before, folder)


async def _archive_is_whole(archives: ArchiveStore, row: Workspace, before: Snapshot, folder: Path) -> None:
    assert row.archive_key is not None, f"neither home nor archive: {row}"
    meta = await read_archive_meta(archives, row.id, row.archive_key)
    assert await is_intact(archives, row.archive_key, meta)
    # By other programs than ours: what is in it is the home.
    target = folder / f"{row.id}-{os.urandom(4).hex()}"
    target.mkdir()
    body = b"".join([chunk async for chunk in archives.download(row.archive_key)])
    subprocess.run("zstd -dc | tar xp", shell=True, cwd=target, input=body, check=True, capture_output=True)
    assert holds(target / "home", before)
    subprocess.run(["rm", "-rf", str(target)], check=True)


def holds(home: Path, before: Snapshot) -> bool:
    """All that was there is there. A workspace that has run may have added something."""
    found = snapshot(home)
    return all(found.get(name) == entry for name, entry in before.items() if name != b".")
