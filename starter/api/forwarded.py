"""What a trusted reverse proxy says of the client: its address and scheme. Nobody else is believed."""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_Address = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class TrustedProxies:
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "TrustedProxies":
        """Addresses and networks, separated by commas. Raises ValueError."""
        return cls(tuple(ip_network(part.strip()) for part in text.split(",") if part.strip()))

    def __contains__(self, address: str) -> bool:
        found = _parse(address)
        return found is not None and any(found in network for network in self.networks)


class ForwardedMiddleware:
    def __init__(self, app: ASGIApp, trusted: TrustedProxies) -> None:
        self.app = app
        self.trusted = trusted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in {"http", "websocket"} and scope.get("client") and scope["client"][0] in self.trusted:
            scope = {**scope, **_forwarded(scope, self.trusted)}
        await self.app(scope, receive, send)


def client_address(scope: Scope) -> str:
    """What failed logins are counted by: one address, or the /64 that one customer is given."""
    client = scope.get("client")
    found = _parse(client[0]) if client else None
    if isinstance(found, IPv6Address):
        return str(ip_network((found, 64), strict=False))
    return str(found) if found else "unknown"


def _forwarded(scope: Scope, trusted: TrustedProxies) -> Scope:
    headers = Headers(scope=scope)
    changed: Scope = {}
    proto = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
    if proto in {"http", "https"}:
        changed["scheme"] = proto if scope["type"] == "http" else {"http": "ws", "https": "wss"}[proto]
    hops = [hop.strip() for value in headers.getlist("x-forwarded-for") for hop in value.split(",")]
    # From the right: each was added by the one after it, so the first that is not ours is as far as it can be believed.
    for hop in reversed(hops):
        if _parse(hop) is None:
            break
        changed["client"] = (hop, 0)
        if hop not in trusted:
            break
    return changed


def _parse(text: str) -> _Address | None:
    try:
        found = ip_address(text)
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
