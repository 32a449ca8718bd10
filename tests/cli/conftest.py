from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapters.redis.events import EventBus
from tests.api.world import Api, Person, serving
from tests.cli.console import Cli
from tests.events.listening import listening


@pytest.fixture
async def api(database_url: str, bus: EventBus) -> AsyncIterator[Api]:
    """With live events. The controller's part is played by the test (`api.row`)."""
    async with serving(database_url, bus=bus) as api, listening(database_url, api, bus):
        yield api


@pytest.fixture
async def alice(api: Api) -> Person:
    return await api.person("alice")


@pytest.fixture
def nobody(tmp_path: Path) -> Cli:
    """Not logged in anywhere."""
    return Cli(tmp_path / "config")


@pytest.fixture
async def cli(nobody: Cli, api: Api, alice: Person) -> Cli:
    """Logged in as alice."""
    await nobody.login(api.url, "alice")
    return nobody
