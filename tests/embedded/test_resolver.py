"""Where the engine's default network can be used without anybody losing the names of their own network."""

from pathlib import Path

import pytest

from starter.embedded.resolver import default_network_resolves


@pytest.mark.parametrize(
    ("text", "resolves"),
    [
        ("nameserver 10.0.0.2\n", True),
        ("# nameserver 127.0.0.1\nnameserver\t192.168.1.1\noptions edns0\n", True),
        ("nameserver 127.0.0.1\nnameserver 10.0.0.2\n", True),
        ("nameserver fe80::1%eth0\n", True),
        ("nameserver 127.0.0.53\noptions edns0 trust-ad\n", True),
        ("search example.com\n", True),
        ("nameserver\n", True),
        ("nameserver 127.0.0.1\n", False),
        ("nameserver ::1\nnameserver 127.0.0.53\n", False),
    ],
)
def test_name_servers(tmp_path: Path, text: str, *, resolves: bool) -> None:
    """A server on loopback is out of a container's reach, save systemd-resolved's, which the engine looks behind."""
    path = tmp_path / "resolv.conf"
    path.write_text(text)
    assert default_network_resolves(path) is resolves


def test_a_machine_that_knows_none(tmp_path: Path) -> None:
    """It makes no difference which network it is."""
    assert default_network_resolves(tmp_path / "none")
