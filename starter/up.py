"""`codehub up`: the whole system in the foreground, until Ctrl-C."""

import asyncio
import os
import secrets
import sys
from pathlib import Path

import aiohttp
from rich.console import Console
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

from settings import Settings
from starter.embedded.child import Child
from starter.embedded.errors import EmbeddedError
from starter.embedded.progress import ConsoleProgress
from starter.embedded.stack import Stack, StackConfig, until_signal
from workflows.client import TemporalAddress, connect
from workflows.messages import SEARCH_ATTRIBUTES, TASK_QUEUE

PASSWORD_FILE = "admin-password"  # noqa: S105 - a file's name


async def up(settings: Settings) -> None:
    console = Console()
    progress = ConsoleProgress(console)
    with until_signal():
        async with Stack(_config(settings), progress) as stack:
            password = admin_password(settings, stack.data)
            env = _environment(settings, stack, password)
            await stack.add(_worker(settings, env))
            await stack.add(_api(settings, env))
            progress.close()
            _tell(console, settings, stack, password)
            await stack.forever()
    console.print("Stopped. Everything is kept; `make up` goes on from here.")


def admin_password(settings: Settings, data: Path) -> str:
    """The given one, or the kept one, or a new one: kept so that a lost terminal costs nothing."""
    if settings.codehub_admin_password is not None:
        return settings.codehub_admin_password.get_secret_value()
    kept = data / PASSWORD_FILE
    try:
        if kept.exists():
            return kept.read_text().strip()
        password = secrets.token_urlsafe(15)
        with os.fdopen(os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(password + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise EmbeddedError(f"Can't keep the admin password in {kept} ({error.strerror}).") from error
    return password


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
    if stack.temporal_ui_url and not settings.temporal_ui_url:
        env["TEMPORAL_UI_URL"] = stack.temporal_ui_url
    return env


def _worker(settings: Settings, env: dict[str, str]) -> Child:
    async def ready() -> None:
        client = await connect(TemporalAddress(env["TEMPORAL_ADDRESS"], settings.temporal_namespace))
        described = await client.workflow_service.describe_task_queue(
            DescribeTaskQueueRequest(
                namespace=client.namespace,
                task_queue=TaskQueue(name=TASK_QUEUE),
                task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            )
        )
        if not described.pollers:
            raise ConnectionError("no worker polls yet")

    return _child("worker", env, ready, settings.worker_drain_seconds)


def _api(settings: Settings, env: dict[str, str]) -> Child:
    async def ready() -> None:
        url = f"{_url(settings)}/health/ready"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            response.raise_for_status()

    return _child("api", env, ready, patience=5)


def _child(name: str, env: dict[str, str], ready: object, patience: float) -> Child:
    return Child(
        name=name,
        argv=(sys.executable, "-m", "starter.cli", name),
        env=env,
        ready=ready,  # type: ignore[arg-type]
        ready_within=60,
        stop_patience=patience,
    )


def _url(settings: Settings) -> str:
    host = "127.0.0.1" if settings.codehub_host in {"0.0.0.0", "::"} else settings.codehub_host  # noqa: S104
    return f"http://{host}:{settings.codehub_port}"


def _tell(console: Console, settings: Settings, stack: Stack, password: str) -> None:
    ui = settings.temporal_ui_url or stack.temporal_ui_url
    console.print()
    console.print(f"  codehub is ready   {_url(settings)}", highlight=False)
    console.print(f"  log in as          admin / {password}", highlight=False, markup=False)
    if ui:
        console.print(f"  Temporal UI        {ui}", highlight=False)
    console.print(f"  data and logs      {stack.data}", highlight=False, markup=False)
    console.print("\n  Ctrl-C stops everything; nothing is lost.", highlight=False)


def run(settings: Settings) -> None:
    asyncio.run(up(settings))
