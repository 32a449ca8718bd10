"""Fixtures on real services. Each is started once per run, by the first test that asks for it (see tests.services)."""

import asyncio
import contextlib
import dataclasses
import gc
import os
import shutil
import signal
import sysconfig
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from aiobotocore.config import AioConfig
from hypothesis import settings as hypothesis_settings
from redis.asyncio import Redis
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from adapters.s3.client import new_session
from starter.embedded.dockerd import Dockerd
from starter.embedded.stack import Stack, StackConfig
from tests.browser import chromium
from tests.hangs import AtOnce, Hangs
from tests.namespaces import add_search_attributes, own_namespace
from tests.order import Order
from tests.report import Outcomes
from tests.services import Services, ServicesProcess, own_data
from workflows.messages import SEARCH_ATTRIBUTES

if TYPE_CHECKING:
    from types_aiobotocore_s3 import S3Client

    from adapters.postgres.database import Database
    from adapters.redis.events import EventBus

__all__ = ["chromium"]

PROCESS = pytest.StashKey[ServicesProcess]()


# A machine that has a lot to do takes its time over any example: none is wrong for that.
hypothesis_settings.register_profile("codehub", deadline=None)
hypothesis_settings.load_profile("codehub")


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # Started in the background: what is started from here would ignore Ctrl-C, too.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(Hangs(config))
    config.pluginmanager.register(Order())
    if hasattr(config, "workerinput"):
        return
    config.pluginmanager.register(AtOnce(config))
    if "CODEHUB_REPORT" in os.environ:
        config.pluginmanager.register(Outcomes())


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """With no garbage collected meanwhile: before Python 3.12, both an import and a parse fail if garbage is collected
    at the wrong moment that imports something itself (see workflows.registry).
    """
    gc.disable()
    try:
        return (yield)
    finally:
        # All that was imported and found stays to the end: looking through it again and again took a third of the time.
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """In the controlling process of xdist, for each worker."""
    node.workerinput["services_root"] = str(_process(node.config).root)


def pytest_unconfigure(config: pytest.Config) -> None:
    if PROCESS in config.stash:
        config.stash[PROCESS].end()


@pytest.fixture(scope="session")
def services(request: pytest.FixtureRequest) -> Services:
    given: dict[str, Any] = getattr(request.config, "workerinput", {})
    root = Path(given["services_root"]) if given else _process(request.config).root
    return Services(root, given.get("workerid", "main"))


@pytest.fixture(scope="session")
def installation(services: Services) -> str:
    """The value of the label `codehub.installation` for this run, and the start of any other it may need
    (`f"{installation}-other"`): what carries it is removed at the end.
    """
    return services.installation


@pytest.fixture(scope="session")
def postgres_url(services: Services) -> str:
    """The server itself, for what concerns all of its databases."""
    return services.need("postgres")["url"]


@pytest.fixture(scope="session")
def database_template(services: Services, postgres_url: str) -> str:
    """A migrated database that each test's own is copied from."""
    # Here, so that what is wrong with it fails the tests that need a database and no others.
    from adapters.postgres.migrate import migrate

    name = f"template_{services.worker}"

    async def prepare() -> None:
        await _on(postgres_url, f'CREATE DATABASE "{name}"')
        await migrate(_with_database(postgres_url, name))

    asyncio.run(prepare())
    return name


@pytest.fixture
async def database_url(postgres_url: str, database_template: str) -> AsyncIterator[str]:
    """A fresh, migrated database."""
    async with own_database(postgres_url, f'TEMPLATE "{database_template}"') as url:
        yield url


@pytest.fixture
async def empty_database_url(postgres_url: str) -> AsyncIterator[str]:
    """A fresh database that no migration has touched."""
    async with own_database(postgres_url) as url:
        yield url


@pytest.fixture
async def database(database_url: str) -> AsyncIterator["Database"]:
    """With one user, whose id is 1."""
    from adapters.postgres.database import open_database

    opened = await open_database(database_url)
    await opened.execute("INSERT INTO users (id, username, password_hash) VALUES ($1, 'alice', '')", uuid.UUID(int=1))
    yield opened
    await opened.close()


@pytest.fixture
async def redis_url(services: Services) -> AsyncIterator[str]:
    """An empty server that no test of another process uses."""
    url = services.need("valkey")["url"]
    client = Redis.from_url(url)
    try:
        await client.flushall()
        yield url
    finally:
        await client.aclose()


@pytest.fixture
async def bus(redis_url: str) -> AsyncIterator["EventBus"]:
    from adapters.redis.events import EventBus

    redis: Redis = Redis.from_url(redis_url)
    yield EventBus(redis)
    await redis.aclose()


@dataclass(frozen=True)
class S3:
    endpoint: str
    access_key: str
    bucket: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"

    def client(self) -> contextlib.AbstractAsyncContextManager["S3Client"]:
        return new_session().client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name=self.region,
            config=AioConfig(signature_version="s3v4", s3={"addressing_style": "path"}),
        )


@contextlib.asynccontextmanager
async def own_bucket(services: Services) -> AsyncIterator[S3]:
    store = S3(**services.need("seaweed"), bucket=f"test-{uuid.uuid4().hex[:12]}")
    async with store.client() as client:
        # Sent again when an answer was lost: then it is there already, and nobody else's.
        with contextlib.suppress(client.exceptions.BucketAlreadyExists, client.exceptions.BucketAlreadyOwnedByYou):
            await client.create_bucket(Bucket=store.bucket)
        yield store
        await _remove_bucket(client, store.bucket)


