"""The logins that `codehub login` keeps: one API token per server, in a file that only its owner can read."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starter.commands.failure import CommandFailed, Exit

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True, slots=True)
class KeptLogin:
    username: str
    token_id: str
    token: str = field(repr=False)


class KeptLogins:
    def __init__(self, folder: Path | None = None) -> None:
        self.path = (folder or config_folder()) / "logins.json"

    @property
    def latest_url(self) -> str | None:
        """Where the last login was: what a command means that names no server."""
        latest = self._read()["latest"]
        return latest if isinstance(latest, str) else None

    def get(self, url: str) -> KeptLogin | None:
        try:
            return KeptLogin(**self._read()["logins"][url])
        except (KeyError, TypeError):
            return None

    def keep(self, url: str, login: KeptLogin) -> None:
        with self._changing() as kept:
            kept["logins"][url] = asdict(login)
            kept["latest"] = url

    def forget(self, url: str) -> None:
        with self._changing() as kept:
            kept["logins"].pop(url, None)
            if kept["latest"] == url:
                kept["latest"] = next(reversed(kept["logins"]), None)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """Two logins at once must not lose each other's; a crash leaves the old file or the new one."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self.path.with_suffix(".lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                kept = self._read()
                yield kept
                self._write(kept)
        except OSError as error:
            raise CommandFailed(
                f"Can't keep the login in {self.path} ({error.strerror}): name another directory in CODEHUB_CONFIG."
            ) from error

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self.path.read_text(encoding="utf-8"))
            return {"latest": kept["latest"], "logins": dict(kept["logins"])}
        except FileNotFoundError:
            return {"latest": None, "logins": {}}
        except OSError as error:
            raise CommandFailed(
                f"Can't read {self.path} ({error.strerror}): name another directory in CODEHUB_CONFIG."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CommandFailed(f"{self.path} is damaged: remove it, and log in again.") from error

    def _write(self, kept: dict[str, Any]) -> None:
        temporary = self.path.with_suffix(".tmp")
        with suppress(FileNotFoundError):
            temporary.unlink()
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(kept, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)


def config_folder() -> Path:
    given = os.environ.get("CODEHUB_CONFIG")
    if given:
        return Path(given)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "codehub"


def normal_url(given: str) -> str:
    """One spelling for one server."""
    text = given.strip()
    if "://" not in text:
        text = f"{'http' if _is_local(urlsplit(f'//{text}').hostname) else 'https'}://{text}"
    try:
        parts = urlsplit(text)
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise _bad_url(given) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise _bad_url(given)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{port}{parts.path.rstrip('/')}"


def is_private(url: str) -> bool:
    """Whether nobody on the way can read what is sent."""
    parts = urlsplit(url)
    return parts.scheme == "https" or _is_local(parts.hostname)


def is_local(url: str) -> bool:
    return _is_local(urlsplit(url).hostname)


def _is_local(host: str | None) -> bool:
    return host is not None and (host in {"localhost", "::1"} or host.startswith("127."))


def _bad_url(given: str) -> CommandFailed:
    return CommandFailed(
        f"{given!r} is no address of a server: https://codehub.example.org or {DEFAULT_URL} would be.", Exit.USAGE
    )
