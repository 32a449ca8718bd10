"""`python -m bench.start`: where the time of one start goes, what each part of a workspace's isolation costs, and which
programs the engine runs for it (as strace sees them, where it is installed)."""

import argparse
import asyncio
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

from rich.console import Console
from rich.table import Table

from adapters.docker.config import ENGINES_NETWORK, DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.docker.spec import container_spec
from adapters.postgres.database import open_database
from bench.installation import Installation, installed
from bench.part import Part
from bench.report import put_between, table
from bench.transitions import floor_config, network_of
from domain.model import OperationId, WorkspaceId

MARK = "bench.start"
ROUNDS = 9
LIMITS = ("Memory", "MemorySwap", "NanoCpus", "PidsLimit")
CAPABILITIES = ("CapDrop", "SecurityOpt")

Change = Callable[[dict[str, Any]], None]


def _without(*names: str) -> Change:
    def change(host: dict[str, Any]) -> None:
        for name in names:
            del host[name]

    return change


def _on(network: str) -> Change:
    return lambda host: host.update(NetworkMode=network)


def _plain(host: dict[str, Any]) -> None:
    _without(*LIMITS, *CAPABILITIES, "LogConfig")(host)
    host.update(Init=False, NetworkMode=ENGINES_NETWORK)


def _alone(host: dict[str, Any]) -> None:
    _without("PortBindings")(host)
    host.update(NetworkMode="none")


USUAL, NAMED = "as workspaces are started", "on a network of codehub's own"
VARIANTS: dict[str, Change] = {
    USUAL: lambda _: None,
    "without an init process": lambda host: host.update(Init=False),
    "without a network": _alone,
    "without limits": _without(*LIMITS),
    "with all capabilities": _without(*CAPABILITIES),
    "without a home": _without("Mounts"),
    "without any of it": _plain,
}


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__)
    parser.add_argument("--docs", type=Path, help="also write it there, e.g. docs/performance.md")
    docs: Path | None = parser.parse_args().docs
    begun = Part.begun("start")
    async with installed() as installation:
        parts = await _parts(installation)
        variants, programs = await _variants(installation)
        network = network_of(installation)
    told = [f"The engine ran, for a start and a removal {name}: {_counted(found)}" for name, found in programs.items()]
    tables = {"one start, STANDBY → RUNNING": parts, "the engine's own start of a container": variants}
    console = Console(width=100)
    for title, taken in tables.items():
        shown = Table(title, "median, ms", "spread, ms")
        for line in _lines(taken):
            shown.add_row(*line)
        console.print(shown)
    for counted in told:
        console.print(counted)
    if docs:
        body = [f"{begun.date}, {begun.machine}, commit {begun.commit}; workspaces on {network}.", ""]
        for title, taken in tables.items():
            body += [*table((title, "median, ms", "spread, ms"), _lines(taken)), ""]
        put_between(docs, "\n".join([*body, *(f"- {counted}." for counted in told)]) + "\n", MARK)


def _counted(programs: "Counter[str]") -> str:
    return ", ".join(f"{count} {program}" for program, count in programs.most_common()) or "strace is missing"


async def _parts(installation: Installation) -> dict[str, list[float]]:
    database = await open_database(installation.env["DATABASE_URL"], max_size=1)
    taken: dict[str, list[float]] = {name: [] for name in ("request", "claim", "operation", "shown", "all of it")}
    workspace = await installation.create()
    await installation.until(workspace, "RUNNING")
    for _ in range(ROUNDS):
        await installation.want(workspace, "STANDBY")
        await installation.until(workspace, "STANDBY")
        began = time.time()
        await installation.want(workspace, "RUNNING")
        answered = time.time()
        await installation.until(workspace, "RUNNING")
        shown = time.time()
        row = await database.fetchrow(
            "SELECT started_at, finished_at FROM operations WHERE workspace_id = $1 ORDER BY started_at DESC LIMIT 1",
            workspace,
        )
        if row is None:
            raise RuntimeError("a start without an operation")
        claimed, ended = row["started_at"].timestamp(), row["finished_at"].timestamp()
        for name, seconds in (
            ("request", answered - began),
            ("claim", claimed - began),
            ("operation", ended - claimed),
            ("shown", shown - ended),
            ("all of it", shown - began),
        ):
            taken[name].append(seconds)
    await installation.delete(workspace)
    await database.close()
    return {
        "request answered (the wake is sent)": taken["request"],
        "row read by the reconcile that claims the start": taken["claim"],
        "from there to the row read at its end": taken["operation"],
        "from there to the event on the screen": taken["shown"],
        "all of it": taken["all of it"],
    }


async def _variants(installation: Installation) -> tuple[dict[str, list[float]], dict[str, Counter[str]]]:
    runtime = DockerRuntime(floor_config(installation))
    named = DockerRuntime(replace(runtime.config, engines_network=False))
    await runtime.ensure_network()
    await named.ensure_network()
    variants = {**VARIANTS, NAMED: _on(named.config.network)}
    taken: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, change in variants.items():
            taken[name].append(await asyncio.to_thread(_started, installation, runtime.config, change))
    programs = {
        name: await asyncio.to_thread(_programs, installation, runtime.config, variants[name])
        for name in (USUAL, NAMED)
    }
    for one in (runtime, named):
        await one.remove_network()
        await one.close()
    return taken, programs


def _programs(installation: Installation, config: DockerConfig, change: Change) -> "Counter[str]":
    """Short ones of its own: what runs in the container is started by another process."""
    engine = installation.stack.supervisor.pid("dockerd")
    if engine is None or shutil.which("strace") is None:
        return Counter()
    with tempfile.NamedTemporaryFile("r") as seen:
        command = ["strace", "-f", "-q", "-e", "trace=execve", "-o", seen.name, "-p", str(engine)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as tracing:
            time.sleep(1)
            _started(installation, config, change)
            tracing.terminate()
        return Counter(re.findall(r'execve\("[^"]+", \["(?:[^"]*/)?([^"/]+)"', seen.read()))


def _started(installation: Installation, config: DockerConfig, change: Change) -> float:
    api, workspace = installation.engine.api, WorkspaceId(str(uuid4()))
    spec = container_spec(config, workspace, installation.image, OperationId("floor"), init=True)
    change(spec["HostConfig"])
    made = api.create_container_from_config(spec, f"floor-{workspace}")["Id"]  # type: ignore[no-untyped-call]
    began = time.monotonic()
    api.start(made)
    taken = time.monotonic() - began
    api.remove_container(made, force=True, v=True)
    if any(mount["Type"] == "volume" for mount in spec["HostConfig"].get("Mounts", [])):
        api.remove_volume(f"ws-{workspace}-home")
    return taken


def _lines(taken: dict[str, list[float]]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, seconds in taken.items():
        values = [second * 1000 for second in seconds]
        found.append((name, f"{statistics.median(values):.0f}", f"{min(values):.0f}–{max(values):.0f}"))
    return found


if __name__ == "__main__":
    asyncio.run(main())
