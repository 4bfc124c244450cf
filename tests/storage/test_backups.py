"""A backup restores all rows of one instant, or nothing."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import re
import signal
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import asyncpg
import pytest

from queuegate.storage import migrate
from queuegate.storage.backups import Backup, BackupRefused, back_up
from tests.cli.processes import environment
from tests.databases import Databases
from tests.waiting import until_async, yield_turns

_HARD = ["", "\\N", "\\.", "a\tb\\c\r\nd\x0b\x7f", "ü\U0001f600\u2028", "{}", "\\\\N\n\\.\n"]
_FILL = """
INSERT INTO queues (account_id, region, queue_name, is_fifo, attributes, created_at, modified_at)
  VALUES ('000000000000', 'us-east-1', 'orders', true, '{"a": "\\u00fc\\\\"}', now(), 'infinity');
INSERT INTO messages (visible_at, sent_at, queue_id, message_id, body_md5, sender_id, body)
  SELECT now() + n * interval '1.000001 s', '-infinity', 1, gen_random_uuid(),
    decode(md5(n::text), 'hex'), 'me', repeat('body ', 20) || n
  FROM generate_series(1, $1::int) AS n;
INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq, d_seq, d_until)
  VALUES (1, 'g', now(), 7, '{1,2}', ARRAY[now(), 'infinity']);
INSERT INTO topics (account_id, region, topic_name, is_fifo, tags, created_at)
  VALUES ('000000000000', 'us-east-1', 'news', false, '{"b":1, "a" :2}', now());
INSERT INTO subscriptions (topic_id, subscription_id, account_id, region, protocol, endpoint,
    is_confirmed, was_authenticated, created_at)
  VALUES (1, gen_random_uuid(), '000000000000', 'us-east-1', 'sqs', 'x', true, true, now());
