"""The object store as the settings name it, the same for every process and command."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from adapters.s3.client import S3Config
from adapters.s3.store import S3ArchiveStore, open_store
from settings import Settings

_PER_TRANSFER = 4
"""So many archives and as many restores at once: three parts of the one on their way, and the other's download."""
_ASIDE = 32
"""For all that is asked meanwhile of other archives: a transfer delays none of it."""
_FEW = 64


def s3_config(settings: Settings) -> S3Config:
    return S3Config(
        endpoint=settings.s3_endpoint or "",
        access_key=settings.s3_access_key,
        secret_key=settings.s3_secret_key.get_secret_value(),
        bucket=settings.s3_bucket,
        region=settings.s3_region,
        ca_bundle=str(settings.s3_ca_bundle) if settings.s3_ca_bundle else None,
        directory=settings.s3_directory,
        connections=max(_FEW, settings.archive_max_transfers * _PER_TRANSFER + _ASIDE),
    )


@asynccontextmanager
async def store_check(config: S3Config) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """Whether the store answers for its bucket. Its client, which is large, is made when somebody first asks."""
    async with AsyncExitStack() as stack:
        opening = asyncio.Lock()
        found: list[S3ArchiveStore] = []

        async def check() -> None:
            async with opening:
                if not found:
                    found.append(await stack.enter_async_context(open_store(config)))
            store = found[0]
            await store.client.head_bucket(Bucket=store.bucket)

        yield check
