"""Two installations on one engine."""

from collections.abc import AsyncIterator

import pytest

from domain.errors import ActionFailed
from domain.model import OperationId, WorkspaceId
from domain.observation import Presence, Resources
from tests.adapters.docker_world import DockerWorld, docker_world, new_workspace

pytestmark = pytest.mark.docker

OP = OperationId("op-1")


@pytest.fixture
async def mine(docker_host: str, test_image: str, installation: str) -> AsyncIterator[DockerWorld]:
    async with docker_world(docker_host, test_image, installation) as made:
        yield made


@pytest.fixture
async def theirs(docker_host: str, test_image: str, installation: str) -> AsyncIterator[DockerWorld]:
    async with docker_world(docker_host, test_image, installation) as made:
        yield made


@pytest.fixture
async def ws(theirs: DockerWorld) -> WorkspaceId:
    """A workspace of theirs that runs."""
    made = new_workspace()
    await theirs.runtime.create_volume(made, OP)
    await theirs.runtime.start(made, theirs.image, OP)
    return made


async def test_not_seen(mine: DockerWorld, ws: WorkspaceId) -> None:
    """What is theirs is absent for us, one by one and in the list."""
    assert await mine.runtime.observe(ws, probe=True) == Resources()
    assert await mine.runtime.observe_all() == {}


async def test_not_touched(mine: DockerWorld, theirs: DockerWorld, ws: WorkspaceId) -> None:
    """Whatever we do to a workspace of the same id leaves theirs as it was."""
    before = await theirs.runtime.observe(ws, probe=True)
    container = theirs.container(ws)
    assert container
    for _ in range(2):
        await mine.runtime.stop(ws)
        for call in (
            mine.runtime.remove_volume(ws),
            mine.runtime.create_volume(ws, OP),
            mine.runtime.start(ws, mine.image, OP),
        ):
            with pytest.raises(ActionFailed, match="not of this codehub installation"):
                await call
    await mine.runtime.remove_network()
    assert await theirs.runtime.observe(ws, probe=True) == before
    after = theirs.container(ws)
    assert after
    assert after["Id"] == container["Id"]


async def test_side_by_side(mine: DockerWorld, theirs: DockerWorld, ws: WorkspaceId) -> None:
    """Each sees and stops its own."""
    own = new_workspace()
    await mine.runtime.create_volume(own, OP)
    await mine.runtime.start(own, mine.image, OP)
    assert (await mine.runtime.observe_all()).keys() == {own}
    assert (await theirs.runtime.observe_all()).keys() == {ws}
    await mine.runtime.stop(own)
    assert (await theirs.runtime.observe(ws, probe=True)).endpoint


async def test_odd_things_with_our_labels(mine: DockerWorld) -> None:
    """A container or volume that carries our labels under another name is no workspace, and hides none."""
    own = new_workspace()
    await mine.runtime.create_volume(own, OP)
    ours = {"codehub.installation": mine.config.installation}
    copied = ours | {"codehub.workspace": own}
    for labels in (ours, copied):
        mine.api.create_container(mine.image, labels=labels | {"codehub.role": "workspace"})
        mine.api.create_volume(labels=labels | {"codehub.role": "home"})
    assert await mine.runtime.observe_all() == {own: Resources(volume=Presence.PRESENT)}