INSERT INTO event_recordings (account_id, ends_at) VALUES ('000000000000', 'infinity');
SELECT setval('clock_mark', 1795863192607992), setval('fifo_sequence', 12)
"""


_WAITING = """
SELECT count(*) FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
WHERE NOT granted AND datname = current_database()"""


@asynccontextmanager
async def connected(dsn: str):  # type: ignore[no-untyped-def] # asyncpg's generics
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "queuegate"})
    yield connection
    await connection.close()


async def fill(dsn: str, count: int = 50) -> None:
    """Rows whose text is hard to copy, and tables that refer to others."""
    async with connected(dsn) as connection:
        for statement in _FILL.replace("$1::int", str(count)).split(";\n"):
            await connection.execute(statement)
        for sequence, body in enumerate(_HARD, 1):
            await connection.execute(
                "UPDATE messages SET body = $2 WHERE sequence = $1", sequence, body
            )


async def contents(dsn: str) -> dict[str, list[str]]:
    """Each row of each table as text; empty without tables."""
    async with connected(dsn) as connection:
        names = await connection.fetch(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname <> 'event_recordings'"
            " AND relname NOT LIKE 'schema%' AND relnamespace = to_regnamespace('queuegate')"
        )
        found = {}
        for [name] in names:
            rows = await connection.fetch(f"SELECT t::text FROM {name} AS t ORDER BY 1")
            found[str(name)] = [row[0] for row in rows]
        return found


async def sequences(dsn: str) -> dict[str, int]:
    async with connected(dsn) as connection:
        return dict(
            await connection.fetch(
                "SELECT sequencename, last_value FROM pg_sequences WHERE schemaname = 'queuegate'"
                " AND last_value IS NOT NULL"
            )
        )


def ignore(_: int) -> None:
    """Show no progress."""


async def backed_up(dsn: str) -> io.BytesIO:
    file = io.BytesIO()
    await back_up(dsn, file, ignore)
    return file


def changed(file: io.BytesIO, change: Callable[[dict[str, Any]], object]) -> io.BytesIO:
    """The backup with another manifest."""
    copy = io.BytesIO()
    with ZipFile(file) as source, ZipFile(copy, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "manifest.json":
                manifest = json.loads(content)
                change(manifest)
                content = json.dumps(manifest).encode()
            target.writestr(name, content)
    return copy


@pytest.fixture
async def source(own_database_dsn: str) -> str:
    await fill(own_database_dsn)
    return own_database_dsn


@pytest.fixture
async def target(databases: Databases):  # type: ignore[no-untyped-def] # asyncpg's generics
    """A database without our schema."""
    dsn = await asyncio.to_thread(databases.copy)
    async with connected(dsn) as connection:
        await connection.execute("DROP SCHEMA queuegate CASCADE")
    yield dsn
    await asyncio.to_thread(databases.drop, dsn)


async def test_each_row_is_the_same_after_a_restore(source: str, target: str) -> None:
    counts: list[int] = []
    file = io.BytesIO()
    rows = await back_up(source, file, counts.append)
    await Backup(file).restore(target, ignore)
    assert await contents(target) == await contents(source)
    assert sum(counts) == sum(rows.values()) == sum(map(len, (await contents(target)).values()))
    async with connected(target) as connection:
        assert await migrate.pending(connection) == []
        # Its triggers are not in a backup: a gateway starts recordings anew.
        assert await connection.fetchval("SELECT count(*) FROM event_recordings") == 0


async def test_numbers_go_on_behind_those_of_the_backup(source: str, target: str) -> None:
    await Backup(await backed_up(source)).restore(target, ignore)
    before, after = await sequences(source), await sequences(target)
    gap = 10**12
    for name in ("message_sequence", "fifo_sequence"):
        assert after.pop(name) == before.pop(name) + gap
    before.pop("event_recordings_recording_id_seq")
    assert after.pop("event_recordings_recording_id_seq") == 1
    assert after == before
    assert after["clock_mark"] == 1795863192607992


async def test_a_backup_is_of_one_instant(source: str, target: str) -> None:
    """Changes while the backup waits for a table belong to a later instant."""
    file, before = io.BytesIO(), await contents(source)
    async with connected(source) as writer, connected(source) as looking:
        await writer.execute("BEGIN; LOCK TABLE subscriptions IN ACCESS EXCLUSIVE MODE")
        task = asyncio.create_task(back_up(source, file, ignore))
        await until_async(lambda: looking.fetchval(_WAITING))
        await writer.execute("DELETE FROM subscriptions; DELETE FROM topics; DELETE FROM messages")
        await writer.execute("UPDATE queues SET queue_name = 'other'; COMMIT")
        await task
    await Backup(file).restore(target, ignore)
    assert await contents(target) == before


async def test_a_truncated_file_is_refused(source: str) -> None:
    content = (await backed_up(source)).getvalue()
    for part in range(8):
        with pytest.raises(BackupRefused, match="no complete backup"):
            Backup(io.BytesIO(content[: len(content) * part // 8]))


async def test_changed_bytes_are_refused_or_change_nothing(source: str, target: str) -> None:
    """A byte of a date or a flag of the archive may change; no value of a table does. Some restores
    go on to their end."""
    content = (await backed_up(source)).getvalue()
    expected = await contents(source)
    generator = random.Random(35)
    refused = 0
    for _ in range(25):
        place = generator.randrange(len(content))
        damaged = bytearray(content)
        damaged[place] ^= 1 << generator.randrange(8)
        try:
            await Backup(io.BytesIO(bytes(damaged))).restore(target, ignore, is_replacing=True)
        except BackupRefused:
            refused += 1
        else:
            assert await contents(target) == expected, place
    assert refused > 10


async def test_a_changed_table_is_refused_though_its_archive_is_whole(
    source: str, target: str
) -> None:
    file = await backed_up(source)
    copy = io.BytesIO()
    with ZipFile(file) as archive, ZipFile(copy, "w") as other:
        for name in archive.namelist():
            other.writestr(name, archive.read(name).replace(b"body body", b"BODY body"))
    with pytest.raises(BackupRefused, match=r"damaged: messages\.copy was changed"):
        await Backup(copy).restore(target, ignore)
    assert await contents(target) == {}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda facts: facts.update(format=2), r"another version .*format 2"),
        (lambda facts: facts["migrations"].update({"9999_later": "x"}), "migrations 9999_later"),
        (lambda facts: facts["migrations"].update({"0003_topics": "x"}), "migrations 0003_topics"),
        (lambda facts: facts.pop("tables"), "no complete backup"),
        (lambda facts: facts.update(migrations=7), "no complete backup"),
    ],
)
async def test_other_versions_and_manifests_are_refused(
    change: Callable[[dict[str, Any]], object], text: str, source: str
) -> None:
    with pytest.raises(BackupRefused, match=text):
        Backup(changed(await backed_up(source), change))


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: facts["tables"].update(unknown=facts["tables"]["queues"]),
        lambda facts: facts["tables"]["queues"]["columns"].append("unknown"),
        lambda facts: facts["sequences"].update(unknown=1),
        lambda facts: facts["sequences"].update(clock_mark="soon"),
    ],
)
async def test_a_manifest_that_does_not_fit_leaves_nothing(
    change: Callable[[dict[str, Any]], object], source: str, target: str
) -> None:
    with pytest.raises(BackupRefused):
        await Backup(changed(await backed_up(source), change)).restore(target, ignore)
    assert await contents(target) == {}


async def test_a_backup_of_an_older_version_is_migrated(source: str, target: str) -> None:
    """The tables of before logs: what came later is added, and the rows stay."""
    async with connected(target) as connection:
        older = [step for step in migrate.known_migrations() if step.name < "0018"]
        await migrate.migrate(connection, older)
        await connection.execute(
            "INSERT INTO queuegate.settings (setting_name, value) VALUES ('old', '1')"
        )
    file = await backed_up(target)
    async with connected(source) as connection:
        await connection.execute("DROP SCHEMA queuegate CASCADE")
    await Backup(file).restore(source, ignore)
    async with connected(source) as connection:
        assert await migrate.pending(connection) == []
        assert await connection.fetchval("SELECT value FROM settings") == "1"


async def test_data_is_replaced_only_if_asked_for(source: str, target: str) -> None:
    """Three restores, each with all migrations."""
    file = await backed_up(source)
    await Backup(file).restore(target, ignore)
    async with connected(target) as connection:
        await connection.execute("UPDATE messages SET body = 'newer'")
    newer = await contents(target)
    with pytest.raises(BackupRefused, match=r"has data of Queuegate: .*--replace"):
        await Backup(file).restore(target, ignore)
    damaged = changed(file, lambda facts: facts["tables"]["topics"].update(rows=9))
    with pytest.raises(BackupRefused, match="damaged"):
        await Backup(damaged).restore(target, ignore, is_replacing=True)
    assert await contents(target) == newer
    await Backup(file).restore(target, ignore, is_replacing=True)
    assert await contents(target) == await contents(source)


async def test_a_database_that_a_gateway_has_is_refused(source: str, target: str) -> None:
    file = await backed_up(source)
    gateway = await asyncpg.connect(target, server_settings={"application_name": "queuegate"})
    with pytest.raises(BackupRefused, match=r"are connected to .*: stop them"):
        await Backup(file).restore(target, ignore, is_replacing=True)
    await gateway.close()


async def test_a_database_without_tables_is_no_backup(target: str) -> None:
    with pytest.raises(BackupRefused, match="there is no data of Queuegate"):
        await backed_up(target)


async def test_two_restores_at_once_restore_once(source: str, target: str) -> None:
    file = (await backed_up(source)).getvalue()
    ended = await asyncio.gather(
        *(Backup(io.BytesIO(file)).restore(target, ignore) for _ in range(3)),
        return_exceptions=True,
    )
    assert [type(one) for one in ended].count(BackupRefused) == 2
    assert None in ended
    assert await contents(target) == await contents(source)


async def test_a_gateway_that_starts_waits_for_a_restore(source: str, target: str) -> None:
    file = await backed_up(source)
    async with connected(target) as connection:
        await asyncio.gather(Backup(file).restore(target, ignore), migrate.migrate(connection))
        assert await migrate.pending(connection) == []
    assert await contents(target) == await contents(source)


_AS_OTHERS_LIKE = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "extra_float_digits": "-15",
    "default_transaction_read_only": "off",
    "statement_timeout": "700ms",
    "default_transaction_isolation": "serializable",
}


async def test_a_user_of_few_rights_and_other_habits_restores_the_same(
    source: str, target: str
) -> None:
    """Statements with a time limit of the role, and a table that takes longer than that."""
    name = f"plain_{os.getpid()}"
    before = await contents(source)
    async with connected(target) as connection:
        database = await connection.fetchval("SELECT current_database()")
        await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'plain'")
        await connection.execute(f"GRANT CREATE ON DATABASE {database} TO {name}")
        for setting, value in _AS_OTHERS_LIKE.items():
            await connection.execute(f"ALTER ROLE {name} SET {setting} = '{value}'")
    plain = re.sub(r"//[^@]*@", f"//{name}:plain@", target)
    try:
        await Backup(await backed_up(source)).restore(plain, ignore)
        assert await contents(target) == before
        file = await backed_up(plain)
        await Backup(file).restore(plain, ignore, is_replacing=True)
        assert await contents(target) == before
    finally:
        async with connected(target) as connection:
            await connection.execute(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


async def test_a_lost_connection_ends_a_backup_with_one_line(source: str) -> None:
    async with connected(source) as connection, connected(source) as looking:
        await connection.execute("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        task = asyncio.create_task(backed_up(source))
        await until_async(lambda: looking.fetchval(_WAITING))
        await looking.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'queuegate%'"
        )
        with pytest.raises(BackupRefused, match=r"did not finish: .*terminat"):
            await task


async def test_a_migration_waits_for_a_backup(source: str) -> None:
    async with connected(source) as connection, connected(source) as looking:
        await connection.execute("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        task = asyncio.create_task(backed_up(source))
        await until_async(lambda: looking.fetchval(_WAITING))
        later = migrate.Migration("9999_later", "ALTER TABLE queues ADD COLUMN later int")
        migrating = asyncio.create_task(
            migrate.migrate(looking, [*migrate.known_migrations(), later])
        )
        await yield_turns(100)
        assert not migrating.done()
        await connection.execute("ROLLBACK")
        with ZipFile(await task) as archive:
            assert b"later" not in archive.read("manifest.json")
        assert await migrating == ["9999_later"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_restore_leaves_nothing(
    number: signal.Signals, own_database_dsn: str, target: str, tmp_path: Path
) -> None:
    """Enough rows that the command is still loading them when the signal comes."""
    await fill(own_database_dsn, 50_000)
    file = tmp_path / "backup"
    file.write_bytes((await backed_up(own_database_dsn)).getvalue())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "queuegate", "restore", file),
        env=environment(DATABASE_URL=target),
        stderr=asyncio.subprocess.PIPE,
    )
    async with connected(target) as connection:
        # Other tests use the server at the same time.
        copying = "SELECT count(*) FROM pg_stat_progress_copy WHERE datname = current_database()"
        await until_async(lambda: connection.fetchval(copying))
        process.send_signal(number)
        _, stderr = await process.communicate()
        await until_async(
            lambda: connection.fetchval(
                "SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'queuegate%'"
                " AND datname = current_database()"
            )
        )
    assert await contents(target) == {}
    if number == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
    else:
        assert (process.returncode, stderr) == (1, b"queuegate: stopped: nothing was kept\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stopped_backup_leaves_no_file(
    number: signal.Signals, source: str, tmp_path: Path
) -> None:
    async with connected(source) as connection, connected(source) as looking:
        await connection.execute("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "queuegate", "backup", tmp_path / "backup"),
            env=environment(DATABASE_URL=source),
            stderr=asyncio.subprocess.PIPE,
        )
        await until_async(lambda: looking.fetchval(_WAITING))
        assert [name[:8] for name in os.listdir(tmp_path)] == [".backup."]
        process.send_signal(number)
        _, stderr = await process.communicate()
    assert (process.returncode, stderr) == (1, b"queuegate: stopped: nothing was kept\n")
    assert os.listdir(tmp_path) == []
