"""Whether names can be resolved on a Docker engine's default network.

On networks with a name the engine asks this machine's name servers itself, also those on loopback. On the default one
a container gets them as they stand in resolv.conf, without those on loopback, which would be the container's own, and
those of IPv6, which that network doesn't have. Where none is left, it gets public ones.
"""

import errno
import ipaddress
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")
STUB = ipaddress.IPv4Address("127.0.0.53")
"""Of systemd-resolved: where it is the only one, the engine looks behind it."""
BEHIND_STUB = Path("/run/systemd/resolve/resolv.conf")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_of_this_machine(address: Address) -> bool:
    """Nobody can listen at an address that is another's."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        return error.errno != errno.EADDRNOTAVAIL
    return True


def default_network_resolves(
    resolv_conf: Path = RESOLV_CONF,
    behind_stub: Path = BEHIND_STUB,
    is_ours: Callable[[Address], bool] = is_of_this_machine,
) -> bool:
    """False where a container would ask name servers that it can't reach, or others than this machine's."""
    servers = list(_servers(resolv_conf))
    if servers == [STUB]:
        servers = list(_servers(behind_stub))
    if not servers:
        # Nobody knows any name then, on whatever network.
        return True
    handed_on = [server for server in servers if server.version == 4 and not server.is_loopback]
    # What is sent to this machine itself is dropped (adapters.docker.firewall): each lookup would wait for it.
    return bool(handed_on) and not any(map(is_ours, handed_on))


def _servers(resolv_conf: Path) -> Iterator[Address]:
    try:
        text = resolv_conf.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        match line.partition("#")[0].split():
            case ["nameserver", server, *_]:
                try:
                    yield ipaddress.ip_address(server)
                except ValueError:
                    # Nor does the engine take it for one.
                    continue