@pytest.fixture
async def s3(services: Services) -> AsyncIterator[S3]:
    """A store with a bucket of the test's own."""
    async with own_bucket(services) as store:
        yield store


@pytest.fixture
def bucket(s3: S3) -> str:
    return s3.bucket


@pytest.fixture(scope="session")
def temporal_address(services: Services) -> str:
    return services.need("temporal")["address"]


@pytest.fixture
async def temporal_client(temporal_address: str) -> AsyncIterator[Client]:
    """A namespace of the test's own."""
    async with own_namespace(temporal_address) as client:
        yield client


@pytest.fixture
async def temporal_time_skipping() -> AsyncIterator[WorkflowEnvironment]:
    """A server that skips idle time; no listing of workflows and no Schedules."""
    binary = Path(sysconfig.get_path("scripts")) / "temporal-test-server"
    async with await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(binary), test_server_startup_timeout=timedelta(seconds=60)
    ) as environment:
        await add_search_attributes(environment.client)
        yield environment


@pytest.fixture(scope="session")
def docker_host(services: Services) -> str:
    """The engine that is reachable, or one of the run's own."""
    return services.need("docker")["host"]


@pytest.fixture(scope="session")
def iptables(docker_host: str) -> None:
    """To look at the machine's rules. Asked for only now: the run's own engine brings it along."""
    if os.geteuid() != 0 or shutil.which("iptables") is None:
        pytest.skip("needs root and iptables")


@pytest.fixture(scope="session")
def dockerd(docker_host: str) -> None:
    """To start engines of the test's own."""
    if not Dockerd.installed():
        pytest.skip("engines of its own take root on Linux and dockerd")


@pytest.fixture
def service_env(database_url: str, redis_url: str, s3: S3, temporal_client: Client, docker_host: str) -> dict[str, str]:
    """The settings that lead a codehub process to the services of this test."""
    return {
        "DATABASE_URL": database_url,
        "REDIS_URL": redis_url,
        "S3_ENDPOINT": s3.endpoint,
        "S3_ACCESS_KEY": s3.access_key,
        "S3_SECRET_KEY": s3.secret_key,
        "S3_BUCKET": s3.bucket,
        "TEMPORAL_ADDRESS": temporal_client.service_client.config.target_host,
        "TEMPORAL_NAMESPACE": temporal_client.namespace,
        "DOCKER_HOST": docker_host,
    }


@pytest.fixture(scope="session")
def test_image(services: Services) -> str:
    """busybox's httpd on port 8080, serving /home/coder as user 1000; /cgi-bin/{env,echo,put}."""
    return services.need("image")["name"]


OwnServices = Callable[..., Awaitable[Stack]]


@pytest.fixture
async def own_services(services: Services) -> AsyncIterator[OwnServices]:
    """For tests that take services down: `stack = await own_services("postgres", "temporal")` starts these for this
    test alone. Addresses are in `stack.env`; `stack.supervisor` has `pid` (to kill: it comes back by itself on the
    same port, see `ready`), `pause` (stays down) and `resume`.
    """
    async with own_stacks(services) as start:
        yield start


@contextlib.asynccontextmanager
async def own_stacks(services: Services) -> AsyncIterator[OwnServices]:
    """They live in the loop of whoever enters this."""
    named = {
        "postgres": "database_url",
        "valkey": "redis_url",
        "seaweed": "s3_endpoint",
        "temporal": "temporal_address",
        "docker": "docker_host",
    }
    async with contextlib.AsyncExitStack() as opened:

        async def start(*names: str) -> Stack:
            data = opened.enter_context(own_data(services.root))
            others: dict[str, Any] = {option: "unused:" for name, option in named.items() if name not in names}
            config = dataclasses.replace(StackConfig(data=data, search_attributes=SEARCH_ATTRIBUTES), **others)
            return await opened.enter_async_context(Stack(config))

        yield start


def _process(config: pytest.Config) -> ServicesProcess:
    if PROCESS not in config.stash:
        config.stash[PROCESS] = ServicesProcess()
    return config.stash[PROCESS]


def _with_database(url: str, name: str) -> str:
    return f"{url.rpartition('/')[0]}/{name}"


async def _on(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url, ssl=False)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def own_database(server: str, options: str = "") -> AsyncIterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    await _on(server, f'CREATE DATABASE "{name}" {options}')
    try:
        yield _with_database(server, name)
    finally:
        await _drop(server, name)


async def _drop(server: str, name: str) -> None:
    """PostgreSQL ends whoever uses it, and waits five seconds for that; a busy machine may take longer."""
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(asyncpg.ObjectInUseError):
                return await _on(server, f'DROP DATABASE "{name}" WITH (FORCE)')


async def _remove_bucket(client: "S3Client", bucket: str) -> None:
    uploads = await client.list_multipart_uploads(Bucket=bucket)
    for upload in uploads.get("Uploads", []):
        await client.abort_multipart_upload(Bucket=bucket, Key=upload["Key"], UploadId=upload["UploadId"])
    async for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        for item in page.get("Contents", []):
            await client.delete_object(Bucket=bucket, Key=item["Key"])
    # Sent again when an answer was lost.
    with contextlib.suppress(client.exceptions.NoSuchBucket):
        await client.delete_bucket(Bucket=bucket)
