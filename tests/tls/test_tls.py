"""Every service can be reached by TLS, and one whose certificate somebody else signed is refused."""

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from adapters.archive_store import unfenced
from adapters.docker.config import DockerConfig
from adapters.docker.runtime import DockerRuntime
from adapters.postgres.database import DatabaseRefused, connect
from adapters.s3.client import S3Config
from adapters.s3.store import open_store
from domain.errors import Unreachable
from settings import Settings, SettingsError, load_settings
from starter.temporal import temporal_address as address_in
from tests.conftest import S3
from tests.tls.authority import Authority, Pair, in_front_of
from workflows.client import connect as connect_temporal


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "ours")


@pytest.fixture
def theirs(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "theirs")


@pytest.fixture
def server(ours: Authority) -> Pair:
    return ours.issue("server")


@pytest.fixture
async def temporal_tls(temporal_address: str, ours: Authority, server: Pair) -> AsyncIterator[str]:
    async with in_front_of(temporal_address, ours.server(server, ask_client=True)) as port:
        yield f"127.0.0.1:{port}"


async def test_temporal_by_mutual_tls(temporal_tls: str, ours: Authority, theirs: Authority) -> None:
    """With our certificate in; without one, or with another CA, out."""
    client = ours.issue("client")
    settings = Settings(
        temporal_address=temporal_tls,
        temporal_tls_ca=ours.ca,
        temporal_tls_cert=client.cert,
        temporal_tls_key=client.key,
        temporal_tls_server_name="server",
    )
    connected = await connect_temporal(address_in(settings))
    assert await connected.service_client.check_health()
    for wrong in (
        {"temporal_tls_cert": None, "temporal_tls_key": None},
        {"temporal_tls_ca": theirs.ca},
        {"temporal_tls_server_name": "another"},
    ):
        with pytest.raises(RuntimeError):
            await connect_temporal(address_in(settings.model_copy(update=wrong)))


# HTTP/2 sends headers in this code (RFC 7541, appendix B): the letters of "Bearer " and of a key that has no others.
HUFFMAN = {" ": "010100", "B": "1011101", "a": "00011", "e": "00101", "r": "101100", "0": "00000", "1": "00001"}


def in_http2(text: str) -> bytes:
    """As a header's value is on the wire: filled up to whole bytes with ones."""
    bits = "".join(HUFFMAN[letter] for letter in text)
    bits += "1" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8, "big")


async def test_temporal_by_api_key(temporal_address: str, ours: Authority, server: Pair) -> None:
    """As in Temporal Cloud: every call carries the key, by TLS, without another setting that says so; never in the
    clear. (What answers here does not ask for one: what is sent to it is looked at.)"""
    key = "a1e0r1a0e1"
    heard = bytearray()
    async with in_front_of(temporal_address, ours.server(server), heard=heard) as port:
        given = {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}", "TEMPORAL_TLS_CA": str(ours.ca)}
        await connect_temporal(address_in(load_settings(given)))
        assert in_http2(f"Bearer {key}") not in heard
        address = address_in(load_settings({**given, "TEMPORAL_API_KEY": key}))
        assert key not in repr(address)
        client = await connect_temporal(address)
        assert await client.service_client.check_health()
        assert in_http2(f"Bearer {key}") in heard
    plain = load_settings({"TEMPORAL_ADDRESS": temporal_address, "TEMPORAL_API_KEY": key})
    with pytest.raises(RuntimeError):
        await connect_temporal(address_in(plain))


def test_half_a_certificate_is_a_wrong_setting(ours: Authority) -> None:
    client = ours.issue("client")
    with pytest.raises(SettingsError, match="TEMPORAL_TLS_KEY"):
        address_in(Settings(temporal_address="127.0.0.1:7233", temporal_tls_cert=client.cert))
    with pytest.raises(SettingsError, match="TEMPORAL_TLS_CA='/nowhere'"):
        load_settings({"TEMPORAL_TLS_CA": "/nowhere"})


async def test_postgresql_by_sslmode(database_url: str, ours: Authority, theirs: Authority, server: Pair) -> None:
    """`sslmode` and `sslrootcert` in DATABASE_URL, as everywhere."""
    parts = urlsplit(database_url)
    target = f"{parts.hostname}:{parts.port}"
    async with in_front_of(target, ours.server(server), postgres=True) as port:
        url = database_url.replace(target, f"127.0.0.1:{port}")
        connection = await connect(f"{url}?sslmode=verify-full&sslrootcert={ours.ca}")
        assert await connection.fetchval("SELECT 1") == 1
        await connection.close()
        with pytest.raises(DatabaseRefused, match="certificate"):
            await connect(f"{url}?sslmode=verify-full&sslrootcert={theirs.ca}")


async def test_redis_by_rediss(redis_url: str, ours: Authority, theirs: Authority, server: Pair) -> None:
    parts = urlsplit(redis_url)
    target = f"{parts.hostname}:{parts.port}"
    async with in_front_of(target, ours.server(server)) as port:
        url = redis_url.replace("redis://", "rediss://").replace(target, f"127.0.0.1:{port}")
        async with Redis.from_url(f"{url}?ssl_ca_certs={ours.ca}") as right:
            assert await right.ping()
        async with Redis.from_url(f"{url}?ssl_ca_certs={theirs.ca}") as wrong:
            with pytest.raises(RedisConnectionError, match="certificate"):
                await wrong.ping()


async def test_s3_by_https(s3: S3, ours: Authority, theirs: Authority, server: Pair) -> None:
    async with in_front_of(urlsplit(s3.endpoint).netloc, ours.server(server)) as port:
        given = (f"https://127.0.0.1:{port}", s3.access_key, s3.bucket, s3.secret_key)
        async with open_store(S3Config(*given, ca_bundle=str(ours.ca))) as store:
            await store.write("a", b"b")
            assert await store.read("a") == b"b"
            await store.upload("large", _part(), unfenced)
            assert await store.read("large") == b"a part"
        async with open_store(S3Config(*given, ca_bundle=str(theirs.ca))) as store:
            with pytest.raises(Unreachable, match=r"(?i)certificate|ssl"):
                await store.read("a")


async def _part() -> AsyncIterator[bytes]:
    yield b"a part"


@pytest.mark.docker
async def test_docker_by_tls(
    docker_host: str, ours: Authority, theirs: Authority, server: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Docker's own clients: DOCKER_TLS_VERIFY and DOCKER_CERT_PATH with ca.pem, cert.pem and key.pem."""
    for authority in (ours, theirs):
        authority.issue("cert")
        (authority.folder / "cert-key.pem").rename(authority.folder / "key.pem")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    target = docker_host.removeprefix("unix://").removeprefix("tcp://")
    async with in_front_of(target, ours.server(server, ask_client=True)) as port:
        for authority in (ours, theirs):
            monkeypatch.setenv("DOCKER_CERT_PATH", str(authority.folder))
            runtime = DockerRuntime(DockerConfig("test", docker_host=f"tcp://127.0.0.1:{port}"))
            try:
                if authority is ours:
                    await runtime.ping()
                else:
                    with pytest.raises(Unreachable, match=r"(?i)certificate|ssl"):
                        await runtime.ping()
            finally:
                await runtime.close()
