"""Connections: a small pool for ordinary statements, dedicated ones for lanes and listening.

Only this package sees asyncpg's errors. Whatever means "not now" becomes ``Unavailable``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import asyncpg

from storage.availability import Availability
from storage.errors import Away, Unavailable

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Transaction: TypeAlias = Connection | Pooled

SCHEMA = "queuegate"
"""Everything of ours lives in one schema, so that a database may be shared with others."""

# SQLSTATE classes and codes after which the same call may succeed on another connection.
# 25006: the server became a standby; behind another host name there is one that takes writes.
_LOST = ("08", "57P", "53", "25006")
# ... on the same connection, later: deadlocks and their kin, lock timeouts, canceled statements.
_BUSY = ("40", "55P03", "57014")
_NOT_NOW = "The database is not available at the moment."
_ACQUIRE_SECONDS = 10.0
_CONNECT_SECONDS = 10.0
_TRANSACTION_SECONDS = 120.0
_TCP_SETTINGS = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""The server finds out about a client that is gone in half a minute, and lets go of its locks.
PostgreSQL takes these settings on a Unix socket too, where they mean nothing."""
# The same on our side of the connection.
_KEEPALIVE = {
    "TCP_KEEPIDLE": 15,
    "TCP_KEEPINTVL": 5,
    "TCP_KEEPCNT": 3,
    "TCP_USER_TIMEOUT": 30_000,
}


def is_unavailable(error: BaseException) -> bool:
    """Whether ``error`` says that the database is away, full or busy, not that we are wrong."""
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_BUSY):
        return True
    return is_lost(error)


def is_lost(error: BaseException) -> bool:
    """Whether after ``error`` only another connection may help."""
    if isinstance(error, asyncpg.PostgresError):
        return bool(error.sqlstate) and error.sqlstate.startswith(_LOST)
    if isinstance(error, asyncpg.InterfaceError):
        # asyncpg says so of a connection or a pool that it has closed, or is about to.
        return any(word in str(error) for word in ("closed", "closing", "released"))
    if isinstance(error, asyncpg.InternalClientError):
        # A connection that was ended by the server while idle, and whose end is not read yet.
        return "cannot switch to state" in str(error)
    return isinstance(error, OSError)


FAILURES = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""What asyncpg raises."""


@contextlib.asynccontextmanager
async def unavailable_when_lost() -> AsyncIterator[None]:
    """Turn the errors of a lost database into ``Unavailable``; leave every other one alone."""
    try:
        yield
    except FAILURES as error:
        if is_lost(error):
            raise Away(_NOT_NOW) from error
        if is_unavailable(error):
            raise Unavailable(_NOT_NOW) from error
        raise


def session_settings(application: str) -> dict[str, str]:
    """What every connection of ours asks for when it begins."""
    return {
        "application_name": application,
        "search_path": SCHEMA,
        "timezone": "UTC",
        "jit": "off",
        **_TCP_SETTINGS,
    }


class _Unchanged(asyncpg.Connection):
    """A connection of the pool: all that is set on it ends with its transaction.

    So nothing has to be reset, which would be one more round trip for every transaction.
    """

    def get_reset_query(self) -> str:
        """Nothing."""
        return ""


class Database:
    """One PostgreSQL as this process uses it."""

    def __init__(
        self,
        dsn: str,
        *,
        max_connections: int = 10,
        application: str = "queuegate",
        availability: Availability | None = None,
    ):
        self.dsn = dsn
        self.availability = availability or Availability()
        self._max_connections = max_connections
        self._application = application
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self.acquire_timeouts = 0
        """Transactions that waited for a connection of the pool in vain."""

    async def open(self) -> None:
        """Create the pool with one open connection; ``Unavailable`` when nobody answers."""
        async with self._noted(0):
            self._pool = await asyncpg.create_pool(
                self.dsn,
                min_size=1,
                max_size=self._max_connections,
                timeout=_CONNECT_SECONDS,
                max_inactive_connection_lifetime=60.0,
                server_settings=self._server_settings({}),
                init=keep_alive,
                connection_class=_Unchanged,
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
        """One READ COMMITTED transaction; commits unless the block raises.

        One that does not end in two minutes loses its connection: the database does not answer.
        """
        async with self.statements() as connection, connection.transaction():
            yield connection

    @contextlib.asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        """A connection on which each statement is a transaction of its own: one round trip instead
        of three. It is lost after two minutes, too."""
        pool = self._pool
        if pool is None:
            raise Unavailable("The gateway is shutting down.")
        async with self._noted(1):
            connection = await self._acquire(pool)
            deadline = asyncio.get_running_loop().call_later(
                _TRANSACTION_SECONDS, connection.terminate
            )
            try:
                yield connection
            finally:
                deadline.cancel()
                await pool.release(connection)
        if self.availability.is_away:
            self.availability.answered()

    @contextlib.asynccontextmanager
    async def _noted(self, calls: int) -> AsyncIterator[None]:
        """Tell ``availability`` of a database that does not answer."""
        try:
            async with unavailable_when_lost():
                yield
        except Away as error:
            self.availability.failed(error.__cause__ or error, calls)
            raise

    async def _acquire(self, pool: asyncpg.Pool[asyncpg.Record]) -> Pooled:
        try:
            return await pool.acquire(timeout=_ACQUIRE_SECONDS)
        except TimeoutError:
            self.acquire_timeouts += 1
            text = f"no connection of the pool came free in {_ACQUIRE_SECONDS:g} s"
            raise TimeoutError(text) from None

    async def connect(self, settings: Mapping[str, str] | None = None) -> Connection:
        """Open a dedicated connection with these server settings; the caller closes it."""
        async with self._noted(0):
            connection = await asyncpg.connect(
                self.dsn,
                timeout=_CONNECT_SECONDS,
                # A lane's statements stay prepared for as long as the connection lives.
                max_cached_statement_lifetime=0,
                server_settings=self._server_settings(settings or {}),
            )
            try:
                await keep_alive(connection)
            except BaseException:
                connection.terminate()
                raise
            return connection

    def _server_settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        return {**session_settings(self._application), **settings}


async def keep_alive(connection: Connection) -> None:
    """Find out about a server that is gone, also on a connection that only listens."""
    # asyncpg has no option for it. TLS wraps the transport, but hands out its socket all the same.
    taken: socket.socket | None = connection._transport.get_extra_info(  # type: ignore[attr-defined]
        "socket"
    )
    if taken is None or taken.family == socket.AF_UNIX:
        return
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        # Not every operating system has every one of them.
        if hasattr(socket, name):
            taken.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
