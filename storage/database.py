"""Connections: a small pool for ordinary statements, dedicated ones for lanes and listening.

Only this package sees asyncpg's errors. Temporary ones become ``Unavailable``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import asyncpg

from queuegate.storage.availability import Availability
from queuegate.storage.connecting import FAILURES, DatabaseSession, Hosts
from queuegate.storage.errors import Away, Unavailable
from queuegate.storage.liveness import SUSPECT_SECONDS, Liveness
from queuegate.storage.planning import RELAXED_PLANNER

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Transaction: TypeAlias = Connection | Pooled

SCHEMA = "queuegate"
"""All our objects are in one schema, so that a database may be shared."""

# SQLSTATE classes and codes after which the same call may succeed on another connection.
# 25006: the server became a standby; another host of the name may accept writes.
_LOST = ("08", "57P", "53", "25006")
# ... on the same connection, later: deadlocks and the like, lock timeouts, canceled statements.
_BUSY = ("40", "55P03", "57014")
_NOT_NOW = "The database is not available at the moment."
_ACQUIRE_SECONDS = 10.0
_TRANSACTION_SECONDS = 120.0
_WATCH_SECONDS = 1.0
_TCP_SETTINGS = {
    "tcp_keepalives_idle": "15",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""The server detects a dead client within 30 s, and releases its locks. PostgreSQL accepts these
settings on a Unix socket too, without effect."""


def is_unavailable(error: BaseException) -> bool:
    """Return True if ``error`` means that the database is away, full or busy, not a mistake of
    ours."""
    if isinstance(error, asyncpg.PostgresError) and (error.sqlstate or "").startswith(_BUSY):
        return True
    return is_lost(error)


def is_lost(error: BaseException) -> bool:
    """Return True if only another connection may help after ``error``."""
    if isinstance(error, asyncpg.PostgresError):
        return bool(error.sqlstate) and error.sqlstate.startswith(_LOST)
    if isinstance(error, asyncpg.InterfaceError):
        # asyncpg's texts for a closed or closing connection or pool.
        return any(word in str(error) for word in ("closed", "closing", "released"))
    if isinstance(error, asyncpg.exceptions.TargetServerAttributeNotMatched):
        # The primary is away, and no other host has been promoted yet.
        return True
    if isinstance(error, asyncpg.InternalClientError):
        # The server ended the idle connection, and the end has not been read yet.
        return "cannot switch to state" in str(error)
    return isinstance(error, OSError)


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
    """Return the start settings of all our connections."""
    return {
        "application_name": application,
        "search_path": SCHEMA,
        "timezone": "UTC",
        "jit": "off",
        **_TCP_SETTINGS,
    }


class Database:
    """One PostgreSQL, with its connections in this process."""

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
        self.liveness = Liveness(lambda: self._hosts, lambda why: self.availability.failed(why, 0))
        self._busy: dict[DatabaseSession, float] = {}
        self._watch: asyncio.TimerHandle | None = None
        # By settings, the error of the last attempt to connect with them: initially none has been
        # made with those of a lane.
        self._refused = {frozenset(RELAXED_PLANNER.items()): ""}
        self.acquire_timeouts = 0
        """Transactions that timed out waiting for a connection of the pool."""

    async def open(self) -> None:
        """Create the pool with one open connection; ``Unavailable`` if no host answers."""
        async with self._noted(0):
            self._pool = await asyncpg.create_pool(  # type: ignore[call-overload]
                min_size=1,
                max_size=self._max_connections,
                max_inactive_connection_lifetime=60.0,
                connect=self._open,
                connection_class=DatabaseSession,
            )

    @functools.cached_property
    def _hosts(self) -> Hosts:
        return Hosts(self.dsn)

    async def _open(
        self, settings: Mapping[str, str] | None = None, **options: Any
    ) -> DatabaseSession:
        settings = {**session_settings(self._application), **(settings or {})}
        return self.liveness.add(await self._hosts.connect(settings, **options))

    async def close(self) -> None:
        """Close the pool; lanes close their own connections."""
        self.liveness.close()
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._pool is not None:
            with contextlib.suppress(OSError, asyncpg.InterfaceError):
                await asyncio.wait_for(self._pool.close(), 5.0)
            self._pool = None

    def pool_counts(self) -> tuple[int, int]:
        """Return (open, idle) connections of the pool."""
        if self._pool is None:
            return 0, 0
        return self._pool.get_size(), self._pool.get_idle_size()

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Open one READ COMMITTED transaction; commits unless the block raises.

        A transaction longer than 2 minutes loses its connection: the database does not answer.
        """
        async with self.statements() as connection, connection.transaction():
            yield connection

    @contextlib.asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        """Lend a connection on which each statement is its own transaction: one round trip instead
        of three. It is also lost after 2 minutes."""
        pool = self._pool
        if pool is None:
            raise Unavailable("The gateway is shutting down.")
        async with self._noted(1):
            connection = await self._acquire(pool)
            try:
                with self.watching(connection):
                    yield connection
            finally:
                await pool.release(connection)
        if self.availability.is_away:
            self.availability.answered()

    @contextlib.contextmanager
    def watching(self, connection: Pooled | DatabaseSession) -> Iterator[None]:
        """Suspect the host if the statements of this block take long; abort them after 120 s."""
        loop = asyncio.get_running_loop()
        # A pooled proxy forwards all attributes.
        session = cast("DatabaseSession", connection)
        self._busy[session] = loop.time()
        if self._watch is None:
            self._watch = loop.call_later(_WATCH_SECONDS, self._look)
        try:
            yield
            session.answered()
        finally:
            del self._busy[session]

    def _look(self) -> None:
        """Once a second while statements run: suspect the hosts of slow ones."""
        self._watch = None
        if not self._busy:
            return
        loop = asyncio.get_running_loop()
        for connection, began in list(self._busy.items()):
            if loop.time() - began > _TRANSACTION_SECONDS:
                connection.terminate()
            elif loop.time() - began > SUSPECT_SECONDS:
                self.liveness.suspect(connection.host)
        self._watch = loop.call_later(_WATCH_SECONDS, self._look)

    @contextlib.asynccontextmanager
    async def _noted(self, calls: int) -> AsyncIterator[None]:
        """Report a database that does not answer to ``availability``."""
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

    async def connect(self, settings: Mapping[str, str] | None = None) -> DatabaseSession:
        """Open a dedicated connection with these server settings; the caller closes it."""
        key = frozenset((settings or {}).items())
        try:
            async with self._noted(0):
                # A lane's statements stay prepared as long as the connection.
                session = await self._open(settings, max_cached_statement_lifetime=0)
        except Unavailable as error:
            self._refused[key] = str(error.__cause__ or error)
            raise
        except asyncpg.PostgresError as error:
            # The server refuses the user or a setting, which may change without this process.
            self._refused[key] = str(error)
            self.availability.failed(error, 0)
            raise Unavailable(_NOT_NOW) from error
        self._refused.pop(key, None)
        return session

    async def refusal(self) -> str:
        """Open connections with the settings whose last attempt failed, or that were not tried yet.

        Returns the reason if one of them fails, else an empty text.
        """
        for key in list(self._refused):
            try:
                (await self.connect(dict(key))).terminate()
            except Unavailable:
                return self._refused[key]
        return ""
