"""The rows that the parts of bench.tables are measured on."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from adapters.postgres.database import Database
from bench.installation import Simulation

NODES = ("a", "b", "c")


@dataclass
class Population:
    simulation: Simulation
    database: Database
    owner: UUID
    """Of all others."""
    few: UUID
    """A user who has few workspaces, among all those of others."""
    fews: int
    """How many that one has."""
    count: int = 0


async def milliseconds(work: Callable[[], Awaitable[object]]) -> float:
    began = time.monotonic()
    await work()
    return (time.monotonic() - began) * 1000
