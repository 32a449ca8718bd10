"""What is around a node: the other nodes, and the services that codehub itself uses. Workspaces reach neither."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Any

import structlog

from adapters.docker.config import DockerConfig
from adapters.docker.rules import Closed
from domain.errors import WorkspaceError

log = structlog.get_logger()

PATIENCE = 3.0
"""Seconds that starts wait for one of these answers, at most."""

_NO_IPV4 = {socket.EAI_NODATA, socket.EAI_ADDRFAMILY}
"""The name is known, and workspaces have no other way to where it leads."""
Neighbours = Callable[[], Awaitable[Collection[str]]]
"""The addresses of all nodes. Raises an error of `domain.errors` while they can't be had."""


@dataclass(slots=True)
class Surroundings:
    config: DockerConfig
    neighbours: Neighbours | None = None
    _nodes: tuple[str, ...] = field(default=(), init=False)
    _known: dict[str, set[str]] = field(default_factory=dict, init=False)
    """What each name has led to. A name server may tell some of a service's addresses, and others the next time."""

    _unresolved: set[str] = field(default_factory=set, init=False)
    _asked: "dict[str, asyncio.Future[list[Any]]]" = field(default_factory=dict, init=False)
    """Each name once at a time: a question that nobody answers keeps a thread for long."""

    async def look(self) -> Closed:
        """What could not be asked is as it was."""
        heard = await self._ask_nodes()
        named = {host for host, _ in self.config.services} | {host for host in self._nodes if not _is_address(host)}
        resolved = await asyncio.gather(*(self._resolve(host) for host in named))
        return Closed(
            networks=tuple(network for network in self.config.blocked_networks if ip_network(network).version == 4),
            hosts=tuple(sorted({one for host in self._nodes for one in self._addresses(host) if _off_loopback(one)})),
            services=tuple(
                sorted(
                    {
                        (one, port)
                        for host, port in self.config.services
                        for one in self._addresses(host)
                        if is_inside(one)
                    }
                )
            ),
            is_all=heard and all(resolved),
        )

    async def _ask_nodes(self) -> bool:
        if self.neighbours is None:
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                self._nodes = tuple(await self.neighbours())
        except (WorkspaceError, TimeoutError) as error:
            log.warning("nodes_not_asked", error=str(error))
            return False
        return True

    async def _resolve(self, host: str) -> bool:
        if _is_address(host):
            return True
        if host not in self._asked:
            answer = asyncio.get_running_loop().getaddrinfo(host, None, family=socket.AF_INET)
            self._asked[host] = asyncio.ensure_future(answer)
        asked = self._asked[host]
        try:
            async with asyncio.timeout(PATIENCE):
                found = await asyncio.shield(asked)
        except (OSError, UnicodeError, TimeoutError) as error:
            if isinstance(error, socket.gaierror) and error.errno in _NO_IPV4:
                return True
            if host not in self._unresolved:
                self._unresolved.add(host)
                log.warning("name_not_resolved", host=host, error=str(error))
            return False
        finally:
            if asked.done():
                self._asked.pop(host, None)
        self._unresolved.discard(host)
        self._known.setdefault(host, set()).update(str(entry[4][0]) for entry in found)
        return True

    def _addresses(self, host: str) -> list[str]:
        """IPv4 alone: workspaces have no other."""
        return sorted(self._known.get(host, ())) if not _is_address(host) else [host] if "." in host else []


def is_inside(address: str) -> bool:
    """Whether a service there is closed. What the whole internet reaches is not; loopback is each workspace's own."""
    return not IPv4Address(address).is_global and _off_loopback(address)


def _off_loopback(address: str) -> bool:
    return not (IPv4Address(address).is_loopback or IPv4Address(address).is_unspecified)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
