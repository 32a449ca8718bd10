"""Packet filter rules that keep workspaces away from the machine's own ports, other bridges and cloud metadata.

Docker lets every container reach the machine itself, on any of its addresses. Between its bridges it puts rules of
its own, but those are gone as soon as a second engine starts on the machine, or somebody reloads the firewall.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import structlog

log = structlog.get_logger()

IPTABLES_TIMEOUT = 10
BRIDGES = ("docker+", "br-+", "ch-+", "chub-+")
"""How Docker names its bridges, and codehub: where other containers are. The plus sign stands for anything."""


@dataclass(slots=True)
class Firewall:
    """Rules for the traffic that comes in from one bridge. Blocking: call it from a thread."""

    bridge: str
    owner: str
    blocked_networks: tuple[str, ...]
    _warned: bool = field(default=False, init=False)

    def ensure(self) -> None:
        """Put in what is missing, or say once that it can't be done."""
        obstacle = self._obstacle()
        if obstacle is None:
            try:
                for chain, rule in self._rules():
                    if not _iptables("-C", chain, *rule):
                        self._insert(chain, rule)
            except (OSError, subprocess.SubprocessError) as error:
                obstacle = f"iptables failed: {error}"
        if obstacle is not None and not self._warned:
            self._warned = True
            log.warning(
                "workspaces_can_reach_the_host",
                bridge=self.bridge,
                reason=obstacle,
                detail="services of this machine that listen on 0.0.0.0 can be reached from workspaces: "
                "let them listen on 127.0.0.1, or add a rule that drops what comes in from the bridge",
            )

    def remove(self) -> None:
        """Take out what `ensure` put in, also where two processes put it in twice."""
        if _can_filter() is not None:
            return
        for chain, rule in self._rules():
            while _iptables("-D", chain, *rule):
                pass

    def _rules(self) -> Iterator[tuple[str, list[str]]]:
        """Each names the bridge: whoever clears up after an engine that is gone finds them by it."""
        mark = ["-m", "comment", "--comment", f"codehub:{self.owner}"]
        # What answers a connection from outside (the published port's) must pass.
        opened_here = ["-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED"]
        yield "INPUT", ["-i", self.bridge, *opened_here, *mark, "-j", "DROP"]
        forward = "DOCKER-USER" if _iptables("-S", "DOCKER-USER") else "FORWARD"
        for other in BRIDGES:
            yield forward, ["-i", self.bridge, "-o", other, *mark, "-j", "DROP"]
        for network in self.blocked_networks:
            for protocol in ("tcp", "udp"):
                # Some clouds have their name server at the metadata service's address.
                other_than_dns = ["-p", protocol, "!", "--dport", "53"]
                yield forward, ["-i", self.bridge, "-d", network, *other_than_dns, *mark, "-j", "DROP"]

    def _insert(self, chain: str, rule: list[str]) -> None:
        # First place: a general ACCEPT further up would let everything pass.
        if not _iptables("-I", chain, "1", *rule):
            raise OSError(f"rule refused: {chain} {' '.join(rule)}")
        log.info("firewall_rule_added", chain=chain, bridge=self.bridge)

    def _obstacle(self) -> str | None:
        try:
            socket.if_nametoindex(self.bridge)
        except OSError:
            return "the engine's network is not on this machine"
        return _can_filter()


def _can_filter() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "not root on Linux"
    if shutil.which("iptables") is None:
        return "iptables is not installed"
    return None


def _iptables(*arguments: str) -> bool:
    done = subprocess.run(
        ["iptables", "-w", "5", *arguments], capture_output=True, timeout=IPTABLES_TIMEOUT, check=False
    )
    return done.returncode == 0
