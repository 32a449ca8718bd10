"""The services of a test run: one process starts them, each when a test first asks for it, and ends them all.

`python -m tests.services ROOT` is that process. It keeps everything below ROOT, answers on ROOT/socket, and ends
with its standard input, so that it outlives neither a run that fails nor one that is killed. Every pytest process of
the run (one, or those of xdist) talks to it through `Services`.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from starter.embedded import engine
from starter.embedded.child import Child
from starter.embedded.dockerd import Dockerd, end_containers, unmount_below
from starter.embedded.errors import EmbeddedError
from starter.embedded.lock import DataLock
from starter.embedded.postgres import Postgres
from starter.embedded.progress import NoProgress
from starter.embedded.record import end_leftovers
from starter.embedded.seaweed import Seaweed
from starter.embedded.stack import until_signal
from starter.embedded.state import State
from starter.embedded.supervisor import Supervisor
from starter.embedded.temporal import Temporal
from starter.embedded.valkey import Valkey
from tests.embedded import image
from tests.leftovers import Traces, remove_rules
from workflows.messages import SEARCH_ATTRIBUTES

PREFIX = "codehub-test-"
OWN_PREFIX = "own-"
START_SECONDS = 120.0
"""A run that was killed may have left an engine and its data to clear up first."""
ANSWER_SECONDS = 600.0
END_SECONDS = 120.0
"""The engine may have an IDE's image to remove."""


class Services:
    """How a test process asks for services. An answer is what is needed to use one."""

    def __init__(self, root: Path, worker: str) -> None:
        self.root = root
        self.worker = worker
        # Labels whatever the run makes on a Docker engine that isn't its own.
        self.installation = root.name.removeprefix("codehub-")
        self._answers: dict[str, dict[str, str]] = {}

    def need(self, name: str) -> dict[str, str]:
        if name not in self._answers:
            self._answers[name] = self._ask({"need": name, "worker": self.worker})
        return self._answers[name]

    def _ask(self, question: dict[str, str]) -> dict[str, str]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            _connect(connection, self.root / "socket")
            connection.sendall(json.dumps(question).encode() + b"\n")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.readline() or b'{"error": "the service process died"}')
        if "error" in answer:
            raise EmbeddedError(f"{question['need']}: {answer['error']} (logs: {self.root / 'logs'})")
        return {str(key): str(value) for key, value in answer.items()}


class ServicesProcess:
    """The process, as seen by the one that started it."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self.root.chmod(0o711)
        with (self.root / "services.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.services", str(self.root)],
                cwd=Path(__file__).parents[1],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """As when the whole run is killed: the next one clears up."""
        self._process.kill()
        self._process.communicate()

    def end(self) -> None:
        traces = Traces.of(self.root)
        assert self._process.stdin
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        words = ""
        if self.root.exists():
            # The start of another run may be clearing it up, too.
            with contextlib.suppress(FileNotFoundError):
                words = (self.root / "services.log").read_text(encoding="utf-8", errors="replace")[-2000:]
            remove_root(self.root)
        left = traces.left_in_the_end()
        if words or left:
            raise RuntimeError(
                f"The service process did not end well (code {self._process.returncode}): {words}\n"
                f"Left on the machine: {left}"
            )


def remove_root(root: Path) -> None:
    """End and remove what a killed run left below its root, and what its engines left on the machine."""
    for data in (root, *root.glob(f"{OWN_PREFIX}*")):
        clear_data(data)
    end_containers(root)
    unmount_below(root)
    shutil.rmtree(root, ignore_errors=True)
    remove_rules(root.name.removeprefix("codehub-"))


@contextlib.contextmanager
def own_data(root: Path) -> Iterator[Path]:
    """A data directory of one test alone. Inside the run's folder: what a killed run leaves of it is found there."""
    with tempfile.TemporaryDirectory(prefix=OWN_PREFIX, dir=root) as folder:
        data = Path(folder)
        data.chmod(0o711)
        try:
            yield data
        finally:
            clear_data(data)
            unmount_below(data)


def clear_data(data: Path) -> None:
    """End what a killed `up` left running there, and remove what it left elsewhere on the machine."""
    if (data / "run").exists():
        end_leftovers(data / "run")
    if (data / "docker").exists():
        Dockerd.from_state(data, State(data)).clear()
    if (data / "seaweed").exists():
        Seaweed.from_state(data, State(data), "codehub").clear()


