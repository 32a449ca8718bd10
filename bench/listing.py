"""What the store itself takes to tell what it holds: GC over all rows is measured without it (see bench.garbage)."""

import asyncio
import math
import time
from uuid import uuid4

from adapters.s3.store import S3ArchiveStore, open_store
from bench.installation import Simulation
from bench.part import Part
from bench.row import Row
from domain.model import OperationId, WorkspaceId
from domain.naming import archive_key, meta_key
from settings import load_settings
from starter.s3 import s3_config

KEYS_OF_A_PAGE = 1_000
"""S3 tells no more at once."""
LISTED = "the store's listing, a page of 1,000 keys"
_ROUNDS = 3
_AT_ONCE = 16


async def measure(simulation: Simulation, part: Part, count: int) -> None:
    """Keys as archives have them: a folder for each workspace, and in it one for its archive."""
    keys = [key for _ in range(count // 2) for key in _archive()]
    async with open_store(s3_config(load_settings(simulation.env))) as store:
        await _stored(store, keys)
        taken = []
        try:
            for _ in range(_ROUNDS):
                began = time.monotonic()
                listed = [found.key async for found in store.list_objects()]
                taken.append((time.monotonic() - began) * 1000 / math.ceil(len(listed) / KEYS_OF_A_PAGE))
                if missed := set(keys) - set(listed):
                    raise RuntimeError(f"{len(missed)} of {len(keys)} objects were not listed")
        finally:
            await store.delete(keys)
    part.add(Row(LISTED, taken, unit="ms", note=f"the embedded store, {len(keys):,} objects"))


def _archive() -> tuple[str, str]:
    key = archive_key(WorkspaceId(str(uuid4())), OperationId(str(uuid4())))
    return key, meta_key(key)


async def _stored(store: S3ArchiveStore, keys: list[str]) -> None:
    waiting = list(keys)

    async def store_some() -> None:
        while waiting:
            await store.write(waiting.pop(), b"x")

    await asyncio.gather(*(store_some() for _ in range(_AT_ONCE)))
