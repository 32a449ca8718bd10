"""Connections. JSON columns are Python objects on this side; a server that is away is DatabaseUnavailable."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import asyncpg
from opentelemetry.trace import SpanKind

from adapters.postgres.actor import begin
from adapters.telemetry.tracing import span, sql_span

# asyncpg's classes are generic for the type checker only.
Pool: TypeAlias = "asyncpg.Pool[asyncpg.Record]"
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PooledConnection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    # asyncpg loses track of a connection whose server dies in the middle of an answer.
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    # Stopping, starting, too slow; out of connections, memory or disk; a disk that fails; a deadlock. None of them is
    # the caller's fault. Damaged data and the server's own mistakes (XX) are not among them: waiting mends neither.
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.PostgresSystemError,
    asyncpg.TransactionRollbackError,
    # No longer, or not yet, the one that writes: a failover.
    asyncpg.ReadOnlySQLTransactionError,
    # It let us in before: a password that is being changed, a database that is being restored.
    asyncpg.InvalidAuthorizationSpecificationError,
    asyncpg.InvalidCatalogNameError,
)
_CLOSE_SECONDS = 2.0
_REFUSED = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError, ValueError)


class DatabaseUnavailable(Exception):
    """PostgreSQL did not answer: the statement may or may not have happened."""


class DatabaseRefused(Exception):
    """PostgreSQL lets nobody in with this address, user, password and database: waiting won't help."""


@dataclass(frozen=True, slots=True)
class Database:
    pool: Pool

    async def fetch(self, sql: str, *args: Any) -> list[asyncpg.Record]:
        async with self._asked(sql_span(sql)):
            return await self.pool.fetch(sql, *args)

    async def fetchrow(self, sql: str, *args: Any) -> asyncpg.Record | None:
        async with self._asked(sql_span(sql)):
            return await self.pool.fetchrow(sql, *args)

    async def fetchval(self, sql: str, *args: Any) -> Any:
        async with self._asked(sql_span(sql)):
            return await self.pool.fetchval(sql, *args)

    async def execute(self, sql: str, *args: Any) -> str:
        async with self._asked(sql_span(sql)):
            return await self.pool.execute(sql, *args)

    @asynccontextmanager
    async def transaction(self, lock: int | None = None) -> AsyncIterator[PooledConnection]:
        """`lock`: an advisory lock that it begins with, before anything else is locked."""
        spanned = span("postgresql transaction", SpanKind.CLIENT)
        async with self._asked(spanned), self.pool.acquire() as connection, connection.transaction():
            await begin(connection, lock)
            yield connection

    @asynccontextmanager
    async def _asked(self, spanned: AbstractContextManager[object]) -> AsyncIterator[None]:
        try:
            with translated(), spanned:
                yield
        except DatabaseUnavailable as error:
            if isinstance(error.__cause__, asyncpg.ReadOnlySQLTransactionError):
                # The address may lead to another server by now; who is connected stays with the one that reads only.
                await self.pool.expire_connections()
            raise

    async def close(self) -> None:
        """A server that does not answer must not hold up the end."""
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.pool.close()
        except TimeoutError:
            self.pool.terminate()


async def open_database(url: str, *, max_size: int = 10) -> Database:
    with translated():
        pool = await asyncpg.create_pool(
            url, min_size=0, max_size=max_size, command_timeout=30, timeout=10, init=_prepare, reset=_leave
        )
    return Database(pool)


async def connect(url: str) -> Connection:
    """A connection of its own, for what lives with it: session locks and LISTEN. Raises DatabaseRefused."""
    with translated():
        try:
            connection = await asyncpg.connect(url, timeout=10, command_timeout=30)
        except _REFUSED as error:
            raise DatabaseRefused(f"{error}") from error
        await _prepare(connection)
        return connection


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except _AWAY as error:
        raise DatabaseUnavailable(f"PostgreSQL did not answer: {str(error) or type(error).__name__}") from error


async def _prepare(connection: Connection) -> None:
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=_encode, decoder=json.loads)


async def _leave(_: Connection) -> None:
    """Nothing is set for longer than a transaction here, which asyncpg itself ends: what it would ask the server to
    forget, after every single statement, is one round trip more for each."""


def _encode(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
