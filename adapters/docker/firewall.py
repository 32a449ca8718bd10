"""Packet filter rules that keep workspaces away from the machine's own ports, other bridges, other nodes, codehub's
services and cloud metadata.

Docker lets every container reach the machine itself, on any of its addresses. Between its bridges it puts rules of
its own, but those are gone as soon as a second engine starts on the machine, or somebody reloads the firewall.
"""

import os
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass, field

import structlog

from adapters.docker.bridges import inner_bridges
from adapters.docker.rules import BRIDGES, NOTHING, Closed, Rule, forward_chain, missing, ours, wanted

log = structlog.get_logger()

IPTABLES_TIMEOUT = 10


@dataclass(slots=True)
class Firewall:
    """Rules for the traffic that comes in from one bridge. Blocking: call it from a thread."""

    bridge: str
    owner: str
    closed: Closed = NOTHING
    _warned: str | None = field(default=None, init=False)

    def ensure(self) -> str | None:
        """Put in what is missing, and take out what is not wanted any more. What kept it from that, where it could have
        been done; where it can't be, that is said once."""
        obstacle, failure = self._obstacle(), None
        if obstacle is None:
            try:
                self._put_right()
            except (OSError, subprocess.SubprocessError) as error:
                obstacle = failure = f"iptables failed: {error}"
        if obstacle is not None and obstacle != self._warned:
            log.warning(
                "workspaces_can_reach_the_host",
                bridge=self.bridge,
                reason=obstacle,
                detail="services of this machine that listen on 0.0.0.0 can be reached from workspaces, and so can "
                "other nodes: let them listen on 127.0.0.1, or add a rule that drops what comes in from the bridge",
            )
        self._warned = obstacle
        return failure

    def remove(self) -> None:
        """Take out what `ensure` put in, also where two processes put it in twice."""
        if _can_filter() is not None:
            return
        try:
            for rule in ours(_listing(), self.bridge, self.owner):
                _iptables("-D", rule)
        except (OSError, subprocess.SubprocessError) as error:
            log.warning("firewall_rules_stay", bridge=self.bridge, error=str(error))

    def _put_right(self) -> None:
        """One look, as a rule, and nothing to do."""
        listing = _listing()
        there = ours(listing, self.bridge, self.owner)
        rules = wanted(self.bridge, self.owner, forward_chain(listing), _bridges(), self.closed)
        put_in, is_read = 0, True
        for rule in missing(there, rules):
            if _iptables("-C", rule):
                is_read = False  # this iptables writes it in another way
                continue
            # First place: a general ACCEPT further up would let everything pass.
            if not _iptables("-I", rule):
                raise OSError(f"rule refused: {rule.chain} {' '.join(rule.words)}")
            put_in += 1
        # By now all that is to be closed is. A rule too many does less harm than one too few.
        left = missing(rules, there) if is_read and self.closed.is_all else []
        for rule in left:
            _iptables("-D", rule)
        if put_in or left:
            log.info("firewall_changed", bridge=self.bridge, put_in=put_in, taken_out=len(left))

    def _obstacle(self) -> str | None:
        try:
            socket.if_nametoindex(self.bridge)
        except OSError:
            return "the engine's network is not on this machine"
        return _can_filter()


def _bridges() -> list[str]:
    docker = tuple(name.removesuffix("+") for name in BRIDGES)
    return [*BRIDGES, *(name for name in inner_bridges() if not name.startswith(docker))]


def _can_filter() -> str | None:
    if sys.platform != "linux" or os.geteuid() != 0:
        return "not root on Linux"
    if shutil.which("iptables") is None:
        return "iptables is not installed"
    return None


def _listing() -> str:
    done = _run("-S")
    if done.returncode:
        raise OSError(done.stderr.strip())
    return done.stdout


def _iptables(command: str, rule: Rule) -> bool:
    place = ("1",) if command == "-I" else ()
    return _run(command, rule.chain, *place, *rule.words).returncode == 0


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["iptables", "-w", "5", *arguments], capture_output=True, text=True, timeout=IPTABLES_TIMEOUT, check=False
    )
