"""The interface to where archives are kept."""

from typing import Protocol

from domain.observation import Presence


class ArchiveStore(Protocol):
    async def observe(self, key: str) -> Presence:
        """Whether the archive is there. A store that does not answer is UNKNOWN, never ABSENT."""
        ...
