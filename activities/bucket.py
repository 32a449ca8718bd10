"""The bucket belongs to one installation: to another one's GC, what it does not know of would be orphans."""

from dataclasses import dataclass

import structlog

from adapters.archive_store import ArchiveStore
from domain.errors import ActionFailed

log = structlog.get_logger()

OWNER_KEY = "codehub/owner"
"""Names the installation."""
UNGUARDED = (
    "A worker that hung for long and wakes up could put its .meta in the place of a verified archive's, and that "
    "archive would be refused as corrupted. Use a store that honours If-None-Match and If-Match on PUT "
    "(docs/production.md)."
)


@dataclass(frozen=True, slots=True)
class Bucket:
    archives: ArchiveStore
    installation: str

    async def owner(self) -> str | None:
        body = await self.archives.read(OWNER_KEY)
        return None if body is None else body.decode(errors="replace")

    async def claim(self) -> str:
        """Whose it is. What was nobody's is ours from now on: of two that ask at the same moment, one gets it."""
        owner = await self.owner()
        if owner is None:
            await self.archives.replace(OWNER_KEY, self.installation.encode(), None)
            # Read again, also where it seems to be ours: without conditional writes, the last one has it.
            owner = await self.owner()
        return owner or ""

    async def take(self) -> None:
        """What a worker does when it starts: make sure that it is ours, and say what the store can't promise."""
        await self.require()
        if not await self.archives.is_guarded(OWNER_KEY, self.installation.encode()):
            log.warning("store_ignores_conditional_writes", advice=UNGUARDED)

    async def require(self) -> None:
        """Raises ActionFailed where it is not ours. Cheap: one small read, before each archive that is made."""
        owner = await self.claim()
        if owner != self.installation:
            raise ActionFailed(
                f"the bucket is that of another installation ({owner}; this one is {self.installation}). Give each a "
                f"bucket of its own (S3_BUCKET). If that one is gone for good, and this one is to have its bucket, "
                f"delete the object {OWNER_KEY} in it"
            )
