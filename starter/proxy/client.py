"""Who asks, as far as it can be believed: the peer, or what a trusted proxy in front of us says of it."""

from dataclasses import dataclass

from starlette.types import Scope

from starter.api.forwarded import TrustedProxies, _forwarded
from starter.proxy.head import RequestHead


@dataclass(frozen=True, slots=True)
class Client:
    address: str
    scheme: str


def client_behind(proxy: Client, head: RequestHead, trusted: TrustedProxies) -> Client:
    """`proxy` is the peer, and trusted."""
    headers = [(name, line.partition(b":")[2].strip(b" \t")) for name, line in head.lines]
    scope: Scope = {"type": "http", "scheme": proxy.scheme, "client": (proxy.address, 0), "headers": headers}
    seen = {**scope, **_forwarded(scope, trusted)}
    return Client(seen["client"][0], seen["scheme"])
