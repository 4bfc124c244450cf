"""Connections: a small pool for ordinary statements, dedicated ones for lanes and listening.

Only this package sees asyncpg's errors. Temporary ones become ``Unavailable``. Outages are logged
at the start, once a minute, and at the end: failed calls are counted and log nothing themselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import asyncpg

from queuegate.storage.database_hosts import (
    FAILURES,
    SUSPECT_SECONDS,
    DatabaseSession,
    Hosts,
    Liveness,
)
from queuegate.storage.queries import ALONE, PROBE_BY_KEY
from queuegate.storage.storage_errors import Away, Locked, Unavailable

if TYPE_CHECKING:
    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pooled: TypeAlias = asyncpg.pool.PoolConnectionProxy[asyncpg.Record]
    Transaction: TypeAlias = Connection | Pooled


_log = logging.getLogger("queuegate.database")

_DISK_FULL = "53100"
_LINE_SECONDS = 60.0
_QUIET_SECONDS = 1.0
"""Without a failure: a stopping server answers some connections a little longer."""
_BETWEEN_SECONDS = 10.0
"""Interval between two logged starts. Connections lost repeatedly, one at a time, are many
starts."""


class Availability:
    """The availability of one database, as one process observes it.

    ``clock`` is monotonic, in seconds; tests move it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.is_away = False
        self.on_disk_full: Callable[[], None] = lambda: None
        """Called when a call failed because the database's disk is full."""
        self._since = 0.0
        self._failed_at = 0.0
        self._is_told = False
        self._next_line_at = float("-inf")
        self._failed = 0

    def failed(self, reason: BaseException | str, calls: int = 1) -> None:
        """Record so many calls without an answer of the database; 0: only an attempt to connect."""
        now = self.clock()
        if getattr(reason, "sqlstate", None) == _DISK_FULL:
            self.on_disk_full()
        if not self.is_away:
            self.is_away = True
            self._since = now
        self._failed_at = now
        self._failed += calls
        if now < self._next_line_at:
            return
        self._next_line_at = now + _LINE_SECONDS
        why = str(reason) or type(reason).__name__
        if self._is_told:
            seconds = now - self._since
            text = "the database has not answered for %.0f s, %d calls failed: %s"
            _log.warning(text, seconds, self._failed, why)
        else:
            self._is_told = True
            _log.warning("the database does not answer: %s", why)

    def answered(self) -> None:
        """Record an answer. Callers check ``is_away`` first, which costs less than a call."""
        now = self.clock()
        if not self.is_away or now - self._failed_at < _QUIET_SECONDS:
            return
        self.is_away = False
        if self._is_told:
            self._is_told = False
            seconds = now - self._since
            _log.warning(
                "the database answers again after %.1f s, %d calls failed", seconds, self._failed
            )
            self._failed = 0
            self._next_line_at = self._since + _BETWEEN_SECONDS


RECEIVE_PLANNER = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
"""Pins the plans of statements that probe by key: prepared on an empty table, the planner would
choose a sequential scan and keep it (tests/storage/test_queries.py)."""

RELAXED_PLANNER = {**RECEIVE_PLANNER, "synchronous_commit": "off"}
"""As RECEIVE_PLANNER, with commits that do not wait for the disk: a database crash may undo the
last."""

SEND_PLANNER = {"plan_cache_mode": "force_generic_plan", "enable_seqscan": "off"}
"""Planner settings of sends, which join their input with the inserted rows by hash join."""


async def probe_by_key(tx: Transaction) -> None:
    """Force index plans until the transaction ends, regardless of statistics."""
    await tx.execute(PROBE_BY_KEY)


SCHEMA = "queuegate"
"""All our objects are in one schema, so that a database may be shared."""

