from collections.abc import AsyncIterator

import pytest_asyncio

from tests.nodes.world import World, three_hosts
from tests.services import Services


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(services: Services, postgres_url: str, database_template: str, dockerd: None) -> AsyncIterator[World]:
    async with three_hosts(services, postgres_url, database_template) as running:
        yield running
