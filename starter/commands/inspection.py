"""One archive looked at: whether the store still holds what was stored."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from activities.integrity import is_intact, read_archive_meta
from adapters.postgres.accounts import Accounts
from adapters.postgres.attention import Attention
from adapters.postgres.database import Database
from adapters.postgres.workspaces import WorkspaceStore
from adapters.s3.store import S3ArchiveStore
from domain.errors import ArchiveCorrupted, DataLost, WorkspaceError
from domain.model import UserId, Workspace, WorkspaceId
from starter.commands.failure import CommandFailed, Exit
from starter.commands.names import LEAST

Outcome = Literal["intact", "corrupted", "lost", "unknown"]
"""`unknown`: the store did not answer. That says nothing about the archive."""


class Meter(Protocol):
    def expect(self, count: int) -> None:
        """So many bytes are to be read."""

    def moved(self, count: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Inspection:
    id: WorkspaceId
    name: str
    owner: str
    archive_key: str

    @property
    def title(self) -> str:
        return f"{self.owner}/{self.name}"


@dataclass(frozen=True, slots=True)
class Inspected(Inspection):
    outcome: Outcome
    size: int = 0
    message: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


async def wanted(database: Database, name: str | None) -> list[Inspection]:
    """Every archive that a workspace refers to; with `name`, that of the one workspace that is meant."""
    store, usernames = WorkspaceStore(database), _Usernames(Accounts(database))
    meant = [ws for id_ in await Attention(database).living() if (ws := await store.load(id_))]
    if name is not None:
        meant = await _named(meant, name, usernames)
    return [
        Inspection(ws.id, ws.name, await usernames.of(ws.owner_user_id), ws.archive_key)
        for ws in meant
        if ws.archive_key is not None
    ]


async def inspect(database: Database, archives: S3ArchiveStore, given: Inspection, meter: Meter) -> Inspected:
    """A workspace that was archived anew, or is gone, in the meantime is no loss: what counts is what it refers to."""
    while True:
        found = await _look(archives, given, meter)
        if found.outcome == "intact":
            return found
        row = await WorkspaceStore(database).load(given.id)
        if row is None or row.archive_key is None or row.deleted_at is not None:
            return Inspected(**_fields(given), outcome="intact", message="not referred to any more")
        if row.archive_key == given.archive_key:
            return found
        given = Inspection(given.id, given.name, given.owner, row.archive_key)


async def _look(archives: S3ArchiveStore, given: Inspection, meter: Meter) -> Inspected:
    fields = _fields(given)
    try:
        meta = await read_archive_meta(archives, given.id, given.archive_key)
        meter.expect(meta.size)
        if await is_intact(archives, given.archive_key, meta, _pieces(meter)):
            return Inspected(**fields, outcome="intact", size=meta.size)
        message = "the bytes in the store are not those that were stored: bring them back from a backup of the store"
        return Inspected(**fields, outcome="corrupted", size=meta.size, message=message)
    except ArchiveCorrupted as error:
        return Inspected(**fields, outcome="corrupted", message=str(error))
    except DataLost as error:
        return Inspected(**fields, outcome="lost", message=str(error))
    except WorkspaceError as error:
        return Inspected(**fields, outcome="unknown", message=f"not verified: {error}")


async def _named(workspaces: list[Workspace], given: str, usernames: "_Usernames") -> list[Workspace]:
    """Names are unique per owner only."""
    found = (
        [ws for ws in workspaces if ws.name == given]
        or [ws for ws in workspaces if ws.id == given.lower()]
        or [ws for ws in workspaces if len(given) >= LEAST and ws.id.startswith(given.lower())]
    )
    if len(found) == 1:
        return found
    if not found:
        raise CommandFailed(f"There is no workspace {given!r}.", Exit.NOT_FOUND)
    listed = ", ".join([f"{await usernames.of(ws.owner_user_id)}/{ws.name} ({ws.id})" for ws in found])
    raise CommandFailed(f"{given!r} is ambiguous, give the id: {listed}.", Exit.USAGE)


class _Usernames:
    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts
        self._known: dict[UserId, str] = {}

    async def of(self, user_id: UserId) -> str:
        if user_id not in self._known:
            self._known[user_id] = (await self._accounts.get(user_id)).username
        return self._known[user_id]


def _pieces(meter: Meter) -> Callable[[int], None]:
    """Told how far it is, it tells the meter what came in between."""
    before = 0

    def moved(so_far: int) -> None:
        nonlocal before
        meter.moved(so_far - before)
        before = so_far

    return moved


def _fields(given: Inspection) -> dict[str, Any]:
    return {"id": given.id, "name": given.name, "owner": given.owner, "archive_key": given.archive_key}
