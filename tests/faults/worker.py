"""The real worker, except that it kills itself at a named point.

CRASH_AT names the point (see Transfers.point), CRASH_MARKER a file that is made right before: a worker that finds it
goes on, so that the one that is started again gets past the point.
"""

import asyncio
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import structlog

from activities.bucket import Bucket
from activities.transfer import Transfers
from adapters.docker.runtime import DockerRuntime
from adapters.s3.store import S3ArchiveStore
from settings import load_settings
from starter.logs import configure_logs
from worker import Parts, actuators, open_parts, running

log = structlog.get_logger()


def run(environment: Mapping[str, str], log_file: str) -> None:
    """What the process does; everything was imported before it was forked."""
    out = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.clear()
    os.environ.update(environment)
    asyncio.run(main())


def crashing(parts: Parts, point: str, marker: Path) -> Parts:
    async def reached(name: str) -> None:
        log.info("reached", point=name)
        if name == point and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    reconciler = parts.operator.reconciler
    archives = reconciler.archives
    assert isinstance(archives, S3ArchiveStore)
    assert isinstance(parts.runtime, DockerRuntime)
    transfers = Transfers(reconciler.store, stall_seconds=parts.settings.archive_stall_seconds, reached=reached)
    direct = os.environ.get("HOMES_DIRECT", "1") == "1"
    bucket = Bucket(archives, parts.runtime.config.installation)
    acts = actuators(parts.runtime, parts.runtime.homes(direct=direct), bucket, transfers)
    backoff = timedelta(seconds=parts.settings.reconciler_retry_backoff)
    return replace(parts, operator=replace(parts.operator, actuators=acts, backoff=backoff))


async def main() -> None:
    settings = load_settings(os.environ)
    configure_logs(settings)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with open_parts(settings) as opened:
        parts = crashing(opened, os.environ.get("CRASH_AT", ""), Path(os.environ["CRASH_MARKER"]))
        async with running(parts):
            log.info("worker_ready")
            await stop.wait()
