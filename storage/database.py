"""Connections: a small pool for ordinary statements, dedicated ones for lanes and listening.

Only this package sees asyncpg's errors. Whatever means "not now" becomes ``Unavailable``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from storage.errors import Unavailable

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Transaction: TypeAlias = Connection | Pooled

SCHEMA = "queuegate"
"""Everything of ours lives in one schema, so that a database may be shared with others."""

# SQLSTATE classes and codes after which the same call may succeed on another connection or later.
# 25006: the server became a standby; behind another host name there is one that takes writes.
_LOST = ("08", "57P", "53", "25006")
_ACQUIRE_SECONDS = 10.0
_CONNECT_SECONDS = 10.0


def is_unavailable(error: BaseException) -> bool:
    """Whether ``error`` says that the database is away or full, not that we are wrong."""
    if isinstance(error, asyncpg.PostgresError):
        return bool(error.sqlstate) and error.sqlstate.startswith(_LOST)
    if isinstance(error, asyncpg.InterfaceError):
        # asyncpg says so of a connection or a pool that it has closed, or is about to.
        return any(word in str(error) for word in ("closed", "closing", "released"))
    if isinstance(error, asyncpg.InternalClientError):
        # A connection that was ended by the server while idle, and whose end is not read yet.
        return "cannot switch to state" in str(error)
    return isinstance(error, OSError)


@contextlib.asynccontextmanager
async def unavailable_when_lost() -> AsyncIterator[None]:
    """Turn the errors of a lost database into ``Unavailable``; leave every other one alone."""
    try:
        yield
    except (
        asyncpg.PostgresError,
        asyncpg.InterfaceError,
        asyncpg.InternalClientError,
        OSError,
    ) as error:
        if is_unavailable(error):
            raise Unavailable("The database is not available at the moment.") from error
        raise


class Database:
    """One PostgreSQL as this process uses it."""

    def __init__(self, dsn: str, *, max_connections: int = 10, application: str = "queuegate"):
        self.dsn = dsn
        self._max_connections = max_connections
        self._application = application
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Create the pool with one open connection; ``Unavailable`` when nobody answers."""
        async with unavailable_when_lost():
            self._pool = await asyncpg.create_pool(
                self.dsn,
                min_size=1,
                max_size=self._max_connections,
                timeout=_CONNECT_SECONDS,
                max_inactive_connection_lifetime=60.0,
                server_settings=self._server_settings({}),
            )

    async def close(self) -> None:
        """Close the pool; connections of lanes are their owners' to close."""
        if self._pool is not None:
            with contextlib.suppress(OSError, asyncpg.InterfaceError):
                await asyncio.wait_for(self._pool.close(), 5.0)
            self._pool = None

    def pool_counts(self) -> tuple[int, int]:
        """(open, idle) connections of the pool."""
        if self._pool is None:
            return 0, 0
        return self._pool.get_size(), self._pool.get_idle_size()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """One READ COMMITTED transaction; commits unless the block raises."""
        if self._pool is None:
            raise Unavailable("The gateway is shutting down.")
        async with (
            unavailable_when_lost(),
            self._pool.acquire(timeout=_ACQUIRE_SECONDS) as connection,
            connection.transaction(),
        ):
            yield connection

    async def connect(self, settings: Mapping[str, str] | None = None) -> Connection:
        """Open a dedicated connection with these server settings; the caller closes it."""
        async with unavailable_when_lost():
            return await asyncpg.connect(
                self.dsn,
                timeout=_CONNECT_SECONDS,
                # A lane's statements stay prepared for as long as the connection lives.
                max_cached_statement_lifetime=0,
                server_settings=self._server_settings(settings or {}),
            )

    def _server_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        return {
            "application_name": self._application,
            "search_path": SCHEMA,
            "timezone": "UTC",
            "jit": "off",
            **settings,
        }
