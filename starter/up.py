"""`codehub up`: the whole system in the foreground, until Ctrl-C."""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import structlog
from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from settings import Settings
from starter.commands.running_stack import local_url, publish, withdraw
from starter.embedded.child import Child
from starter.embedded.engine import named_engine
from starter.embedded.errors import EmbeddedError
from starter.embedded.lock import DataLock
from starter.embedded.progress import ConsoleProgress, Progress
from starter.embedded.stack import Stack, StackConfig, until_signal
from starter.first_password import first_password, told_login
from starter.ide.image import ensure_image
from starter.temporal import temporal_address
from workflows.client import connect
from workflows.messages import SEARCH_ATTRIBUTES, TASK_QUEUE

# All is to be over within ten seconds, half of which are for those that stop after these.
DRAIN_SECONDS = "3"
API_SECONDS = 4
# Stopped before these, so that what is under way can still be finished or put down.
SERVICES = ("postgres", "valkey", "seaweed", "temporal", "dockerd")
LONGEST_DETAIL = 120


async def up(settings: Settings) -> None:
    console = Console()
    _log_warnings(console)
    check_port(settings)
    with (
        contextlib.closing(ConsoleProgress(console)) as progress,
        until_signal(lambda: console.print("\n  Stopping…", highlight=False)),
    ):
        if settings.docker_host:
            await named_engine(settings.docker_host, progress)
        async with Stack(_config(settings), progress) as stack:
            password = first_password(settings, stack.data)
            env = _environment(settings, stack, password)
            _, missing = await asyncio.gather(
                stack.add(_worker(settings, env), _api(settings, env)), _image(settings, stack, progress)
            )
            progress.close()
            with _published(settings, stack, env):
                _tell(console, settings, stack, await told_login(password, stack.env["DATABASE_URL"]))
                if missing:
                    console.print(Padding(Text(missing, style="yellow"), (1, 2, 0, 2)))
                await stack.forever()
    console.print("\n  Stopped. Everything is kept: start it again and it goes on from here.", highlight=False)


async def _image(settings: Settings, stack: Stack, progress: Progress) -> str | None:
    """The image of new workspaces. What is wrong with it is said, but it is no reason to stay down."""
    try:
        await ensure_image(stack.env["DOCKER_HOST"], settings.workspace_image, progress)
    except EmbeddedError as error:
        return f"New workspaces have no image yet: {error} Name another one in WORKSPACE_IMAGE, or per workspace."
    return None


def check_port(settings: Settings) -> None:
    """Before anything is started, which takes its time. The usual holder is another `up` of the same data."""
    host, port = settings.codehub_host, settings.codehub_port
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if (settings.codehub_data / "lock").exists():
            # Says who it is.
            with DataLock(settings.codehub_data.resolve()):
                pass
        advice = "stop what uses it, or name another port in CODEHUB_PORT"
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            advice = "name an address of this machine in CODEHUB_HOST"
        # Its own text says it twice.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
        raise EmbeddedError(f"Can't listen on port {port} of {host} ({reason}): {advice}.") from error


def _config(settings: Settings) -> StackConfig:
    return StackConfig(
        data=settings.codehub_data,
        database_url=settings.database_url,
        redis_url=settings.redis_url,
        s3_endpoint=settings.s3_endpoint,
        temporal_address=settings.temporal_address,
        docker_host=settings.docker_host,
        s3_bucket=settings.s3_bucket,
        search_attributes=SEARCH_ATTRIBUTES,
    )


def _environment(settings: Settings, stack: Stack, password: str) -> dict[str, str]:
    env = {**os.environ, **stack.env, "CODEHUB_ADMIN_PASSWORD": password, "PYTHONUNBUFFERED": "1"}
    if network := os.environ.get("WORKSPACE_NETWORK"):
        env["WORKSPACE_NETWORK"] = network
    env["WORKER_DRAIN_SECONDS"] = os.environ.get("WORKER_DRAIN_SECONDS") or DRAIN_SECONDS
    if stack.temporal_ui_url and not settings.temporal_ui_url:
        env["TEMPORAL_UI_URL"] = stack.temporal_ui_url
    return env


def _worker(settings: Settings, env: dict[str, str]) -> Child:
    async def ready() -> None:
        named = settings.model_copy(update={"temporal_address": env["TEMPORAL_ADDRESS"]})
        client = await connect(temporal_address(named))
        described = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=TASK_QUEUE),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
        )
        if not described.pollers:
            raise ConnectionError("no worker polls yet")

    return _child("worker", env, ready, float(env["WORKER_DRAIN_SECONDS"]) + 1)


