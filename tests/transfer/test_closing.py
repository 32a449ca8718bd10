"""A tar that does not end when it is told to, as one that waits for a disk: nobody waits for it but a thread."""

import asyncio
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from adapters.docker.homes import DockerHomes
from adapters.docker.runtime import DockerRuntime
from adapters.transfer import closing
from domain.model import OperationId, WorkspaceId
from tests.archive.volumes import Volumes
from tests.faults.proxy import eventually
from tests.transfer.test_homes import at_work

pytestmark = pytest.mark.docker

Held = Callable[[], object]
AT_LATEST = 10.0


class Slow(subprocess.Popen[bytes]):
    """A process that is slow to begin, and to end."""

    made: list["Slow"]
    begins: Held
    ends: Held

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        type(self).begins()
        super().__init__(*args, **kwargs)
        self.made.append(self)

    def wait(self, timeout: float | None = None) -> int:
        type(self).ends()
        return super().wait(timeout)

    @property
    def is_over(self) -> bool:
        """And nothing of it is left."""
        streams = (self.stdin, self.stdout, self.stderr)
        return self.returncode is not None and all(stream is None or stream.closed for stream in streams)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Slow]]:
    monkeypatch.setattr(Slow, "made", [], raising=False)
    monkeypatch.setattr(Slow, "begins", staticmethod(lambda: None), raising=False)
    monkeypatch.setattr(Slow, "ends", staticmethod(lambda: None), raising=False)
    monkeypatch.setattr(subprocess, "Popen", Slow)
    yield Slow
    for process in Slow.made:
        process.kill()


@pytest.fixture(params=["read", "write"])
def opened(docker_runtime: DockerRuntime, request: pytest.FixtureRequest) -> Callable[[WorkspaceId], Any]:
    """A home, opened by a process on its directory."""
    homes: DockerHomes = docker_runtime.homes()
    return homes.read if request.param == "read" else lambda workspace: homes.write(workspace, OperationId("write"))


async def test_the_loop_goes_on_while_a_tar_does_not_end(
    opened: Callable[[WorkspaceId], Any], volumes: Volumes, slow: type[Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker's other work and its heartbeats, for the three seconds that it takes. Afterwards nothing is left."""
    workspace, _ = await volumes.make()
    before = at_work()
    async with longest_pause() as pause:
        async with opened(workspace):
            monkeypatch.setattr(slow, "ends", staticmethod(lambda: time.sleep(3)))
        assert [process.is_over for process in slow.made] == [True]
    assert pause[0] < 0.5
    await eventually(lambda: at_work() <= before)


async def test_what_does_not_end_is_left_to_its_thread(
    opened: Callable[[WorkspaceId], Any], volumes: Volumes, slow: type[Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds nobody up; when it ends after all, it is cleared away."""
    monkeypatch.setattr(closing, "_PATIENCE", 0.2)
    workspace, _ = await volumes.make()
    before, over = at_work(), threading.Event()
    async with asyncio.timeout(AT_LATEST):
        async with opened(workspace):
            monkeypatch.setattr(slow, "ends", staticmethod(lambda: over.wait(AT_LATEST)))
        assert [process.is_over for process in slow.made] == [False]
        over.set()
        await eventually(lambda: [process.is_over for process in slow.made] == [True])
    await eventually(lambda: at_work() <= before)


async def test_whoever_is_cancelled_while_it_ends_still_waits(
    opened: Callable[[WorkspaceId], Any], volumes: Volumes, slow: type[Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what comes next, as a fresh volume, comes when nobody writes any more."""
    workspace, _ = await volumes.make()
    ending, over = threading.Event(), threading.Event()

    def ends() -> None:
        ending.set()
        over.wait(AT_LATEST)

    async def use() -> None:
        async with opened(workspace):
            monkeypatch.setattr(slow, "ends", staticmethod(ends))

    using = asyncio.create_task(use())
    await eventually(ending.is_set)
    using.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not using.done()
    over.set()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert [process.is_over for process in slow.made] == [True]


async def test_what_begins_for_nobody_any_more_is_ended(
    opened: Callable[[WorkspaceId], Any], volumes: Volumes, slow: type[Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is cancelled leaves at once; the process that its thread makes even so does not live on."""
    workspace, _ = await volumes.make()
    before, beginning, go_on = at_work(), threading.Event(), threading.Event()

    def begins() -> None:
        beginning.set()
        go_on.wait(AT_LATEST)

    monkeypatch.setattr(slow, "begins", staticmethod(begins))

    async def use() -> None:
        async with opened(workspace):
            await asyncio.Event().wait()

    using = asyncio.create_task(use())
    await eventually(beginning.is_set)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert slow.made == []
    go_on.set()
    await eventually(lambda: [process.is_over for process in slow.made] == [True])
    await eventually(lambda: at_work() <= before)


@asynccontextmanager
async def longest_pause() -> AsyncIterator[list[float]]:
    """Seconds for which the loop did nothing else."""
    longest, last = [0.0], time.monotonic()

    def look() -> None:
        nonlocal last
        now = time.monotonic()
        longest[0], last = max(longest[0], now - last), now

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.01)
            look()

    ticking = asyncio.create_task(tick())
    try:
        yield longest
    finally:
        look()
        ticking.cancel()
        with suppress(asyncio.CancelledError):
            await ticking
