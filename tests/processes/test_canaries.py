"""PROMISE 35: what must stay secret is in no history, search attribute, log, event, error body or container; also not
while a service is away, which is when addresses and their passwords get into logs."""

import asyncio
import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from docker import APIClient
from temporalio.client import Client

from domain.model import DesiredState, ErrorReason, Phase, WorkspaceId
from domain.naming import container_name
from tests.adapters.docker_world import docker_world
from tests.conftest import S3
from tests.faults.proxy import FaultProxy, server_of, through
from tests.harness.stored import stored_by_temporal
from tests.ports import free_port
from tests.processes.conftest import Deploy
from tests.processes.deployment import PASSWORD, Deployment
from tests.processes.person import WORKSPACES, Person
from tests.raw_http import Browser, RawClient
from tests.telemetry.exposed import scraped
from tests.tls.authority import Authority, in_front_of
from workflows.codec import EncryptingCodec

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

CANARY = "canary-of-a-password"
METRICS = "canary-of-the-metrics-token"
API_KEY = "canary-of-an-api-key"
WORDS = "canary-of-what-a-workspace-said"
NAME = "a-name-that-is-no-secret"
HUB = "hub.localhost"


@dataclass
class Services:
    """Each behind a door that can be shut; to Temporal by TLS, as an API key implies."""

    doors: dict[str, FaultProxy]
    env: dict[str, str]


@pytest.fixture
async def services_with_doors(
    database_url: str, redis_url: str, s3: S3, temporal_address: str, docker_host: str, tmp_path: Path
) -> AsyncIterator[Services]:
    async with AsyncExitStack() as stack:
        ca = Authority(tmp_path, "authority")
        tls = await stack.enter_async_context(in_front_of(temporal_address, ca.server(ca.issue("temporal"))))

        async def door(upstream: str, listen: Path | None = None) -> FaultProxy:
            return await stack.enter_async_context(FaultProxy(upstream, listen))

        postgres, redis = await door(server_of(database_url)), await door(server_of(redis_url))
        store, engine = await door(s3.endpoint), await door(docker_host, tmp_path / "docker.sock")
        temporal = await door(f"https://127.0.0.1:{tls}")
        yield Services(
            {"PostgreSQL": postgres, "Redis": redis, "S3": store, "Docker": engine, "Temporal": temporal},
            {
                "DATABASE_URL": through(database_url, postgres),
                "REDIS_URL": through(redis_url, redis),
                "S3_ENDPOINT": store.url,
                "DOCKER_HOST": engine.url,
                "TEMPORAL_ADDRESS": temporal.url.removeprefix("https://"),
                "TEMPORAL_TLS_CA": str(ca.ca),
                "TEMPORAL_API_KEY": API_KEY,
            },
        )


@pytest.fixture
async def talking_image(docker_host: str, test_image: str, installation: str) -> AsyncIterator[str]:
    """Says something, and ends."""
    async with docker_world(docker_host, test_image, installation) as world:
        yield world.image_running("/bin/sh", "-c", f"echo {WORDS}; exit 3")


async def test_secrets_stay_where_they_belong(
    deploy: Deploy, temporal_client: Client, docker_host: str, services_with_doors: Services, talking_image: str
) -> None:
    """A whole life, errors, refusals and an outage of each service included, with the real worker and API; then
    everything that either of them said, stored or set up is searched for every secret that they were given or gave
    out. What Temporal stores is looked at in the clear, too: encryption is not what keeps secrets out of it."""
    key = os.urandom(32)
    deployment = await deploy(
        LOG_LEVEL="DEBUG",
        METRICS_TOKEN=METRICS,
        TEMPORAL_PAYLOAD_KEYS=base64.b64encode(key).decode(),
        CODEHUB_URL=f"http://{HUB}",
        WORKSPACE_HOST_PATTERN="{id}.ws.localhost",
        RECONCILER_PATIENCE="120",
        engine=docker_host,
        **services_with_doors.env,
    )
    await deployment.worker(METRICS_PORT=str(free_port()))
    async with deployment.person() as person:
        secrets = await _secrets(deployment, person)
        said: list[str] = []
        async with _listening(person, said):
            said += await _refusals(person, secrets)
            said += await _life(deployment, person, APIClient(docker_host), secrets)
            said += await _outages(deployment, person, services_with_doors.doors)
            theirs = await _last_words(deployment, person, talking_image)
        said += [line async for line in stored_by_temporal(temporal_client, EncryptingCodec([key]))]
        said += [process.output for process in deployment.processes]
        said += [str(dict(row)) for row in await deployment.database.fetch("SELECT * FROM workspaces")]
        assert WORDS in theirs, "the owner is told"
        assert WORDS not in "\n".join(said), "and nobody else"
        said += [str(dict(row)) for row in await deployment.database.fetch("SELECT * FROM operations")]
        said += [theirs]
        hidden = await deployment.database.fetch(
            "SELECT u::text FROM users u UNION ALL SELECT s::text FROM sessions s"
            " UNION ALL SELECT t::text FROM api_tokens t"
        )
        said += [row[0] for row in hidden]
    everything = "\n".join(said)
    # What is looked for can be found: the search itself works, also behind the encryption.
    known = (
        "WorkspaceWorkflow",
        "workspace_updated",
        "ImagePullFailed",
        '"event": "attempt_failed"',
        "Encoded failure",
    )
    payloads = (f'"name":"{NAME}"', "ended with exit code 3 before it answered; it said last: …")
    for word in (*known, *payloads, *(f'"waiting_for", "service": "{name}"' for name in ("Redis",))):
        assert word in everything, f"{word} is nowhere: this test says nothing"
    assert [name for name, secret in secrets.items() if not secret or secret in everything] == []


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
        "Temporal's API key": API_KEY,
        "key of the payloads": deployment.env["TEMPORAL_PAYLOAD_KEYS"],
        "token of the metrics": METRICS,
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
    pages = [await scraped(f"{person.url}/metrics", token) for token in (None, f"{METRICS}x", METRICS)]
    assert [status for status, _ in pages] == [401, 401, 200]
    return [*answers, *(page for _, page in pages)]


