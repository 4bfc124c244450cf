"""A real PostgreSQL per test process, and a fresh copy of a migrated database per test."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
from hypothesis import HealthCheck, settings

from storage.database import Database
from storage.migrate import migrate

# How long an example takes says how busy the machine is. Settings of a test's own begin with these.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_names = itertools.count()


def _with_database(dsn: str, name: str) -> str:
    """The same server, another database."""
    head, _, query = dsn.partition("?")
    return f"{head.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """A PostgreSQL for this test process: QUEUEGATE_TEST_SERVER, or an ephemeral one of our own."""
    given = os.environ.get("QUEUEGATE_TEST_SERVER")
    if given:
        yield given
        return
    from storage.embedded import EmbeddedPostgres

    server = EmbeddedPostgres(ephemeral=True)
    server.start()
    server.wait_ready()
    try:
        yield server.dsn
    finally:
        server.stop()


async def _execute(dsn: str, *statements: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


@pytest.fixture(scope="session")
def template(server_dsn: str) -> Iterator[str]:
    """The name of a migrated database that tests copy."""
    name = f"template_{os.getpid()}"

    async def prepare() -> None:
        await _execute(server_dsn, f"CREATE DATABASE {name}")
        connection = await asyncpg.connect(_with_database(server_dsn, name))
        try:
            await migrate(connection)
        finally:
            await connection.close()

    asyncio.run(prepare())
    yield name
    asyncio.run(_execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
async def database_dsn(server_dsn: str, template: str) -> AsyncIterator[str]:
    """The DSN of a fresh, migrated database; about 25 ms."""
    name = f"test_{os.getpid()}_{next(_names)}"
    await _execute(server_dsn, f"CREATE DATABASE {name} TEMPLATE {template}")
    yield _with_database(server_dsn, name)
    await _execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """An open pool on a fresh, migrated database."""
    database = Database(database_dsn)
    await database.open()
    yield database
    await database.close()
