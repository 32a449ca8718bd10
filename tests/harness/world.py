"""Whether the world is as the rows say: containers, volumes and archives (SPEC 3.1)."""

import asyncio

from activities.integrity import is_intact, read_archive_meta
from adapters.archive_store import ArchiveStore
from adapters.postgres.database import Database
from adapters.postgres.rows import to_workspace
from adapters.runtime import Runtime
from domain.errors import WorkspaceError
from domain.gc import operation_of, workspace_of
from domain.model import Phase, Workspace, WorkspaceId
from domain.observation import ContainerState, Presence, Resources

HOLDS = {
    Phase.RUNNING: (ContainerState.READY, Presence.PRESENT),
    Phase.STANDBY: (ContainerState.ABSENT, Presence.PRESENT),
    Phase.ARCHIVED: (ContainerState.ABSENT, Presence.ABSENT),
    Phase.PENDING: (ContainerState.ABSENT, Presence.ABSENT),
    Phase.DELETED: (ContainerState.ABSENT, Presence.ABSENT),
}


async def mismatches(database: Database, runtime: Runtime, archives: ArchiveStore | None = None) -> list[str]:
    """Rows without their resources, and resources, objects and uploads without their row, once all is at rest."""
    rows = [to_workspace(row) for row in await database.fetch("SELECT * FROM workspaces")]
    found = await asyncio.gather(*(_mismatch(row, runtime, archives) for row in rows))
    known = {row.id for row in rows}
    strays = [f"{workspace_id} has resources and no row" for workspace_id in await runtime.observe_all()]
    strays = [text for text in strays if text.split()[0] not in known]
    stored = await _stray_objects(database, archives, known) if archives is not None else []
    return [*(text for text in found if text), *strays, *stored]


async def _stray_objects(database: Database, archives: ArchiveStore, known: set[WorkspaceId]) -> list[str]:
    """Superseded archives, and those of the deleted, are GC's. A key that is no archive's is none of ours."""
    operations = {row["id"] for row in await database.fetch("SELECT id::text FROM operations")}
    keys = [found.key async for found in archives.list_objects()]
    strays = [
        f"{key} is stored, and no row knows its workspace or its operation"
        for key in keys
        if (workspace := workspace_of(key)) and not (workspace in known and operation_of(key) in operations)
    ]
    return strays + [f"{upload.key} is still being uploaded" async for upload in archives.list_uploads()]


async def _mismatch(row: Workspace, runtime: Runtime, archives: ArchiveStore | None) -> str | None:
    seen: Resources = await runtime.observe(row.id, probe=True)
    if (seen.container, seen.volume) != HOLDS.get(row.phase):
        return f"{row.id} is {row.phase}, and the engine has {seen}"
    if row.phase is Phase.RUNNING and row.endpoint != seen.endpoint:
        return f"{row.id} is said to be at {row.endpoint}, and is at {seen.endpoint}"
    if row.phase is Phase.ARCHIVED and archives is not None and row.archive_key is not None:
        try:
            meta = await read_archive_meta(archives, row.id, row.archive_key)
            intact = await is_intact(archives, row.archive_key, meta)
        except WorkspaceError as error:
            return f"{row.id} is ARCHIVED: {error}"
        return None if intact else f"{row.id} is ARCHIVED, and its archive is damaged"
    return None
