"""Asking a service whether it serves. By hand, because client libraries take longer to load than services to start."""

import asyncio
import contextlib
import datetime as dt
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

LOOPBACK = "127.0.0.1"


async def http_status(
    place: int | Path, path: str, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> int:
    """The status that a server on a local port, or at a Unix socket, answers with."""
    host = f"{LOOPBACK}:{place}" if isinstance(place, int) else "localhost"
    lines = {"host": host, "connection": "close", "content-length": str(len(body)), **(headers or {})}
    async with _connected(place) as (reader, writer):
        head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())]
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        answer = await reader.readline()
    words = answer.split()
    if len(words) < 2:
        raise ConnectionError(f"no HTTP answer: {answer!r}")
    return int(words[1])


async def redis_ping(port: int, password: str) -> None:
    async with _connected(port) as (reader, writer):
        writer.write(f"AUTH {password}\r\nPING\r\n".encode())
        for expected in (b"+OK\r\n", b"+PONG\r\n"):
            if (answer := await reader.readline()) != expected:
                raise ConnectionError(answer.decode(errors="replace"))


@dataclass(frozen=True)
class S3Signer:
    """AWS Signature Version 4, for requests without a query."""

    access_key: str
    secret_key: str
    region: str

    def headers(self, method: str, host: str, path: str, body: bytes) -> dict[str, str]:
        now = dt.datetime.now(dt.UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{now[:8]}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(body).hexdigest()
        signed = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
        names = ";".join(signed)
        lines = "".join(f"{name}:{value}\n" for name, value in signed.items())
        request = hashlib.sha256(f"{method}\n{path}\n\n{lines}\n{names}\n{digest}".encode()).hexdigest()
        key = f"AWS4{self.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        signature = hmac.digest(key, f"AWS4-HMAC-SHA256\n{now}\n{scope}\n{request}".encode(), "sha256").hex()
        credential = f"AWS4-HMAC-SHA256 Credential={self.access_key}/{scope}"
        return {**signed, "authorization": f"{credential}, SignedHeaders={names}, Signature={signature}"}


@contextlib.asynccontextmanager
async def _connected(place: int | Path) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    if isinstance(place, int):
        reader, writer = await asyncio.open_connection(LOOPBACK, place)
    else:
        reader, writer = await asyncio.open_unix_connection(place)
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
