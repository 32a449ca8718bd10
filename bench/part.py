"""A part of the benchmarks and what it found, with its own date: parts may be run one by one."""

import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.growth import Growth
from bench.row import Row


@dataclass
class Part:
    name: str
    date: str
    machine: str
    commit: str
    seconds: float = 0.0
    rows: list[Row] = field(default_factory=list)
    """What is found is added at once, so that it is kept when the rest fails."""
    growth: Growth = field(default_factory=Growth)

    @classmethod
    def begun(cls, name: str) -> "Part":
        return cls(name, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", machine(), commit())

    @classmethod
    def from_json(cls, name: str, body: Mapping[str, Any]) -> "Part":
        return cls(
            name,
            body["date"],
            body["machine"],
            body["commit"],
            body["seconds"],
            [Row.from_json(row) for row in body["rows"]],
            Growth.from_json(body["growth"]),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "date": self.date,
            "machine": self.machine,
            "commit": self.commit,
            "seconds": round(self.seconds, 1),
            "rows": [row.as_json() for row in self.rows],
            "growth": self.growth.as_json(),
        }

    def add(self, *rows: Row) -> None:
        self.rows += rows

    def failed(self, why: str) -> None:
        """So that it can't be overlooked that there should be more."""
        self.add(Row.unmeasured(f"{self.name}: the rest of it", why))

    @property
    def whole(self) -> bool:
        return not any(row.missing for row in self.rows)


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3
    kind = f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GB"
    return f"{kind}, {platform.system()}, Python {platform.python_version()}"


def commit() -> str:
    """With a + where files differ from it."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
