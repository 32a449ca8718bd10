"""What a worker keeps its workspaces from: the services that it uses, by its settings, and the nodes that there are."""

from datetime import timedelta
from uuid import uuid4

import pytest

from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import Database, open_database
from adapters.postgres.nodes import Nodes, Registration
from domain.errors import Unreachable
from settings import load_settings
from starter.endpoints import neighbours, service_endpoints
from worker import docker_config, open_parts


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DATABASE_URL", "postgresql://codehub:p%40ss:word@10.0.0.5:6432/codehub", [("10.0.0.5", 6432)]),
        ("DATABASE_URL", "postgres://u@db.internal/codehub?sslmode=require", [("db.internal", 5432)]),
        ("DATABASE_URL", "postgresql://u@a:1,b,[fd00::5]:3/codehub", [("a", 1), ("b", 5432), ("fd00::5", 3)]),
        ("DATABASE_URL", "postgresql://u@/codehub?host=a,b&port=1,2", [("a", 1), ("b", 2)]),
        ("DATABASE_URL", "postgresql://u@/codehub?host=/run/postgresql", []),
        ("REDIS_URL", "rediss://:secret@10.0.0.5/0", [("10.0.0.5", 6379)]),
        ("REDIS_URL", "unix:///run/valkey.sock", []),
        ("S3_ENDPOINT", "https://s3.internal", [("s3.internal", 443)]),
        ("S3_ENDPOINT", "http://10.0.0.5:8333", [("10.0.0.5", 8333)]),
        ("TEMPORAL_ADDRESS", "10.0.0.5:7233", [("10.0.0.5", 7233)]),
        ("TEMPORAL_ADDRESS", "[fd00::5]:7233", [("fd00::5", 7233)]),
        ("DOCKER_HOST", "tcp://10.0.0.12:2376", [("10.0.0.12", 2376)]),
        ("DOCKER_HOST", "unix:///var/run/docker.sock", []),
    ],
)
def test_where_the_services_are(name: str, value: str, expected: list[tuple[str, int]]) -> None:
    """As each of their clients reads it."""
    assert list(service_endpoints(load_settings({name: value}))) == expected


def test_what_the_runtime_is_told() -> None:
    """Every one of them, and the networks that are named besides the link-local one."""
    settings = load_settings(
        {
            "DATABASE_URL": "postgresql://10.0.0.5/codehub",
            "TEMPORAL_ADDRESS": "10.0.0.5:7233",
            "WORKSPACE_BLOCKED_NETWORKS": "10.0.0.0/8, 192.168.1.7",
        }
    )
    config = docker_config(settings, "here")
    assert config.services == (("10.0.0.5", 5432), ("10.0.0.5", 7233))
    assert config.blocked_networks == ("169.254.0.0/16", "10.0.0.0/8", "192.168.1.7/32")


async def test_which_nodes_there_are(database: Database, database_url: str) -> None:
    """All that are registered, lost ones, too; one that was removed is none. No answer is not "none"."""
    nodes = Nodes(database, timedelta(seconds=3))
    for name, address in (("a", "10.0.0.11"), ("b", "10.0.0.12"), ("c", "10.0.0.13")):
        assert await nodes.register(Registration(name, str(uuid4()), address, None, 1, 1))
    await database.execute("UPDATE nodes SET seen_at = now() - interval '1 hour', lost_at = now() WHERE name <> 'a'")
    assert await nodes.remove("c")
    assert sorted(await neighbours(nodes)()) == ["10.0.0.11", "10.0.0.12"]
    away = await open_database(database_url)
    await away.close()
    with pytest.raises(Unreachable):
        await neighbours(Nodes(away))()


@pytest.mark.docker
async def test_a_worker_knows_both(service_env: dict[str, str]) -> None:
    """As it is put together; this machine's own services are on loopback, and need no rule."""
    settings = load_settings({**service_env, "TEMPORAL_PAYLOAD_KEYS": "", "NODE_ADDRESS": "127.0.0.1"})
    async with open_parts(settings) as parts:
        assert parts.heart
        assert isinstance(parts.runtime, DockerRuntime)
        told = Registration("b", str(uuid4()), "10.0.0.12", None, 1, 1)
        assert await parts.heart.nodes.register(told)
        closed = await parts.runtime._network._surroundings.look()
    assert (closed.hosts, closed.services, closed.is_all) == (("10.0.0.12",), (), True)
