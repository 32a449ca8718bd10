"""PROMISE 35: what must stay secret is in no history, search attribute, log, event, error body or container."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from docker import APIClient
from docker.errors import NotFound
from temporalio.client import Client

from domain.model import DesiredState, ErrorReason, Phase, WorkspaceId
from tests.conftest import S3
from tests.faults.proxy import FaultProxy, server_of, through
from tests.harness.stored import stored_by_temporal
from tests.ports import free_port
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, PASSWORD, Deployment
from tests.processes.person import WORKSPACES, Person
from tests.processes.process import CodehubProcess, until
from tests.raw_http import Browser, RawClient
from tests.tls.authority import Authority, in_front_of
from workflows.codec import EncryptingCodec

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

CANARY = "canary-of-a-password"
METRICS_CANARY = "canary-of-the-metrics-token"
TEMPORAL_CANARY = "canary-of-the-api-key-of-temporal"
KEY_CANARY = b"canary-of-the-key-of-temporal-32"
SEEDED = {
    "LOG_LEVEL": "DEBUG",
    "METRICS_TOKEN": METRICS_CANARY,
    "TEMPORAL_PAYLOAD_KEYS": b64encode(KEY_CANARY).decode(),
}


@pytest.fixture
async def temporal_by_key(temporal_address: str, tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """As in Temporal Cloud, where an API key is: it goes by TLS only."""
    ours = Authority(tmp_path, "ours")
    async with in_front_of(temporal_address, ours.server(ours.issue("server"))) as port:
        given = {"TEMPORAL_ADDRESS": f"127.0.0.1:{port}", "TEMPORAL_TLS_CA": str(ours.ca)}
        yield {**given, "TEMPORAL_API_KEY": TEMPORAL_CANARY}


async def test_secrets_stay_where_they_belong(
    deploy: Deploy, temporal_client: Client, docker_host: str, temporal_by_key: dict[str, str]
) -> None:
    """A whole life, errors and refusals included, with the real worker and API; then everything that either of them
    said, stored or set up is searched for every secret that they were given or gave out."""
    deployment = await deploy(**SEEDED, **temporal_by_key)
    await deployment.worker()
    port = free_port()
    by_host = {"WORKSPACE_HOST_PATTERN": "{id}.ws.localhost", "CODEHUB_URL": f"http://hub.localhost:{port}"}
    async with (
        deployment.person(CODEHUB_PORT=str(port), **by_host) as person,
        _inspecting(deployment, docker_host) as inspected,
    ):
        secrets = await _secrets(deployment, person)
        said: list[str] = []
        listening = asyncio.create_task(_listen(person, said))
        said += await _refusals(person, secrets)
        said += await _life(deployment, person, secrets)
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        histories = [text async for text in stored_by_temporal(temporal_client, EncryptingCodec([KEY_CANARY]))]
        assert any('"workspace_id":"' in text for text in histories), "histories are not deciphered"
        said += histories
        assert len(inspected) >= 3, "of two workspaces, and of one of them again"
        said += inspected.values()
        said += [process.output for process in deployment.processes]
        said += [str(dict(row)) for row in await deployment.database.fetch("SELECT * FROM workspaces")]
        said += [str(dict(row)) for row in await deployment.database.fetch("SELECT * FROM operations")]
        hidden = await deployment.database.fetch(
            "SELECT u::text FROM users u UNION ALL SELECT s::text FROM sessions s"
            " UNION ALL SELECT t::text FROM api_tokens t"
        )
        said += [row[0] for row in hidden]
    everything = "\n".join(said)
    # What is looked for can be found: the search itself works.
    for known in ("WorkspaceWorkflow", "workspace_updated", "ImagePullFailed", '"event": "attempt_failed"'):
        assert known in everything, f"{known} is nowhere: this test says nothing"
    assert [name for name, secret in secrets.items() if secret in everything] == []


async def test_outages_tell_no_secret(deploy: Deploy, database_url: str, redis_url: str, s3: S3) -> None:
    """What can't be reached is told by its address, which may hold a password: with each service away in turn, what the
    API answers, what `doctor` says, and what processes log that run, or are started, meanwhile."""
    async with AsyncExitStack() as stack:
        proxies = {
            "PostgreSQL": await stack.enter_async_context(FaultProxy(server_of(database_url))),
            "Redis": await stack.enter_async_context(FaultProxy(server_of(redis_url))),
            "S3": await stack.enter_async_context(FaultProxy(s3.endpoint)),
        }
        deployment = await deploy(
            DATABASE_URL=through(database_url, proxies["PostgreSQL"]),
            REDIS_URL=through(redis_url, proxies["Redis"]),
            S3_ENDPOINT=proxies["S3"].url,
            RECONCILER_PATIENCE="1",
            **SEEDED,
        )
        await deployment.worker()
        person = await stack.enter_async_context(deployment.person())
        secrets = await _secrets(deployment, person)
        workspace = await person.create("one")
        await deployment.until_phase(workspace, Phase.RUNNING)
        said: list[str] = []
        for service, proxy in proxies.items():
            await proxy.refuse()
            said += await _asked_meanwhile(person, workspace)
            started = [deployment.start(command) for command in ("worker --node other", "doctor", "gc --dry-run")]
            await started[0].said("waiting_for", service=service)
            for process in started[1:]:
                await until(partial(_ended, process), AT_REST, "it goes on for ever")
            started[0].kill()
            await proxy.heal()
            await until(lambda: _answers(person), AT_REST, f"nobody is well again after {service}")
        await person.want(workspace, DesiredState.ARCHIVED)
        await deployment.until_phase(workspace, Phase.ARCHIVED)
        operations = await deployment.database.fetch("SELECT o::text FROM operations o")
        said += [process.output for process in deployment.processes] + [row[0] for row in operations]
    everything = "\n".join(said)
    for known in ("database_unavailable", "waiting_for", "PostgreSQL", "Redis", urlsplit(proxies["S3"].url).netloc):
        assert known in everything, f"{known} is nowhere: this test says nothing"
    assert [name for name, secret in secrets.items() if secret in everything] == []


async def _asked_meanwhile(person: Person, workspace: WorkspaceId) -> list[str]:
    said = []
    for method, path, body in (
        ("GET", "/health/ready", None),
        ("GET", WORKSPACES, None),
        ("GET", f"{WORKSPACES}/{workspace}/explain", None),
        ("PATCH", f"{WORKSPACES}/{workspace}", {"memo": "x"}),
        ("POST", "/api/v1/login", {"username": "admin", "password": PASSWORD}),
        ("GET", f"/w/{workspace}/", None),
    ):
        async with person.client.request(method, person.url + path, json=body) as answer:
            said.append(f"{answer.status} {dict(answer.headers.items())} {await answer.text()}")
    # What a login sets is for its owner.
    return [line for line in said if "Set-Cookie" not in line]


async def _ended(process: CodehubProcess) -> bool:
    return not process.alive


async def _answers(person: Person) -> bool:
    try:
        return (await person.ask("GET", "/health/ready"))[0] == 200
    except aiohttp.ClientError:
        return False


async def _secrets(deployment: Deployment, person: Person) -> dict[str, str]:
    status, made = await person.ask("POST", "/api/v1/tokens", {"name": "one"})
    assert status == 201
    status, _ = await person.ask("POST", "/api/v1/users", {"username": "somebody.else", "password": CANARY})
    assert status == 201
    cookies = {cookie.key: cookie.value for cookie in person.client.cookie_jar}
    return {
        "password of the admin": PASSWORD,
        "password of a user": CANARY,
        "token": made["token"],
        "session": cookies["session"],
        "database": urlsplit(deployment.env["DATABASE_URL"]).password or "",
        "redis": urlsplit(deployment.env["REDIS_URL"]).password or "",
        "store": deployment.env["S3_SECRET_KEY"],
        "metrics": METRICS_CANARY,
        "key of what Temporal stores": KEY_CANARY.decode(),
        "the same key as it is given": deployment.env["TEMPORAL_PAYLOAD_KEYS"],
        "API key of Temporal": TEMPORAL_CANARY,
    }


async def _refusals(person: Person, secrets: dict[str, str]) -> list[str]:
    """Secrets in every place where a clumsy client puts them; what it is answered."""
    answers = []
    for path, sent in (
        ("/api/v1/login", {"username": "admin", "password": f"{PASSWORD}!"}),
        ("/api/v1/login", {"username": "admin", "password": secrets["token"], "extra": CANARY}),
        ("/api/v1/users", {"username": "admin", "password": CANARY}),
        (f"{WORKSPACES}/nonsense", {"memo": "x"}),
    ):
        answers.append(json.dumps(await person.ask("POST", path, sent)))
    bearer = {"Authorization": f"Bearer {secrets['token']}x", "Cookie": "session=unknown"}
    async with aiohttp.ClientSession() as stranger:
        for path in (WORKSPACES, f"/w/{WorkspaceId('0' * 8)}/", "/api/v1/nothing"):
            async with stranger.get(person.url + path, headers=bearer) as answer:
                answers.append(f"{answer.status} {dict(answer.headers)} {await answer.text()}")
        for token, status in ((f"{METRICS_CANARY}!", 401), (METRICS_CANARY, 200)):
            bearer = {"Authorization": f"Bearer {token}"}
            async with stranger.get(f"{person.url}/metrics", headers=bearer) as answer:
                assert answer.status == status
                answers.append(f"{dict(answer.headers)} {await answer.text()}")
    return answers


async def _life(deployment: Deployment, person: Person, secrets: dict[str, str]) -> list[str]:
    """Created, running, entered by its host, archived, running again, failed, recovered and deleted; what is to be seen
    of it meanwhile. The ticket and the cookie of its host are secrets from then on."""
    seen = []
    workspace, beside = await person.create("one"), await person.create("beside")
    for one in (workspace, beside):
        await deployment.until_phase(one, Phase.RUNNING)
    seen.append(await _entered(person, workspace, secrets))
    for desired in (DesiredState.ARCHIVED, DesiredState.RUNNING):
        await person.want(workspace, desired)
        await deployment.until_phase(workspace, Phase(desired))
    # Not one that is missing: without a registry nobody can tell.
    broken = await person.create("two", image="Not/A:Valid:Image")
    row = await deployment.until_phase(broken, Phase.ERROR)
    assert row.error_reason is ErrorReason.IMAGE_PULL_FAILED
    told = [f"/{one}/{what}" for one in (workspace, broken) for what in ("operations", "explain")]
    seen += [json.dumps(await person.ask("GET", f"{WORKSPACES}{path}")) for path in ("", *told)]
    for one in (workspace, beside, broken):
        await person.delete(one)
        await deployment.until_phase(one, Phase.DELETED)
    return seen


async def _entered(person: Person, workspace: WorkspaceId, secrets: dict[str, str]) -> str:
    """What the workspace saw of who came by its own host: all of its environment, so all that it was sent."""
    port = urlsplit(person.url).port
    assert port
    hub, host = f"hub.localhost:{port}", f"{workspace}.ws.localhost:{port}"
    browser = Browser(RawClient(port), {hub: {"session": secrets["session"]}})
    url, answer, way = await browser.open(f"http://{hub}/w/{workspace}/cgi-bin/env")
    assert (urlsplit(url).netloc, answer.status) == (host, 200)
    secrets["cookie of a host"] = browser.jars[host]["codehub-workspace"]
    (ticket,) = {one for step in way for one in parse_qs(urlsplit(step).query).get("ticket", [])}
    secrets["ticket to a host"] = ticket
    answer = await browser.get(url)
    assert b"HTTP_HOST" in answer.body or b"REQUEST_METHOD" in answer.body
    return answer.body.decode(errors="replace")


@asynccontextmanager
async def _inspecting(deployment: Deployment, docker_host: str) -> AsyncIterator[dict[str, str]]:
    """What the engine says of every container of this installation, whoever made it, for as long as it lasts."""
    installation = await deployment.database.fetchval("SELECT id FROM installation")
    found: dict[str, str] = {}
    engine = APIClient(docker_host)

    def look() -> None:
        for one in engine.containers(all=True, filters={"label": f"codehub.installation={installation}"}):
            if one["Id"] not in found:
                with suppress(NotFound):
                    found[one["Id"]] = json.dumps(engine.inspect_container(one["Id"]))

    async def look_on() -> None:
        while True:
            await asyncio.to_thread(look)
            await asyncio.sleep(0.1)

    looking = asyncio.create_task(look_on())
    try:
        yield found
        assert not looking.done()
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        engine.close()


async def _listen(person: Person, said: list[str]) -> None:
    async with person.client.get(f"{person.url}/api/v1/events", timeout=aiohttp.ClientTimeout(None)) as events:
        while line := await events.content.readline():
            said.append(line.decode())
