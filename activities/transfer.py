"""What archive and restore share: how far they are, and whether they still move."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic

import structlog

from activities.attempt import Attempt, Superseded
from activities.integrity import is_intact
from adapters.archive_store import ArchiveStore
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.workspaces import WorkspaceStore
from adapters.tasks import end
from adapters.telemetry.metrics import TRANSFER, TRANSFERRED
from domain.archive import ArchiveMeta
from domain.errors import Unreachable
from domain.progress import Moved, Pace, Stage, as_told

log = structlog.get_logger()


@dataclass(slots=True)
class Progress:
    """Written by the transfer's thread, read by the event loop."""

    done: Callable[[], int]
    total: Callable[[], int | None] = lambda: None
    moved: Callable[[], int] | None = None
    """What shows that it moves, where that is not `done`."""
    stage: Stage = Stage.TRANSFERRING
    _pace: Pace = field(default_factory=Pace, init=False)

    def told(self, attempt: int) -> Moved:
        done = self.done()
        return as_told(self.stage, done, self.total(), self._pace.look(monotonic(), done), attempt)


Publish = Callable[[Attempt, Moved], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Transfers:
    store: WorkspaceStore
    publish: Publish | None = None
    stall_seconds: float = 60.0
    report_seconds: float = 1.0
    reached: Callable[[str], Awaitable[None]] | None = None

    @asynccontextmanager
    async def moving(self, attempt: Attempt, progress: Progress) -> AsyncIterator[None]:
        """Inside, the transfer's progress is reported, and it fails when nothing moves."""
        began = monotonic()
        try:
            async with asyncio.timeout(self.stall_seconds) as deadline:
                over = asyncio.Event()
                reporter = asyncio.create_task(self._report(attempt, progress, deadline, over))
                try:
                    yield
                    await self._save(attempt, progress)
                finally:
                    # Said, too: what it is in the middle of may lose a cancellation (see adapters.tasks).
                    over.set()
                    await end([reporter])
        except TimeoutError as error:
            raise Unreachable(f"the transfer stood still for {self.stall_seconds:g} s") from error
        finally:
            _measure(attempt, progress, monotonic() - began)

    async def is_intact(self, attempt: Attempt, archives: ArchiveStore, key: str, meta: ArchiveMeta) -> bool:
        """Read all of an archive back. What was read is told in bytes of the home: that is what people know."""
        read = 0

        def note(so_far: int) -> None:
            nonlocal read
            read = so_far

        progress = Progress(
            lambda: meta.raw_size * read // max(meta.size, 1),
            lambda: meta.raw_size,
            moved=lambda: read,
            stage=Stage.VERIFYING,
        )
        async with self.moving(attempt, progress):
            return await is_intact(archives, key, meta, note)

    async def fence(self, attempt: Attempt) -> None:
        if not await self.store.is_current(attempt.op_id, attempt.number):
            raise Superseded(f"attempt {attempt.number} of {attempt.op_id} was superseded")

    async def point(self, name: str) -> None:
        """A place where a crash must lose nothing."""
        if self.reached is not None:
            await self.reached(name)

    async def _report(
        self, attempt: Attempt, progress: Progress, deadline: asyncio.Timeout, over: asyncio.Event
    ) -> None:
        before = -1
        loop = asyncio.get_running_loop()
        while not over.is_set():
            now = (progress.moved or progress.done)()
            if now != before:
                before = now
                deadline.reschedule(loop.time() + self.stall_seconds)
            # Also of what stands still: its pace falls.
            await self._save(attempt, progress)
            with suppress(TimeoutError):
                async with asyncio.timeout(self.report_seconds):
                    await over.wait()

    async def _save(self, attempt: Attempt, progress: Progress) -> None:
        told = progress.told(attempt.number)
        attempt.pulse.tell(told)
        try:
            await self.store.save_progress(attempt.op_id, told)
            if self.publish is not None:
                await self.publish(attempt, told)
        except DatabaseUnavailable as error:
            log.warning("progress_not_saved", error=str(error))


def _measure(attempt: Attempt, progress: Progress, seconds: float) -> None:
    """Reading an archive back moves nothing of a home."""
    if progress.stage is Stage.TRANSFERRING:
        TRANSFERRED.labels(attempt.workspace.operation).inc(progress.done())
        TRANSFER.labels(attempt.workspace.operation).observe(seconds)
