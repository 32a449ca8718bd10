"""GC: mark every orphan, and only after a complete look delete those that have been one for long enough.

An archive is deleted when nothing has referred to it for GC_DELAY, as remembered in PostgreSQL, and nothing refers to
it now. A run that can't read the database or the store completely deletes nothing.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from temporalio import activity

from adapters.archive_store import ArchiveStore, StoredObject
from adapters.postgres.garbage import Garbage, Orphan
from domain.gc import is_protected, workspace_of
from domain.model import WorkspaceId
from workflows.messages import COLLECT_GARBAGE, GcInput, GcReport

log = structlog.get_logger()

RUN_KEY = "codehub/gc-run"
"""Counts GC's runs in the store itself: how a database that is an older backup is recognised."""
OWNER_KEY = "codehub/owner"
"""Names the installation whose bucket this is: another database knows nothing of what is wanted here."""
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class GarbageCollector:
    garbage: Garbage
    archives: ArchiveStore
    installation: str
    delay: timedelta = timedelta(hours=2)
    restored_delay: timedelta = timedelta(days=7)
    batch: int = field(default=_BATCH)

    @activity.defn(name=COLLECT_GARBAGE)
    async def collect(self, request: GcInput) -> GcReport:
        report = await self._collect(dry_run=request.dry_run)
        log.info("gc_finished", **report.as_dict())
        return report

    async def _collect(self, *, dry_run: bool) -> GcReport:
        report = GcReport(dry_run=dry_run)
        if not await self._owns_bucket(dry_run=dry_run):
            report.held = True
            return report
        held = await self._check_run(report, dry_run=dry_run)
        run = (await self.garbage.state()).run if dry_run else await self.garbage.begin()
        async for batch in self._batches():
            orphans = await self._orphans(batch)
            report.listed += len(batch)
            report.orphans += len(orphans)
            if dry_run:
                report.keys += [orphan.key for orphan in orphans][: 200 - len(report.keys)]
            else:
                await self.garbage.mark(orphans, run)
            _beat(report)
        if dry_run:
            return report
        await self.garbage.forget_unseen(run)
        await self.archives.write(RUN_KEY, str(run).encode())
        if not held:
            await self._delete_matured(report)
        await self._abort_uploads(report)
        await self.garbage.finish(report.as_dict())
        return report

    async def _owns_bucket(self, *, dry_run: bool) -> bool:
        owner = await self.archives.read(OWNER_KEY)
        if owner is None and not dry_run:
            await self.archives.write(OWNER_KEY, self.installation.encode())
        elif owner is not None and owner.decode(errors="replace") != self.installation:
            log.error("bucket_of_another_installation", owner=owner.decode(errors="replace"), ours=self.installation)
            return False
        return True

    async def _check_run(self, report: GcReport, *, dry_run: bool) -> bool:
        """Whether deleting has to wait because the database is older than the store."""
        state = await self.garbage.state()
        body = await self.archives.read(RUN_KEY)
        stored = int(body) if body and body.isdigit() else 0
        if stored > state.run:
            log.warning("database_is_older_than_store", database_run=state.run, store_run=stored)
            if not dry_run:
                await self.garbage.hold(stored, self.restored_delay)
        report.held = state.held or stored > state.run
        return report.held

    async def _batches(self) -> AsyncIterator[list[StoredObject]]:
        batch: list[StoredObject] = []
        async for found in self.archives.list_objects():
            batch.append(found)
            if len(batch) == self.batch:
                yield batch
                batch = []
        if batch:
            yield batch

    async def _orphans(self, batch: list[StoredObject]) -> list[Orphan]:
        kept = await self._protected([found.key for found in batch])
        return [Orphan(found.key, found.size) for found in batch if found.key not in kept]

    async def _protected(self, keys: list[str]) -> set[str]:
        owners: dict[str, WorkspaceId | None] = {key: workspace_of(key) for key in keys}
        claims = await self.garbage.claims({owner for owner in owners.values() if owner is not None})
        return {
            key for key, owner in owners.items() if is_protected(key, claims.get(owner) if owner is not None else None)
        }

    async def _delete_matured(self, report: GcReport) -> None:
        while orphans := await self.garbage.matured(self.delay, self.batch):
            # Looked at once more, now: a row may have come to refer to it since it was marked.
            kept = await self._protected([orphan.key for orphan in orphans])
            doomed = [orphan for orphan in orphans if orphan.key not in kept]
            keys = [orphan.key for orphan in doomed]
            # Markers first: an archive without its .meta is an orphan still, never a complete one.
            await self.archives.delete([key for key in keys if key.endswith(".meta")])
            await self.archives.delete([key for key in keys if not key.endswith(".meta")])
            await self.garbage.forget([orphan.key for orphan in orphans])
            report.deleted += len(doomed)
            report.deleted_bytes += sum(orphan.size for orphan in doomed)
            _beat(report)

    async def _abort_uploads(self, report: GcReport) -> None:
        """Uploads that were begun before GC_DELAY and belong to no operation under way."""
        oldest = await self.garbage.now() - self.delay
        async for upload in self.archives.list_uploads():
            if upload.started < oldest and workspace_of(upload.key) and not await self._protected([upload.key]):
                await self.archives.abort(upload)
                report.aborted_uploads += 1


def _beat(report: GcReport) -> None:
    if activity.in_activity():
        activity.heartbeat(report.listed, report.deleted)
