"""A real image registry on loopback, which Docker uses without TLS."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
READY_SECONDS = 10.0


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Its `host:port`."""
    program = _program(folder)
    port = free_port()
    config = folder / "registry.yml"
    config.write_text(CONFIG.format(data=folder / "registry", port=port))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", config], stdout=log, stderr=log)
    try:
        _wait(f"http://127.0.0.1:{port}/v2/")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _program(folder: Path) -> str:
    """Debian's. Taken from the package without installing it, which would start a service for good."""
    found = shutil.which("docker-registry")
    if found:
        return found
    if shutil.which("apt-get") is None:
        pytest.skip("no docker-registry, and no apt-get to get it with")
    if not _download(folder):
        subprocess.run(["apt-get", "update"], check=False, capture_output=True)
        if not _download(folder):
            pytest.skip("docker-registry can't be downloaded")
    package = next(folder.glob("docker-registry_*.deb"))
    subprocess.run(["dpkg", "-x", package, folder / "package"], check=True)
    return str(folder / "package/usr/bin/docker-registry")


def _download(folder: Path) -> bool:
    # apt drops its rights for a download; the folder is the test's own.
    command = ["apt-get", "-o", "APT::Sandbox::User=root", "download", "docker-registry"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True).returncode == 0


def _wait(url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            urlopen(url, timeout=1).close()
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