# SQLSTATE classes and codes after which the same call may succeed on another connection.
# 25006: the server became a standby; another host of the name may accept writes.
# 3D000: the database was dropped, perhaps to be restored.
_LOST = ("08", "57P", "53", "25006", "3D000")
# ... on the same connection, later: deadlocks and the like, lock timeouts, canceled statements.
_BUSY = ("40", "55P03", "57014")
# "QG" in ASCII, fourth use.
_ALONE = (0x5147, 4)
_PATIENCE = ("300s", "10s")
"""With transactions of one_transaction, which may be long, and with clients."""
_NOT_NOW = "The database is not available at the moment."
_LOCKED = (
    "Another session holds a lock for too long: a seed, a load of a saved state, or a transaction "
    "that somebody left open (pg_stat_activity shows those 'idle in transaction'). Nothing was "
    "changed: end that session, or try again later."
)
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
    """Return True if ``error`` means that the database is away, full or busy."""
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
        # With the default, 4, statements that look at a few rows may scan (`make test-postgres`).
        "random_page_cost": "1.1",
        **_TCP_SETTINGS,
    }


class Database:
    """One PostgreSQL, with its connections in this process."""

    def __init__(
        self,
        dsn: str,
        *,
        pool_dsn: str | None = None,
        max_connections: int = 10,
        application: str = "queuegate",
        availability: Availability | None = None,
    ):
        self.dsn = dsn
        self._pool_dsn = pool_dsn or dsn
        """The URL of the pool, which may lead to a pooler that keeps no session."""
        self.availability = availability or Availability()
        self._max_connections = max_connections
        self._application = application
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self.liveness = Liveness(lambda why: self.availability.failed(why, 0))
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
            # What is known of the hosts of one URL is known once.
            hosts = self._hosts if self._pool_dsn == self.dsn else Hosts(self._pool_dsn)
            self._pool = await asyncpg.create_pool(
                min_size=1,
                max_size=self._max_connections,
                max_inactive_connection_lifetime=60.0,
                connect=functools.partial(self._open, hosts=hosts),
                connection_class=DatabaseSession,
            )

    @functools.cached_property
    def _hosts(self) -> Hosts:
        return Hosts(self.dsn)

    async def _open(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        hosts: Hosts | None = None,
        **options: Any,
    ) -> DatabaseSession:
        settings = {**session_settings(self._application), **(settings or {})}
        return self.liveness.add(await (hosts or self._hosts).connect(settings, **options))

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

    @contextlib.asynccontextmanager
    async def one_transaction(self) -> AsyncIterator[Database]:
        """Yield a database whose transactions, and those of lanes, are savepoints of one
        transaction. It commits unless the block raises. It serves one operation at a time, and
        waits for such transactions of other processes. Raises Locked."""
        connection = await self.connect()
        try:
            async with self._noted(1), connection.transaction():
                await connection.execute(ALONE, *_ALONE, *_PATIENCE)
                yield _OneTransaction(self, connection)
        except Unavailable as error:
            if isinstance(error.__cause__, asyncpg.LockNotAvailableError):
                raise Locked(_LOCKED) from error
            raise
        finally:
            await connection.close()

    @contextlib.contextmanager
    def watching(self, connection: Pooled | DatabaseSession) -> Iterator[None]:
        """Suspect the host if the statements of this block take long; abort them after 120 s."""
        loop = asyncio.get_running_loop()
        # A pooled proxy forwards all attributes.
        session = cast("DatabaseSession", connection).itself
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


class _SharedConnection:
    """A connection that its user cannot close."""

    answers = 0

    def __init__(self, connection: DatabaseSession) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def close(self, **_: object) -> None:
        """Leave it open."""

    def terminate(self) -> None:
        """Leave it open."""


class _OneTransaction(Database):
    """A database on one connection, which is in a transaction."""

    def __init__(self, parent: Database, connection: DatabaseSession) -> None:
        super().__init__(parent.dsn, availability=parent.availability)
        self._shared = connection

    @contextlib.asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        yield cast("Pooled", self._shared)

    async def connect(self, settings: Mapping[str, str] | None = None) -> DatabaseSession:
        return cast("DatabaseSession", _SharedConnection(self._shared))
