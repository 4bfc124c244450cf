"""Sessions, standbys and slots that keep dead rows are named: by the statistics and by findings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import asyncpg
import pytest

from queuegate.gateway.operations.telemetry.database_health import findings
from queuegate.storage.database_statistics import (
    DatabaseStatistics,
    SnapshotHolder,
    TableStatistics,
    read_statistics,
)
from tests.faults.gateways import loaded, serving
from tests.faults.load import minutes
from tests.standbys import Pair
from tests.waiting import until_async

DEAD = [TableStatistics("messages", 10, 70_000, 1, None)]
FEEDBACK = "hot_standby_feedback = on\nwal_receiver_status_interval = 1s\n"


@pytest.fixture
def pair() -> Iterator[Pair]:
    running = Pair(has_standby=False)
    yield running
    running.stop()


@pytest.mark.timeout(600)
async def test_queues_go_on_beside_a_held_snapshot(data: Path) -> None:
    """Ten seconds here, three minutes with `make soak-faults`: all that is sent is received in
    order and deleted, and the holder is named."""
    async with serving(data) as server, loaded(server.port) as loads:
        report = await server.connect()
        await report.execute("SET application_name = 'report'")
        async with report.transaction(isolation="repeatable_read", readonly=True):
            await report.fetchval("SELECT count(*) FROM messages")
            began = time.monotonic()
            while time.monotonic() - began < 60 * minutes(1 / 6, 3):
                await loads.more(200)
            connection = await server.connect()
            found = await _read(connection)
            assert found.server is not None
            assert found.server.holder == SnapshotHolder(
                "session", report.get_server_pid(), "report", "queuegate", "idle in transaction"
            )
            assert await connection.fetchval("SELECT pg_relation_size('messages') > 100000")
            await connection.close()
        await report.close()
        await loads.end_and_check()


async def _found(pair: Pair) -> DatabaseStatistics:
    connection = await asyncpg.connect(pair.url())
    found = await _read(connection)
    await connection.close()
    assert found.server is not None
    return found


async def _read(connection: asyncpg.Connection[asyncpg.Record]) -> DatabaseStatistics:
    @asynccontextmanager
    async def begin() -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        async with connection.transaction():
            yield connection

    return await read_statistics(begin)


async def _until_holding(pair: Pair, kind: str, name: str, state: str) -> SnapshotHolder:
    """Use up transactions until this is the oldest holder; return it."""
    connection = await asyncpg.connect(pair.url())

    async def look() -> SnapshotHolder | None:
        await connection.execute("SELECT txid_current()")
        found = await _found(pair)
        assert found.server is not None
        return found.server.holder

    def is_it(one: SnapshotHolder | None) -> bool:
        return one is not None and (one.kind, one.name, one.state) == (kind, name, state)

    holder = await until_async(look, is_it)
    await connection.close()
    assert holder is not None
    return holder


def _told(found: DatabaseStatistics, holder: SnapshotHolder) -> tuple[str, str]:
    assert found.server is not None
    found.server = replace(found.server, holder=holder, oldest=None, xmin_age=50_000)
    found.tables = DEAD
    first, _ = findings(found)
    assert first.about == "transactions"
    return first.text, first.remedy


async def test_a_session_that_wrote_holds_without_a_snapshot(pair: Pair) -> None:
    """READ COMMITTED: idle, it has no snapshot, and keeps what died since its write."""
    name = "half done"
    writing = await asyncpg.connect(pair.url(), server_settings={"application_name": name})
    await writing.execute("BEGIN; SELECT txid_current()")
    holder = await _until_holding(pair, "session", name, "idle in transaction")
    assert holder == SnapshotHolder(
        "session", writing.get_server_pid(), name, "queuegate", "idle in transaction"
    )
    text, remedy = _told(await _found(pair), holder)
    assert text == (
        f"session 'half done' (pid {holder.pid}, idle in transaction, user queuegate) keeps all "
        "rows that died in the last 50,000 transactions"
    )
    assert f"pg_terminate_backend({holder.pid})" in remedy
    await writing.close()


async def test_the_slot_of_a_standby_is_named(pair: Pair) -> None:
    """The slot goes on to hold when the standby has gone."""
    connection = await asyncpg.connect(pair.url())
    await connection.execute("SELECT pg_create_physical_replication_slot('replica', true)")
    await asyncio.to_thread(pair.start_standby, f"{FEEDBACK}primary_slot_name = 'replica'\n")
    reading = await asyncpg.connect(pair.dsn(1))
    await reading.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM pg_class")
    await _until_holding(pair, "slot", "replica", "active")
    await reading.close()
    await asyncio.to_thread(pair.stop_standby)
    left = await _until_holding(pair, "slot", "replica", "inactive")
    text, remedy = _told(await _found(pair), left)
    assert text.startswith("replication slot replica (inactive) keeps all rows")
    assert "pg_drop_replication_slot('replica')" in remedy
    await connection.execute("SELECT pg_drop_replication_slot('replica')")
    await connection.close()


async def test_a_logical_slot_holds_no_dead_rows() -> None:
    """Its catalog_xmin is about catalogs, which queues leave alone."""
    pair = Pair("fsync = off\nwal_level = logical\nmax_connections = 20\n", has_standby=False)
    try:
        connection = await asyncpg.connect(pair.url())
        await connection.execute(
            "SELECT pg_create_logical_replication_slot('lake', 'pgoutput');"
            "CREATE TABLE churn (n int) WITH (autovacuum_enabled = false)"
        )
        for _ in range(20):
            await connection.execute("INSERT INTO churn VALUES (1); DELETE FROM churn")
        found = await _found(pair)
        assert found.server is not None
        assert found.server.xmin_age < 20
        await connection.execute("VACUUM churn")
        assert await connection.fetchval("SELECT pg_relation_size('churn')") == 0
        await connection.close()
    finally:
        pair.stop()
