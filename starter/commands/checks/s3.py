"""The object storage: reachable, the bucket there and writable."""

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit
from uuid import uuid4

from botocore.exceptions import ClientError

from activities.bucket import UNGUARDED
from adapters.s3.client import AWAY, is_missing
from adapters.s3.store import S3ArchiveStore, open_store
from domain.errors import ActionFailed, Unreachable
from settings import Settings
from starter.commands.checks.finding import CheckFailed, Finding, Findings, Watch, latency, needed, ok, warning
from starter.s3 import s3_config

_BODY = b"codehub doctor was here"


async def check_s3(settings: Settings) -> Findings:
    endpoint = needed(settings.s3_endpoint, "S3_ENDPOINT")
    async with open_store(s3_config(settings)) as store:
        try:
            took = await latency(lambda: store.client.head_bucket(Bucket=store.bucket))
        except ClientError as error:
            yield _refused(error, endpoint, store.bucket)
            return
        except AWAY as error:
            raise CheckFailed(f"{urlsplit(endpoint).netloc}: {error}", "Start it, or correct S3_ENDPOINT.") from error
        yield ok(f"answers at {urlsplit(endpoint).netloc}", took)
        key = f"codehub/doctor-{uuid4().hex}"
        try:
            yield await _written(store, key)
            yield await _guarded(store, key)
        finally:
            # Also when this is cancelled: an object that is left behind is small, but it is one.
            with suppress(ActionFailed, Unreachable):
                await asyncio.shield(store.delete([key]))


async def _written(store: S3ArchiveStore, key: str) -> Finding:
    try:
        with Watch() as watch:
            await store.write(key, _BODY)
            body = await store.read(key)
    except (ActionFailed, Unreachable) as error:
        advice = f"Let the key write to, read from and delete in the bucket {store.bucket}."
        raise CheckFailed(f"the bucket {store.bucket} is not writable: {error}", advice) from error
    if body != _BODY:
        raise CheckFailed("what was written is not what is read", "Look into the store's own log: it loses data.")
    return ok(f"bucket {store.bucket}: writes and reads", watch.milliseconds)


async def _guarded(store: S3ArchiveStore, key: str) -> Finding:
    try:
        if await store.is_guarded(key, _BODY):
            return ok("honours conditional writes (If-None-Match, If-Match)")
    except Unreachable as error:
        raise CheckFailed(f"does not answer any more: {error}", "Look into the store's own log.") from error
    return warning("ignores conditional writes (If-None-Match, If-Match)", UNGUARDED)


def _refused(error: ClientError, endpoint: str, bucket: str) -> Finding:
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if is_missing(error):
        return warning(f"there is no bucket {bucket} yet", "A worker makes it when it starts.")
    if status == 403:
        advice = "Correct S3_ACCESS_KEY and S3_SECRET_KEY; a clock that is wrong by minutes is refused too."
        raise CheckFailed(f"{urlsplit(endpoint).netloc} refuses the key: {error}", advice)
    raise CheckFailed(f"{urlsplit(endpoint).netloc}: {error}", "Look into the store's own log.")
