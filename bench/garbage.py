"""GC over two objects a workspace, the store's listing simulated."""

import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from activities.bucket import OWNER_KEY
from activities.gc import RUN_KEY, GarbageCollector
from adapters.archive_store import StoredObject
from adapters.postgres.garbage import Garbage
from adapters.s3.store import S3ArchiveStore, open_store
from bench.part import Part
from bench.population import Population
from bench.row import Row
from domain.model import OperationId, WorkspaceId
from domain.naming import archive_key, meta_key
from settings import load_settings
from starter.s3 import s3_config
from workflows.messages import GcInput

_ROUNDS = 3
_DAY = timedelta(days=1)


async def measure(population: Population, part: Part, *, last: bool) -> None:
    """The archive that each workspace has, and of every hundredth one that nobody needs any more."""
    found = await population.database.fetch("SELECT id, archive_key FROM workspaces WHERE archive_key IS NOT NULL")
    orphans = [archive_key(WorkspaceId(str(row["id"])), OperationId(str(uuid4()))) for row in found[::100]]
    keys = [*(row["archive_key"] for row in found), *orphans]
    listed = [name for key in sorted(keys) for name in (key, meta_key(key))]
    taken = []
    async with open_store(s3_config(load_settings(population.simulation.env))) as store:
        listing = _Listing(store.client, store.bucket, keys=listed)
        collector = GarbageCollector(Garbage(population.database), listing, "bench", delay=_DAY)
        for _ in range(_ROUNDS):
            await store.delete([OWNER_KEY])
            began = time.monotonic()
            report = await collector.collect(GcInput())
            taken.append(time.monotonic() - began)
            await store.delete([OWNER_KEY, RUN_KEY])
            if (report.listed, report.orphans) != (len(listed), 2 * len(orphans)):
                raise RuntimeError(f"{report} of {len(listed)} objects, {2 * len(orphans)} of them orphans")
    part.growth.add("GC over two objects a workspace", population.count, statistics.median(taken), "s")
    if last:
        part.add(Row(f"GC over {len(listed):,} objects", taken, note="the store's listing simulated"))


@dataclass(frozen=True, slots=True)
class _Listing(S3ArchiveStore):
    """The store, as if it held two objects a workspace."""

    keys: list[str] = field(default_factory=list)

    async def list_objects(self) -> AsyncIterator[StoredObject]:
        now = datetime.now(UTC)
        for key in self.keys:
            yield StoredObject(key, 1, now)
