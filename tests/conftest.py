"""A real PostgreSQL per test process, with a database that is emptied for each test."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
from hypothesis import is_hypothesis_test

from queuegate.storage.database import Database
from tests import clusters, ordering
from tests import databases as databases_of_tests
from tests.databases import Databases
from tests.fuzz import drawing

if TYPE_CHECKING:
    from queuegate.storage.database_hosts import DatabaseSession

drawing.register()

_LONG_SECONDS = 5
_SAYS_WHY = "says why"


def _name_connections() -> None:
    """Let a connection say in which test it was opened: one that nobody closes fails whatever test
    runs when its memory is freed."""
    opened = asyncpg.Connection.__init__

    def open_named(self: Any, *arguments: Any, **options: Any) -> None:
        opened(self, *arguments, **options)
        self._source_traceback = os.environ.get("PYTEST_CURRENT_TEST", "no test")

    setattr(asyncpg.Connection, "__init__", open_named)  # noqa: B010 - mypy wants no assignment


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--draw-seed", type=int, default=0, help="what examples of property tests are drawn from"
    )
    parser.addoption(
        "--order-seed", type=int, help="what the order of tests is drawn from; 0: as they stand"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before xdist starts processes, which find what this one has opened."""
    if config.option.order_seed is None:
        config.option.order_seed = getattr(config, "workerinput", {}).get("order_seed") or (
            secrets.randbelow(999_999) + 1
        )
    _name_connections()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell without job control starts what runs beside it so, and our commands inherit it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run = clusters.open_run()
    if run is not None:
        config.add_cleanup(run.close)


def pytest_xdist_auto_num_workers() -> int:
    """More than cores: many tests wait for a process to start or to end."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """All processes of xdist collect in one order."""
    node.workerinput["order_seed"] = node.config.option.order_seed


def pytest_report_header(config: pytest.Config) -> str:
    return f"order of tests: --order-seed {config.option.order_seed}"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if seed := config.option.order_seed:
        # pytest itself groups by what fixtures of a module or session are given, after this.
        items.sort(key=lambda item: ordering.place(seed, item.nodeid))
    for item in items:
        assert isinstance(item, pytest.Function)
        item.user_properties.append((_SAYS_WHY, bool(item.obj.__doc__)))
        if is_hypothesis_test(item.obj):
            # What `hypothesis.seed` does, which also forgets what was found before.
            test = getattr(item.obj, "__func__", item.obj)
            test._hypothesis_internal_use_seed = config.getoption("--draw-seed")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config
) -> None:
    if exitstatus:
        terminalreporter.line(f"order of tests: --order-seed {config.option.order_seed}")
    long = [
        f"{report.duration:.1f} s {report.nodeid}"
        for report in terminalreporter.getreports("passed")
        if report.duration > _LONG_SECONDS and not dict(report.user_properties)[_SAYS_WHY]
    ]
    if long:
        terminalreporter.section(f"longer than {_LONG_SECONDS} s, and no docstring says why")
        for line in long:
            terminalreporter.line(line)


def pytest_unconfigure() -> None:
    databases_of_tests.close()


@pytest.fixture(scope="session")
def databases() -> Databases:
    return databases_of_tests.of_this_process()


@pytest.fixture
def database_dsn(databases: Databases) -> str:
    """The DSN of a migrated database with nothing in it, shared with the tests before and after."""
    databases.empty()
    return databases.shared


@pytest.fixture
async def own_database_dsn(databases: Databases) -> AsyncIterator[str]:
    """The DSN of a migrated database that nobody else has, for tests that add tables to it, or look
    at plans, which follow what the tests before left behind. Such a module overrides `database_dsn`
    where it uses `database`."""
    # In a thread: the databases have an event loop of their own.
    dsn = await asyncio.to_thread(databases.copy)
    yield dsn
    # While the test's loop still turns, so that it hears of the connections that end with this.
    await asyncio.to_thread(databases.drop, dsn)


class _Remembering(Database):
    """A database that ends, when it is closed, what lanes opened: tests make them by the dozen."""

    def __init__(self, dsn: str) -> None:
        super().__init__(dsn)
        self._opened: list[DatabaseSession] = []

    async def connect(self, settings: Mapping[str, str] | None = None) -> DatabaseSession:
        connection = await super().connect(settings)
        self._opened.append(connection)
        return connection

    async def close(self) -> None:
        for connection in self._opened:
            await connection.close()
        await super().close()


@pytest.fixture
async def database(database_dsn: str) -> AsyncIterator[Database]:
    """An open pool on the shared database."""
    database = _Remembering(database_dsn)
    await database.open()
    yield database
    await database.close()
