"""PROMISE 35: what must stay secret is in no history, search attribute, log, event, error body or container."""

import asyncio
import json
from base64 import b64encode
from contextlib import AsyncExitStack, suppress
from functools import partial
from urllib.parse import urlsplit

import aiohttp
import pytest
from docker import APIClient
from temporalio.client import Client

from domain.model import DesiredState, ErrorReason, Phase, WorkspaceId
from domain.naming import container_name
from tests.conftest import S3
from tests.faults.proxy import FaultProxy, server_of, through
from tests.harness.stored import stored_by_temporal
from tests.processes.conftest import Deploy
from tests.processes.deployment import AT_REST, PASSWORD, Deployment
from tests.processes.person import WORKSPACES, Person
from tests.processes.process import CodehubProcess, until
from workflows.codec import EncryptingCodec

pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]

CANARY = "canary-of-a-password"
METRICS_CANARY = "canary-of-the-metrics-token"
KEY_CANARY = b"canary-of-the-key-of-temporal-32"
SEEDED = {
    "LOG_LEVEL": "DEBUG",
    "METRICS_TOKEN": METRICS_CANARY,
    "TEMPORAL_PAYLOAD_KEYS": b64encode(KEY_CANARY).decode(),
}


async def test_secrets_stay_where_they_belong(deploy: Deploy, temporal_client: Client, docker_host: str) -> None:
    """A whole life, errors and refusals included, with the real worker and API; then everything that either of them
    said, stored or set up is searched for every secret that they were given or gave out."""
    deployment = await deploy(**SEEDED)
    await deployment.worker()
    async with deployment.person() as person:
        secrets = await _secrets(deployment, person)
        said: list[str] = []
        listening = asyncio.create_task(_listen(person, said))
        said += await _refusals(person, secrets)
        said += await _life(deployment, person, APIClient(docker_host))
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        histories = [text async for text in stored_by_temporal(temporal_client, EncryptingCodec([KEY_CANARY]))]
        assert any('"workspace_id":"' in text for text in histories), "histories are not deciphered"
        said += histories
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


async def _life(deployment: Deployment, person: Person, engine: APIClient) -> list[str]:
    """Created, running, archived, running again, failed, recovered and deleted; what is to be seen of it meanwhile."""
    seen = []
    workspace = await person.create("one")
    await deployment.until_phase(workspace, Phase.RUNNING)
    seen.append(json.dumps(engine.inspect_container(container_name(workspace))))
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


async def _listen(person: Person, said: list[str]) -> None:
    async with person.client.get(f"{person.url}/api/v1/events", timeout=aiohttp.ClientTimeout(None)) as events:
        while line := await events.content.readline():
            said.append(line.decode())
