"""A bucket that is not there is made, also where the store wants to be told its region."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.errors import ActionFailed
from tests.conftest import S3
from tests.ports import free_port

REFUSED = "<Error><Code>{}</Code><Message>as AWS says it</Message></Error>"


@asynccontextmanager
async def a_region(
    wanted: str, refusal: str = "IllegalLocationConstraintException"
) -> AsyncIterator[tuple[str, set[str]]]:
    """A store of AWS' manners in another region than us-east-1: its address, and the buckets that were made."""
    made: set[str] = set()

    async def answer(request: web.BaseRequest) -> web.Response:
        bucket = request.path.strip("/")
        if request.method == "HEAD":
            return web.Response(status=200 if bucket in made else 404)
        if f"<LocationConstraint>{wanted}</LocationConstraint>" not in await request.text():
            return web.Response(status=400, text=REFUSED.format(refusal), content_type="application/xml")
        made.add(bucket)
        return web.Response()

    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}", made
    finally:
        await runner.cleanup()


async def test_a_region_that_wants_to_be_named_is_named() -> None:
    async with a_region("eu-central-1") as (endpoint, made):
        config = S3Config(endpoint, "key", "homes", "secret", region="eu-central-1")
        async with open_store(config) as store:
            await store.ensure_bucket()
            assert made == {"homes"}
            await store.ensure_bucket()


async def test_another_refusal_stays_one() -> None:
    """Somebody who may not make buckets is told so."""
    async with a_region("eu-central-1", "AccessDenied") as (endpoint, made):
        config = S3Config(endpoint, "key", "homes", "secret", region="eu-central-1")
        async with open_store(config) as store:
            with pytest.raises(ActionFailed, match="AccessDenied"):
                await store.ensure_bucket()
        assert made == set()


async def test_a_store_without_regions(s3: S3) -> None:
    """Whatever S3_REGION says."""
    config = S3Config(s3.endpoint, s3.access_key, f"{s3.bucket}-2", s3.secret_key, region="eu-central-1")
    async with open_store(config) as store, s3.client() as client:
        await store.ensure_bucket()
        await client.head_bucket(Bucket=config.bucket)
        await client.delete_bucket(Bucket=config.bucket)
