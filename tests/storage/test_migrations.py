from __future__ import annotations

import asyncio

import asyncpg
import pytest

from storage import preflight
from storage.migrate import Migration, known_migrations, migrate, pending
from storage.preflight import DatabaseRefused


@pytest.fixture
async def connection(own_database_dsn: str):  # type: ignore[no-untyped-def] # asyncpg's generics
    connection = await preflight.connect(own_database_dsn)
    yield connection
    await connection.close()


async def test_a_current_database_needs_nothing(connection: preflight.Connection) -> None:
    assert await migrate(connection) == []
    assert await pending(connection) == []


async def test_many_at_once_apply_each_file_once(own_database_dsn: str) -> None:
    connections = [await preflight.connect(own_database_dsn) for _ in range(4)]
    await connections[0].execute("DROP SCHEMA queuegate CASCADE")
    applied = await asyncio.gather(*(migrate(connection) for connection in connections))
    names = [name for names in applied for name in names]
    assert sorted(names) == [migration.name for migration in known_migrations()]
    for connection in connections:
        await connection.close()


async def test_a_newer_database_is_refused(connection: preflight.Connection) -> None:
    later = [*known_migrations(), Migration("9999_later", "CREATE TABLE later (later_id int)")]
    assert await migrate(connection, later) == ["9999_later"]
    with pytest.raises(DatabaseRefused, match=r"newer Queuegate .it has 9999_later"):
        await migrate(connection)


async def test_a_changed_file_is_refused(connection: preflight.Connection) -> None:
    known = known_migrations()
    changed = [*known[:-1], Migration(known[-1].name, known[-1].text + "\n-- changed")]
    with pytest.raises(DatabaseRefused, match=known[-1].name):
        await migrate(connection, changed)


async def test_a_file_that_fails_leaves_nothing_behind(connection: preflight.Connection) -> None:
    broken = Migration("9999_broken", "CREATE TABLE half (half_id int); SELECT 1/0")
    with pytest.raises(asyncpg.DivisionByZeroError):
        await migrate(connection, [*known_migrations(), broken])
    assert await connection.fetchval("SELECT to_regclass('queuegate.half')") is None
    assert await migrate(connection) == []


async def test_a_user_without_the_right_is_told(connection: preflight.Connection) -> None:
    await connection.execute("DROP SCHEMA queuegate CASCADE")
    await connection.execute("CREATE ROLE visitor")
    try:
        await connection.execute("SET ROLE visitor")
        with pytest.raises(DatabaseRefused, match="GRANT CREATE ON DATABASE"):
            await migrate(connection)
    finally:
        await connection.execute("RESET ROLE")
        await connection.execute("DROP ROLE visitor")


async def test_a_read_only_database_is_refused(connection: preflight.Connection) -> None:
    await connection.execute("DROP SCHEMA queuegate CASCADE")
    await connection.execute("SET default_transaction_read_only = on")
    with pytest.raises(DatabaseRefused, match="takes no writes"):
        await migrate(connection)


async def test_a_missing_database_is_refused_by_name(own_database_dsn: str) -> None:
    head, _, query = own_database_dsn.partition("?")
    with pytest.raises(DatabaseRefused, match='database "absent" does not exist'):
        await preflight.connect(f"{head.rpartition('/')[0]}/absent?{query}")


async def test_an_old_server_is_refused(
    own_database_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "OLDEST_MAJOR_VERSION", 99)
    with pytest.raises(DatabaseRefused, match="needs 99 or newer"):
        await preflight.connect(own_database_dsn)


def test_places_are_shown_without_password() -> None:
    assert preflight.shown("postgresql://u:secret@h:1,i:2/d?x=y") == "h:1,i:2/d"
    assert preflight.shown("postgresql://u@/d?host=/run/pg") == "/run/pg/d"
