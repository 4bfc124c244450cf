"""Connections: transactions, dedicated connections, and what counts as "not now"."""

from __future__ import annotations

import asyncio
import socket
from types import SimpleNamespace
from typing import Any

import asyncpg
import pytest

from queuegate.storage import database as storage_database
from queuegate.storage import database_hosts
from queuegate.storage.database import Database, is_unavailable, unavailable_when_lost
from queuegate.storage.storage_errors import Unavailable
from tests.databases import Databases


@pytest.fixture
def database_dsn(own_database_dsn: str) -> str:
    return own_database_dsn


async def test_a_transaction_commits(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("CREATE TABLE kept (kept_id int)")
        await tx.execute("INSERT INTO kept VALUES (1)")
    async with database.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM kept") == 1


async def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    async def create_and_fail() -> None:
        async with database.transaction() as tx:
            await tx.execute("CREATE TABLE kept (kept_id int)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await create_and_fail()
    async with database.transaction() as tx:
        assert await tx.fetchval("SELECT to_regclass('kept')") is None


async def test_all_connections_to_one_url_share_its_hosts(database: Database) -> None:
    connection = await database.connect()
    async with database.statements() as pooled:
        assert pooled.hosts is connection.hosts  # type: ignore[attr-defined]
    await connection.close()


async def test_connections_find_our_schema_in_utc(database: Database) -> None:
    connection = await database.connect({"enable_seqscan": "off"})
    try:
        for name, value in {
            "search_path": "queuegate",
            "TimeZone": "UTC",
            "jit": "off",
            "random_page_cost": "1.1",
            "enable_seqscan": "off",
            "default_transaction_isolation": "read committed",
        }.items():
            assert await connection.fetchval("SELECT current_setting($1)", name) == value
    finally:
        await connection.close()


async def test_a_peer_that_is_gone_is_found_out(database: Database) -> None:
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1")
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    client = writer.get_extra_info("socket")
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
    stand_in: Any = SimpleNamespace(_transport=writer.transport)
    database_hosts._keep_alive(stand_in)
    assert client.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) != 0
    for name, most in {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}.items():
        if hasattr(socket, name):
            assert 0 < client.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) <= most
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Also while something that was sent is not acknowledged.
        assert 0 < client.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
    writer.close()
    server.close()
    await server.wait_closed()


async def test_a_pool_without_a_free_connection_is_unavailable_and_counted(
    database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_database, "_ACQUIRE_SECONDS", 0.05)
    database = Database(database_dsn, max_connections=1)
    await database.open()
    async with database.transaction():
        assert database.acquire_timeouts == 0
        with pytest.raises(Unavailable):
            async with database.transaction():
                pass
    assert database.acquire_timeouts == 1
    async with database.transaction() as tx:
        assert await tx.fetchval("SELECT 1") == 1
    await database.close()


async def test_a_transaction_that_is_not_answered_loses_its_connection(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_database, "_TRANSACTION_SECONDS", 0.05)
    with pytest.raises(Unavailable):
        async with database.transaction() as tx:
            await tx.execute("SELECT pg_sleep(60)")
    monkeypatch.undo()
    async with database.transaction() as tx:
        assert await tx.fetchval("SELECT 1") == 1


async def test_a_lost_connection_is_unavailable_and_the_next_one_works(database: Database) -> None:
    with pytest.raises(Unavailable):
        async with database.transaction() as tx:
            await tx.fetchval("SELECT pg_terminate_backend(pg_backend_pid())")
    async with database.transaction() as tx:
        assert await tx.fetchval("SELECT 1") == 1


async def test_a_dropped_database_is_unavailable(databases: Databases) -> None:
    dsn = await asyncio.to_thread(databases.copy)
    database = Database(dsn)
    await database.open()
    await asyncio.to_thread(databases.drop, dsn)
    # The first call has the old connection, the second one asks for a new one.
    for _ in range(2):
        with pytest.raises(Unavailable):
            async with database.transaction() as tx:
                await tx.fetchval("SELECT 1")
    await database.close()


async def test_a_mistake_of_ours_is_not_unavailable(database: Database) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        async with database.transaction() as tx:
            await tx.execute("SELECT * FROM nowhere")


async def test_a_closed_pool_is_unavailable(database_dsn: str) -> None:
    database = Database(database_dsn)
    await database.open()
    assert database.pool_counts() == (1, 1)
    await database.close()
    assert database.pool_counts() == (0, 0)
    with pytest.raises(Unavailable):
        async with database.transaction():
            pass


async def test_nobody_at_home_is_unavailable() -> None:
    database = Database("postgresql://nobody@/nothing?host=/nonexistent")
    with pytest.raises(Unavailable):
        await database.open()
    with pytest.raises(Unavailable):
        await database.connect()


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.ConnectionDoesNotExistError("gone"),
        asyncpg.CannotConnectNowError("starting up"),
        asyncpg.AdminShutdownError("terminated"),
        asyncpg.CrashShutdownError("crashed"),
        asyncpg.TooManyConnectionsError("full"),
        asyncpg.DiskFullError("full"),
        asyncpg.ReadOnlySQLTransactionError("a standby now"),
        asyncpg.DeadlockDetectedError("locked"),
        asyncpg.LockNotAvailableError("locked"),
        asyncpg.QueryCanceledError("statement timeout"),
        asyncpg.InterfaceError("connection is closed"),
        asyncpg.InterfaceError("pool is closing"),
        ConnectionRefusedError(),
        TimeoutError(),
    ],
    ids=repr,
)
async def test_what_may_work_later_is_unavailable(error: Exception) -> None:
    assert is_unavailable(error)
    with pytest.raises(Unavailable):
        async with unavailable_when_lost():
            raise error


@pytest.mark.parametrize(
    "error",
    [
        asyncpg.UniqueViolationError("twice"),
        asyncpg.CharacterNotInRepertoireError("NUL"),
        asyncpg.InterfaceError("cannot perform operation: another operation is in progress"),
        ValueError("not ours"),
    ],
    ids=repr,
)
async def test_what_will_not_work_later_is_not(error: Exception) -> None:
    assert not is_unavailable(error)
    with pytest.raises(type(error)):
        async with unavailable_when_lost():
            raise error
