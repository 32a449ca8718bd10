"""One world for the tests of a file: each test has people and workspaces of its own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest_asyncio

from tests.browser import launched
from tests.conftest import own_bucket, own_database
from tests.namespaces import own_namespace
from tests.services import Services
from tests.web.world import World, opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    services: Services, postgres_url: str, database_template: str, temporal_address: str, chromium: str
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(
            opened(
                database_url=await stack.enter_async_context(
                    own_database(postgres_url, f'TEMPLATE "{database_template}"')
                ),
                redis_url=services.need("valkey")["url"],
                client=await stack.enter_async_context(own_namespace(temporal_address)),
                temporal_address=temporal_address,
                s3=await stack.enter_async_context(own_bucket(services)),
                browser=await stack.enter_async_context(launched(chromium)),
            )
        )
