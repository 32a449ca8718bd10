"""An engine that is being stopped answers for as long as its containers take to end."""

import asyncio
import os
import signal
import time

import pytest

from adapters.docker.runtime import DockerRuntime
from domain.errors import Unreachable
from domain.model import WorkspaceId
from domain.observation import Presence
from starter.embedded.dockerd import Dockerd
from tests.adapters.docker_world import docker_world, eventually, new_operation, new_workspace
from tests.conftest import OwnServices
from tests.embedded import image
from tests.embedded.engines import ensure_network

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
STUBBORN = ("/bin/sh", "-c", "trap '' TERM; httpd -p 0.0.0.0:8080; while true; do sleep 1; done")


@pytest.mark.usefixtures("dockerd")
async def test_what_it_refuses_is_no_fault_of_the_workspace(own_services: OwnServices, installation: str) -> None:
    """Whatever it says to a start while it goes down is "unreachable", which is waited for; nothing is taken for gone.
    It comes back with its volumes, and the start succeeds."""
    stack = await own_services()
    dockerd = Dockerd.from_state(stack.data, stack.state)
    await stack.add(dockerd.child())
    name = await asyncio.to_thread(image.build, dockerd.host, installation)
    async with docker_world(dockerd.host, name, installation) as world:
        await ensure_network(world.runtime)
        slow, wanted = new_workspace(), new_workspace()
        for workspace in (slow, wanted):
            await world.runtime.create_volume(workspace, new_operation())
        await world.runtime.start(slow, world.image_running(*STUBBORN), new_operation())
        pid = stack.supervisor.pid("dockerd")
        assert pid
        os.kill(pid, signal.SIGTERM)
        began, refused = time.monotonic(), 0
        while stack.supervisor.pid("dockerd") == pid and time.monotonic() - began < 60:
            refused += await _refused(world.runtime, wanted, name)
        assert refused, "it was gone before anybody asked"
        await eventually(lambda: stack.supervisor.pid("dockerd") not in {None, pid}, seconds=60)
        await stack.supervisor.ready("dockerd")
        await world.runtime.start(wanted, name, new_operation())
        assert (await world.runtime.observe(wanted, probe=True)).volume is Presence.PRESENT


async def _refused(runtime: DockerRuntime, workspace: WorkspaceId, name: str) -> bool:
    assert (await runtime.observe(workspace, probe=False)).volume is not Presence.ABSENT
    try:
        await runtime.start(workspace, name, new_operation())
        await runtime.stop(workspace)
    except Unreachable:
        return True
    return False
