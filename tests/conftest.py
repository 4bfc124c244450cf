"""A real PostgreSQL per test process, with a database that is emptied for each test."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import is_hypothesis_test, seed

from storage.database import Database
from tests.databases import Databases
from tests.fuzz import drawing

drawing.register()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--draw-seed", type=int, default=0, help="what examples of property tests are drawn from"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj):
            # Not Hypothesis' own option, with which it repeats nothing that was found before.
            seed(config.getoption("--draw-seed"))(getattr(item.obj, "__func__", item.obj))


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


@pytest.fixture(scope="session")
def databases(server_dsn: str) -> Iterator[Databases]:
    databases = Databases(server_dsn)
    yield databases
    databases.close()


@pytest.fixture
def database_dsn(databases: Databases) -> str:
    """The DSN of a migrated database with nothing in it, shared with the tests before and after."""
    databases.empty()
    return databases.shared


@pytest.fixture
def own_database_dsn(databases: Databases) -> Iterator[str]:
    """The DSN of a migrated database that nobody else has, for tests that add tables to it, or look
    at plans, which follow what the tests before left behind. Such a module overrides `database_dsn`
    where it uses `database`."""
    dsn = databases.copy()
    yield dsn
    databases.drop(dsn)


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """An open pool on the shared database."""
    database = Database(database_dsn)
    await database.open()
    yield database
    await database.close()
