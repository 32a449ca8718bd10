"""Everything codehub needs around it: what is named by its URL is used, the rest is started here."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from starter.embedded import engine
from starter.embedded.child import Child
from starter.embedded.dockerd import Dockerd
from starter.embedded.errors import EmbeddedError
from starter.embedded.lock import DataLock
from starter.embedded.postgres import Postgres
from starter.embedded.progress import NoProgress, Progress
from starter.embedded.resolver import default_network_resolves
from starter.embedded.seaweed import Seaweed
from starter.embedded.state import State
from starter.embedded.supervisor import Supervisor
from starter.embedded.temporal import Temporal
from starter.embedded.valkey import Valkey

LEAST_FREE_BYTES = 200 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class StackConfig:
    """What is None is embedded. With `s3_endpoint`, its keys are the caller's own."""

    data: Path = Path(".codehub")
    database_url: str | None = None
    redis_url: str | None = None
    s3_endpoint: str | None = None
    temporal_address: str | None = None
    docker_host: str | None = None
    s3_bucket: str = "codehub"
    search_attributes: Mapping[str, str] = field(default_factory=dict)


class Stack:
    """`async with Stack(config) as stack`: all services are ready inside, and gone after."""

    def __init__(self, config: StackConfig, progress: Progress | None = None) -> None:
        self.config = config
        self.data = config.data.resolve()
        # What codehub's own processes need to find the services.
        self.env: dict[str, str] = {}
        # None where Temporal is external.
        self.temporal_ui_url: str | None = None
        self._progress = progress or NoProgress()
        self._lock = DataLock(self.data)
        self._supervisor: Supervisor | None = None

    @property
    def supervisor(self) -> Supervisor:
        if self._supervisor is None:
            raise EmbeddedError("The stack is not running.")
        return self._supervisor

    async def add(self, *children: Child) -> None:
        """Start further children beside the services, and return when they are ready."""
        await self.supervisor.start(*children)

    async def forever(self) -> None:
        """Wait for the end: a signal (see `until_signal`) or a cancellation."""
        await asyncio.Event().wait()

    async def __aenter__(self) -> Self:
        prepare_data(self.data)
        self._lock.acquire()
        try:
            self.state = State(self.data)
            self._supervisor = Supervisor(self.data, self._progress)
            await _together(self._start_services(), self._start_docker())
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        self._progress.close()
        try:
            if self._supervisor:
                await self._supervisor.stop()
        finally:
            self._lock.release()

    async def _start_services(self) -> None:
        config, children = self.config, []
        if config.database_url:
            self.env["DATABASE_URL"] = config.database_url
        else:
            postgres = Postgres.from_state(self.data, self.state)
            self.env["DATABASE_URL"] = postgres.url
            children.append(postgres.child())
        if config.redis_url:
            self.env["REDIS_URL"] = config.redis_url
        else:
            valkey = Valkey.from_state(self.data, self.state)
            self.env["REDIS_URL"] = valkey.url
            children.append(valkey.child())
        if config.s3_endpoint:
            self.env["S3_ENDPOINT"] = config.s3_endpoint
        else:
            seaweed = Seaweed.from_state(self.data, self.state, config.s3_bucket)
            self.env |= {
                "S3_ENDPOINT": seaweed.endpoint,
                "S3_ACCESS_KEY": seaweed.access_key,
                "S3_SECRET_KEY": seaweed.secret_key,
                "S3_BUCKET": seaweed.bucket,
                "S3_DIRECTORY": str(seaweed.folder),
            }
            children.append(seaweed.child())
        if config.temporal_address:
            self.env["TEMPORAL_ADDRESS"] = config.temporal_address
        else:
            temporal = Temporal.from_state(self.data, self.state, config.search_attributes)
            self.env["TEMPORAL_ADDRESS"] = temporal.address
            self.temporal_ui_url = temporal.ui_url
            children.append(temporal.child())
        await self.supervisor.start(*children)

    async def _start_docker(self) -> None:
        began = time.monotonic()
        host = self.config.docker_host or await engine.reachable_engine()
        if host is None and not Dockerd.installed():
            await engine.install_engine(self._progress, self.supervisor.folders.log("docker-install"))
            # On a machine with an init system the package has started an engine of its own.
            host = await engine.reachable_engine()
            self._progress.done("docker", time.monotonic() - began)
        if host is None:
            dockerd = Dockerd.from_state(self.data, self.state)
            host = dockerd.host
            await self.supervisor.start(dockerd.child())
            if default_network_resolves():
                self.env["WORKSPACE_NETWORK"] = "engine"
        self.env["DOCKER_HOST"] = host


@contextlib.contextmanager
def until_signal(heard: Callable[[], None] = lambda: None) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the block, wherever it is, by cancelling the task that entered it. The first one
    is `heard` at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    received: list[int] = []

    def end(number: int) -> None:
        received.append(number)
        # Once: what follows is the orderly stop, which has a deadline of its own.
        if task and len(received) == 1:
            heard()
            task.cancel()

    for number in signals:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    except asyncio.CancelledError:
        if not received or task is None or task.uncancel() > 0:
            raise
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


async def _together(*parts: Coroutine[Any, Any, None]) -> None:
    """Side by side; when one fails, the others have ended before this does."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def prepare_data(data: Path) -> None:
    """Make the directory, and find out now what would fail later with a longer story."""
    try:
        data.mkdir(mode=0o711, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data):
            free = shutil.disk_usage(data).free
    except OSError as error:
        raise EmbeddedError(
            f"Can't use {data} ({error.strerror}): name a directory that you may write to in CODEHUB_DATA."
        ) from error
    if free < LEAST_FREE_BYTES:
        raise EmbeddedError(f"Only {free // 1024**2} MB are free at {data}: make room, or name another CODEHUB_DATA.")
