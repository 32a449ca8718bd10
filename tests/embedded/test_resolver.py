"""Where the engine's default network can be used without anybody losing the names of their own network."""

import ipaddress
from pathlib import Path

import pytest

from starter.embedded.resolver import Address, default_network_resolves, is_of_this_machine

OURS = {ipaddress.ip_address("10.0.0.1"), ipaddress.ip_address("2001:db8::1")}

SERVERS = [
    pytest.param("nameserver 10.0.0.2\n", True, id="another machine's"),
    pytest.param("# nameserver 127.0.0.1\nnameserver\t192.168.1.1 # the router\noptions edns0\n", True, id="comments"),
    pytest.param("nameserver 127.0.0.1\nnameserver 10.0.0.2\n", True, id="loopback is left out"),
    pytest.param("nameserver 2001:db8::2\nnameserver 10.0.0.2\n", True, id="IPv6 is left out"),
    pytest.param("nameserver 2001:db8::1\nnameserver 10.0.0.2\n", True, id="our IPv6 is left out"),
    pytest.param("search example.com\n", True, id="none"),
    pytest.param("nameserver\nnameserver the.router\n", True, id="none that is an address"),
    pytest.param("nameserver 127.0.0.1\n", False, id="loopback only"),
    pytest.param("nameserver ::1\nnameserver 127.0.0.53\n", False, id="the stub beside another"),
    pytest.param("nameserver 2001:db8::2\nnameserver fe80::1%eth0\n", False, id="IPv6 only"),
    pytest.param("nameserver 10.0.0.1\n", False, id="ours only"),
    pytest.param("nameserver 10.0.0.2\nnameserver 10.0.0.1\n", False, id="ours beside another's"),
]


@pytest.mark.parametrize(("text", "resolves"), SERVERS)
def test_name_servers(tmp_path: Path, text: str, *, resolves: bool) -> None:
    """A container reaches those with IPv4, but none on loopback, and none of this machine's own, which it waits for."""
    assert looked_at(tmp_path, text) is resolves


@pytest.mark.parametrize(("text", "resolves"), SERVERS)
def test_behind_the_stub(tmp_path: Path, text: str, *, resolves: bool) -> None:
    """Where systemd-resolved is the only one, those that it asks are what the engine hands on."""
    assert looked_at(tmp_path, "nameserver 127.0.0.53\noptions edns0 trust-ad\n", behind_stub=text) is resolves


def test_a_machine_that_knows_none(tmp_path: Path) -> None:
    """It makes no difference which network it is."""
    assert default_network_resolves(tmp_path / "none", tmp_path / "none")


@pytest.mark.parametrize(
    ("address", "ours"), [("127.0.0.1", True), ("0.0.0.0", True), ("198.51.100.1", False), ("203.0.113.1", False)]
)
def test_whose_address_it_is(address: str, *, ours: bool) -> None:
    """As the kernel knows it; those of documentation are nobody's."""
    assert is_of_this_machine(ipaddress.ip_address(address)) is ours


def looked_at(folder: Path, text: str, *, behind_stub: str = "nameserver 10.0.0.9\n") -> bool:
    resolv_conf, behind = folder / "resolv.conf", folder / "behind.conf"
    resolv_conf.write_text(text)
    behind.write_text(behind_stub)

    def is_ours(address: Address) -> bool:
        return address in OURS

    return default_network_resolves(resolv_conf, behind, is_ours)
