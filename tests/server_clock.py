"""A clock of the database that a test moves: PostgreSQL and our functions are real, and
``server_clock()`` says what the test wants."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from queuegate.storage.database import Database

_TESTED = """
CREATE SEQUENCE tested_clock;
CREATE OR REPLACE FUNCTION server_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN to_timestamp(pg_sequence_last_value('tested_clock') / float8 '1e6');
"""
_SHIPPED = """
CREATE OR REPLACE FUNCTION server_clock() RETURNS timestamptz LANGUAGE sql VOLATILE
RETURN clock_timestamp();
DROP SEQUENCE IF EXISTS tested_clock;
"""
_FORGOTTEN = "SELECT setval('clock_mark', 1, false), setval('clock_offset', 0, false)"


class ServerClock:
    """It stands where it was set."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, instant: datetime) -> None:
        """Let the server's clock say so from now on."""
        async with self._database.statements() as connection:
            await connection.execute(
                "SELECT setval('tested_clock', $1::bigint)",
                round(instant.timestamp() * 1e6),
            )

    async def present(self) -> datetime:
        """Return the present time of a statement."""
        async with self._database.statements() as connection:
            present: datetime = await connection.fetchval("SELECT present()")
        return present


@asynccontextmanager
async def server_clock(database: Database, start: datetime) -> AsyncIterator[ServerClock]:
    """A clock that stands at ``start``, in place of the true one until the end."""
    async with database.statements() as connection:
        await connection.execute(_TESTED)
    clock = ServerClock(database)
    try:
        await clock.set(start)
        yield clock
    finally:
        async with database.statements() as connection:
            await connection.execute(_SHIPPED)
            await connection.execute(_FORGOTTEN)