async def _life(deployment: Deployment, person: Person, engine: APIClient, secrets: dict[str, str]) -> list[str]:
    """Created, opened, archived, running again, failed and deleted; what is to be seen of it meanwhile."""
    seen = []
    workspace = await person.create(NAME)
    await deployment.until_phase(workspace, Phase.RUNNING)
    seen.append(json.dumps(engine.inspect_container(container_name(workspace))))
    secrets |= await _opened(person, workspace, secrets["session"])
    for desired in (DesiredState.ARCHIVED, DesiredState.RUNNING):
        await person.want(workspace, desired)
        await deployment.until_phase(workspace, Phase(desired))
    # Not one that is missing: without a registry nobody can tell.
    broken = await person.create("two", image="Not/A:Valid:Image")
    row = await deployment.until_phase(broken, Phase.ERROR)
    assert row.error_reason is ErrorReason.IMAGE_PULL_FAILED
    told = [f"/{one}/{what}" for one in (workspace, broken) for what in ("operations", "explain")]
    seen += [json.dumps(await person.ask("GET", f"{WORKSPACES}{path}")) for path in ("", *told)]
    for one in (workspace, broken):
        await person.delete(one)
        await deployment.until_phase(one, Phase.DELETED)
    engine.close()
    return seen


async def _opened(person: Person, workspace: WorkspaceId, session: str) -> dict[str, str]:
    """What a browser is given on its way to the workspace's own host."""
    browser = Browser(RawClient(urlsplit(person.url).port or 0), {HUB: {"session": session}})
    host = f"{workspace}.ws.localhost"
    url, answer, way = await browser.open(f"http://{host}/")
    assert (url, answer.status) == (f"http://{host}/", 200), way
    asked = {name: value for url in way for name, (value, *_) in parse_qs(urlsplit(url).query).items()}
    return {
        "ticket of a workspace's host": asked["ticket"],
        "state of the ticket": asked["state"],
        "cookie of a workspace's host": browser.jars[host]["codehub-workspace"],
    }


async def _outages(deployment: Deployment, person: Person, doors: dict[str, FaultProxy]) -> list[str]:
    """Each service in turn is gone while one workspace starts and another stops, while people ask, while another worker
    is started and while somebody looks for the fault. It is all done in the end."""
    seen = []
    up, down = [await person.create(name, DesiredState.STANDBY) for name in ("up", "down")]
    await deployment.converged()
    for name, door in doors.items():
        for workspace, desired in ((up, DesiredState.RUNNING), (down, DesiredState.ARCHIVED)):
            await person.want(workspace, desired)
        await door.refuse()
        late, doctor = deployment.start("worker"), deployment.start("doctor")
        await late.said("waiting_for", service=name)
        for path in (WORKSPACES, f"{WORKSPACES}/{up}/explain", "/health/ready", "/api/v1/admin/health"):
            with suppress(aiohttp.ClientError, TimeoutError):
                seen.append(json.dumps(await person.ask("GET", path)))
        assert await doctor.ended() != 0
        late.kill()
        await door.heal()
        await deployment.converged()
        for workspace in (up, down):
            await person.want(workspace, DesiredState.STANDBY)
        await deployment.converged()
    return seen


async def _last_words(deployment: Deployment, person: Person, image: str) -> str:
    """What the owner is told of a workspace that says something and ends."""
    workspace = await person.create("talking", image=image)
    row = await deployment.until_phase(workspace, Phase.ERROR)
    assert row.error_reason is ErrorReason.ACTION_FAILED
    return json.dumps(await person.ask("GET", f"{WORKSPACES}/{workspace}/operations"))


@asynccontextmanager
async def _listening(person: Person, said: list[str]) -> AsyncIterator[None]:
    """To live events; from their beginning again where they break off."""

    async def listen() -> None:
        while True:
            with suppress(aiohttp.ClientError):
                async with person.client.get(
                    f"{person.url}/api/v1/events", timeout=aiohttp.ClientTimeout(None)
                ) as events:
                    while line := await events.content.readline():
                        said.append(line.decode())
            await asyncio.sleep(0.2)

    listening = asyncio.create_task(listen())
    try:
        yield
    finally:
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