def _api(settings: Settings, env: dict[str, str]) -> Child:
    async def ready() -> None:
        url = f"{_url(settings)}/health/ready"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            response.raise_for_status()

    # METRICS_PORT is the worker's: two processes can't have one port, and the API shows its own at /metrics.
    return _child("api", {name: value for name, value in env.items() if name != "METRICS_PORT"}, ready, API_SECONDS)


def _child(name: str, env: dict[str, str], ready: object, patience: float) -> Child:
    return Child(
        name=name,
        argv=(sys.executable, "-m", "starter.cli", name),
        env=env,
        ready=ready,  # type: ignore[arg-type]
        ready_within=60,
        stop_patience=patience,
        after=SERVICES,
    )


def _url(settings: Settings) -> str:
    return local_url(settings.codehub_host, settings.codehub_port)


@contextlib.contextmanager
def _published(settings: Settings, stack: Stack, env: dict[str, str]) -> Iterator[None]:
    """Where everything is, for the operator's commands. They don't need the password of a person."""
    names = {name.upper() for name in Settings.model_fields} - {"CODEHUB_ADMIN_PASSWORD", "CODEHUB_DATA"}
    told = {name: env[name] for name in sorted(names) if env.get(name)}
    told |= {"CODEHUB_HOST": settings.codehub_host, "CODEHUB_PORT": str(settings.codehub_port)}
    publish(stack.data, told)
    try:
        yield
    finally:
        withdraw(stack.data)


def _log_warnings(console: Console) -> None:
    """Above the progress display, not through it; what goes well shows there already."""
    structlog.configure(
        processors=[_Told()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=lambda *_: _Printed(console),
    )


class _Told:
    """What a person who looks at the console should know, in a line: what went down, and that it is back."""

    def __init__(self) -> None:
        self._down: set[str] = set()

    def __call__(self, _logger: object, level: str, event: structlog.typing.EventDict) -> str:
        name, child = str(event.pop("event")), str(event.get("child", ""))
        match name:
            case "embedded_child_down":
                self._down.add(child)
                # Its last words, when they are lines of our own log, are for those who look into it.
                reason = _short(str(event.get("reason")).partition(": {")[0])
                return f"{child} went down, it is started again: {reason} (see logs/{child}.log)"
            case "embedded_child_ready" if child in self._down:
                self._down.discard(child)
                return f"{child} is back."
        if level == "info":
            raise structlog.DropEvent
        details = ", ".join(f"{key}: {_short(value)}" for key, value in event.items())
        return f"{level}: {name.replace('_', ' ')} ({details})"


def _short(value: object) -> str:
    """A child's last words may be long; its log has them all."""
    text = str(value)
    return text if len(text) <= LONGEST_DETAIL else f"{text[:LONGEST_DETAIL]}…"


class _Printed:
    """A logger whose lines go to the console."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def msg(self, message: str) -> None:
        self._console.print(message, markup=False, highlight=False, soft_wrap=True, style="yellow")

    debug = info = warning = error = critical = exception = msg


def _tell(console: Console, settings: Settings, stack: Stack, login: str) -> None:
    url = _url(settings)
    ui = settings.temporal_ui_url or stack.temporal_ui_url
    lines = [
        ("dashboard", url),
        ("log in as", login),
        ("Temporal UI", ui),
        ("data and logs", str(stack.data)),
        ("command line", f"{_command()} login --url {url} --username admin"),
    ]
    console.print("\n  [bold green]codehub is ready[/]\n", highlight=False)
    for name, value in lines:
        if value:
            console.print(f"  {name:<14} {value}", highlight=False, markup=False, soft_wrap=True)
    console.print("\n  Ctrl-C stops everything; nothing is lost.", highlight=False)


def _command() -> str:
    """As it can be typed here: a virtual environment's is on nobody's path."""
    ours = Path(sys.executable).with_name("codehub")
    if not ours.exists() or shutil.which("codehub") == os.fspath(ours):
        return "codehub"
    with contextlib.suppress(ValueError):
        return os.fspath(ours.relative_to(Path.cwd()))
    return os.fspath(ours)


def run(settings: Settings) -> None:
    asyncio.run(up(settings))
