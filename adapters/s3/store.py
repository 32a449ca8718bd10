"""The S3 store: one client per process, errors told apart into "not there" and "did not answer"."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aioboto3
import structlog
from aiobotocore.config import AioConfig
from botocore.exceptions import BotoCoreError, ClientError

from domain.observation import Presence

if TYPE_CHECKING:
    from types_aiobotocore_s3.client import S3Client

log = structlog.get_logger()

NOT_FOUND = frozenset({"404", "NoSuchKey", "NotFound"})


@dataclass(frozen=True, slots=True)
class S3Config:
    endpoint: str
    access_key: str
    bucket: str
    secret_key: str = field(repr=False)
    region: str = "us-east-1"
    timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class S3ArchiveStore:
    client: "S3Client"
    bucket: str

    async def observe(self, key: str) -> Presence:
        try:
            await self.client.head_object(Bucket=self.bucket, Key=key)
        except ClientError as error:
            if error.response["Error"].get("Code") in NOT_FOUND:
                return Presence.ABSENT
            log.warning("archive_not_observed", key=key, error=str(error))
            return Presence.UNKNOWN
        except (BotoCoreError, OSError, TimeoutError) as error:
            log.warning("archive_not_observed", key=key, error=str(error))
            return Presence.UNKNOWN
        return Presence.PRESENT


@asynccontextmanager
async def open_store(config: S3Config) -> AsyncIterator[S3ArchiveStore]:
    session = aioboto3.Session()
    async with session.client(
        "s3",
        endpoint_url=config.endpoint,
        aws_access_key_id=config.access_key,
        aws_secret_access_key=config.secret_key,
        region_name=config.region,
        config=AioConfig(
            signature_version="s3v4",
            connect_timeout=config.timeout,
            read_timeout=config.timeout,
            retries={"max_attempts": 2, "mode": "standard"},
            s3={"addressing_style": "path"},
            max_pool_connections=32,
        ),
    ) as client:
        yield S3ArchiveStore(client, config.bucket)
