"""`codehub up` as the README promises it: on whatever engine it finds or starts, killed, and stopped by Ctrl-C."""

import asyncio
import contextlib
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import docker
import pytest
import pytest_asyncio
from playwright.async_api import expect

from domain.model import Phase, WorkspaceId
from domain.naming import container_name
from starter.embedded.dockerd import Dockerd
from starter.embedded.resolver import BEHIND_STUB, RESOLV_CONF, default_network_resolves
from starter.embedded.state import State
from tests.browser import launched, visit
from tests.cli.console import Cli, Terminal
from tests.cli.installation import PASSWORD, Installation, leave_nothing, stalled
from tests.embedded import image
from tests.leftovers import processes_of
from tests.ports import free_port
from tests.services import Services, own_data
from tests.web.world import PATIENCE, Tab

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

README = Path(__file__).parents[2] / "README.md"
WAIT = ("--wait", "--timeout", "120s")
# As process 1, and deaf to SIGTERM besides.
STUBBORN = ("/bin/sh", "-c", "trap '' TERM; httpd -f -p 0.0.0.0:8080 -h /home/coder")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(services: Services) -> AsyncIterator[Installation]:
    """Its engine is chosen as `make up` chooses it: where none is reachable, it starts one of its own."""
    name = f"{services.installation}-up"
    # Once per run, and by the run's own process.
    services.need("docker")
    with (
        own_data(services.root) as data,
        Installation(data, data / "config", WORKSPACE_IMAGE=f"codehub-test:{name}") as made,
    ):
        image.build(made.docker_host, name)
        image.build(made.docker_host, f"{name}-stubborn", STUBBORN)
        await made.log_in()
        own = has_own_engine(made)
        yield made
        if not own:
            made.up()
            await leave_nothing(made)


@pytest.mark.docker
async def test_the_operators_commands_find_it(installation: Installation) -> None:
    """By name of the data directory and nothing else; a second `up` on it says who is there."""
    installation.up()
    published = installation.data / "run" / "env.json"
    assert stat.S_IMODE(published.stat().st_mode) == 0o600
    assert PASSWORD not in published.read_text()
    deadline = time.monotonic() + 60
    while (doctor := await installation.operator("doctor")).code and time.monotonic() < deadline:
        # The worker takes a moment to lead.
        await asyncio.sleep(0.5)
    assert doctor.code == 0, doctor.out
    assert doctor.err == f"Using the services of the codehub up in {installation.data}.\n"
    second = await installation.starter("up")
    assert (second.code, "in use by the codehub with process id" in second.err) == (1, True)
    assert (await installation.operator("migrate")).out == "The schema is up to date.\n"


@pytest.mark.docker
async def test_the_first_five_minutes_on_the_command_line(installation: Installation) -> None:
    """Each command of the README's block, as it stands there, does what is said beside it; a login is there already."""
    installation.up()
    phases = {"create": "RUNNING", "stop": "STANDBY", "start": "RUNNING", "archive": "ARCHIVED", "ls": "ARCHIVED"}
    commands = readme_commands()
    assert [words[0] for words in commands] == [
        *("login", "create", "open", "stop", "start", "archive", "ls", "explain", "rm"),
    ]
    for words in commands[1:-1]:
        done = await installation.person(*words)
        assert done.code == 0, done.err
        if phase := phases.get(words[0]):
            assert (await installation.person("show", "first", "--json")).json["phase"] == phase
        if words[0] == "ls":
            assert "first" in done.out
        if words[0] == "explain":
            assert "ARCHIVED" in done.out
    verified = await installation.operator("verify", "first", "--json")
    assert [item["outcome"] for item in verified.json["items"]] == ["intact"]
    assert (await installation.operator("gc", "--json")).json["orphans"] == 0

    def answered() -> int:
        with Terminal(installation.person, *commands[-1], *WAIT) as terminal:
            terminal.until("Delete first? [y/N]:")
            terminal.write("y\n")
            return terminal.end()

    assert await asyncio.to_thread(answered) == 0
    assert (await installation.person("show", "first")).code != 0


