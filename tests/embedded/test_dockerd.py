"""A private Docker engine, real, killed and next to another one."""

import asyncio
import contextlib
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from starter.embedded.dockerd import LONGEST_SOCKET, Dockerd
from starter.embedded.record import wait_for
from starter.embedded.state import State
from starter.embedded.supervisor import Supervisor
from tests.embedded import image
from tests.embedded.engines import despite_others
from tests.embedded.test_stack import without
from tests.embedded.up import Up, until

pytestmark = [
    pytest.mark.docker,
    pytest.mark.usefixtures("dockerd"),
]


def test_kill_9_of_engine_and_supervisor(data: Path) -> None:
    """Containers that outlived their engine are ended by the next start, volumes are kept, and a stop leaves
    nothing: no process, mount, bridge or packet filter rule.
    """
    # One that ignores SIGTERM, and one that doesn't.
    stubborn = ["/bin/sh", "-c", "trap '' TERM; while true; do sleep 1; done"]
    with Up(data, **without(), own_engine="yes") as first, client(first.env["DOCKER_HOST"]) as engine:
        name = image.build(first.env["DOCKER_HOST"], "kept")
        web = engine.containers.create(
            name,
            name="ws-web",
            volumes={"home": {"bind": "/home/coder"}},
            ports={"8080/tcp": ("127.0.0.1", 0)},
        )
        despite_others(web.start)
        assert fetch(web, "cgi-bin/put?note", b"kept") == b"ok\n"
        engine.containers.run(name, name="ws-stub", detach=True, entrypoint=stubborn)
        first.kill_all()
    assert processes_of(data), "the shims are expected to outlive the engine"
    with Up(data, **without(), own_engine="yes") as second, client(second.env["DOCKER_HOST"]) as engine:
        states = {container.name: container.status for container in engine.containers.list(all=True)}
        assert states == {"ws-web": "exited", "ws-stub": "exited"}
        for container in engine.containers.list(all=True):
            despite_others(container.start)
        web = engine.containers.get("ws-web")
        assert fetch(web, "note") == b"kept"
        despite_others(lambda: engine.networks.create("more"))
        began = time.monotonic()
        assert second.interrupt() == 0
        assert time.monotonic() - began < 10
    wait_for(lambda: not processes_of(data), 10)
    assert processes_of(data) == []
    assert str(data) not in Path("/proc/self/mountinfo").read_text()
    tag = Dockerd.from_state(data, State(data)).tag
    assert not any(tag in name for name in interfaces())
    assert tag not in subprocess.run(["/usr/sbin/iptables-save"], capture_output=True, text=True, check=True).stdout


async def test_two_engines_side_by_side(data: Path) -> None:
    """One engine's start, death, restart and stop change nothing for the containers of another; a data directory with
    a path too long for a socket is no obstacle.
    """
    (data / "one").mkdir()
    deep = data / "two" / ("x" * LONGEST_SOCKET)
    deep.mkdir(parents=True)
    one, two = (Dockerd.from_state(folder, State(folder)) for folder in (data / "one", deep))
    assert len(two.host.removeprefix("unix://")) <= LONGEST_SOCKET
    first, second = Supervisor(data / "one"), Supervisor(deep)
    try:
        await first.start(one.child())
        await asyncio.to_thread(image.build, one.host, "kept")
        with client(one.host) as engine:
            closed = {"com.docker.network.bridge.enable_icc": "false"}
            despite_others(lambda: engine.networks.create("alone", options=closed))
            left, right = (
                engine.containers.create("codehub-test:kept", network="alone", ports={"8080/tcp": ("127.0.0.1", 0)})
                for _ in range(2)
            )
            for container in (left, right):
                despite_others(container.start)
            default = {"docker0"} & interfaces()

            def check() -> None:
                assert b"HTTP_HOST" in fetch(left, "cgi-bin/env")
                right.reload()
                address = right.attrs["NetworkSettings"]["Networks"]["alone"]["IPAddress"]
                asked = left.exec_run(["wget", "-q", "-T", "1", "-O", "-", f"http://{address}:8080/cgi-bin/env"])
                assert asked.exit_code != 0, "containers of this network can't reach each other"
                assert default <= interfaces(), "the bridge of the machine's own engine is left alone"

            await asyncio.to_thread(check)
            await second.start(two.child())
            await asyncio.to_thread(check)
            killed = second.pid("dockerd")
            assert killed
            os.kill(killed, signal.SIGKILL)
            await until(lambda: second.pid("dockerd") not in {None, killed})
            await asyncio.wait_for(second.ready("dockerd"), 60)
            await asyncio.to_thread(check)
            await second.stop()
            await asyncio.to_thread(check)
    finally:
        await second.stop()
        await first.stop()
    wait_for(lambda: not processes_of(data), 10)
    assert processes_of(data) == []
    assert not two.runtime.exists()


@contextlib.contextmanager
def client(host: str) -> Iterator[docker.DockerClient]:
    with contextlib.closing(docker.DockerClient(base_url=host)) as engine:
        yield engine


def fetch(container: Container, path: str, data: bytes | None = None) -> bytes:
    deadline = time.monotonic() + 30
    while True:
        container.reload()
        try:
            published = container.ports["8080/tcp"]
            assert published
            url = f"http://127.0.0.1:{published[0]['HostPort']}/{path}"
            with urllib.request.urlopen(url, data=data, timeout=5) as answer:
                return bytes(answer.read())
        except (OSError, KeyError, AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def interfaces() -> set[str]:
    return {path.name for path in Path("/sys/class/net").iterdir()}


def processes_of(data: Path) -> list[str]:
    """The command lines that name the directory, and those of processes below such shims."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(data) in (line := path.read_bytes()) and b"pytest" not in line:
                found.append(line.decode(errors="replace"))
    return found
