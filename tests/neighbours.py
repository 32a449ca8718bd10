"""Two other machines, in a network namespace behind a device of this one."""

import contextlib
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

_SERVING = """
import selectors, socket, sys
waiting = selectors.DefaultSelector()
for port in sys.argv[1:]:
    waiting.register(socket.create_server(("0.0.0.0", int(port)), backlog=50), selectors.EVENT_READ)
print("ready", flush=True)
while True:
    for key, _ in waiting.select():
        key.fileobj.accept()[0].close()
"""


@dataclass(frozen=True)
class Neighbours:
    namespace: str
    device: str
    network: str
    """Its first three numbers."""

    @property
    def host(self) -> str:
        """This machine, as they know it."""
        return f"{self.network}.1"

    @property
    def first(self) -> str:
        return f"{self.network}.5"

    @property
    def second(self) -> str:
        return f"{self.network}.66"

    def get_in(self, source: str, port: int) -> bool:
        """Whether a new connection from there is answered."""
        answer = run(
            *("ip", "netns", "exec", self.namespace, "curl", "-s", "-o", "/dev/null", "--max-time", "3"),
            *("--interface", source, f"http://{self.host}:{port}/"),
        )
        return answer.returncode == 0


@contextlib.contextmanager
def two_neighbours() -> Iterator[Neighbours]:
    if shutil.which("ip") is None or shutil.which("curl") is None:
        pytest.skip("needs ip and curl")
    tag = uuid.uuid4().hex[:8]
    # Of the networks that are set apart for measurements; another test of the run has another one.
    numbers = random.SystemRandom()
    network = f"198.{numbers.randrange(18, 20)}.{numbers.randrange(256)}"
    made = Neighbours(f"codehub-test-{tag}", f"cht{tag}", network)
    inside = ("ip", "-n", made.namespace)
    try:
        for command in (
            ("ip", "netns", "add", made.namespace),
            ("ip", "link", "add", made.device, "type", "veth", "peer", "name", "eth0", "netns", made.namespace),
            ("ip", "address", "add", f"{made.host}/24", "dev", made.device),
            ("ip", "link", "set", made.device, "up"),
            (*inside, "address", "add", f"{made.first}/24", "dev", "eth0"),
            (*inside, "address", "add", f"{made.second}/24", "dev", "eth0"),
            (*inside, "link", "set", "eth0", "up"),
        ):
            done = run(*command)
            if done.returncode:
                pytest.skip(f"no network namespaces here: {done.stderr}")
        yield made
    finally:
        run("ip", "link", "del", made.device)
        run("ip", "netns", "del", made.namespace)


@contextlib.contextmanager
def serving(namespace: str, *ports: int) -> Iterator[None]:
    """On all of its addresses."""
    command = ["ip", "netns", "exec", namespace, sys.executable, "-c", _SERVING, *map(str, ports)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def run(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
