"""Whether a workspace answers.

Docker's proxy accepts connections before the workspace listens, so only an answer counts.
"""

import asyncio
from contextlib import suppress

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Codehub-Probe: 1\r\n\r\n"
ANSWER = b"HTTP/"


async def answers(endpoint: str, timeout: float) -> bool:  # noqa: ASYNC109 - one limit for all its steps
    """Whether an HTTP server is there: any status will do."""
    host, _, port = endpoint.rpartition(":")
    try:
        async with asyncio.timeout(timeout):
            return await _asked(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False


async def _asked(host: str, port: int) -> bool:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(REQUEST)
        return await reader.readexactly(len(ANSWER)) == ANSWER
    except asyncio.IncompleteReadError:
        return False
    finally:
        # Not closed politely: an answer as large as its home page is none of our business.
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()
