from __future__ import annotations

import asyncio

import asyncpg
import pytest

from queuegate.storage import preflight
from queuegate.storage.migrate import (
    Functions,
    Migration,
    Step,
    known_functions,
    known_migrations,
    migrate,
    pending,
)
from queuegate.storage.preflight import DatabaseRefused


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
    functions = [f"functions/{file.name}" for file in known_functions()]
    assert sorted(names) == sorted([migration.name for migration in known_migrations()] + functions)
    for connection in connections:
        await connection.close()


def with_more(*steps: Step) -> list[Step]:
    return [*known_migrations(), *steps, *known_functions()]


async def test_a_newer_database_serves_unless_it_says_no(
    connection: preflight.Connection,
) -> None:
    later = Migration("9998_later", "CREATE TABLE later (later_id int)")
    assert await migrate(connection, with_more(later)) == ["9998_later"]
    assert await migrate(connection) == []
    breaking = Migration("9999_breaks", "-- breaks older gateways: a test\nDROP TABLE later")
    assert await migrate(connection, with_more(later, breaking)) == ["9999_breaks"]
    with pytest.raises(DatabaseRefused, match=r"newer Queuegate .it has 9999_breaks"):
        await migrate(connection)


async def test_what_older_gateways_need_stays_until_the_end(
    connection: preflight.Connection,
) -> None:
    steps = with_more(
        Migration("9999_new", "CREATE TABLE new (new_id int)"),
        Migration("9999_new.after", "-- breaks older gateways: a test\nDROP TABLE new"),
    )
    assert await migrate(connection, steps) == ["9999_new"]
    assert await migrate(connection, steps) == []
    assert [step.name for step in await pending(connection, steps, finish=True)] == [
        "9999_new.after"
    ]
    await migrate(connection)
    assert await migrate(connection, steps, finish=True) == ["9999_new.after"]
    assert await migrate(connection, steps, finish=True) == []
    with pytest.raises(DatabaseRefused, match=r"9999_new\.after"):
        await migrate(connection)


async def test_an_index_is_built_beside_a_writer(
    connection: preflight.Connection, own_database_dsn: str
) -> None:
    """A second start finds what an attempt left that was broken off, an index that is not valid."""
    index = Migration(
        "9999_tags.concurrently",
        "DROP INDEX CONCURRENTLY IF EXISTS queues_by_tags;\n"
        "CREATE UNIQUE INDEX CONCURRENTLY queues_by_tags ON queues (tags);\n",
    )
    two = (
        "INSERT INTO queuegate.queues (account_id, region, queue_name, is_fifo, created_at,"
        " modified_at) SELECT '0', 'r', n::text, false, now(), now()"
        " FROM generate_series(1, 2) AS n"
    )
    await connection.execute(two)
    with pytest.raises(asyncpg.UniqueViolationError):
        await migrate(connection, with_more(index))
    await connection.execute("DELETE FROM queuegate.queues WHERE queue_name = '2'")
    others = [await preflight.connect(own_database_dsn) for _ in range(2)]
    done = await asyncio.gather(*(migrate(other, with_more(index)) for other in others))
    assert sorted(map(len, done)) == [0, 1]
    name = "queuegate.queues_by_tags"
    valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = $1::text::regclass"
    assert await connection.fetchval(valid, name)
    for other in others:
        await other.close()


async def test_functions_follow_the_highest_revision(connection: preflight.Connection) -> None:
    def revision(number: int) -> list[Step]:
        text = (
            f"-- revision {number}\n"
            "CREATE OR REPLACE FUNCTION shown_revision() RETURNS int LANGUAGE sql RETURN {};"
        )
        return with_more(Functions("shown", text.format(number)))

    assert await migrate(connection, revision(1)) == ["functions/shown"]
    assert await migrate(connection, revision(2)) == ["functions/shown"]
    # A gateway of the version before, started again beside the newer ones.
    assert await migrate(connection, revision(1)) == []
    assert await connection.fetchval("SELECT queuegate.shown_revision()") == 2


async def test_files_from_before_their_functions_moved_are_known(
    connection: preflight.Connection,
) -> None:
    old = "7e1b99b3b19698cd2ee735001d4f84830ec88449182beab7569772cde438edaf"
    await connection.execute(
        "UPDATE queuegate.schema_migrations SET checksum = $1"
        " WHERE migration_name = '0002_fifo_functions'",
        old,
    )
    assert await migrate(connection) == []


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
