"""Where the services are that a worker uses, and the other nodes: what its workspaces are to be kept from."""

from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

from adapters.docker.surroundings import Neighbours
from adapters.postgres.database import DatabaseUnavailable
from adapters.postgres.nodes import Nodes
from domain.errors import Unreachable
from settings import Settings

_PORTS = {"postgresql": 5432, "postgres": 5432, "redis": 6379, "rediss": 6379, "http": 80, "https": 443, "tcp": 2375}

Endpoint = tuple[str, int]
"""Host and port."""


def service_endpoints(settings: Settings) -> tuple[Endpoint, ...]:
    """Sockets of this machine have none."""
    urls = (settings.database_url, settings.redis_url, settings.s3_endpoint, settings.docker_host)
    temporal = f"temporal://{settings.temporal_address}" if settings.temporal_address else None
    return tuple(sorted({endpoint for url in (*urls, temporal) if url for endpoint in _endpoints(url)}))


def neighbours(nodes: Nodes) -> Neighbours:
    """The other nodes, where workspaces' ports are published."""

    async def ask() -> list[str]:
        try:
            return await nodes.addresses()
        except DatabaseUnavailable as error:
            raise Unreachable(f"PostgreSQL does not say which nodes there are: {error}") from error

    return ask


def _endpoints(url: str) -> Iterator[Endpoint]:
    """PostgreSQL's may name several, and in more than one way."""
    parts = urlsplit(url)
    if parts.scheme not in {*_PORTS, "temporal"}:
        return
    query = {name: values[-1] for name, values in parse_qs(parts.query).items()} if "postgres" in parts.scheme else {}
    hosts = query["host"] if "host" in query else parts.netloc.rpartition("@")[2]
    ports = query.get("port", "").split(",")
    for number, place in enumerate(hosts.split(",")):
        host, port = _split(place)
        port = port or ports[min(number, len(ports) - 1)] or str(_PORTS.get(parts.scheme, ""))
        if host and not host.startswith("/") and port.isdigit():
            yield host, int(port)


def _split(place: str) -> tuple[str, str]:
    """IPv6 addresses are in brackets."""
    host, colon, port = place.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = place, ""
    return host.strip("[]"), port
