"""A private Docker engine, where none is reachable."""

import asyncio
import contextlib
import ctypes
import hashlib
import ipaddress
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starter.embedded.bridge import Bridge, choose_subnet
from starter.embedded.child import Child
from starter.embedded.engine import answers
from starter.embedded.errors import EmbeddedError
from starter.embedded.launch import identity
from starter.embedded.record import wait_for
from starter.embedded.state import State

# A Unix socket's path has room for 107 bytes; containerd's is the longest below the exec-root.
LONGEST_SOCKET = 107
DEEPEST = len("/containerd/containerd.sock.ttrpc")
MNT_DETACH = 2
# How long a container may take to end when its engine ends, and how long the engine takes after the last of them.
CONTAINER_GRACE = 4.0
ENGINE_SECONDS = 1.5
# Signalled, a process is gone in no time, unless the machine is very busy.
KILLED_SECONDS = 3.0
CLEAR_SECONDS = 10.0
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
        bridge = Bridge(f"chub-{tag}", ipaddress.IPv4Network(state.note("docker-subnet", choose_subnet)))
        if not bridge.is_free():
            state.forget("docker-subnet")
            bridge = Bridge(bridge.name, ipaddress.IPv4Network(state.note("docker-subnet", choose_subnet)))
        return cls(data=data, tag=tag, bridge=bridge)

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def socket(self) -> Path:
        return self.runtime / "docker.sock"

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
                # Workspaces are on it where names can be resolved there.
                "--icc=false",
                # Where a containerd of the system runs, dockerd uses that one: keep apart from its other users.
                f"--containerd-namespace=codehub-{self.tag}",
                f"--containerd-plugins-namespace=codehub-{self.tag}-plugins",
                "--log-level=warn",
                # The machine's own configuration is for the machine's own engine.
                f"--config-file={self.folder / 'daemon.json'}",
            ),
            # It calls iptables and containerd by name.
            env={"PATH": SEARCHED},
            prepare=self._prepare,
            ready=self._ready,
            at_stop=self._hurry_containers,
            cleanup=self._cleanup,
            ready_within=60.0,
            stop_patience=7.0,
            force_seconds=2.0,
            # Not SIGKILL: it takes its containers and its containerd along.
            death_signal=signal.SIGTERM,
        )

    async def _prepare(self) -> None:
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        self.runtime.mkdir(mode=0o711, parents=True, exist_ok=True)
        (self.folder / "daemon.json").write_text("{}\n", encoding="utf-8")
        # No engine of this data directory runs: its lock is held and leftovers were ended, so these are stale. An
        # engine waits for a containerd that its file names, even for one that is dead and waits to be reaped.
        (self.runtime / "docker.pid").unlink(missing_ok=True)
        self._end_containerd()
        await asyncio.to_thread(end_containers, self.runtime, CONTAINER_GRACE)
        self.bridge.create()

    def _end_containerd(self) -> None:
        path = self.runtime / "containerd" / "containerd.pid"
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text(encoding="ascii"))
            if os.fsencode(self.runtime) in Path(f"/proc/{pid}/cmdline").read_bytes():
                _signal([pid], signal.SIGKILL)
                wait_for(lambda: identity(pid) is None, KILLED_SECONDS)
        path.unlink(missing_ok=True)

    async def _ready(self) -> None:
        if not await answers(self.socket):
            raise ConnectionError("no answer yet")

    async def _hurry_containers(self, patience: float) -> None:
        """The engine would give the last container ten seconds and more, whatever its --shutdown-timeout."""
        await asyncio.sleep(min(CONTAINER_GRACE, max(patience - ENGINE_SECONDS, 0.0)))
        await asyncio.to_thread(end_containers, self.runtime, within=ENGINE_SECONDS)

    async def _cleanup(self, within: float) -> None:
        await asyncio.to_thread(self.clear, within)

    def clear(self, within: float = CLEAR_SECONDS) -> None:
        """Remove from the machine what an engine that is gone left on it, its data apart: also one that was killed.

        Processes are killed in any case; only the wait for their end, and for the packet filter, is cut short.
        """
        deadline = time.monotonic() + within
        end_containers(self.runtime, within=within / 2)
        self.bridge.remove(self.folder / "root" / "network" / "files" / "local-kv.db", deadline)
        unmount_below(self.runtime)
        unmount_below(self.folder)
        if self.runtime.parent != self.folder:
            shutil.rmtree(self.runtime, ignore_errors=True)


def _find() -> str | None:
    return shutil.which("dockerd", path=SEARCHED)


def end_containers(runtime: Path, grace: float = 0.0, within: float = KILLED_SECONDS) -> None:
    """End what outlives an engine that was killed: the containers below the shims that name `runtime`.

    They have `grace` seconds to end by themselves; once killed, they are waited for `within` seconds.
    """
    shims = list(_shims(runtime))
    containers = [child for shim in shims for child in _children(shim)]
    # A container's first process takes all of the container along.
    if grace:
        _signal(containers, signal.SIGTERM)
        wait_for(lambda: not any(map(identity, containers)), grace)
    deadline = time.monotonic() + within
    _signal(containers, signal.SIGKILL)
    wait_for(lambda: not any(map(identity, containers)), within)
    _signal(shims, signal.SIGKILL)
    wait_for(lambda: not any(map(identity, shims)), deadline - time.monotonic())


def _shims(runtime: Path) -> Iterator[int]:
    wanted = os.fsencode(runtime.resolve()) + b"/"
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if b"containerd-shim" in words[0] and any(word.startswith(wanted) for word in words):
                yield int(folder.name)


def _children(pid: int) -> list[int]:
    """Of all its threads: any of them may have started one."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text(encoding="ascii").split())
    return found


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def unmount_below(folder: Path) -> None:
    """What a killed engine left mounted would keep its directory from being removed."""
    inside = os.fspath(folder.resolve()) + "/"
    with contextlib.suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
        places = [line.split()[4].encode().decode("unicode_escape") for line in mounts.splitlines()]
        libc = ctypes.CDLL(None)
        for place in sorted((place for place in places if place.startswith(inside)), reverse=True):
            libc.umount2(os.fsencode(place), MNT_DETACH)
