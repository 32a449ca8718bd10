"""The client of the S3 store, and what its failures mean."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import aioboto3
import aiohttp
from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.exceptions import BotoCoreError, ClientError
from botocore.handlers import add_expect_header
from botocore.loaders import Loader, create_loader
from opentelemetry.trace import SpanKind

from adapters.telemetry.tracing import span
from domain.errors import ActionFailed, Unreachable

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound", "NoSuchUpload"})
AWAY = (BotoCoreError, aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class S3Config:
    endpoint: str
    access_key: str
    bucket: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"
    ca_bundle: str | None = None
    """File of the CA that signed the endpoint's certificate; None: those that this machine trusts."""
    directory: Path | None = None
    """See S3ArchiveStore."""
    connections: int = 64
    """At one time. Who asks for more waits, without an end."""
    timeout: float = 20.0
    """Seconds without a byte after which a connection counts as broken."""


class NotStored(ActionFailed):
    """The store says that there is no such object."""


@asynccontextmanager
async def open_client(config: S3Config) -> AsyncIterator["S3Client"]:
    async with new_session().client(
        "s3",
        endpoint_url=config.endpoint,
        aws_access_key_id=config.access_key,
        aws_secret_access_key=config.secret_key,
        region_name=config.region,
        verify=config.ca_bundle,
        config=AioConfig(
            signature_version="s3v4",
            connect_timeout=min(5.0, config.timeout),
            read_timeout=config.timeout,
            # SPEC 6: inside an attempt, a transfer tries three times.
            retries={"total_max_attempts": 3, "mode": "standard"},
            s3={"addressing_style": "path"},
            max_pool_connections=config.connections,
        ),
    ) as client:
        # While it waits to be told to go on, a request has no timeout: a store that is silent would hang it forever.
        client.meta.events.unregister("before-call.s3", add_expect_header)
        yield client


def new_session() -> aioboto3.Session:
    """What S3 is, megabytes of JSON, is read once in a process."""
    session = get_session()
    session.register_component("data_loader", _loader())
    return aioboto3.Session(botocore_session=session)


@cache
def _loader() -> Loader:
    return create_loader()


@contextmanager
def translated(what: str) -> Iterator[None]:
    try:
        with span(f"s3 {what.rpartition('/')[2]}", SpanKind.CLIENT):
            yield
    except ClientError as error:
        raise _answered(error, what) from error
    except AWAY as error:
        raise Unreachable(f"the object store did not answer ({what}): {str(error) or type(error).__name__}") from error


def is_missing(error: ClientError) -> bool:
    return code_of(error) in NOT_FOUND


def code_of(error: BaseException | None) -> str:
    """What the store called it."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _answered(error: ClientError, what: str) -> Exception:
    details = error.response.get("Error", {})
    code = str(details.get("Code") or "")
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    text = f"{code} {details.get('Message') or ''}".strip()
    if code in NOT_FOUND:
        return NotStored(f"the object store has no such object ({what}): {text}")
    if status == 507:
        return ActionFailed(f"the object store is full ({what}): {text}")
    if code != "NotImplemented" and (
        status >= 500 or code in {"SlowDown", "RequestTimeout", "InternalError", "ServiceUnavailable"}
    ):
        return Unreachable(f"the object store is not available ({what}): {text}")
    return ActionFailed(f"the object store refused ({what}): {text}")
