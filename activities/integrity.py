"""Whether the store holds what was stored."""

import asyncio
import hashlib
from collections.abc import Callable

from adapters.archive_store import ArchiveStore
from domain.archive import ArchiveMeta, read_meta
from domain.errors import ArchiveCorrupted, DataLost, Unreachable
from domain.model import WorkspaceId
from domain.naming import meta_key


async def read_archive_meta(archives: ArchiveStore, workspace_id: WorkspaceId, key: str) -> ArchiveMeta:
    """What the archive says of itself; ArchiveCorrupted or DataLost where it can't be the one that was stored."""
    body = await archives.read(meta_key(key))
    size = await archives.size(key)
    if size is None:
        raise DataLost(f"the archive {key} is gone")
    if body is None:
        if await archives.size(meta_key(key)) is not None:
            raise Unreachable(f"the .meta of the archive {key} is there, but something said that it was not")
        raise ArchiveCorrupted(f"the archive {key} has no .meta: it was never completed, or it was tampered with")
    meta = read_meta(body, workspace_id, key)
    if size != meta.size:
        raise ArchiveCorrupted(f"the archive has {size} bytes, {meta.size} were stored")
    return meta


async def is_intact(
    archives: ArchiveStore, key: str, meta: ArchiveMeta, moved: Callable[[int], None] | None = None
) -> bool:
    """Read all of it; `moved` is told how far it is."""
    digest, read = hashlib.sha256(), 0
    async for chunk in archives.download(key):
        await asyncio.to_thread(digest.update, chunk)
        read += len(chunk)
        if moved is not None:
            moved(read)
        if read > meta.size:
            break
    return read == meta.size and digest.hexdigest() == meta.sha256
