"""Which packet filter rules an installation wants for one bridge, and which are there. Pure: `firewall` acts."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_network

BRIDGES = ("docker+", "br-+", "ch-+", "chub-+")
"""How Docker names its bridges, and codehub: where other containers are. The plus sign stands for anything."""

Words = tuple[str, ...]

_DROP: Words = ("-j", "DROP")
_UNASKED: Words = ("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED")
_ADDRESSES = {"-s", "-d", "--ctorigsrc", "--ctorigdst"}


@dataclass(frozen=True, slots=True)
class Rule:
    chain: str
    words: Words

    @property
    def meaning(self) -> frozenset[tuple[str, ...]]:
        """The same for what `iptables -S` makes of it: other order, masks, and matches that it names by itself."""
        return frozenset(_meaning(self.words))


@dataclass(frozen=True, slots=True)
class Closed:
    """What workspaces don't reach, besides this machine's own ports and the bridges of engines."""

    networks: tuple[str, ...] = ()
    """Name servers in them excepted."""
    hosts: tuple[str, ...] = ()
    """Addresses of nodes, name servers on them excepted."""
    services: tuple[tuple[str, int], ...] = ()
    """Address and port."""
    is_all: bool = True
    """False while something could not be asked: then nothing is opened again for not being named here."""


NOTHING = Closed(is_all=False)


def wanted(bridge: str, owner: str, forward: str, bridges: Iterable[str], closed: Closed) -> list[Rule]:
    """Each names the bridge: whoever clears up after an engine that is gone finds them by it."""
    of_input, of_forward = _into_this_machine(), _elsewhere(bridges, closed)
    mark: Words = ("-m", "comment", "--comment", _comment(owner))
    return [
        Rule(chain, ("-i", bridge, *words, *mark, *_DROP))
        for chain, all_words in (("INPUT", of_input), (forward, of_forward))
        for words in all_words
    ]


def read(listing: str) -> list[Rule]:
    """What `iptables -S` says."""
    return [
        Rule(line.split(" ", 2)[1], tuple(shlex.split(line)[2:]))
        for line in listing.splitlines()
        if line.startswith("-A ")
    ]


def forward_chain(listing: str) -> str:
    """DOCKER-USER is what Docker leaves to others, before its own rules. Whoever flushes all chains cuts it off."""
    return "DOCKER-USER" if "-A FORWARD -j DOCKER-USER" in map(str.strip, listing.splitlines()) else "FORWARD"


def ours(listing: str, bridge: str, owner: str) -> list[Rule]:
    """Of this installation, for this bridge: others' on the same machine are left alone."""
    marked = "\n".join(line for line in listing.splitlines() if _comment(owner) in line)
    theirs = {("-i", bridge), ("--comment", _comment(owner))}
    return [rule for rule in read(marked) if theirs <= rule.meaning]


def missing(there: Sequence[Rule], wanted: Sequence[Rule]) -> list[Rule]:
    known = {(rule.chain, rule.meaning) for rule in there}
    return [rule for rule in wanted if (rule.chain, rule.meaning) not in known]


def _into_this_machine() -> Iterator[Words]:
    # What answers a connection from outside (the published port's) must pass.
    yield _UNASKED
    # And what a workspace has opened must not, also while there was no rule.
    yield _opened_inside()


def _elsewhere(bridges: Iterable[str], closed: Closed) -> Iterator[Words]:
    for bridge in bridges:
        # An API that runs in a pod or a virtual machine of this host gets its answers over the bridge of those.
        yield ("-o", bridge, *(() if bridge in BRIDGES else _opened_inside()))
    for protocol in ("tcp", "udp"):
        for network in closed.networks:
            # Some clouds have their name server at the metadata service's address.
            yield ("-d", network, "-p", protocol, "!", "--dport", "53", *_opened_inside())
        for host in closed.hosts:
            # Where the workspace wanted to go, wherever it is led from there.
            yield ("-p", protocol, *_opened_inside("--ctorigdst", host, "!", "--ctorigdstport", "53"))
    for host, port in closed.services:
        yield ("-p", "tcp", *_opened_inside("--ctorigdst", host, "--ctorigdstport", str(port)))


def _opened_inside(*more: str) -> Words:
    """What belongs to a connection that the workspace opened: answers to the proxy's must pass."""
    return ("-m", "conntrack", *more, "--ctdir", "ORIGINAL")


def _comment(owner: str) -> str:
    return f"codehub:{owner}"


def _meaning(words: Words) -> Iterator[tuple[str, ...]]:
    negated, rest = False, iter(words)
    for word in rest:
        if word == "!":
            negated = True
            continue
        value = next(rest, "")
        if word in _ADDRESSES:
            value = str(ip_network(value, strict=False))
        elif word == "--ctstate":
            value = ",".join(sorted(value.split(",")))
        if word != "-m" and not (word in _ADDRESSES and value == "0.0.0.0/0"):
            yield (("!",) if negated else ()) + (word, value)
        negated = False
