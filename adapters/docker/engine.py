"""The engine's API, called from threads of its own: docker-py blocks, the event loop must not."""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from docker import APIClient
from docker.errors import APIError, NotFound

from adapters.docker.config import DockerConfig
from adapters.docker.connect import DEFAULT_HOST, Clients
from adapters.docker.failures import FAILURES, explanation, translate
from adapters.telemetry.tracing import call_span
from adapters.transfer.bridge import in_thread
from domain.errors import Unreachable

T = TypeVar("T")

INTERNAL_ERROR = 500
NO_VOLUME = "codehub-none"
"""A name that nobody gives a volume."""


@dataclass(frozen=True, slots=True)
class EngineInfo:
    id: str
    version: str
    api_version: str
    ncpu: int
    mem: int
    """Bytes."""


@dataclass(frozen=True, slots=True)
class Identity:
    info: EngineInfo
    marker: str
    """Of its data: see adapters.docker.marker."""
    holds_homes: bool
    """Homes of this installation are on it."""


class Engine:
    """Connects at the first call, and again at the next one when that failed."""

    def __init__(self, config: DockerConfig) -> None:
        self._config = config
        self._environment = {**os.environ}
        if config.docker_host:
            self._environment["DOCKER_HOST"] = config.docker_host
        self.where = self._environment.get("DOCKER_HOST") or DEFAULT_HOST
        self._pool = ThreadPoolExecutor(config.pool_size, thread_name_prefix="docker")
        self._clients: Clients | None = None
        self._lock = threading.Lock()

    async def look(self, call: Callable[[APIClient], T]) -> T:
        """A call that changes nothing; whoever is cancelled leaves at once."""
        with call_span("docker", call):
            return await asyncio.wrap_future(self._pool.submit(self._run, call, "look"))

    async def act(self, call: Callable[[APIClient], T]) -> T:
        """A call that changes something.

        Whoever is cancelled waits for its end (for a while), so that nothing happens after they said they
        stopped: a container that starts behind the back of the next operation would be one too many.
        """
        job = self._pool.submit(self._run, call, "work")
        done = asyncio.wrap_future(job)
        try:
            with call_span("docker", call):
                return await asyncio.shield(done)
        except asyncio.CancelledError:
            await _settled(job, done, self._config.call_timeout)
            raise

    async def compute(self, call: Callable[[], T]) -> T:
        """Something else that blocks."""
        return await asyncio.wrap_future(self._pool.submit(call))

    def follow(self, call: Callable[[APIClient], T]) -> "asyncio.Future[T]":
        """A call without a time limit, in a thread of its own: it can't take a place from the others."""
        return self._in_thread(call, "look")

    async def transfer(self, call: Callable[[APIClient], T]) -> T:
        """A call that takes as long as there are bytes, in a thread of its own: it delays no other call."""
        done = self._in_thread(call, "work")
        try:
            with call_span("docker", call):
                return await asyncio.shield(done)
        except asyncio.CancelledError:
            await asyncio.wait({done}, timeout=self._config.call_timeout)
            done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
            raise

    async def info(self) -> EngineInfo:
        def call(api: APIClient) -> EngineInfo:
            info = api.info()
            return EngineInfo(
                id=info["ID"],
                version=info["ServerVersion"],
                api_version=api.api_version,
                ncpu=info["NCPU"],
                mem=info["MemTotal"],
            )

        return await self.look(call)

    async def close(self) -> None:
        await asyncio.to_thread(self._pool.shutdown, wait=True, cancel_futures=True)
        if self._clients:
            self._clients.close()

    def _in_thread(self, call: Callable[[APIClient], T], kind: str) -> "asyncio.Future[T]":
        return in_thread(lambda: self._run(call, kind), "docker-stream")

    def _run(self, call: Callable[[APIClient], T], kind: str) -> T:
        try:
            clients = self._connected()
            try:
                return call(clients.look if kind == "look" else clients.work)
            except APIError as error:
                if error.status_code == INTERNAL_ERROR and not _is_sound(clients.look):
                    raise Unreachable(f"Docker at {self.where} is being stopped: {explanation(error)}") from error
                raise
        except FAILURES as error:
            raise translate(error, self.where) from error

    def _connected(self) -> Clients:
        clients = self._clients
        if clients is None:
            # Outside the lock: while the engine hangs, callers must not queue up behind each other's timeouts.
            made = Clients.connect(self._config, self._environment)
            with self._lock:
                clients = self._clients = self._clients or made
            if clients is not made:
                made.close()
        return clients


def _is_sound(api: APIClient) -> bool:
    """Whether an engine that refuses something can still tell what is there.

    One that is being stopped answers until its last container has ended, ten seconds and more. By then it has closed
    its stores, that of the volumes before those of networks and containers, and refuses things in many words: none of
    that is the workspace's fault.
    """
    try:
        api.inspect_volume(NO_VOLUME)
    except NotFound:
        return True
    except FAILURES:
        return False
    return True


async def _settled(job: Future[T], done: "asyncio.Future[T]", seconds: float) -> None:
    if not job.cancel():
        await asyncio.wait({done}, timeout=seconds)
    # Nobody is left to hear of its failure.
    done.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
