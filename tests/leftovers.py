"""What a test run may have left on the machine: processes, folders, mounts, bridges, packet filter rules, sockets
(PROMISE 38).

Containers, volumes and images are below the root of a run that has an engine of its own; on another engine they carry
the run's label, see `tests.embedded.image`.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from starter.embedded.bridge import bridges_of
from starter.embedded.seaweed import sockets_of

STORE = "docker/root/network/files/local-kv.db"
"""Where an engine keeps which bridges it made."""
STATE = "state.json"
"""Where a data directory keeps its ports."""


@dataclass(frozen=True)
class Traces:
    """How a run's leftovers are known. Taken while its folder is there."""

    root: Path
    bridges: frozenset[str]
    s3_ports: frozenset[int]

    @classmethod
    def of(cls, root: Path) -> "Traces":
        stores = [root / STORE, *root.glob(f"*/{STORE}")]
        states = [root / STATE, *root.glob(f"*/{STATE}")]
        return cls(
            root,
            frozenset(name for store in stores for name in bridges_of(store)),
            frozenset(port for state in states for port in _s3_ports(state)),
        )

    @property
    def installation(self) -> str:
        return self.root.name.removeprefix("codehub-")

    def left_in_the_end(self, seconds: float = 60.0) -> list[str]:
        """What was told to end may take a moment."""
        deadline = time.monotonic() + seconds
        while (found := self.left()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def left(self) -> list[str]:
        """One line for each thing that is still there."""
        mounts = Path("/proc/self/mountinfo")
        return [
            *([f"folder {self.root}"] if self.root.exists() else []),
            *(f"process {line}" for line in processes_of(self.root)),
            *(f"mount {line}" for line in _lines(mounts) if f"{self.root}/" in line),
            *(f"bridge {name}" for name in self.bridges if Path(f"/sys/class/net/{name}").exists()),
            *(f"rule {rule}" for rule in _rules(self.installation)),
            *(f"socket {path}" for path in sockets_of(self.s3_ports)),
        ]


def remove_rules(installation: str) -> None:
    """Of networks that an engine forgot before their worker could take them out."""
    for rule in _rules(installation):
        subprocess.run(["iptables", "-w", "-D", *shlex.split(rule)[1:]], check=False, capture_output=True)


def _s3_ports(state: Path) -> list[int]:
    try:
        ports = json.loads(state.read_text(encoding="utf-8"))["ports"]
    except (OSError, ValueError, KeyError):
        return []
    return [port for name, port in ports.items() if name.startswith("s3-")]


def _rules(installation: str) -> list[str]:
    if os.geteuid() != 0 or shutil.which("iptables") is None:
        return []
    done = subprocess.run(["iptables", "-w", "-S"], check=False, capture_output=True, text=True)
    owners = (f'"codehub:{installation}"', f'"codehub:{installation}-')
    return [line for line in done.stdout.splitlines() if any(owner in line for owner in owners)]


def processes_of(root: Path) -> list[str]:
    """Those that name the folder in their command or environment, this one and its parents apart."""
    name, family, found = os.fsencode(root), _family(), []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            # A zombie has neither, and is for its parent to reap.
            if int(folder.name) not in family and (name in command or name in (folder / "environ").read_bytes()):
                found.append(f"{folder.name} {command.decode(errors='replace').replace(chr(0), ' ')[:200]}")
    return found


def _family() -> set[int]:
    pid, family = os.getpid(), set()
    while pid:
        family.add(pid)
        with contextlib.suppress(OSError):
            pid = int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            continue
        break
    return family


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
