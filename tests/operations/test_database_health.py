"""Health of the database: what is read, how often, and what an operator is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import asyncpg
import pytest

from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.telemetry import database_health
from queuegate.gateway.operations.telemetry.database_health import (
    LONG_TRANSACTION_SECONDS,
    DatabaseHealth,
    DatabaseReport,
    findings,
    oldest_transaction,
)
from queuegate.storage.database_statistics import (
    DatabaseStatistics,
    OldestTransaction,
    SlotStatistics,
    TableStatistics,
    read_statistics,
)
from tests.operations.world import World


@asynccontextmanager
async def _session(dsn: str, name: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(dsn, server_settings={"application_name": name})
    try:
        yield connection
    finally:
        await connection.close()


async def test_any_number_of_readers_cause_one_read(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    read = read_statistics

    async def counting(*arguments: object) -> DatabaseStatistics:
        nonlocal reads
        reads += 1
        return await read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(database_health, "read_statistics", counting)
    health = DatabaseHealth(engine.database)
    found = await asyncio.gather(*(health.report() for _ in range(20)))
    assert (await health.report()).is_up
    assert reads == 1
    assert all(one.statistics.server is not None for one in found)
    monkeypatch.setattr(database_health, "_REFRESH_SECONDS", 0.0)
    await health.report()
    assert reads == 2


async def test_the_oldest_transaction_is_named_without_its_query(engine: Engine) -> None:
    async with _session(engine.database.dsn, "report") as holder, holder.transaction():
        pid, user = await holder.fetchrow(
            "SELECT pg_backend_pid(), current_user WHERE 'a secret' <> 'another'"
        ) or (0, "")
        await holder.execute("SELECT txid_current()")
        found = (await DatabaseHealth(engine.database).report()).statistics
        assert found.server is not None
        assert found.server.oldest is not None
        oldest = replace(found.server.oldest, age_seconds=0.0)
        assert oldest == OldestTransaction(pid, "report", user, "idle in transaction", 0.0)
        assert found.server.connections["idle in transaction"] >= 1
        assert "secret" not in repr(found) + oldest_transaction(found)
        assert f"pid {pid}, application 'report', user {user}, idle in" in oldest_transaction(found)
    found = await read_statistics(engine.database.transaction)
    assert found.server is not None
    assert found.server.oldest is None
    assert oldest_transaction(found) == "no transaction is open"


async def test_a_locked_table_hides_no_other_part(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes 2 s, the limit of a statement. The database is up meanwhile, and later."""
    async with _session(engine.database.dsn, "locks") as locks, locks.transaction():
        await locks.execute("LOCK TABLE queuegate.messages")
        health = DatabaseHealth(engine.database)
        report = await health.report()
        assert report.is_up
        monkeypatch.setattr(database_health, "_PATIENCE_SECONDS", 30.0)
        report = await health.report()
    assert report.is_up
    found = report.statistics
    assert found.unread == {"tables": "canceling statement due to statement timeout"}
    assert found.server is not None
    [text] = [one.text for one in report.findings if one.about == "rights"]
    assert text.startswith("statistics of tables cannot be read: ")


async def test_a_database_that_is_away_leaves_what_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    health = DatabaseHealth(world.engine.database)
    known = await health.report()
    assert {"messages", "queues"} <= {one.name for one in known.statistics.tables}
    monkeypatch.setattr(database_health, "_REFRESH_SECONDS", 0.0)
    await world.engine.database.close()
    report = await health.report()
    assert (report.is_up, report.read_at) == (False, known.read_at)
    assert report.statistics == known.statistics


async def test_a_role_without_rights_sees_what_it_may(engine: Engine) -> None:
    """The finding says what to grant."""
    async with _session(engine.database.dsn, "owner") as owner:
        await owner.execute("CREATE ROLE guest LOGIN")
        try:
            async with owner.transaction():
                await owner.execute("SELECT txid_current()")
                async with _session(engine.database.dsn, "guest") as guest:
                    await guest.execute("SET ROLE guest")

                    @asynccontextmanager
                    async def begin() -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
                        async with guest.transaction():
                            yield guest

                    found = await read_statistics(begin)
        finally:
            await owner.execute("DROP ROLE guest")
    assert found.unread == {}
    assert found.server is not None
    assert not found.server.sees_all
    assert found.server.oldest is None
    assert found.server.connections["unknown"] >= 1
    assert found.server.size_bytes > 0
    [finding] = findings(found)
    assert (finding.about, finding.remedy) == ("rights", 'GRANT pg_monitor TO "guest"')


async def test_a_prepared_transaction_is_one(engine: Engine) -> None:
    found = await read_statistics(engine.database.transaction)
    assert found.server is not None
    old = OldestTransaction(None, "batch 7", "app", "prepared", LONG_TRANSACTION_SECONDS)
    found.server = replace(found.server, oldest=old)
    [finding] = findings(found)
    assert "(prepared, application 'batch 7', user app, prepared)" in finding.text
    assert "ROLLBACK PREPARED" in finding.remedy


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (DatabaseStatistics(tables=[TableStatistics("messages", 0, 49_999, 1, None)]), []),
        (DatabaseStatistics(tables=[TableStatistics("messages", 10**6, 190_000, 1, None)]), []),
        (
            DatabaseStatistics(tables=[TableStatistics("messages", 10, 60_000, 5 << 20, None)]),
            ["table messages has 60,000 dead rows beside 10 live ones, in 5 MiB"],
        ),
        (DatabaseStatistics(slots=[SlotStatistics("lake", True, 1 << 40)]), []),
        (
            DatabaseStatistics(slots=[SlotStatistics("lake", False, 1 << 30)]),
            ["replication slot lake is inactive and keeps 1,024 MiB of WAL"],
        ),
    ],
)
def test_findings(found: DatabaseStatistics, expected: list[str]) -> None:
    assert [one.text for one in findings(found)] == expected


async def test_a_process_reads_itself_if_the_first_one_is_dead(engine: Engine) -> None:
    async def dead() -> DatabaseReport:
        raise ConnectionRefusedError

    async def alive() -> DatabaseReport:
        return DatabaseReport(is_up=True, read_at=7.0)

    assert (await DatabaseHealth(engine.database, alive).report()).read_at == 7.0
    report = await DatabaseHealth(engine.database, dead).report()
    assert report.is_up
    assert report.read_at > 7.0
