"""The image as a workspace, run by the runtime."""

import time

import aiohttp
import pytest

from domain.model import WorkspaceId
from domain.observation import ContainerState
from starter.ide.rootfs import machine_suite, public_sources
from tests.adapters.docker_world import DockerWorld, new_operation, new_workspace
from tests.cli.installation import stalled
from tests.ide.conftest import GRACE

# The first run on a machine builds the image.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800)]

STOPS_WITHIN = 2.0
READY_SECONDS = 60.0
SPDLOG = """
const spdlog = require('/usr/local/lib/code-server/lib/vscode/node_modules/@vscode/spdlog');
spdlog.createAsyncRotatingLogger('name', '/tmp/log/some.log', 40, 2).then((log) => {
    log.setPattern('%v');
    log.debug('too quiet');
    log.info('first line');
    log.error('second line');
    log.flush();
    log.drop();
});
"""


@pytest.fixture
async def ws(world: DockerWorld) -> WorkspaceId:
    """A workspace that runs."""
    made = new_workspace()
    await world.runtime.create_volume(made, new_operation())
    await world.runtime.start(made, world.image, new_operation())
    return made


async def test_serves_an_ide(world: DockerWorld, ws: WorkspaceId) -> None:
    """The page of a real IDE comes without a password, and everything in it is relative to where it is."""
    url = f"http://{await _endpoint(world, ws)}/"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        assert answer.status == 200
        page = await answer.text()
    assert 'id="vscode-workbench-web-configuration"' in page
    assert not [part for part in page.split('"') if part.startswith(("/static", "/_static", "/stable-"))]


async def test_foreign_origin(world: DockerWorld, ws: WorkspaceId) -> None:
    """The published port has no password, so a page from elsewhere in the user's browser must not get in by it."""
    endpoint = await _endpoint(world, ws)
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"http://{endpoint}/stable-x", origin="http://elsewhere.example")
    assert refused.value.status == 403


async def test_who_runs_it(world: DockerWorld, ws: WorkspaceId) -> None:
    """User 1000 with no privilege, in a home of its own."""
    assert world.inside(ws, "id -u; id -g; whoami; echo $HOME; pwd; stat -c %U /home/coder") == (
        0, "1000\n1000\ncoder\n/home/coder\n/home/coder\ncoder\n",
    )  # fmt: skip
    _, status = world.inside(ws, "grep -E 'CapEff|NoNewPrivs' /proc/1/status")
    assert status.split() == ["CapEff:", "0000000000000000", "NoNewPrivs:", "1"]


async def test_tools(world: DockerWorld, ws: WorkspaceId) -> None:
    """There is enough to work with: an editor, git, curl, ssh, Python with venv and pip, Node with npm."""
    code, output = world.inside(
        ws, "set -e; for tool in git curl ssh nano vi less jq make ps pip npm node; do command -v $tool; done; "
        "python3 -m venv /tmp/venv && /tmp/venv/bin/pip --version && npm --version && node --version",
    )  # fmt: skip
    assert code == 0, output


@pytest.mark.parametrize("init", [True, False])
async def test_stops_at_once(world: DockerWorld, *, init: bool) -> None:
    """SIGTERM ends it within two seconds, with the engine's init as with its own, terminals and all."""
    world.runtime._containers._init = init
    ws = new_workspace()
    await world.runtime.create_volume(ws, new_operation())
    await world.runtime.start(ws, world.image, new_operation())
    world.inside(ws, "setsid sleep 1000 > /dev/null 2>&1 &")
    began, waited = time.monotonic(), stalled()
    await world.runtime.stop(ws)
    took, waited = time.monotonic() - began, stalled() - waited
    # What other programs made it wait for a processor is not its own; killed, it would have taken all of its grace.
    assert took < STOPS_WITHIN + min(waited, GRACE / 2), (took, waited)
    assert world.container(ws) is None


async def test_home_is_kept(world: DockerWorld, ws: WorkspaceId) -> None:
    """Files and settings are there again after the container was removed; nothing is reset."""
    settings = "/home/coder/.local/share/code-server/User/settings.json"
    assert world.inside(ws, f"grep -c telemetryLevel {settings}") == (0, "1\n")
    assert world.inside(ws, f"echo mine > /home/coder/file && echo '{{}}' > {settings}")[0] == 0
    await world.runtime.stop(ws)
    await world.runtime.start(ws, world.image, new_operation())
    assert world.inside(ws, f"cat /home/coder/file {settings}") == (0, "mine\n{}\n")


async def test_nothing_that_an_archive_cant_hold(world: DockerWorld, ws: WorkspaceId) -> None:
    """A running IDE keeps no sockets or pipes in the home."""
    assert world.inside(ws, "find /home/coder -type s -o -type p") == (0, "")


async def test_nothing_of_this_machine(world: DockerWorld, ws: WorkspaceId) -> None:
    """The image knows Debian's public archive and npm's public registry, not the way by which it was made."""
    listed = "".join(f"{source}\n" for source in public_sources(machine_suite()))
    assert world.inside(ws, "cat /etc/apt/sources.list; ls /etc/apt/sources.list.d") == (0, listed)
    assert world.inside(ws, "cat /etc/apt/apt.conf.d/* | grep -ciE 'proxy|acquire'") == (1, "0\n")
    assert world.inside(ws, "npm config get registry") == (0, "https://registry.npmjs.org/\n")
    assert world.inside(ws, "find /usr/local /var/log -name .package-lock.json -o -name '*.log'") == (0, "")


async def test_log_files(world: DockerWorld, ws: WorkspaceId) -> None:
    """The stand-in for the log library writes what it is given, from its level up, and rotates."""
    assert world.inside(ws, f'node -e "{SPDLOG}"')[0] == 0
    _, output = world.inside(ws, "cut -d ' ' -f 3- /tmp/log/some.1.log /tmp/log/some.log; ls /tmp/log | wc -l")
    assert output == "[info] first line\n[error] second line\n2\n"


async def _endpoint(world: DockerWorld, ws: WorkspaceId) -> str:
    """It is asked for two seconds at most, in which a busy machine may not get to answer: then again."""
    deadline = time.monotonic() + READY_SECONDS
    while (seen := await world.runtime.observe(ws, probe=True)).container is not ContainerState.READY:
        assert time.monotonic() < deadline, seen
    assert seen.endpoint
    return seen.endpoint
