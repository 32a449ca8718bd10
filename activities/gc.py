"""GC: mark every orphan, and only after a complete look delete those that have been one for long enough.

An archive is deleted when nothing has referred to it for GC_DELAY, as remembered in PostgreSQL, and nothing refers to
it now. One that this database never heard of waits for GC_RESTORED_DELAY: the database may be an older backup. A run
that can't read the database or the store completely deletes nothing.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice

import structlog
from temporalio import activity

from activities.bucket import Bucket
from adapters.archive_store import DELETED_AT_ONCE, ArchiveStore, OpenUpload, StoredObject
from adapters.postgres.garbage import Garbage, GcState, Orphan
from adapters.telemetry.metrics import GC_DELETED, GC_DELETED_BYTES, GC_REFUSED, GC_UPLOADS
from domain.gc import Claims, is_protected, is_uploading, operation_of, workspace_of
from domain.naming import meta_key
from workflows.messages import COLLECT_GARBAGE, GcInput, GcReport

log = structlog.get_logger()

RUN_KEY = "codehub/gc-run"
"""Counts GC's runs in the store itself: how a database that is an older backup is recognised."""
_RUN = re.compile(rb"[0-9]{1,18}")
_BATCH = 1000
_NAMED = 200


@dataclass(frozen=True, slots=True)
class GarbageCollector:
    garbage: Garbage
    archives: ArchiveStore
    installation: str
    delay: timedelta = timedelta(hours=2)
    restored_delay: timedelta = timedelta(days=7)
    batch: int = field(default=_BATCH)
    named: int | None = _NAMED
    """How many keys of each kind a dry run names: its report has to fit into a message."""

    @activity.defn(name=COLLECT_GARBAGE)
    async def collect(self, request: GcInput) -> GcReport:
        report = GcReport(dry_run=request.dry_run)
        if not await self._owns_bucket(dry_run=request.dry_run):
            report.held = True
        elif request.dry_run:
            await self._foresee(report, accepted=request.accept_restored)
        else:
            await self._collect(report, accepted=request.accept_restored)
        log.info("gc_finished", **report.as_dict())
        return report

    async def _collect(self, report: GcReport, *, accepted: bool) -> None:
        stored, state = await self._runs()
        older = stored > state.run
        if older:
            log.warning("database_is_older_than_store", database_run=state.run, store_run=stored)
            await self.garbage.hold(stored, self.restored_delay)
        if accepted:
            await self.garbage.release()
        report.held = not accepted and (state.held or older)
        run = await self.garbage.begin()
        async for orphans in self._found(report, accepted=accepted):
            await self.garbage.mark(orphans, run)
        await self.garbage.forget_unseen(run)
        await self.archives.write(RUN_KEY, str(run).encode())
        if not report.held:
            await self._delete_matured(report)
        async for upload in self._stale_uploads(report):
            await self.archives.abort(upload)
            report.aborted_uploads += 1
            GC_UPLOADS.inc()
        await self.garbage.finish(report.as_dict())

    async def _foresee(self, report: GcReport, *, accepted: bool) -> None:
        """What `_collect` would do now. It changes nothing."""
        stored, state = await self._runs()
        older = stored > state.run
        report.held = not accepted and (state.held or older)
        async for orphans in self._found(report, accepted=accepted):
            self._name(report.keys, [orphan.key for orphan in orphans])
            if report.held:
                continue
            # A database that is an older backup makes a run begin to count anew.
            due = await self.garbage.due(orphans, self.delay, self.restored_delay, anew=older)
            report.due += len(due)
            report.due_bytes += sum(orphan.size for orphan in orphans if orphan.key in due)
            self._name(report.due_keys, [orphan.key for orphan in orphans if orphan.key in due])
        async for upload in self._stale_uploads(report):
            report.stale_uploads += 1
            self._name(report.upload_keys, [upload.key])

    def _name(self, named: list[str], keys: list[str]) -> None:
        named += keys if self.named is None else keys[: self.named - len(named)]

    async def _found(self, report: GcReport, *, accepted: bool) -> AsyncIterator[list[Orphan]]:
        async for batch in self._batches():
            orphans = await self._orphans(batch, accepted=accepted)
            report.listed += len(batch)
            report.orphans += len(orphans)
            report.unknown += sum(orphan.unknown for orphan in orphans)
            yield orphans
            _beat(report)

    async def _owns_bucket(self, *, dry_run: bool) -> bool:
        """Another database knows nothing of what is wanted here."""
        bucket = Bucket(self.archives, self.installation)
        owner = await (bucket.owner() if dry_run else bucket.claim())
        if owner in {None, self.installation}:
            return True
        log.error("bucket_of_another_installation", owner=owner, ours=self.installation)
        return False

    async def _runs(self) -> tuple[int, GcState]:
        """How many runs the store has seen, and the database: fewer, where it is an older backup.

        In this order: a run counts in the database first, so one that goes on meanwhile leaves that ahead of the store.
        """
        body = await self.archives.read(RUN_KEY)
        stored = int(body) if body and _RUN.fullmatch(body) else 0
        return stored, await self.garbage.state()

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
        owners = [owner for key in made_by if (owner := workspace_of(key))]
        known = await self.garbage.known(owners, made_by.values())
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
        refused: set[str] = set()
        last: str | None = None
        # On from the last one, and not from the first again: what the store refuses is an orphan still.
        while orphans := await self.garbage.matured(self.delay, self.restored_delay, self.batch, last):
            last = orphans[-1].key
            # Looked at once more, now: a row may have come to refer to it since it was marked.
            kept = await self._protected([orphan.key for orphan in orphans])
            doomed = [orphan for orphan in orphans if orphan.key not in kept]
            refused |= await self._refused([orphan.key for orphan in doomed], refused, report)
            gone = [orphan for orphan in doomed if orphan.key not in refused]
            await self.garbage.forget([orphan.key for orphan in orphans if orphan.key not in refused])
            report.deleted += len(gone)
            report.deleted_bytes += sum(orphan.size for orphan in gone)
            GC_DELETED.inc(len(gone))
            GC_DELETED_BYTES.inc(sum(orphan.size for orphan in gone))
            _beat(report)
        report.refused = len(refused)
        self._name(report.refused_keys, sorted(refused))
        GC_REFUSED.inc(len(refused))

    async def _refused(self, keys: list[str], formerly: set[str], report: GcReport) -> set[str]:
        """Delete them; which of them stay, because the store, or whoever owns it, wants it so."""
        # Markers first: an archive without its .meta is an orphan still, never a complete one. So it stays with it.
        refused = await self._deleted([key for key in keys if key.endswith(".meta")], report)
        bare = [key for key in keys if not key.endswith(".meta")]
        beside = {key for key in bare if meta_key(key) in formerly | refused.keys()}
        refused |= await self._deleted([key for key in bare if key not in beside], report)
        for key, reason in islice(refused.items(), 1):
            log.warning("store_refused_to_delete", count=len(refused), key=key, error=reason)
        return beside | refused.keys()

    async def _deleted(self, keys: list[str], report: GcReport) -> dict[str, str]:
        """So many at a time that a store which is slow to answer does not make the run look dead."""
        refused: dict[str, str] = {}
        for start in range(0, len(keys), DELETED_AT_ONCE):
            refused |= await self.archives.delete(keys[start : start + DELETED_AT_ONCE])
            _beat(report)
        return refused

    async def _stale_uploads(self, report: GcReport) -> AsyncIterator[OpenUpload]:
        """Uploads that were begun before GC_DELAY and belong to no operation under way."""
        oldest = await self.garbage.now() - self.delay
        async for upload in self.archives.list_uploads():
            _beat(report)
            if upload.started >= oldest or workspace_of(upload.key) is None:
                continue
            claims = await self._claims([upload.key])
            if not is_uploading(upload.key, claims[upload.key]):
                yield upload


def _beat(report: GcReport) -> None:
    if activity.in_activity():
        activity.heartbeat(report.listed, report.deleted)
