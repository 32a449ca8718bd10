"""RESTORING (SPEC 5): crash-only. Every attempt starts over with a fresh volume, and the marker comes last."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from activities.attempt import Attempt, Superseded
from activities.integrity import read_archive_meta
from activities.transfer import Progress, Transfers
from adapters.archive_store import ArchiveStore, Fence
from adapters.homes import Homes, HomeSink
from adapters.runtime import Runtime
from adapters.tasks import end
from adapters.transfer.bridge import Pipe, in_thread
from adapters.transfer.unpack import Unpacked, unpack
from domain.archive import ArchiveMeta
from domain.errors import ActionFailed, ArchiveCorrupted, DataLost, Unreachable, WorkspaceError, outline
from domain.model import WorkspaceId

log = structlog.get_logger()

_PAUSES = (0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Restoring:
    homes: Homes
    runtime: Runtime
    archives: ArchiveStore
    transfers: Transfers

    async def restore(self, attempt: Attempt) -> None:
        ws = attempt.workspace
        if ws.archive_key is None:
            raise DataLost("there is no archive to restore")
        if ws.home_ctx.restore_marker == ws.archive_key:
            return
        fence = partial(self.transfers.fence, attempt)
        # A container that no longer runs still holds the volume.
        await self.runtime.stop(ws.id, fence)
        try:
            meta = await self._refill(attempt, ws.archive_key, fence)
        except ArchiveCorrupted:
            # Also where it was an attempt before this one that had filled it in part.
            await self._discard(ws.id, fence)
            raise
        await self.transfers.point("restore_extracted")
        marked = await self.transfers.store.save_restore_marker(
            ws.id, attempt.op_id, attempt.number, ws.archive_key, meta.summary
        )
        if not marked:
            raise Superseded(f"attempt {attempt.number} of {attempt.op_id} was superseded")
        await self.transfers.point("restore_marked")

    async def _refill(self, attempt: Attempt, key: str, fence: Fence) -> ArchiveMeta:
        ws = attempt.workspace
        meta = await read_archive_meta(self.archives, ws.id, key)
        # Whoever still writes is cut off by `renew`. Whoever begins to write later finds itself superseded, because
        # it looks after it has its place. So only the last attempt fills the volume that it will mark.
        await self.homes.renew(ws.id, attempt.op_id, fence)
        await self.transfers.point("restore_renewed")
        try:
            async with self.homes.write(ws.id, attempt.op_id) as sink:
                await fence()
                await self._fill(attempt, sink, key, meta)
        except ActionFailed:
            await self._discard(ws.id, fence)
            raise
        return meta

    async def _discard(self, workspace_id: WorkspaceId, fence: Fence) -> None:
        """A volume in part is worth nothing, and where the disk is full all others on it wait for the room. That it
        can't be removed is not what the attempt failed with."""
        for pause in (*_PAUSES, None):
            try:
                await self.homes.remove(workspace_id, fence)
            except WorkspaceError as error:
                if pause is None or not isinstance(error, Unreachable):
                    log.warning("partial_volume_stays", error=outline(error))
                    return
                await asyncio.sleep(pause)
            else:
                return

    async def _fill(self, attempt: Attempt, sink: HomeSink, key: str, meta: ArchiveMeta) -> None:
        unpacked = Unpacked()
        progress = Progress(lambda: unpacked.raw_size, lambda: meta.raw_size)
        try:
            async with self.transfers.moving(attempt, progress), self._downloading(key) as pipe:
                tar = unpack(pipe, meta, unpacked)
                await _done(pipe, _extracted(sink, tar, unpacked))
        except (ActionFailed, Unreachable) as error:
            # A damaged archive may be refused by the engine before its checksum is known.
            if not await self.transfers.is_intact(attempt, self.archives, key, meta):
                raise ArchiveCorrupted(f"the archive's bytes are not those that were stored ({error})") from error
            raise

    @asynccontextmanager
    async def _downloading(self, key: str) -> AsyncIterator[Pipe]:
        pipe = Pipe()

        async def feed() -> None:
            try:
                async for chunk in self.archives.download(key):
                    await pipe.send(chunk)
            except Exception as error:  # noqa: BLE001 - whoever reads raises it
                pipe.fail(error)
            else:
                pipe.close()

        feeder = asyncio.create_task(feed())
        try:
            yield pipe
        finally:
            await end([feeder])
            # Wakes a thread that still reads.
            pipe.fail(Unreachable("the transfer was given up"))


async def _extracted(sink: HomeSink, tar: Iterator[bytes], unpacked: Unpacked) -> None:
    """Whoever extracts may stop where the tar says that it ends. Whether it is the one that was archived is known when
    the last byte was read."""
    await sink.extract(tar)
    # Not in a thread that others wait for: it waits for bytes as long as the store takes.
    await in_thread(lambda: deque(tar, 0), "transfer-rest")
    if not unpacked.whole:
        raise ActionFailed("the archive was extracted, but not read to its end")


async def _done(pipe: Pipe, extracted: Coroutine[None, None, None]) -> None:
    """Whoever is cancelled first wakes the thread that waits for bytes, so as not to wait for it."""
    extracting = asyncio.create_task(extracted)
    try:
        await asyncio.shield(extracting)
    except asyncio.CancelledError:
        pipe.fail(Unreachable("the transfer was given up"))
        await end([extracting])
        raise
