"""Which Docker engine to use: the one that is named, the one that answers, or a private one."""

import asyncio
import contextlib
import os
import shutil
import sys
import time
from pathlib import Path

import structlog

from adapters.docker.config import DockerConfig
from adapters.docker.engine import Engine
from domain.errors import WorkspaceError
from starter.embedded.errors import EmbeddedError
from starter.embedded.probe import http_status
from starter.embedded.progress import Progress

log = structlog.get_logger()

APT_SECONDS = 900
END_SECONDS = 3.0
NAMED_SECONDS = 10.0
CALL_SECONDS = 5.0
AGAIN_SECONDS = 0.5
ADVICE = "install Docker Engine (https://docs.docker.com/engine/install/) and start it, or name one in DOCKER_HOST"


async def named_engine(host: str, progress: Progress) -> None:
    """Waits until it answers, as one that is just being started does; what nobody answers at is a mistake."""
    began = time.monotonic()
    progress.step("docker", f"waiting for the engine at {host}")
    asked = Engine(DockerConfig("up", docker_host=host, call_timeout=CALL_SECONDS, pool_size=1))
    try:
        while True:
            try:
                await asked.info()
            except WorkspaceError as error:
                if time.monotonic() - began > NAMED_SECONDS:
                    raise EmbeddedError(
                        f"DOCKER_HOST={host} names no engine that can be used ({error}): start it, or correct "
                        "DOCKER_HOST, or unset it, and codehub finds an engine or starts its own."
                    ) from error
            else:
                progress.done("docker", time.monotonic() - began)
                return
            await asyncio.sleep(AGAIN_SECONDS)
    finally:
        await asked.close()


async def reachable_engine() -> str | None:
    """The address of an engine that answers where engines usually listen."""
    for path in _usual_sockets():
        if path.exists():
            if not os.access(path, os.R_OK | os.W_OK):
                raise EmbeddedError(
                    f"You may not use the Docker engine at {path}: join its group (usermod -aG docker, then log in "
                    f"again), or name another engine in DOCKER_HOST."
                )
            if await answers(path):
                return f"unix://{path}"
    return None


async def answers(socket: Path) -> bool:
    """Whether a Docker engine answers at this Unix socket."""
    try:
        return await http_status(socket, "/_ping") == 200
    except (OSError, ValueError):
        return False


async def install_engine(progress: Progress, output: Path) -> None:
    """Debian's own package, as root; else say what to do."""
    apt = shutil.which("apt-get")
    if sys.platform != "linux" or os.geteuid() != 0 or apt is None:
        raise EmbeddedError(f"No Docker engine answers: {ADVICE}.")
    for text, arguments in (
        ("reading the package lists", ("update",)),
        ("installing docker.io", ("install", "-y", "--no-install-recommends", "docker.io", "iptables")),
    ):
        progress.step("docker", text)
        await _apt(apt, arguments, output)


async def _apt(apt: str, arguments: tuple[str, ...], output: Path) -> None:
    with output.open("ab") as written:
        process = await asyncio.create_subprocess_exec(
            apt,
            "-o",
            # Another apt may be at work on a fresh machine: wait for it.
            "DPkg::Lock::Timeout=300",
            *arguments,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=written,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(APT_SECONDS):
            code = await process.wait()
    except TimeoutError:
        raise EmbeddedError(
            f"apt-get {arguments[0]} took longer than {APT_SECONDS} s (see {output}): {ADVICE}."
        ) from None
    finally:
        if process.returncode is None:
            await _end(process)
    if code != 0:
        raise EmbeddedError(f"apt-get {arguments[0]} failed with exit code {code} (see {output}): {ADVICE}.")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Not by SIGKILL: dpkg finishes the package it is at, and the system stays in order, should it even outlive us."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        log.warning("apt_get_still_at_work", pid=process.pid)


def _usual_sockets() -> list[Path]:
    places = [Path("/var/run/docker.sock")]
    for variable, below in (("HOME", ".docker/run/docker.sock"), ("XDG_RUNTIME_DIR", "docker.sock")):
        if folder := os.environ.get(variable):
            places.append(Path(folder) / below)
    return places
