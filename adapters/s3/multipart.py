"""An object that is uploaded in parts, some of them at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adapters.s3.client import translated
from adapters.s3.signing import Summed

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client
    from types_aiobotocore_s3.type_defs import CompletedPartTypeDef

Moved = Callable[[int], None]
"""Told of bytes that are on their way."""

_PLACES = 3
_PLACE = 8 * 1024 * 1024
"""A larger part takes several places: what is in memory does not grow with the size of the parts."""


@dataclass(slots=True)
class Multipart:
    client: "S3Client"
    bucket: str
    key: str
    upload_id: str
    moved: Moved
    size: int = field(default=0, init=False)
    """Bytes of all the parts so far."""

    async def send(self, parts: AsyncIterator[bytes]) -> "list[CompletedPartTypeDef]":
        free = asyncio.Semaphore(_PLACES)
        tasks: list[asyncio.Task[CompletedPartTypeDef]] = []
        try:
            async with asyncio.TaskGroup() as group:
                async for part in parts:
                    self.size += len(part)
                    places = min(_PLACES, -(-len(part) // _PLACE) or 1)
                    for _ in range(places):
                        await free.acquire()
                    tasks.append(group.create_task(self._send(len(tasks) + 1, part, free, places)))
                    del part
        except BaseExceptionGroup as errors:
            raise _first(errors) from errors
        return [task.result() for task in tasks]

    async def _send(self, number: int, body: bytes, free: asyncio.Semaphore, places: int) -> "CompletedPartTypeDef":
        try:
            watched = await asyncio.to_thread(_Watched, body, self.moved)
            with translated(self.key):
                answer = await self.client.upload_part(
                    Bucket=self.bucket,
                    Key=self.key,
                    UploadId=self.upload_id,
                    PartNumber=number,
                    Body=watched,
                    ChecksumCRC32=watched.crc32,
                )
            return {"PartNumber": number, "ETag": answer["ETag"]}
        finally:
            for _ in range(places):
                free.release()


class _Watched(Summed):
    """Read piece by piece, as the connection takes them."""

    def __init__(self, body: bytes, moved: Moved) -> None:
        super().__init__(body)
        self._moved = moved

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(size)
        self._moved(len(piece))
        return piece


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = errors
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
