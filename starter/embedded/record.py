"""Which process is which child: written by `launch`, read by the next start to end what a crash left running."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from starter.embedded.launch import identity

log = structlog.get_logger()

POLITE_SECONDS = 5.0
FORCED_SECONDS = 5.0


def end_leftovers(folder: Path) -> list[str]:
    """End every recorded process that still lives, and what is left of its process group. Returns their names.

    The caller holds the data directory's lock, so whatever a record names has no supervisor any more.
    """
    ended = []
    for path in sorted(folder.glob("*.json")):
        pid, recorded, stop_signal = _read(path)
        if pid and (identity(pid) == recorded or _orphans(pid)):
            log.info("embedded_leftover_ended", child=path.stem, pid=pid)
            ended.append(path.stem)
            _end(pid, recorded, stop_signal)
        path.unlink(missing_ok=True)
    return ended


def signal_group(pid: int, number: int) -> None:
    """To a child and all of its own group. A child leads a session of its own, so the group is named after it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _end(pid: int, recorded: str | None, stop_signal: int) -> None:
    if identity(pid) == recorded:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, stop_signal)
        wait_for(lambda: identity(pid) != recorded, POLITE_SECONDS)
    if identity(pid) == recorded or _orphans(pid):
        signal_group(pid, signal.SIGKILL)
        wait_for(lambda: identity(pid) != recorded and not _orphans(pid), FORCED_SECONDS)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)


def _orphans(leader: int) -> bool:
    """Whether members of the group outlived their leader. While they do, no new process gets the leader's number."""
    if sys.platform != "linux" or Path(f"/proc/{leader}").exists():
        return False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, group, session = stat.read_text(errors="replace").rpartition(")")[2].split()[:4]
            if state not in "ZX" and group == session == str(leader):
                return True
    return False


def _read(path: Path) -> tuple[int, str | None, int]:
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        return int(kept["pid"]), str(kept["identity"]), int(kept["stop_signal"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0, None, 0
