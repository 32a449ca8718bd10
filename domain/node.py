"""A Docker host with its worker, as the others know it. Pure."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Node:
    name: str
    seen_at: datetime
    """When a worker of it last said that its engine answers."""
    lost: bool = False
    """It said nothing for too long, and may return."""
    swept_at: datetime | None = None
    """When its observer last compared every row of it with the engine."""
    capacity: int | None = None
    cordoned: bool = False
    """Nothing new is placed on it."""
    removed: bool = False
    """A person said that it will not come back: what it held is lost."""
