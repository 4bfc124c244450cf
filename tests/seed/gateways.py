"""Gateways on databases of the shared PostgreSQL, and looking into those databases."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import IO, Any

import asyncpg

from tests.cli.processes import run
from tests.faces.servers import Server


class SharedServer(Server):
    """One that shares its database with others, and looks into it."""

    def __init__(self, dsn: str, *arguments: str, **more: str) -> None:
        super().__init__(*arguments, dsn=dsn, **more)

    def rows(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        """Return the rows of a statement in its database."""
        return rows(self.dsn, statement, *arguments)

    def delivery(self, number: int) -> dict[str, Any]:
        """Return the output of `queuegate deliveries show` for a delivery."""
        done = run("deliveries", "show", str(number), "--json", DATABASE_URL=self.dsn)
        assert done.returncode == 0, done.stderr
        facts: dict[str, Any] = json.loads(done.stdout)
        return facts


class LoggedServer(SharedServer):
    """The same with a log of its own."""

    def __init__(self, dsn: str, log: IO[str], **more: str) -> None:
        self.log = log
        super().__init__(dsn, **more)


async def _connect(dsn: str) -> asyncpg.Connection[asyncpg.Record]:
    return await asyncpg.connect(dsn, server_settings={"search_path": "queuegate"})


def rows(dsn: str, statement: str, *arguments: object) -> list[asyncpg.Record]:
    """Return the rows of a statement."""

    async def fetch() -> list[asyncpg.Record]:
        connection = await _connect(dsn)
        try:
            return await connection.fetch(statement, *arguments)
        finally:
            await connection.close()

    return asyncio.run(fetch())


@contextlib.contextmanager
def locked(dsn: str, table: str, mode: str = "ACCESS EXCLUSIVE") -> Iterator[None]:
    """Lock the table until the end of the block: by default against every read and write."""
    with asyncio.Runner() as runner:
        connection = runner.run(_connect(dsn))
        try:
            lock = f"BEGIN; LOCK TABLE {table} IN {mode} MODE"
            runner.run(connection.execute(lock))
            yield
        finally:
            runner.run(connection.close())


def somebody_waits(dsn: str, table: str) -> bool:
    """Return True if a session waits for a lock of the table."""
    waiting = (
        "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass AND database ="
        " (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    return bool(rows(dsn, waiting, table))
