"""ARCHIVING and CREATE_EMPTY_ARCHIVE (SPEC 5).

The order is the promise: data, then `.meta`, then verify what the store holds, then save archive_key, then say that the
volume goes, then remove it. At every moment a complete volume or a complete verified archive exists, and the row says
which of them is the home. A disk that did not keep something says so once, to whoever had it open: so the data is on
the disk before a `.meta` vouches for it, and whoever finds a `.meta` writes it once more before they trust it to be.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from uuid import uuid4

from activities.attempt import Attempt, Superseded
from activities.bucket import Bucket
from activities.transfer import Progress, Transfers
from adapters.archive_store import ArchiveStore, SmallObject
from adapters.homes import Homes
from adapters.transfer.bridge import from_thread
from adapters.transfer.pack import Packed, pack
from adapters.transfer.tarscan import TarBroken
from domain.archive import FORMAT_VERSION, ArchiveMeta, read_meta
from domain.errors import ActionFailed, ArchiveCorrupted, DataLost, Unrestorable, VolumeInUse
from domain.model import OperationId
from domain.naming import archive_key, meta_key

EMPTY_TAR = bytes(10240)

Upload = Callable[[Attempt, str], Awaitable[ArchiveMeta]]


def _now() -> datetime:
    return datetime.now(UTC)


def _new_id() -> OperationId:
    return OperationId(str(uuid4()))


@dataclass(frozen=True, slots=True)
class Archiving:
    homes: Homes
    bucket: Bucket
    transfers: Transfers
    now: Callable[[], datetime] = _now
    new_id: Callable[[], OperationId] = _new_id

    @property
    def archives(self) -> ArchiveStore:
        return self.bucket.archives

    async def archive(self, attempt: Attempt) -> None:
        """Safe to run again after a crash at any point, and next to an attempt that was given up."""
        key = archive_key(attempt.workspace.id, _archive_op_id(attempt))
        if attempt.workspace.archive_key != key:
            await self._save(attempt, key, await self._stored(attempt, key, self._upload))
        await self._remove(attempt, key)
        await self.transfers.point("archive_volume_removed")

    async def create_empty(self, attempt: Attempt) -> None:
        """An archive of nothing, for a workspace that never had a home."""
        key = archive_key(attempt.workspace.id, _archive_op_id(attempt))
        if attempt.workspace.archive_key != key:
            await self._save(attempt, key, await self._stored(attempt, key, self._upload_nothing))

    async def _remove(self, attempt: Attempt, key: str) -> None:
        """An engine that dies may leave a part of the volume: nobody must take that for the home, so it is said first.

        No container is stopped for it: one that is there now may have changed the home since it was read. Then the
        volume is the home still, and has to be read again. Asked before anything is said of the removal: a worker that
        dies with the answer leaves nothing behind that would keep the next attempt from asking. The engine does not
        remove what a container holds, so one that comes after the question is heard of, too. Where the volume was said
        to go by an earlier attempt, nobody knows what is left of it, and the archive is the home.
        """
        store, ws = self.transfers.store, attempt.workspace
        is_home = ws.home_ctx.removing is None
        try:
            if is_home:
                await self.homes.ensure_unused(ws.id)
            await self._say_removal(attempt, key)
            await self.homes.remove(ws.id, partial(self.transfers.fence, attempt))
        except VolumeInUse:
            if is_home:
                await store.save_not_removed(ws.id, attempt.op_id, attempt.number, self.new_id())
            raise

    async def _say_removal(self, attempt: Attempt, key: str) -> None:
        if not await self.transfers.store.save_removing(attempt.workspace.id, attempt.op_id, attempt.number, key):
            raise Superseded(f"attempt {attempt.number} of {attempt.op_id} was superseded")
        await self.transfers.point("archive_removal_said")

    async def _stored(self, attempt: Attempt, key: str, upload: Upload) -> ArchiveMeta:
        """The archive that the store holds, verified: an earlier attempt's, or one made now."""
        await self.bucket.require()
        former = await self.archives.look(meta_key(key))
        meta = _committed(former, attempt, key)
        if former is not None and meta is not None:
            # Whoever still uploads must not complete over what is verified now.
            fence = partial(self.transfers.fence, attempt)
            await fence()
            await self.archives.end_uploads(key, fence)
            await self._commit(attempt, key, former.body, former)
            if await self._is_verified(attempt, key, meta):
                await self.transfers.point("archive_verified")
                return meta
            former = await self.archives.look(meta_key(key))
        meta = await upload(attempt, key)
        await self.transfers.point("archive_uploaded")
        await self.archives.settle(key)
        await self._commit(attempt, key, meta.model_dump_json().encode(), former)
        await self.transfers.point("archive_committed")
        if not await self._is_verified(attempt, key, meta):
            # Tried again: the volume still has everything.
            raise ActionFailed("the bytes that the store holds are not those that were written")
        await self.transfers.point("archive_verified")
        return meta

    async def _upload(self, attempt: Attempt, key: str) -> ArchiveMeta:
        packed = Packed()
        sent = 0

        def moved(count: int) -> None:
            nonlocal sent
            sent += count

        # The home may be read to its end long before the store has taken the last part.
        progress = Progress(lambda: packed.raw_size, moved=lambda: packed.raw_size + sent)
        async with (
            self.transfers.moving(attempt, progress),
            self.homes.read(attempt.workspace.id) as home,
        ):
            progress.total = lambda: home.total
            try:
                parts = from_thread(pack(home, packed))
                await self.archives.upload(key, parts, partial(self.transfers.fence, attempt), moved)
            except TarBroken as error:
                raise ActionFailed(f"the home could not be read to its end: {error}") from error
            except Unrestorable as error:
                raise Unrestorable(f"the home can't be archived: {error}") from error
        return self._meta(attempt, packed, home.sockets)

    async def _upload_nothing(self, attempt: Attempt, key: str) -> ArchiveMeta:
        packed = Packed()
        parts = from_thread(pack([EMPTY_TAR], packed))
        await self.archives.upload(key, parts, partial(self.transfers.fence, attempt))
        return self._meta(attempt, packed, sockets=0)

    def _meta(self, attempt: Attempt, packed: Packed, sockets: int | None) -> ArchiveMeta:
        left_out = {"sockets": sockets, "devices": packed.scanner.devices}
        return ArchiveMeta(
            format_version=FORMAT_VERSION,
            workspace_id=attempt.workspace.id,
            archive_op_id=_archive_op_id(attempt),
            sha256=packed.sha256,
            size=packed.size,
            raw_size=packed.raw_size,
            entries=packed.scanner.entries,
            files=packed.scanner.files,
            left_out={what: count for what, count in left_out.items() if count is not None},
            codehub_version=version("codehub"),
            created_at=self.now(),
        )

    async def _commit(self, attempt: Attempt, key: str, meta: bytes, former: SmallObject | None) -> None:
        """By compare-and-set: an attempt that was given up may wake up right here, when another one's .meta already
        vouches for other bytes."""
        await self.transfers.fence(attempt)
        if not await self.archives.replace(meta_key(key), meta, former):
            await self.transfers.fence(attempt)
            raise ActionFailed("another attempt has committed its archive meanwhile")

    async def _is_verified(self, attempt: Attempt, key: str, meta: ArchiveMeta) -> bool:
        """Whether the store, read back, holds this .meta and the bytes that it vouches for."""
        if _committed(await self.archives.look(meta_key(key)), attempt, key) != meta:
            return False
        if await self.archives.size(key) != meta.size:
            return False
        try:
            return await self.transfers.is_intact(attempt, self.archives, key, meta)
        except DataLost:
            # Gone since it was looked at. Nothing is lost as long as the volume is there.
            return False

    async def _save(self, attempt: Attempt, key: str, meta: ArchiveMeta) -> None:
        await self.archives.settle(meta_key(key))
        saved = await self.transfers.store.save_archive_key(
            attempt.workspace.id, attempt.op_id, attempt.number, key, meta.summary | {"left_out": meta.left_out}
        )
        if not saved:
            raise Superseded(f"attempt {attempt.number} of {attempt.op_id} was superseded")
        await self.transfers.point("archive_key_saved")


def _committed(found: SmallObject | None, attempt: Attempt, key: str) -> ArchiveMeta | None:
    """What an attempt of this operation has committed, if it can be read."""
    if found is None:
        return None
    try:
        return read_meta(found.body, attempt.workspace.id, key)
    except ArchiveCorrupted:
        return None


def _archive_op_id(attempt: Attempt) -> OperationId:
    if attempt.workspace.archive_op_id is None:
        raise ActionFailed("the operation has no archive_op_id")
    return attempt.workspace.archive_op_id
