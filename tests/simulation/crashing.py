"""A gateway's connections, which a crash of it takes away at one instant.

What was happening on one ends with it. Those on which nothing happened are for the next gateway:
PostgreSQL does not know one client from another, and to connect, and to plan every statement
anew, takes as long as ten steps of a simulation.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import asyncpg

from queuegate.storage.database import Database
from queuegate.storage.database_hosts import Host

if TYPE_CHECKING:
    from queuegate.storage.database import Pooled
    from queuegate.storage.database_hosts import DatabaseSession

APPLICATION = "simulated"
_Settings = frozenset[tuple[str, str]]


class Spare:
    """Connections that outlived their gateway."""

    def __init__(self) -> None:
        self.pools: list[asyncpg.Pool[asyncpg.Record]] = []
        self._connections: list[tuple[_Settings, DatabaseSession]] = []

    def keep(self, settings: _Settings, connection: DatabaseSession) -> None:
        self._connections.append((settings, connection))

    def take(self, settings: _Settings) -> DatabaseSession | None:
        """The last one that was kept with these settings."""
        found = [one for one in self._connections if one[0] == settings]
        if not found:
            return None
        self._connections.remove(found[-1])
        return found[-1][1]

    def end(self) -> None:
        """Keep none of them."""
        for _, connection in self._connections:
            connection.terminate()
        for pool in self.pools:
            pool.terminate()
        self._connections.clear()
        self.pools.clear()


class _Lent:
    """A lane's connection until the crash. It offers what lanes use."""

    host = Host()
    answers = 0

    def __init__(self, settings: _Settings, connection: DatabaseSession) -> None:
        self.settings = settings
        self.connection = connection
        self.is_cut = False
        self.is_kept = False
        self._uses = 0

    @property
    def is_busy(self) -> bool:
        return self._uses > 0

    async def fetch(self, *arguments: Any) -> Any:
        with self._used() as connection:
            return await connection.fetch(*arguments)

    async def fetchrow(self, *arguments: Any) -> Any:
        with self._used() as connection:
            return await connection.fetchrow(*arguments)

    async def fetchval(self, *arguments: Any) -> Any:
        with self._used() as connection:
            return await connection.fetchval(*arguments)

    async def execute(self, *arguments: Any) -> Any:
        with self._used() as connection:
            return await connection.execute(*arguments)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        with self._used() as connection:
            async with connection.transaction():
                yield

    def is_closed(self) -> bool:
        return self.is_cut or self.connection.is_closed()

    async def close(self, **options: Any) -> None:
        if self.is_cut:
            self.terminate()
        else:
            await self.connection.close(**options)

    def terminate(self) -> None:
        if not self.is_kept:
            self.connection.terminate()

    @contextlib.contextmanager
    def _used(self) -> Iterator[DatabaseSession]:
        if self.is_cut:
            raise _crashed()
        self._uses += 1
        try:
            yield self.connection
        finally:
            self._uses -= 1


class CrashingDatabase(Database):
    """The database of one gateway, from its start to its crash."""

    def __init__(self, dsn: str, spare: Spare) -> None:
        super().__init__(dsn, application=APPLICATION)
        self._spare = spare
        self._lent: list[_Lent] = []
        self._used: set[Pooled] = set()
        self._has_crashed = False

    async def open(self) -> None:
        if self._spare.pools:
            self._pool = self._spare.pools.pop()
        else:
            await super().open()

    def crash(self) -> list[int]:
        """From now on the gateway reaches nothing. The backends that did something for it, which
        are to be ended; the connections of all others are kept."""
        self._has_crashed = True
        ending: list[int] = []
        for connection in [*self._used]:
            ending.append(connection.get_server_pid())
            connection.terminate()
        if self._pool is not None:
            self._spare.pools.append(self._pool)
            self._pool = None
        for lent in self._lent:
            if lent.is_busy:
                ending.append(lent.connection.get_server_pid())
                lent.connection.terminate()
            elif not lent.is_closed():
                lent.is_kept = True
                self._spare.keep(lent.settings, lent.connection)
            lent.is_cut = True
        return ending

    async def connect(self, settings: Mapping[str, str] | None = None) -> DatabaseSession:
        wanted = frozenset((settings or {}).items())
        if self._has_crashed:
            raise _crashed()
        connection = self._spare.take(wanted) or await super().connect(settings)
        if self._has_crashed:
            connection.terminate()
            raise _crashed()
        self._lent.append(_Lent(wanted, connection))
        return cast("DatabaseSession", self._lent[-1])

    @contextlib.asynccontextmanager
    async def statements(self) -> AsyncIterator[Pooled]:
        async with super().statements() as connection:
            if self._has_crashed:
                raise _crashed()
            self._used.add(connection)
            try:
                yield connection
            finally:
                self._used.discard(connection)


def _crashed() -> Exception:
    return asyncpg.InterfaceError("connection is closed: its gateway has crashed")