@pytest.mark.docker
async def test_stopped_and_started_in_the_browser(installation: Installation, chromium: str) -> None:
    """The other half of the first five minutes: log in, create, stop, start again, by the dashboard's buttons."""
    installation.up()
    expect.set_options(timeout=PATIENCE)
    async with launched(chromium) as browser:
        page = await browser.new_page()
        page.set_default_timeout(PATIENCE)
        await visit(page, installation.url)
        tab = Tab(page, [])
        await tab.log_in("admin", PASSWORD)
        row = await tab.create("seen")
        await tab.shows("seen", "Running")
        await row.get_by_role("button", name="Stop seen").click()
        await tab.shows("seen", "Standby")
        await row.get_by_role("button", name="Start seen").click()
        await tab.shows("seen", "Running")
    assert (await installation.person("rm", "seen", "--yes", *WAIT)).code == 0


@pytest.mark.docker
async def test_kill_9_of_all_of_it(installation: Installation) -> None:
    """Then `up`: all workspaces are as they were, the running one runs, and their files are there."""
    installation.up()
    running = await has_running(installation)
    assert (await installation.person("create", "asleep", *WAIT)).code == 0
    asleep = await write_note(installation, "asleep")
    assert (await installation.person("stop", "asleep", *WAIT)).code == 0
    installation.kill()
    installation.up()
    assert (await installation.person("show", "asleep", "--json")).json["phase"] == Phase.STANDBY
    assert await note_of(installation, running) == "kept\n"
    assert (await installation.person("show", "awake", "--json")).json["phase"] == Phase.RUNNING
    assert (await installation.person("start", "asleep", *WAIT)).code == 0
    assert await note_of(installation, asleep) == "kept\n"
    assert (await installation.person("rm", "asleep", "--yes", *WAIT)).code == 0


@pytest.mark.docker
async def test_the_network_of_its_workspaces(installation: Installation) -> None:
    """Of an engine of its own, the default one, and names are asked of the machine's servers there; of others' engines,
    one of codehub's own.
    """
    installation.up()
    running = await has_running(installation)
    with contextlib.closing(docker.DockerClient(base_url=installation.docker_host)) as engine:
        container = engine.containers.get(container_name(WorkspaceId(running)))
        default = "bridge" in container.attrs["NetworkSettings"]["Networks"]
        told = container.exec_run(["grep", "^nameserver", "/etc/resolv.conf"]).output
    assert default == (has_own_engine(installation) and default_network_resolves())
    machines = "\n".join(path.read_text() for path in (RESOLV_CONF, BEHIND_STUB) if path.exists())
    if default and "nameserver" in machines:
        assert isinstance(told, bytes)
        assert set(told.decode().split()) <= set(machines.split())


@pytest.mark.docker
async def test_ctrl_c_ends_it_in_ten_seconds(installation: Installation) -> None:
    """Also with a workspace that does not listen to SIGTERM; nothing is left running, or on the machine."""
    installation.up()
    await has_running(installation)
    own = has_own_engine(installation)
    began, waited = time.monotonic(), stalled()
    code, said = installation.interrupt()
    took, waited = time.monotonic() - began, stalled() - waited
    assert (code, "Everything is kept" in said) == (0, True), installation.errors
    assert said.index("Stopping…") < said.index("Everything is kept")
    assert "Traceback" not in installation.errors
    # What other programs made it wait for a processor is not its own; what it waits for by itself is.
    assert took < 10 + min(waited, 10), (took, waited)
    assert not (installation.data / "run" / "env.json").exists()
    assert list((installation.data / "run").glob("*.json")) == []
    if own:
        assert processes_of(installation.data) == []
        assert str(installation.data) not in Path("/proc/self/mountinfo").read_text()
        bridge = Dockerd.from_state(installation.data, State(installation.data)).bridge
        assert not Path(f"/sys/class/net/{bridge.name}").exists()


