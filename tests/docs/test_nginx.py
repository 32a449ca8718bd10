"""The reverse proxy of docs/production.md, by nginx itself, in front of a real API."""

import asyncio
import re
import ssl
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp
import pytest

from adapters.redis.events import EventBus
from starter.api.dependencies import ApiConfig
from starter.api.forwarded import TrustedProxies
from tests.api.world import PASSWORD, Api, serving
from tests.debian import unpacked
from tests.docs.test_docs import ROOT
from tests.ports import free_port
from tests.processes.process import until
from tests.tls.authority import Authority

NAME = "codehub.example.com"


@pytest.fixture(scope="module")
def nginx(tmp_path_factory: pytest.TempPathFactory) -> str:
    found = unpacked("nginx", "nginx", tmp_path_factory.mktemp("nginx"))
    if found is None:
        pytest.skip("no nginx, and Debian's can't be downloaded")
    return found


@pytest.fixture
async def api(database_url: str, bus: EventBus) -> AsyncIterator[Api]:
    """With TRUSTED_PROXIES as the document says."""
    config = ApiConfig(default_image="ide", trusted_proxies=TrustedProxies.parse("127.0.0.1"))
    async with serving(database_url, config, bus=bus) as api:
        yield api


def configuration(folder: Path, port: int, api: Api, authority: Authority) -> str:
    """What the document has, at the test's places; and around it what a distribution's own nginx.conf says."""
    text = (ROOT / "docs" / "production.md").read_text()
    (server,) = re.findall(r"^```\n(server \{.*?)^```", text, re.MULTILINE | re.DOTALL)
    (upgrade,) = re.findall(r"`(map \$http_upgrade [^`]+)`", text)
    pair = authority.issue(NAME)
    server = server.replace("listen 443", f"listen 127.0.0.1:{port}").replace("http://127.0.0.1:8000", api.url)
    server = re.sub(r"(ssl_certificate +)\S+;", rf"\g<1>{pair.cert};", server)
    server = re.sub(r"(ssl_certificate_key +)\S+;", rf"\g<1>{pair.key};", server)
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    own = f"access_log off; client_body_temp_path {folder}/body; {temporary}"
    main = f"daemon off; pid {folder}/pid; error_log {folder}/error.log; events {{}}"
    return f"{main}\nhttp {{ {own}\n{upgrade}\n{server} }}\n"


@contextmanager
def running(nginx: str, configured: Path) -> Iterator[None]:
    checked = subprocess.run([nginx, "-t", "-c", configured], check=False, capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    with subprocess.Popen([nginx, "-c", configured]) as process:
        try:
            yield
        finally:
            process.terminate()


async def test_what_comes_through(nginx: str, api: Api, tmp_path: Path) -> None:
    """HTTPS is known to the API (cookies are Secure and __Host-), and so is who asks; live events are not held back."""
    authority = Authority(tmp_path, "ca")
    port = free_port()
    configured = tmp_path / "nginx.conf"
    configured.write_text(configuration(tmp_path, port, api, authority))
    alice = await api.person("alice")
    await alice.workspace()
    context = ssl.create_default_context(cafile=authority.ca)
    url, host = f"https://127.0.0.1:{port}", {"Host": NAME}
    with running(nginx, configured):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), headers=host) as client:

            async def is_up() -> bool:
                try:
                    async with client.get(f"{url}/health/live") as answer:
                        return answer.status == 200
                except aiohttp.ClientConnectorError:
                    return False

            await until(is_up, 30, "nginx does not answer")
            body = {"username": "alice", "password": PASSWORD}
            async with client.post(f"{url}/api/v1/login", json=body) as answer:
                cookie = answer.headers["Set-Cookie"]
                assert answer.status == 200
            assert cookie.startswith("__Host-session=")
            assert "Secure" in cookie
            named = {"Cookie": cookie.partition(";")[0]}
            async with client.get(f"{url}/api/v1/events", headers=named) as events, asyncio.timeout(30):
                while b"workspace_updated" not in await events.content.readline():
                    assert not events.content.at_eof()
