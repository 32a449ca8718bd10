"""Which packet filter rules there should be: the decision itself, on what iptables says (PROMISE 37)."""

from pathlib import Path

import pytest

from adapters.docker.bridges import inner_bridges
from adapters.docker.rules import BRIDGES, NOTHING, Closed, Rule, forward_chain, missing, ours, wanted

CLOSED = Closed(("169.254.0.0/16", "10.0.0.0/8"), ("10.0.0.12",), (("10.0.0.5", 5432),))
# As iptables 1.8 says it: another order, masks, matches that nobody named, quotes.
SAID = """\
-P INPUT ACCEPT
-P FORWARD DROP
-N DOCKER-USER
-A INPUT -i ch-1 -m conntrack ! --ctstate RELATED,ESTABLISHED -m comment --comment "codehub:one" -j DROP
-A INPUT -i ch-1 -m conntrack --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A INPUT -i ch-2 -m conntrack --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A INPUT -i ch-1 -m conntrack --ctdir ORIGINAL -m comment --comment "codehub:one-more" -j DROP
-A FORWARD -j DOCKER-USER
-A FORWARD -o ch-1 -j DOCKER
-A DOCKER-USER -i ch-1 -o docker+ -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -i ch-1 -o br-+ -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -i ch-1 -o ch-+ -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -i ch-1 -o chub-+ -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -d 169.254.0.0/16 -i ch-1 -p tcp -m tcp ! --dport 53 -m conntrack --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -d 10.0.0.0/8 -i ch-1 -p tcp -m tcp ! --dport 53 -m conntrack --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -i ch-1 -p tcp -m conntrack --ctorigdst 10.0.0.12 ! --ctorigdstport 53 --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -d 169.254.0.0/16 -i ch-1 -p udp -m udp ! --dport 53 -m conntrack --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -d 10.0.0.0/8 -i ch-1 -p udp -m udp ! --dport 53 -m conntrack --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -i ch-1 -p udp -m conntrack --ctorigdst 10.0.0.12/32 ! --ctorigdstport 53 --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -i ch-1 -p tcp -m conntrack --ctorigdst 10.0.0.5 --ctorigdstport 5432 --ctdir ORIGINAL -m comment --comment "codehub:one" -j DROP
-A DOCKER-USER -j RETURN
"""  # noqa: E501 - as it is said


def differences(listing: str, closed: Closed = CLOSED, bridge: str = "ch-1") -> tuple[list[Rule], list[Rule]]:
    """What is to be put in, and what to be taken out."""
    there = ours(listing, bridge, "one")
    rules = wanted(bridge, "one", forward_chain(listing), BRIDGES, closed)
    return missing(there, rules), missing(rules, there)


def test_what_is_there_is_known_again() -> None:
    """Nothing to do, however iptables spells it."""
    assert differences(SAID) == ([], [])


def test_what_is_gone_is_put_in() -> None:
    """Whichever one it is, it and nothing else."""
    lines = SAID.splitlines()
    for number, line in enumerate(lines):
        if "-i ch-1 " in line and '"codehub:one"' in line:
            put_in, left = differences("\n".join(lines[:number] + lines[number + 1 :]))
            assert (len(put_in), left) == (1, []), line


def test_what_is_not_wanted_any_more_is_taken_out() -> None:
    """A node that was removed, a service that moved: by the words that iptables has for its rule."""
    put_in, left = differences(SAID, Closed(CLOSED.networks, (), (("10.0.0.6", 5432),)))
    assert ["10.0.0.6" in rule.words for rule in put_in] == [True]
    assert [word for rule in left for word in rule.words if word.startswith("10.")] == [
        "10.0.0.12",
        "10.0.0.12/32",
        "10.0.0.5",
    ]


def test_others_are_left_alone() -> None:
    """Another installation whose name begins the same, and this one's node with another bridge."""
    assert {rule.words[1] for rule in ours(SAID, "ch-2", "one")} == {"ch-2"}
    assert len(ours(SAID, "ch-1", "one-more")) == 1
    _, left = differences(SAID, bridge="ch-2")
    assert left == []


def test_a_chain_that_nothing_leads_to_is_none() -> None:
    """After `iptables -F` DOCKER-USER is there, and its rules do nothing: FORWARD has them until Docker is back."""
    flushed = "\n".join(line for line in SAID.splitlines() if line.startswith(("-P", "-N")))
    put_in, _ = differences(flushed)
    assert {rule.chain for rule in put_in} == {"INPUT", "FORWARD"}
    in_forward = SAID.replace("-A DOCKER-USER -", "-A FORWARD -").replace("-A FORWARD -j RETURN", "")
    put_in, left = differences(in_forward)
    assert {rule.chain for rule in put_in} == {"DOCKER-USER"}
    assert {rule.chain for rule in left} == {"FORWARD"}


def test_everything_is_a_network_too() -> None:
    """`0.0.0.0/0` is what iptables does not mention."""
    (tcp, udp) = (
        rule for rule in wanted("ch-1", "one", "FORWARD", (), Closed(("0.0.0.0/0",))) if rule.chain != "INPUT"
    )
    said = "\n".join(f"-A FORWARD {' '.join(rule.words).replace('-d 0.0.0.0/0 ', '')}" for rule in (tcp, udp))
    assert missing(ours(said, "ch-1", "one"), [tcp, udp]) == []


def test_who_connects_from_a_bridge_of_others_is_answered() -> None:
    """As an API does that runs in a pod of this host."""
    of_pods = [rule for rule in wanted("ch-1", "one", "FORWARD", ("cni0",), NOTHING) if "cni0" in rule.words]
    assert ["ORIGINAL" in rule.words for rule in of_pods] == [True]


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """As /sys/class/net and /proc/net/route tell of one."""
    members = {
        "virbr0": ["vnet0"],
        "cni0": ["veth1"],
        "vmbr0": ["eth0"],
        "br0": ["bond0"],
        "vmbr1": ["veth2"],
        "empty": [],
    }
    for bridge, names in members.items():
        (tmp_path / bridge / "bridge").mkdir(parents=True)
        for name in names:
            (tmp_path / bridge / "brif" / name).mkdir(parents=True)
            (tmp_path / name).mkdir()
    (tmp_path / "eth0" / "device").mkdir()
    (tmp_path / "bond0" / "lower_eth1").mkdir()
    (tmp_path / "route").write_text(
        "Iface\tDestination\tGateway\tFlags\nvmbr1\t00000000\t0100000A\t0003\nvirbr0\t007AA8C0\t00000000\t0001\n"
    )
    return tmp_path


def test_bridges_to_containers_and_machines_of_others(machine: Path) -> None:
    """And none that is this machine's own way to the network: workspaces would be cut off."""
    assert inner_bridges(machine, machine / "route") == ["cni0", "empty", "virbr0"]
