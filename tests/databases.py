"""Databases for tests: one that each process empties, and copies for whoever needs one alone."""

from __future__ import annotations

import asyncio
import functools
import itertools
import os
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import asyncpg

from queuegate.storage.database import SCHEMA
from queuegate.storage.embedded.embedded_server import EmbeddedPostgres
from queuegate.storage.migrate import migrate
from tests import clusters

if TYPE_CHECKING:
    from queuegate.storage.database import Connection

Result = TypeVar("Result")

# Migrations fill this table and no other: see `_emptying`.
_KEPT = ("schema_migrations", "schema_functions")


class Databases:
    """Migrated databases on one PostgreSQL, gone after ``close``.

    It has an event loop of its own, and connections that live as long as it does: its methods are
    called where no other loop runs, by fixtures that are not coroutines or in a thread.
    """

    def __init__(self, server_dsn: str, stop: Callable[[], object] = lambda: None) -> None:
        """``stop`` ends that server: the last thing that ``close`` does."""
        self.server_dsn = server_dsn
        self._stop = stop
        self._names = itertools.count()
        self._made: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._server = self._run(asyncpg.connect(server_dsn))
        self._template = self._create()
        self._emptying = self._run(self._prepare())
        self.shared = self.copy()
        """The DSN of the one that tests share. Call ``empty`` before a test uses it."""
        self._shared = self._run(asyncpg.connect(self.shared))

    def copy(self) -> str:
        """The DSN of a fresh one; about 15 ms."""
        # Copying the files takes half as long as the default, which writes them to the log.
        return self.dsn(self._create(f"TEMPLATE {self._template} STRATEGY FILE_COPY"))

    def drop(self, dsn: str) -> None:
        """Drop one that was copied, whoever is still connected."""
        name = dsn.partition("?")[0].rpartition("/")[2]
        self._run(self._server.execute(f"DROP DATABASE {name} WITH (FORCE)"))
        self._made.remove(name)

    def empty(self) -> None:
        """Leave the shared one as ``copy`` makes it; half a millisecond.

        DELETE, not TRUNCATE, which makes new files for every table and takes twenty times as long.
        """
        try:
            self._run(self._shared.execute(self._emptying))
        except (asyncpg.PostgresError, asyncpg.InterfaceError):
            # Some tests end every connection of their database, and this one with them.
            self._shared.terminate()
            self._shared = self._run(asyncpg.connect(self.shared))
            self._run(self._shared.execute(self._emptying))

    def dsn(self, name: str) -> str:
        """The same server, another database."""
        head, _, query = self.server_dsn.partition("?")
        return f"{head.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")

    def close(self) -> None:
        """Drop all of them, whoever is still connected."""
        self._run(self._shared.close())
        for name in reversed(self._made):
            self._run(self._server.execute(f"DROP DATABASE {name} WITH (FORCE)"))
        self._run(self._server.close())
        self._loop.close()
        self._stop()

    def _create(self, how: str = "") -> str:
        name = f"test_{os.getpid()}_{next(self._names)}"
        self._made.append(name)
        self._run(self._server.execute(f"CREATE DATABASE {name} {how}"))
        return name

    async def _prepare(self) -> str:
        """Migrate the template; the statement that empties a copy of it."""
        connection: Connection = await asyncpg.connect(self.dsn(self._template))
        try:
            await migrate(connection)
            return await _emptying(connection)
        finally:
            await connection.close()

    def _run(self, call: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(call)


@functools.cache
def of_this_process() -> Databases:
    """Those on QUEUEGATE_TEST_SERVER, or on an ephemeral PostgreSQL of this test process: whoever
    asks first starts it, and it ends with the process."""
    given = os.environ.get("QUEUEGATE_TEST_SERVER")
    if given:
        return Databases(given)
    # Several gateways at a time have their connections there.
    server = EmbeddedPostgres(ephemeral=True, max_connections=400)
    clusters.copy_into(server)
    server.start()
    server.wait_ready()
    return Databases(server.dsn, server.stop)


def close() -> None:
    """End what this process has started."""
    if of_this_process.cache_info().currsize:
        of_this_process().close()


async def _emptying(connection: Connection) -> str:
    """Ends whoever is still connected, deletes all rows, and lets sequences begin anew."""
    found = await connection.fetch(
        "SELECT c.relkind, c.relname FROM pg_class AS c"
        " WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'S')"
        " ORDER BY c.relkind, c.relname",
        SCHEMA,
    )
    tables = [f"{SCHEMA}.{name}" for kind, name in found if kind == b"r" and name not in _KEPT]
    for table in tables:
        assert not await connection.fetchval(f"SELECT count(*) FROM {table}"), (
            f"a migration fills {table}: emptying it would lose that"
        )
    ending = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    # One statement, so that it is only at its end that no row may point to one that is gone.
    deletes = [f"d{number} AS (DELETE FROM {table})" for number, table in enumerate(tables)]
    deleting = f"WITH {', '.join(deletes)} SELECT 1"
    sequences = [f"{SCHEMA}.{name}" for kind, name in found if kind == b"S"]
    beginning_anew = [f"SELECT setval('{sequence}', 1, false)" for sequence in sequences]
    return ";".join([ending, deleting, *beginning_anew])
