"""PROMISE 38: nothing of a run outlives it. Each run asks the same of itself when it ends (see `tests.services`)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from domain.model import OperationId
from tests.adapters.docker_world import new_workspace
from tests.embedded.image import engine_has
from tests.leftovers import Traces
from tests.services import Services, ServicesProcess

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def docker_of(services: Services) -> str:
    """So that an engine is installed once, by the run that this test belongs to."""
    return services.need("docker")["host"]


async def test_a_run_that_ends_leaves_nothing(docker_of: str) -> None:
    """Neither process, container, volume, network, bridge, rule, mount, socket nor folder."""
    process = ServicesProcess()
    host, installation = await _used(process.root)
    traces = Traces.of(process.root)
    assert traces.left(), "nothing is there to be left: this test says nothing"
    process.end()
    assert traces.left() == []
    if str(process.root) not in host:
        assert engine_has(host, installation) == []


async def test_the_next_run_clears_up_after_one_that_was_killed(docker_of: str) -> None:
    """Pytest and the process of its services are both gone, without a word."""
    process = ServicesProcess()
    host, installation = await _used(process.root)
    traces = Traces.of(process.root)
    process.kill()
    another = ServicesProcess()
    Services(another.root, "main").need("valkey")
    another.end()
    assert traces.left_in_the_end(60) == []
    if str(process.root) not in host:
        assert engine_has(host, installation) == []


def test_a_process_that_stays_is_found(tmp_path: Path) -> None:
    """The check itself: it must see what is left."""
    folder = tmp_path / "codehub-test-x"
    folder.mkdir()
    code = "print('here', flush=True); input()"
    stays = subprocess.Popen([sys.executable, "-c", code, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        # Popen may return a moment before the kernel shows the new program's command line.
        assert stays.stdout
        assert stays.stdout.readline() == b"here\n"
        left = Traces.of(folder).left()
        assert [line.split()[:2] for line in left] == [["folder", str(folder)], ["process", str(stays.pid)]]
    finally:
        os.kill(stays.pid, signal.SIGKILL)
        stays.communicate()


async def _used(root: Path) -> tuple[str, str]:
    """A run in full swing: every service, and a workspace that runs."""
    services = Services(root, "main")
    for name in ("postgres", "valkey", "seaweed", "temporal"):
        services.need(name)
    host, image = services.need("docker")["host"], services.need("image")["name"]
    runtime = DockerRuntime(DockerConfig(f"{services.installation}-a", docker_host=host, stop_grace_seconds=0))
    workspace, operation = new_workspace(), OperationId("op-1")
    await runtime.create_volume(workspace, operation)
    await runtime.start(workspace, image, operation)
    await runtime.close()
    return host, services.installation
