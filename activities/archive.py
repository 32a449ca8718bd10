"""ARCHIVING and CREATE_EMPTY_ARCHIVE (SPEC 5).

The order is the promise: data, then `.meta`, then verify what the store holds, then save archive_key, then remove the
volume. At every moment a complete volume or a complete verified archive exists.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version

from activities.attempt import Attempt, Superseded
from activities.integrity import is_intact
from activities.transfer import Progress, Transfers
from adapters.archive_store import ArchiveStore
from adapters.homes import Homes
from adapters.runtime import Runtime
from adapters.transfer.bridge import from_thread
from adapters.transfer.pack import Packed, pack
from adapters.transfer.tarscan import TarBroken
from domain.archive import FORMAT_VERSION, ArchiveMeta, read_meta
from domain.errors import ActionFailed, ArchiveCorrupted, Unreachable
from domain.model import OperationId
from domain.naming import archive_key, meta_key

EMPTY_TAR = bytes(10240)


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Archiving:
    homes: Homes
    runtime: Runtime
    archives: ArchiveStore
    transfers: Transfers
    now: Callable[[], datetime] = _now

    async def archive(self, attempt: Attempt) -> None:
        """Safe to run again after a crash at any point, and next to an attempt that was given up."""
        key = archive_key(attempt.workspace.id, _archive_op_id(attempt))
        if attempt.workspace.archive_key != key:
            meta = await self._committed(attempt, key) or await self._upload(attempt, key)
            await self._settle(attempt, key, meta)
        await self.transfers.fence(attempt)
        await self.runtime.stop(attempt.workspace.id)
        await self.runtime.remove_volume(attempt.workspace.id)
        await self.transfers.point("archive_volume_removed")

    async def create_empty(self, attempt: Attempt) -> None:
        """An archive of nothing, for a workspace that never had a home."""
        key = archive_key(attempt.workspace.id, _archive_op_id(attempt))
        if attempt.workspace.archive_key == key:
            return
        meta = await self._committed(attempt, key)
        if meta is None:
            packed = Packed()
            await self.archives.upload(
                key, from_thread(pack([EMPTY_TAR], packed)), partial(self.transfers.fence, attempt)
            )
            meta = await self._commit(attempt, key, packed, sockets=0)
        await self._settle(attempt, key, meta)

    async def _committed(self, attempt: Attempt, key: str) -> ArchiveMeta | None:
        """What an earlier attempt of this operation has stored in full, if it has."""
        body = await self.archives.read(meta_key(key))
        if body is None:
            return None
        try:
            meta = read_meta(body, attempt.workspace.id)
        except ArchiveCorrupted:
            return None
        return meta if await self.archives.size(key) == meta.size else None

    async def _upload(self, attempt: Attempt, key: str) -> ArchiveMeta:
        packed = Packed()
        async with self.homes.read(attempt.workspace.id) as home:
            progress = Progress(lambda: packed.raw_size, lambda: home.total)
            async with self.transfers.moving(attempt, progress):
                try:
                    parts = from_thread(pack(home, packed))
                    await self.archives.upload(key, parts, partial(self.transfers.fence, attempt))
                except TarBroken as error:
                    raise ActionFailed(f"the home could not be read to its end: {error}") from error
            await self.transfers.point("archive_uploaded")
            return await self._commit(attempt, key, packed, home.sockets)

    async def _commit(self, attempt: Attempt, key: str, packed: Packed, sockets: int) -> ArchiveMeta:
        meta = ArchiveMeta(
            format_version=FORMAT_VERSION,
            workspace_id=attempt.workspace.id,
            archive_op_id=_archive_op_id(attempt),
            sha256=packed.sha256,
            size=packed.size,
            raw_size=packed.raw_size,
            entries=packed.scanner.entries,
            left_out={"sockets": sockets, "devices": packed.scanner.devices},
            codehub_version=version("codehub"),
            created_at=self.now(),
        )
        await self.transfers.fence(attempt)
        await self.archives.write(meta_key(key), meta.model_dump_json().encode())
        await self.transfers.point("archive_committed")
        return meta

    async def _settle(self, attempt: Attempt, key: str, meta: ArchiveMeta) -> None:
        await self._verify(attempt, key, meta)
        await self.transfers.point("archive_verified")
        saved = await self.transfers.store.save_archive_key(attempt.workspace.id, attempt.op_id, attempt.number, key)
        if not saved:
            raise Superseded(f"attempt {attempt.number} of {attempt.op_id} was superseded")
        await self.transfers.store.save_context(
            attempt.op_id,
            {"archive_size": meta.size, "raw_size": meta.raw_size, "entries": meta.entries, "left_out": meta.left_out},
        )
        await self.transfers.point("archive_key_saved")

    async def _verify(self, attempt: Attempt, key: str, meta: ArchiveMeta) -> None:
        """Read back what the store holds. What is wrong with it is tried again: the volume still has everything."""
        if await self.archives.read(meta_key(key)) != meta.model_dump_json().encode():
            raise Unreachable("the store does not hold the .meta that was written")
        async with self.transfers.moving(attempt, Progress(lambda: meta.raw_size, lambda: meta.raw_size)):
            if not await is_intact(self.archives, key, meta):
                raise ActionFailed("the bytes that the store holds are not those that were written")


def _archive_op_id(attempt: Attempt) -> OperationId:
    if attempt.workspace.archive_op_id is None:
        raise ActionFailed("the operation has no archive_op_id")
    return attempt.workspace.archive_op_id