async def test_a_port_that_is_taken_is_told_before_anything_starts(nobody: Cli, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = await nobody.having(CODEHUB_PORT=str(port), CODEHUB_DATA=str(tmp_path / "data"))("up")
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert f"port {port}" in refused.err
    assert "CODEHUB_PORT" in refused.err
    assert not (tmp_path / "data").exists()


async def test_an_engine_that_does_not_answer_is_told_before_anything_starts(nobody: Cli, tmp_path: Path) -> None:
    """`codehub is ready` would be no help where no workspace can start."""
    up = nobody.having(CODEHUB_PORT=str(free_port()), CODEHUB_DATA=str(tmp_path / "data"), DOCKER_HOST="unix:///none")
    refused = await up("up")
    assert refused.code == 1
    assert refused.err.count("\n") == 1
    assert "DOCKER_HOST=unix:///none" in refused.err
    assert "ready" not in refused.out
    assert not (tmp_path / "data").exists()


async def test_ctrl_c_is_heard_at_once(nobody: Cli, tmp_path: Path) -> None:
    """Stopping takes seconds: a person sees that it has begun."""
    up = nobody.having(CODEHUB_PORT=str(free_port()), CODEHUB_DATA=str(tmp_path / "data"), DOCKER_HOST="unix:///none")
    async with up.running("up") as process:
        assert process.stdout
        await process.stdout.readuntil(b"waiting for the engine")
        process.send_signal(signal.SIGINT)
        await process.stdout.readuntil("Stopping…".encode())
        await process.communicate()


async def test_an_address_that_is_not_ours(nobody: Cli, tmp_path: Path) -> None:
    refused = await nobody.having(CODEHUB_HOST="192.0.2.1", CODEHUB_DATA=str(tmp_path / "data"))("up")
    assert (refused.code, "CODEHUB_HOST" in refused.err) == (1, True)


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="a small disk is made by root on Linux")
async def test_a_disk_without_room_is_told_before_anything_starts(nobody: Cli, tmp_path: Path) -> None:
    """In one line, with what is left and what to do; the disk stays as it is."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "small", tmp_path], check=True)
    try:
        up = nobody.having(CODEHUB_PORT=str(free_port()), CODEHUB_DATA=str(tmp_path))
        refused = await up("up")
        assert (refused.code, list(tmp_path.iterdir())) == (1, [])
    finally:
        subprocess.run(["umount", tmp_path], check=True)
    assert refused.err.count("\n") == 1
    assert f"Only 16 MB are free at {tmp_path}: make room, or name another CODEHUB_DATA." in refused.err


def readme_commands() -> list[list[str]]:
    """Of the block for the command line, without the comments beside them."""
    lines = README.read_text(encoding="utf-8").splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("codehub ")]


def has_own_engine(installation: Installation) -> bool:
    return str(installation.data) in installation.docker_host


async def has_running(installation: Installation) -> str:
    """The id of a workspace that runs, does not listen to SIGTERM, and has a note in its home."""
    shown = await installation.person("show", "awake", "--json")
    if shown.code == 0:
        assert (await installation.person("start", "awake", *WAIT)).code == 0
        return str(shown.json["id"])
    stubborn = installation.starter.env["WORKSPACE_IMAGE"] + "-stubborn"
    created = await installation.person("create", "awake", "--image", stubborn, *WAIT)
    assert created.code == 0, created.err
    return await write_note(installation, "awake")


async def write_note(installation: Installation, name: str) -> str:
    workspace = (await installation.person("show", name, "--json")).json["id"]
    with contextlib.closing(docker.DockerClient(base_url=installation.docker_host)) as engine:
        container = engine.containers.get(container_name(workspace))
        assert container.exec_run(["sh", "-c", "echo kept > /home/coder/note"]).exit_code == 0
    return str(workspace)


async def note_of(installation: Installation, workspace: str) -> str:
    """As a browser gets it, through the proxy, once its container is there again: that went with its engine."""
    login = {"username": "admin", "password": PASSWORD}
    async with aiohttp.ClientSession(installation.url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.post("/api/v1/login", json=login) as logged:
            assert logged.status == 200
        async with asyncio.timeout(60):
            while True:
                async with session.get(f"/w/{workspace}/note") as answer:
                    if answer.status == 200:
                        return await answer.text()
                await asyncio.sleep(0.1)
