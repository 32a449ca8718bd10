"""Archives in an S3 store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, cast

import structlog
from botocore.exceptions import ClientError

from adapters.archive_store import DELETED_AT_ONCE, LARGEST_SMALL, Fence, OpenUpload, SmallObject, StoredObject
from adapters.s3.client import NotStored, S3Config, code_of, is_missing, open_client, translated
from adapters.s3.multipart import Moved, Multipart
from adapters.transfer.bridge import in_thread
from adapters.transfer.flush import Keeping, keeping
from domain.errors import ActionFailed, DataLost, Unreachable
from domain.observation import Presence

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client
    from types_aiobotocore_s3.literals import BucketLocationConstraintType
    from types_aiobotocore_s3.type_defs import CompletedPartTypeDef, GetObjectOutputTypeDef, ObjectIdentifierTypeDef

log = structlog.get_logger()

_CHUNK = 1024 * 1024
_RESUMES = 3
_NO_TAG = f'"{"0" * 32}"'
"""Of no object."""


@dataclass(frozen=True, slots=True)
class S3ArchiveStore:
    client: "S3Client"
    bucket: str
    disk: Keeping | None = None
    """Of a store on this machine that leaves it to others to flush what it has taken."""
    _marks: dict[str, int] = field(default_factory=dict, init=False)
    """Of each object that was written: what the disk fails to keep from then on may be of it."""

    async def observe(self, key: str) -> Presence:
        try:
            return Presence.ABSENT if await self.size(key) is None else Presence.PRESENT
        except (Unreachable, ActionFailed) as error:
            log.warning("archive_not_observed", key=key, error=str(error))
            return Presence.UNKNOWN

    async def size(self, key: str) -> int | None:
        try:
            return await self._head(key)
        except NotStored:
            # The answer to HEAD does not say whether the object is missing, or the bucket, or all of the store.
            with translated(f"bucket {self.bucket}"):
                await self.client.head_bucket(Bucket=self.bucket)
        try:
            # Nor whose it was: something on the way to the store may say 404 for a moment.
            return await self._head(key)
        except NotStored:
            return None

    async def upload(self, key: str, parts: AsyncIterator[bytes], fence: Fence, moved: Moved = lambda _: None) -> None:
        # An upload begun before this is ended here; one begun after it finds itself superseded at its fence. So no
        # former attempt can put its object in the place of ours, however late it wakes up.
        await fence()
        await self.end_uploads(key, fence)
        self._mark(key)
        upload_id = ""
        try:
            upload_id, asked_again = await self._begun(key)
            # Where it was asked again, the store may have begun one each time, and only the last answer was heard. That
            # took its time, too: somebody may have taken over.
            await fence()
            if asked_again:
                await self._end_others(key, upload_id, fence)
            await self._send(Multipart(self.client, self.bucket, key, upload_id, moved), parts, fence)
        except BaseException:
            await asyncio.shield(self._abandoned(key, upload_id, fence))
            raise

    async def end_uploads(self, key: str, fence: Fence) -> None:
        await self._end_others(key, "", fence)

    async def download(self, key: str) -> AsyncIterator[bytes]:
        position, tag, failures = 0, "", 0
        while True:
            try:
                with translated(key):
                    answer = await self._get(key, position, tag)
                    if position and answer["ResponseMetadata"]["HTTPStatusCode"] != 206:
                        raise ActionFailed(f"the object store does not go on where a connection broke ({key})")
                    tag = answer["ETag"]
                    # Whoever stops in the middle gives the connection back, too: there are not many.
                    async with answer["Body"] as body:
                        while chunk := await body.content.read(_CHUNK):
                            position += len(chunk)
                            failures = 0
                            yield chunk
            except (NotStored, Unreachable) as error:
                # Something on the way to the store may say 404, too.
                if isinstance(error, NotStored) and await self.size(key) is None:
                    raise DataLost(f"the archive is gone: {error}") from error
                failures += 1
                if failures >= _RESUMES:
                    raise
                await asyncio.sleep(0.2 * 2**failures)
            else:
                return

    async def read(self, key: str) -> bytes | None:
        found = await self.look(key)
        return None if found is None else found.body

    async def write(self, key: str, body: bytes) -> None:
        with translated(key):
            await self.client.put_object(Bucket=self.bucket, Key=key, Body=body)

    async def look(self, key: str) -> SmallObject | None:
        try:
            with translated(key):
                answer = await self.client.get_object(Bucket=self.bucket, Key=key)
                # Whatever lies there: it must not fill this process.
                body = bytearray()
                async with answer["Body"] as stream:
                    while chunk := await stream.content.read(LARGEST_SMALL - len(body)):
                        body += chunk
                return SmallObject(bytes(body), answer["ETag"])
        except NotStored:
            return None

    async def replace(self, key: str, body: bytes, former: SmallObject | None) -> bool:
        self._mark(key)
        try:
            await self._put(key, body, former)
        except ActionFailed as error:
            if code_of(error.__cause__) not in {"PreconditionFailed", "NotImplemented"}:
                raise
            if code_of(error.__cause__) == "PreconditionFailed":
                # Also where it was this very call that changed it, and the answer to a first try was lost.
                return await self.read(key) == body
            log.warning("store_has_no_conditional_writes", key=key)
            await self.write(key, body)
        return True

    async def is_guarded(self, key: str, body: bytes) -> bool:
        for former in (None, SmallObject(b"", _NO_TAG)):
            try:
                await self._put(key, body, former)
            except ActionFailed as error:
                if code_of(error.__cause__) == "NotImplemented":
                    return False
            else:
                return False
        return True

    async def settle(self, key: str) -> None:
        if self.disk is not None:
            keep = partial(self.disk.keep, self._marks.get(key, self.disk.mark()))
            # Not in a thread that others wait for: a disk may take minutes.
            await in_thread(keep, "settle")
            # Only now: what the disk did not keep can still be read back from memory.
            self._marks.pop(key, None)

    async def list_objects(self) -> AsyncIterator[StoredObject]:
        with translated("listing"):
            async for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket):
                for found in page.get("Contents", []):
                    yield StoredObject(found["Key"], found["Size"], found["LastModified"])

    async def list_uploads(self) -> AsyncIterator[OpenUpload]:
        async for upload in self._uploads(""):
            yield upload

    async def delete(self, keys: list[str]) -> dict[str, str]:
        refused: dict[str, str] = {}
        for start in range(0, len(keys), DELETED_AT_ONCE):
            batch: list[ObjectIdentifierTypeDef] = [{"Key": key} for key in keys[start : start + DELETED_AT_ONCE]]
            with translated("deleting"):
                answer = await self.client.delete_objects(Bucket=self.bucket, Delete={"Objects": batch})
            for error in answer.get("Errors", []):
                refused[error.get("Key", "")] = error.get("Message") or error.get("Code", "")
        return refused

    async def abort(self, upload: OpenUpload) -> None:
        with suppress(NotStored), translated(upload.key):
            await self.client.abort_multipart_upload(Bucket=self.bucket, Key=upload.key, UploadId=upload.upload_id)

    async def ensure_bucket(self) -> None:
        with translated(self.bucket):
            try:
                await self.client.head_bucket(Bucket=self.bucket)
            except ClientError as error:
                if not is_missing(error):
                    raise
                await self._create_bucket()

    async def _create_bucket(self) -> None:
        try:
            await self.client.create_bucket(Bucket=self.bucket)
        except ClientError as error:
            # AWS outside of us-east-1 wants its region named; other stores refuse names that they don't know.
            if code_of(error) != "IllegalLocationConstraintException":
                raise
            region = cast("BucketLocationConstraintType", self.client.meta.region_name)
            await self.client.create_bucket(
                Bucket=self.bucket, CreateBucketConfiguration={"LocationConstraint": region}
            )

    async def _send(self, upload: Multipart, parts: AsyncIterator[bytes], fence: Fence) -> None:
        done: list[CompletedPartTypeDef] | None = None
        try:
            # In a task of its own: before Python 3.13, a group whose task fails at its end leaves the task that it runs
            # in marked as cancelled, and then a timeout around it shows as a cancellation.
            done = await asyncio.create_task(upload.send(parts))
            await fence()
            with translated(upload.key):
                await self.client.complete_multipart_upload(
                    Bucket=self.bucket, Key=upload.key, UploadId=upload.upload_id, MultipartUpload={"Parts": done}
                )
        except NotStored as error:
            # Also where it was completed, the answer was lost, and the client asked once more. Whose bytes they
            # are shows when they are read back.
            if done and await self.size(upload.key) == upload.size:
                return
            await fence()
            # By a former attempt that was frozen right behind its own fence, or by whoever else owns the store.
            raise Unreachable(f"somebody ended the upload: {error}") from error

    def _mark(self, key: str) -> None:
        if self.disk is not None:
            self._marks[key] = self.disk.mark()

    async def _put(self, key: str, body: bytes, former: SmallObject | None) -> None:
        with translated(key):
            if former is None:
                await self.client.put_object(Bucket=self.bucket, Key=key, Body=body, IfNoneMatch="*")
            else:
                await self.client.put_object(Bucket=self.bucket, Key=key, Body=body, IfMatch=former.tag)

    async def _get(self, key: str, position: int, tag: str) -> "GetObjectOutputTypeDef":
        if not tag:
            return await self.client.get_object(Bucket=self.bucket, Key=key)
        return await self.client.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={position}-", IfMatch=tag)

    async def _uploads(self, prefix: str) -> AsyncIterator[OpenUpload]:
        with translated("listing uploads"):
            async for page in self.client.get_paginator("list_multipart_uploads").paginate(
                Bucket=self.bucket, Prefix=prefix
            ):
                for found in page.get("Uploads", []):
                    yield OpenUpload(found["Key"], found["UploadId"], found["Initiated"])

    async def _head(self, key: str) -> int:
        with translated(key):
            return (await self.client.head_object(Bucket=self.bucket, Key=key))["ContentLength"]

    async def _begun(self, key: str) -> tuple[str, bool]:
        """The upload, and whether the store was asked more than once."""
        with translated(key):
            answer = await self.client.create_multipart_upload(Bucket=self.bucket, Key=key)
        return answer["UploadId"], bool(answer["ResponseMetadata"]["RetryAttempts"])

    async def _end_others(self, key: str, upload_id: str, fence: Fence) -> None:
        async for found in self._uploads(key):
            if found.key == key and found.upload_id != upload_id:
                # Whoever was frozen since it last asked would end that of the attempt which has taken over.
                await fence()
                await self.abort(found)

    async def _abandoned(self, key: str, upload_id: str, fence: Fence) -> None:
        """As far as the store answers; GC ends what is left."""
        with suppress(Exception):
            if upload_id:
                with translated(key):
                    await self.client.abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)
        with suppress(Exception):
            # Whether others were begun, and how often, may not have been heard.
            await fence()
            await self.end_uploads(key, fence)


@asynccontextmanager
async def open_store(config: S3Config) -> AsyncIterator[S3ArchiveStore]:
    async with open_client(config) as client:
        with keeping(config.directory) if config.directory else nullcontext() as disk:
            yield S3ArchiveStore(client, config.bucket, disk)
