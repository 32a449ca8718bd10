"""The network of a private Docker engine: a bridge and addresses of its own.

Two engines on one machine share `docker0` and its subnet unless told otherwise, and each would hand out the other's
addresses. Networks that people create are no trouble: an engine takes only what no route of the machine touches. (An
address pool of its own would be trouble: an engine that is given one removes `docker0`, whoever it belongs to.)
The system calls are used as they are, since `ip` isn't everywhere.
"""

import contextlib
import fcntl
import ipaddress
import secrets
import shlex
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from starter.embedded.errors import EmbeddedError

SIOCSIFADDR = 0x8916
SIOCSIFFLAGS = 0x8914
SIOCSIFNETMASK = 0x891C
SIOCBRADDBR = 0x89A0
SIOCBRDELBR = 0x89A1
IFF_UP = 1
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"}

# From the upper part of 10/8, which routers and clouds use least.
RANGE = ipaddress.IPv4Network("10.192.0.0/10")
PREFIX = 24


def choose_subnet() -> str:
    """Addresses that no route of this machine touches."""
    for _ in range(200):
        number = secrets.randbelow(2 ** (PREFIX - RANGE.prefixlen))
        subnet = ipaddress.IPv4Network((int(RANGE.network_address) + number * 2 ** (32 - PREFIX), PREFIX))
        if Bridge("", subnet).is_free():
            return str(subnet)
    raise EmbeddedError(f"No free addresses in {RANGE} for a private Docker engine: name an engine in DOCKER_HOST.")


@dataclass(frozen=True)
class Bridge:
    """`name` has at most 15 characters: the kernel's limit."""

    name: str
    subnet: ipaddress.IPv4Network

    def is_free(self) -> bool:
        """Whether no other interface, such as a VPN that came up since, has a way to these addresses."""
        return not any(self.subnet.overlaps(route) for interface, route in _routes() if interface != self.name)

    def create(self) -> None:
        try:
            with contextlib.suppress(FileExistsError):
                _ioctl(SIOCBRADDBR, self.name.encode() + b"\0")
            _ioctl(SIOCSIFADDR, _request(self.name, _address(str(self.subnet[1]))))
            _ioctl(SIOCSIFNETMASK, _request(self.name, _address(str(self.subnet.netmask))))
            _ioctl(SIOCSIFFLAGS, _request(self.name, struct.pack("h", IFF_UP)))
        except OSError as error:
            raise EmbeddedError(
                f"Can't create the network bridge {self.name} for a private Docker engine ({error.strerror}): "
                f"name a running engine in DOCKER_HOST."
            ) from error

    def remove(self, networks: Path, deadline: float) -> None:
        """The bridge, those of the engine's networks (`networks` is its record of them), and the rules for them: as
        many as can be had from a packet filter that is busy, until `deadline` of the monotonic clock.
        """
        names = [self.name, *bridges_of(networks)]
        for name in names:
            with contextlib.suppress(OSError):
                _ioctl(SIOCSIFFLAGS, _request(name, struct.pack("h", 0)))
                _ioctl(SIOCBRDELBR, name.encode() + b"\0")
        for table in ("filter", "nat"):
            _remove_rules(table, names, deadline)


def bridges_of(networks: Path) -> list[str]:
    """The engine is gone and can't be asked; its own store names the bridge of every network it had."""
    try:
        store = networks.read_bytes()
    except OSError:
        return []
    names = [folder.parent.name for folder in Path("/sys/class/net").glob("*/bridge")]
    return [name for name in names if name != "docker0" and f'"{name}"'.encode() in store]


def _remove_rules(table: str, names: list[str], deadline: float) -> None:
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        rules = _run(deadline, "iptables-save", "-t", table).stdout
        for words in map(shlex.split, rules.splitlines()):
            if words[:1] == ["-A"] and any(name in words for name in names):
                _run(deadline, "iptables", "-w", "-t", table, "-D", *words[1:])


def _run(deadline: float, *command: str) -> subprocess.CompletedProcess[str]:
    left = max(deadline - time.monotonic(), 0.0)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=left, env=ENVIRONMENT)


def _routes() -> Iterator[tuple[str, ipaddress.IPv4Network]]:
    for line in Path("/proc/net/route").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        target, mask = (socket.ntohl(int(fields[column], 16)) for column in (1, 7))
        if mask:
            yield fields[0], ipaddress.IPv4Network((target, mask.bit_count()))


def _address(text: str) -> bytes:
    return struct.pack("HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))


def _request(name: str, value: bytes) -> bytes:
    return struct.pack("16s24s", name.encode(), value)


def _ioctl(number: int, argument: bytes) -> bytes:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as handle:
        return fcntl.ioctl(handle, number, argument)