class _Host:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = State(root)
        self.supervisor = Supervisor(root)
        self._started: dict[str, asyncio.Task[dict[str, str]]] = {}
        self._docker_host: str | None = None

    async def need(self, name: str, worker: str) -> dict[str, str]:
        starts: dict[str, Callable[[], Awaitable[dict[str, str]]]] = {
            "postgres": self._postgres,
            "valkey": lambda: self._valkey(worker),
            "seaweed": self._seaweed,
            "temporal": self._temporal,
            "docker": self._docker,
            "image": self._image,
        }
        # Publish and subscribe know no databases: a server for each worker keeps them apart.
        key = f"valkey-{worker}" if name == "valkey" else name
        if key not in self._started:
            self._started[key] = asyncio.ensure_future(starts[name]())
        return await asyncio.shield(self._started[key])

    async def close(self) -> None:
        for task in self._started.values():
            task.cancel()
        await asyncio.gather(*self._started.values(), return_exceptions=True)
        if self._docker_host and str(self.root) not in self._docker_host:
            await asyncio.to_thread(image.remove_all, self._docker_host, self.root.name.removeprefix("codehub-"))
        await self.supervisor.stop()

    async def _postgres(self) -> dict[str, str]:
        postgres = dataclasses.replace(
            Postgres.from_state(self.root, self.state),
            # Safe when it is killed, not when the machine is: what tests need, and faster.
            settings={
                "fsync": "off",
                "full_page_writes": "off",
                "max_wal_size": "256MB",
                # For the deployments of several test processes at once.
                "max_connections": "500",
            },
            initdb_options=("--no-sync",),
        )
        await self._start(postgres.child())
        return {"url": postgres.url}

    async def _valkey(self, worker: str) -> dict[str, str]:
        name = f"valkey-{worker}"
        port, password = self.state.port(name), self.state.secret(name)
        valkey = Valkey(data=self.root, port=port, password=password, name=name)
        await self._start(valkey.child())
        return {"url": valkey.url}

    async def _seaweed(self) -> dict[str, str]:
        seaweed = Seaweed.from_state(self.root, self.state, "codehub")
        await self._start(seaweed.child())
        return {"endpoint": seaweed.endpoint, "access_key": seaweed.access_key, "secret_key": seaweed.secret_key}

    async def _temporal(self) -> dict[str, str]:
        temporal = Temporal.from_state(self.root, self.state, SEARCH_ATTRIBUTES)
        await self._start(temporal.child())
        return {"address": temporal.address, "ui_url": temporal.ui_url}

    async def _docker(self) -> dict[str, str]:
        host = os.environ.get("DOCKER_HOST") or await engine.reachable_engine()
        if host is None and not Dockerd.installed():
            await engine.install_engine(NoProgress(), self.supervisor.folders.log("docker-install"))
            host = await engine.reachable_engine()
        if host is None:
            dockerd = Dockerd.from_state(self.root, self.state)
            await self.supervisor.start(dockerd.child())
            host = dockerd.host
        self._docker_host = host
        return {"host": host}

    async def _image(self) -> dict[str, str]:
        host = (await self.need("docker", ""))["host"]
        installation = self.root.name.removeprefix("codehub-")
        return {"name": await asyncio.to_thread(image.build, host, installation)}

    async def _start(self, child: Child) -> None:
        """Nothing of a test run is worth an orderly stop; but PostgreSQL would leave shared memory behind."""
        number = signal.SIGQUIT if child.name == "postgres" else signal.SIGKILL
        await self.supervisor.start(dataclasses.replace(child, stop_signal=number))


async def _serve(root: Path) -> None:
    with DataLock(root):
        with until_signal():
            await _answer_all(root)
        # While it is locked: what is not is cleared up by the start of any other run.
        remove_root(root)


async def _answer_all(root: Path) -> None:
    host = _Host(root)
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(sys.stdin.fileno())
        os.kill(os.getpid(), signal.SIGTERM)

    # The writing end is the test run's, and nothing is ever written: readable means that the run is over.
    loop.add_reader(sys.stdin.fileno(), end)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        question: dict[str, Any] = json.loads(await reader.readline())
        try:
            reply = await host.need(question["need"], question["worker"])
        except Exception as error:  # noqa: BLE001 the test process is to show it, whatever it is
            reply = {"error": str(error) or repr(error)}
        writer.write(json.dumps(reply).encode() + b"\n")
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, root / "socket")
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
        await host.close()


def _connect(connection: socket.socket, path: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            connection.connect(os.fspath(path))
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _remove_former_roots(current: Path) -> None:
    """Of runs that were killed together with their service process. A lock that can be had has no owner."""
    for root in current.parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(EmbeddedError, OSError):
            # Empty, it is one that its owner has made and is about to take.
            if root != current and (root / "lock").stat().st_size:
                with DataLock(root):
                    remove_root(root)


if __name__ == "__main__":
    _remove_former_roots(Path(sys.argv[1]))
    asyncio.run(_serve(Path(sys.argv[1])))
