"""Whether names can be resolved on a Docker engine's default network.

On networks with a name the engine asks this machine's name servers itself, also those on loopback. On the default one
a container gets them as they stand in resolv.conf, without those on loopback, which would be the container's own.
"""

import ipaddress
from pathlib import Path

RESOLV_CONF = Path("/etc/resolv.conf")
STUB = "127.0.0.53"
"""Of systemd-resolved: the engine looks behind it."""


def default_network_resolves(resolv_conf: Path = RESOLV_CONF) -> bool:
    """False where the engine would fall back to name servers of the internet that this machine may not reach."""
    try:
        text = resolv_conf.read_text(encoding="utf-8", errors="replace")
    except OSError:
        # Nobody knows any name then, on whatever network.
        return True
    servers = [words[1] for line in text.splitlines() if (words := line.split())[:1] == ["nameserver"] and words[1:]]
    return servers in ([], [STUB]) or not all(map(_is_loopback, servers))


def _is_loopback(server: str) -> bool:
    try:
        return ipaddress.ip_address(server.partition("%")[0]).is_loopback
    except ValueError:
        return False
