"""A private Docker engine, where none is reachable."""

import contextlib
import ctypes
import hashlib
import ipaddress
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from starter.embedded.bridge import Bridge, choose_subnet
from starter.embedded.child import Child
from starter.embedded.engine import answers
from starter.embedded.errors import EmbeddedError
from starter.embedded.state import State

# A Unix socket's path has room for 107 bytes; containerd's is the longest below the exec-root.
LONGEST_SOCKET = 107
DEEPEST = len("/containerd/containerd.sock.ttrpc")
MNT_DETACH = 2
SEARCHED = f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin"


@dataclass(frozen=True, kw_only=True)
class Dockerd:
    data: Path
    bridge: Bridge
    # Names this engine's things on the machine, the same at every start.
    tag: str

    @classmethod
    def from_state(cls, data: Path, state: State) -> "Dockerd":
        tag = hashlib.sha256(os.fsencode(data.resolve())).hexdigest()[:8]
        subnet = state.note("docker-subnet", choose_subnet)
        return cls(data=data, tag=tag, bridge=Bridge(f"chub-{tag}", ipaddress.IPv4Network(subnet)))

    @property
    def host(self) -> str:
        return f"unix://{self.runtime / 'docker.sock'}"

    @property
    def folder(self) -> Path:
        return self.data / "docker"

    @property
    def runtime(self) -> Path:
        """For sockets: in the data directory, or elsewhere under a short stable name where its path is too long."""
        inside = self.folder / "run"
        if len(os.fsencode(inside.resolve())) + DEEPEST <= LONGEST_SOCKET:
            return inside
        base = Path("/run") if os.access("/run", os.W_OK) else Path("/tmp")  # noqa: S108
        return base / f"codehub-{self.tag}"

    @staticmethod
    def installed() -> bool:
        """Whether this machine and this user can run one."""
        return sys.platform == "linux" and os.geteuid() == 0 and _find() is not None

    def child(self) -> Child:
        dockerd = _find()
        if dockerd is None:
            raise EmbeddedError("dockerd is not installed: install Docker Engine, or name one in DOCKER_HOST.")
        return Child(
            name="dockerd",
            argv=(
                dockerd,
                f"--host={self.host}",
                f"--data-root={self.folder / 'root'}",
                f"--exec-root={self.runtime}",
                f"--pidfile={self.runtime / 'docker.pid'}",
                f"--bridge={self.bridge.name}",
                # Where a containerd of the system runs, dockerd uses that one: keep apart from its other users.
                f"--containerd-namespace=codehub-{self.tag}",
                f"--containerd-plugins-namespace=codehub-{self.tag}-plugins",
                "--shutdown-timeout=4",
                "--log-level=warn",
                # The machine's own configuration is for the machine's own engine.
                f"--config-file={self.folder / 'daemon.json'}",
            ),
            # It calls iptables and containerd by name.
            env={"PATH": SEARCHED},
            prepare=self._prepare,
            ready=self._ready,
            cleanup=self._cleanup,
            ready_within=60.0,
            stop_patience=7.0,
            # Not SIGKILL: it takes its containers and its containerd along.
            death_signal=signal.SIGTERM,
        )

    async def _prepare(self) -> None:
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.runtime.mkdir(mode=0o711, parents=True, exist_ok=True)
        (self.folder / "daemon.json").write_text("{}\n", encoding="utf-8")
        # No other engine of this data directory runs: its lock is held, and leftovers were ended.
        (self.runtime / "docker.pid").unlink(missing_ok=True)
        self.bridge.create()

    async def _ready(self) -> None:
        if not await answers(self.host):
            raise EmbeddedError("no answer yet")

    async def _cleanup(self) -> None:
        end_containers(self.runtime)
        self.bridge.remove(self.folder / "root" / "network" / "files" / "local-kv.db")
        unmount_below(self.runtime)
        unmount_below(self.folder)
        if self.runtime.parent != self.folder:
            shutil.rmtree(self.runtime, ignore_errors=True)


def _find() -> str | None:
    return shutil.which("dockerd", path=SEARCHED)


def end_containers(runtime: Path) -> None:
    """End what outlives an engine that was killed: the shims that name `runtime`, and the containers below them."""
    wanted = os.fsencode(runtime.resolve()) + b"/"
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"shim" in words[0] and any(word.startswith(wanted) for word in words):
                children = (folder / "task" / folder.name / "children").read_text(encoding="ascii").split()
                # A container's first process takes all of the container along.
                for pid in (*children, folder.name):
                    os.kill(int(pid), signal.SIGKILL)


def unmount_below(folder: Path) -> None:
    """What a killed engine left mounted would keep its directory from being removed."""
    inside = os.fspath(folder.resolve()) + "/"
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        places = [line.split()[4].encode().decode("unicode_escape") for line in mounts.splitlines()]
        libc = ctypes.CDLL(None)
        for place in sorted((place for place in places if place.startswith(inside)), reverse=True):
            libc.umount2(os.fsencode(place), MNT_DETACH)
