"""A real image registry on loopback, which Docker uses without TLS."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.debian import unpacked
from tests.ports import free_port

CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
READY_SECONDS = 60.0


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
        process.wait(60)


def _program(folder: Path) -> str:
    found = unpacked("docker-registry", "docker-registry", folder)
    if found is None:
        pytest.skip("no docker-registry, and Debian's can't be downloaded")
    return found


def _wait(url: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            urlopen(url, timeout=1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
