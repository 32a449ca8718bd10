"""GC: mark every orphan, and only after a complete look delete those that have been one for long enough.

An archive is deleted when nothing has referred to it for GC_DELAY, as remembered in PostgreSQL, and nothing refers to
it now. One that this database never heard of waits for GC_RESTORED_DELAY: the database may be an older backup. A run
that can't read the database or the store completely deletes nothing.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta

import structlog
from temporalio import activity

from activities.bucket import Bucket
from adapters.archive_store import ArchiveStore, StoredObject
from adapters.postgres.garbage import Garbage, Orphan
from adapters.telemetry.metrics import GC_DELETED, GC_DELETED_BYTES, GC_UPLOADS
from domain.gc import Claims, is_protected, is_uploading, operation_of, workspace_of
from workflows.messages import COLLECT_GARBAGE, GcInput, GcReport

log = structlog.get_logger()

RUN_KEY = "codehub/gc-run"
"""Counts GC's runs in the store itself: how a database that is an older backup is recognised."""
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
        accepted = request.accept_restored and not request.dry_run
        report = await self._collect(dry_run=request.dry_run, accepted=accepted)
        log.info("gc_finished", **report.as_dict())
        return report

    async def _collect(self, *, dry_run: bool, accepted: bool) -> GcReport:
        report = GcReport(dry_run=dry_run)
        if not await self._owns_bucket(dry_run=dry_run):
            report.held = True
            return report
        held = await self._check_run(report, dry_run=dry_run, accepted=accepted)
        run = (await self.garbage.state()).run if dry_run else await self.garbage.begin()
        async for batch in self._batches():
            orphans = await self._orphans(batch, accepted=accepted)
            report.listed += len(batch)
            report.orphans += len(orphans)
            report.unknown += sum(orphan.unknown for orphan in orphans)
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
        """Another database knows nothing of what is wanted here."""
        bucket = Bucket(self.archives, self.installation)
        owner = await (bucket.owner() if dry_run else bucket.claim())
        if owner in {None, self.installation}:
            return True
        log.error("bucket_of_another_installation", owner=owner, ours=self.installation)
        return False

    async def _check_run(self, report: GcReport, *, dry_run: bool, accepted: bool) -> bool:
        """Whether deleting has to wait: the database is older than the store, and nobody said that it is right."""
        state = await self.garbage.state()
        body = await self.archives.read(RUN_KEY)
        stored = int(body) if body and body.isdigit() else 0
        if stored > state.run:
            log.warning("database_is_older_than_store", database_run=state.run, store_run=stored)
            if not dry_run:
                await self.garbage.hold(stored, self.restored_delay)
        if accepted:
            await self.garbage.release()
        report.held = not accepted and (state.held or stored > state.run)
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

    async def _orphans(self, batch: list[StoredObject], *, accepted: bool) -> list[Orphan]:
        kept = await self._protected([found.key for found in batch])
        orphans = [found for found in batch if found.key not in kept]
        unknown = set() if accepted else await self._unknown([found.key for found in orphans])
        return [Orphan(found.key, found.size, unknown=found.key in unknown) for found in orphans]

    async def _unknown(self, keys: list[str]) -> set[str]:
        """Made by operations that the database never heard of, and accepted by nobody."""
        made_by = {key: operation for key in keys if (operation := operation_of(key))}
        known = await self.garbage.known(made_by.values())
        unknown = {key for key, operation in made_by.items() if operation not in known}
        return unknown - await self.garbage.accepted(unknown)

    async def _protected(self, keys: list[str]) -> set[str]:
        claims = await self._claims(keys)
        return {key for key in keys if is_protected(key, claims[key])}

    async def _claims(self, keys: list[str]) -> dict[str, Claims | None]:
        owners = {key: workspace_of(key) for key in keys}
        found = await self.garbage.claims({owner for owner in owners.values() if owner is not None})
        return {key: found.get(owner) if owner is not None else None for key, owner in owners.items()}

    async def _delete_matured(self, report: GcReport) -> None:
        while orphans := await self.garbage.matured(self.delay, self.restored_delay, self.batch):
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
            GC_DELETED.inc(len(doomed))
            GC_DELETED_BYTES.inc(sum(orphan.size for orphan in doomed))
            _beat(report)

    async def _abort_uploads(self, report: GcReport) -> None:
        """Uploads that were begun before GC_DELAY and belong to no operation under way."""
        oldest = await self.garbage.now() - self.delay
        async for upload in self.archives.list_uploads():
            if upload.started >= oldest or workspace_of(upload.key) is None:
                continue
            claims = await self._claims([upload.key])
            if not is_uploading(upload.key, claims[upload.key]):
                await self.archives.abort(upload)
                report.aborted_uploads += 1
                GC_UPLOADS.inc()


def _beat(report: GcReport) -> None:
    if activity.in_activity():
        activity.heartbeat(report.listed, report.deleted)
