"""The interface to where archives are kept."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from domain.observation import Presence

Fence = Callable[[], Awaitable[None]]
"""Raises when a later attempt has taken over."""


async def unfenced() -> None:
    """For whoever is nobody's attempt, or does what is right whoever comes later."""


DELETED_AT_ONCE = 100
"""Objects. S3 takes a thousand, but a store that is busy answers for so many too late."""
LARGEST_SMALL = 1024 * 1024
"""Bytes of a small object that are read: more than codehub ever writes, less than somebody else may have put there."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class SmallObject:
    body: bytes
    tag: str
    """Names these very bytes: see `ArchiveStore.replace`."""


@dataclass(frozen=True, slots=True)
class OpenUpload:
    key: str
    upload_id: str
    started: datetime


class ArchiveObserver(Protocol):
    async def observe(self, key: str) -> Presence:
        """Whether the archive is there. A store that does not answer is UNKNOWN, never ABSENT."""
        ...


class ArchiveStore(ArchiveObserver, Protocol):
    """A store that does not answer is Unreachable; what it refuses is ActionFailed."""

    async def size(self, key: str) -> int | None:
        """Bytes of the object, None where there is none."""
        ...

    async def upload(
        self, key: str, parts: AsyncIterator[bytes], fence: Fence, moved: Callable[[int], None] = ...
    ) -> None:
        """Store the parts as one object, all or nothing: a cut-off upload leaves nothing behind. `moved` is told of
        bytes that are on their way.

        Uploads of former attempts under this key are ended first, so that they can't complete later. Unreachable, when
        somebody else ends this one.
        """
        ...

    async def end_uploads(self, key: str, fence: Fence) -> None:
        """Whoever still uploads under this key can't complete it any more. The fence is asked before each."""
        ...

    def download(self, key: str) -> AsyncIterator[bytes]:
        """The object's bytes, going on where a connection broke. Raises DataLost where there is none."""
        ...

    async def read(self, key: str) -> bytes | None:
        """A small object, cut off at LARGEST_SMALL."""
        ...

    async def write(self, key: str, body: bytes) -> None:
        """A small object."""
        ...

    async def look(self, key: str) -> SmallObject | None:
        """A small object, and the name of its state."""
        ...

    async def replace(self, key: str, body: bytes, former: SmallObject | None) -> bool:
        """Write a small object in the place of `former`, or of nothing. False, and nothing is written, when something
        else is there by now."""
        ...

    async def is_guarded(self, key: str, body: bytes) -> bool:
        """Whether `replace` keeps its word in this store: not where conditions are ignored, or not known. `key` holds
        `body` already, so that a store which takes what it should refuse changes nothing."""
        ...

    async def settle(self, key: str) -> None:
        """What was uploaded under this key, or put there by `replace`, outlives a loss of power; raises where the disk
        did not keep it. It has to be written again then: a disk says so once."""
        ...

    def list_objects(self) -> AsyncIterator[StoredObject]: ...

    def list_uploads(self) -> AsyncIterator[OpenUpload]: ...

    async def delete(self, keys: list[str]) -> Mapping[str, str]:
        """Absent ones are fine. Returns what the store would not delete, and why: a hold, or a rule of its owner's."""
        ...

    async def abort(self, upload: OpenUpload) -> None: ...
