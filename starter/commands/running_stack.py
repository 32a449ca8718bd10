"""Where a running `codehub up` has its services, for the operator's commands: CODEHUB_DATA/run/env.json.

It holds secrets, so only its owner can read it. It counts for as long as the `up` that wrote it holds the lock of the
data directory: what a killed one left behind names services that are gone.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DEFAULT_DATA = ".codehub"
ADDRESSES = ("DATABASE_URL", "REDIS_URL", "S3_ENDPOINT", "TEMPORAL_ADDRESS")


@dataclass(frozen=True, slots=True)
class Filled:
    environment: Mapping[str, str]
    told: str | None = None
    """What a person should know about it."""
    down: str | None = None
    """Nothing else is named, and the installation that is here does not run."""


def publish(data: Path, environment: Mapping[str, str]) -> None:
    from starter.embedded.state import write_atomically

    write_atomically(_file(data), json.dumps(dict(environment), indent=2, sort_keys=True) + "\n")


def withdraw(data: Path) -> None:
    _file(data).unlink(missing_ok=True)


def fill(environment: Mapping[str, str]) -> Filled:
    """What is unset, from the running `up`. All or nothing: one service of yours and another of its would be a mix
    that belongs to no installation.
    """
    data = Path(environment.get("CODEHUB_DATA") or DEFAULT_DATA)
    try:
        running = _published(data)
    except PermissionError:
        told = f"A codehub up may run in {data.resolve()}, but only its owner may use its services."
        return Filled(environment, told)
    except (OSError, ValueError, AttributeError):
        return Filled(environment, down=_down(environment, data))
    if not _is_held(data / "lock"):
        return Filled(environment, down=_down(environment, data))
    others = [name for name in ADDRESSES if environment.get(name) and environment[name] != running.get(name)]
    if others:
        told = f"{others[0]} is not that of the codehub up in {data.resolve()}: nothing of it is used."
        return Filled(environment, told)
    unset = {name: value for name, value in running.items() if not environment.get(name)}
    return Filled(
        {**environment, **unset}, f"Using the services of the codehub up in {data.resolve()}." if unset else None
    )


def running_url(environment: Mapping[str, str]) -> str | None:
    """Where the `up` that runs here is reached by its users."""
    data = Path(environment.get("CODEHUB_DATA") or DEFAULT_DATA)
    try:
        running = _published(data)
        host, port = running["CODEHUB_HOST"], running["CODEHUB_PORT"]
    except (OSError, ValueError, AttributeError, KeyError):
        return None
    return local_url(host, port) if _is_held(data / "lock") else None


def local_url(host: str, port: object) -> str:
    """Of a server that listens on `host`, from its own machine."""
    return f"http://{'127.0.0.1' if host in {'0.0.0.0', '::'} else host}:{port}"  # noqa: S104


def _published(data: Path) -> dict[str, str]:
    return {str(name): str(value) for name, value in json.loads(_file(data).read_text()).items()}


def _down(environment: Mapping[str, str], data: Path) -> str | None:
    lock = data / "lock"
    if any(environment.get(name) for name in ADDRESSES) or not lock.exists():
        return None
    if _is_held(lock):
        return f"The codehub of {data.resolve()} is starting or stopping: wait until it says that it is ready."
    return f"The codehub of {data.resolve()} is not running: start it with make up (codehub up)."


def _file(data: Path) -> Path:
    return data / "run" / "env.json"


def _is_held(lock: Path) -> bool:
    try:
        handle = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(handle)
