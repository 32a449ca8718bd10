"""A Docker host: an engine of its own, and a worker that serves it under a name."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from starter.embedded.dockerd import Dockerd, end_containers, unmount_below
from starter.embedded.state import State
from starter.embedded.supervisor import Supervisor
from tests.embedded import image
from tests.embedded.engines import ensure_network
from tests.processes.process import ROOT, CodehubProcess


class Command(CodehubProcess):
    """As CodehubProcess, with arguments."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "starter.cli", *arguments],
                cwd=ROOT,
                env={"PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin", "LOG_FORMAT": "json", **environment},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )


@dataclass
class Host:
    name: str
    address: str
    data: Path
    installation: str
    env: Mapping[str, str]
    supervisor: Supervisor = field(init=False)
    dockerd: Dockerd = field(init=False)
    runtime: DockerRuntime = field(init=False)
    """Straight to its engine."""
    image: str = ""
    worker: Command | None = None
    starts: int = 0

    def __post_init__(self) -> None:
        self.data.mkdir(mode=0o711)
        self.dockerd = Dockerd.from_state(self.data, State(self.data))
        self.supervisor = Supervisor(self.data)
        self.runtime = DockerRuntime(
            DockerConfig(
                self.installation,
                docker_host=self.dockerd.host,
                network_name=None if self.name == "local" else f"codehub-{self.installation}-{self.name}",
            )
        )

    async def start_engine(self) -> None:
        # Nothing of it is worth an orderly stop.
        await self.supervisor.start(replace(self.dockerd.child(), stop_patience=2.0))
        await ensure_network(self.runtime)
        self.image = await asyncio.to_thread(image.build, self.dockerd.host, self.installation)

    def start_worker(self, **env: str) -> Command:
        self.worker = self.another_worker(**env)
        return self.worker

    def another_worker(self, **env: str) -> Command:
        """Of the same node, beside what it has."""
        self.starts += 1
        arguments = ["worker"] if self.name == "local" else ["worker", "--node", self.name]
        own = {"DOCKER_HOST": self.dockerd.host, "NODE_ADDRESS": self.address, "COORDINATOR_NODE_ID": self.name}
        log = self.data.parent / f"worker-{self.name}-{self.starts}.log"
        return Command(arguments, {**self.env, **own, **env}, log)

    async def die(self) -> None:
        """As when the power goes: worker, engine and containers, at once, and nobody has the time for a last word."""
        engine = self.supervisor.pid("dockerd")
        assert engine
        os.kill(engine, signal.SIGKILL)
        if self.worker:
            self.worker.kill()
        await self.without_engine()

    async def without_engine(self) -> None:
        """It is not started again; containers and mounts outlive an engine that was killed, and end with it here."""
        await self.supervisor.pause("dockerd")
        await asyncio.to_thread(end_containers, self.dockerd.runtime)
        await asyncio.to_thread(unmount_below, self.dockerd.folder)

    async def come_back(self) -> None:
        await self.supervisor.resume("dockerd")
        await self.start_worker().said("worker_ready")

    async def close(self) -> None:
        if self.worker and self.worker.alive:
            self.worker.kill()
        try:
            await self.runtime.remove_network()
        finally:
            await self.runtime.close()
            await self.supervisor.stop()
            shutil.rmtree(self.data, ignore_errors=True)
