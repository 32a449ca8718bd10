import pytest
from starlette.types import Message, Receive, Scope, Send

from starter.api.forwarded import ForwardedMiddleware, TrustedProxies, client_address

PROXIES = TrustedProxies.parse("10.0.0.0/8, 192.168.1.1, ::1")


async def _seen(client: str | None, headers: dict[str, str], kind: str = "http") -> Scope:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    scope: Scope = {
        "type": kind,
        "scheme": "http" if kind == "http" else "ws",
        "client": (client, 1234) if client else None,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await ForwardedMiddleware(app, PROXIES)(scope, receive, send)
    return seen[0]


@pytest.mark.parametrize(
    ("client", "forwarded", "expected"),
    [
        ("10.1.1.1", "203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", "198.51.100.7, 203.0.113.9", "203.0.113.9"),
        ("10.1.1.1", "198.51.100.7, 203.0.113.9, 192.168.1.1", "203.0.113.9"),
        ("10.1.1.1", "10.2.2.2", "10.2.2.2"),
        ("10.1.1.1", "nonsense", "10.1.1.1"),
        ("10.1.1.1", "203.0.113.9, nonsense", "10.1.1.1"),
        ("10.1.1.1", "", "10.1.1.1"),
        ("::ffff:10.1.1.1", "203.0.113.9", "203.0.113.9"),
        ("::1", "2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("203.0.113.1", "198.51.100.7", "203.0.113.1"),
        ("fe80::1%eth0", "198.51.100.7", "fe80::/64"),
        (None, "198.51.100.7", "unknown"),
    ],
)
async def test_client_address(client: str | None, forwarded: str, expected: str) -> None:
    """The nearest hop that isn't ours, as told by those that are; a made-up chain before it counts for nothing."""
    assert client_address(await _seen(client, {"x-forwarded-for": forwarded})) == expected


@pytest.mark.parametrize(
    ("client", "proto", "kind", "expected"),
    [
        ("10.1.1.1", "https", "http", "https"),
        ("10.1.1.1", "http, https", "http", "https"),
        ("10.1.1.1", "https", "websocket", "wss"),
        ("10.1.1.1", "gopher", "http", "http"),
        ("203.0.113.1", "https", "http", "http"),
    ],
)
async def test_scheme(client: str, proto: str, kind: str, expected: str) -> None:
    """HTTPS is what a trusted proxy says it is."""
    assert (await _seen(client, {"x-forwarded-proto": proto}, kind))["scheme"] == expected


@pytest.mark.parametrize("text", ["10.0.0.0/40", "example.org", "10.0.0.1/8"])
def test_bad_networks(text: str) -> None:
    """A setting that is no address or network is refused at the start."""
    with pytest.raises(ValueError, match=r".+"):
        TrustedProxies.parse(text)
