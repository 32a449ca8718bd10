from collections.abc import AsyncIterator

import pytest

from tests.api.world import Api, Person, serving


@pytest.fixture
async def api(database_url: str) -> AsyncIterator[Api]:
    async with serving(database_url) as api:
        yield api


@pytest.fixture
async def alice(api: Api) -> Person:
    return await api.person("alice")


@pytest.fixture
async def bob(api: Api) -> Person:
    return await api.person("bob")


@pytest.fixture
async def admin(api: Api) -> Person:
    return await api.person("admin", is_admin=True)
