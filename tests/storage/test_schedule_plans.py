"""Statements that fire schedules use an index on a full table, whatever they were planned on."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from queuegate.storage import schedule_fires, schedules
from queuegate.storage.database import Database, probe_by_key
from queuegate.storage.queries import load
from queuegate.storage.schedules import ScheduleFilter
from tests.storage.schedule_factory import ACCOUNT, NOON, REGION, fill_schedules, make_schedule
from tests.storage.test_queries import watch_afterwards

FILLED = 50_000
FAR = datetime(2100, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


async def use(database: Database) -> None:
    """A schedule from its creation to its end, with a look and a claim."""
    async with database.transaction() as tx:
        made = await schedules.create(tx, NOON, make_schedule())
    assert made is not None
    async with database.transaction() as tx:
        assert (await schedule_fires.poll(tx, NOON + DAY)).is_due
        await probe_by_key(tx)
        [claimed] = await schedule_fires.claim(tx, NOON + DAY, 500)
        assert await schedule_fires.claim_invocations(tx, NOON, 50) == []
        advance = schedule_fires.Advance(claimed.schedule_id, FAR, FAR, True, 0, None, 1, 0, NOON)
        await schedule_fires.advance(tx, NOON, [advance])
    async with database.transaction() as tx:
        assert await schedules.lock(tx, ACCOUNT, REGION, None, "nightly") is not None
        await schedules.replace(tx, NOON, made.schedule_id, make_schedule())
        wanted = ScheduleFilter(ACCOUNT, REGION)
        assert len(await schedules.page(tx, wanted, "night", limit=1)) == 1
        assert await schedules.delete(tx, made.schedule_id)


@pytest.mark.timeout(120)
async def test_schedules_planned_when_there_are_none_never_scan(own_database_dsn: str) -> None:
    database = Database(own_database_dsn, max_connections=1)
    await database.open()
    for _ in range(6):
        await use(database)
    async with database.transaction() as tx:
        await fill_schedules(tx, FILLED, due_at=FAR)
    for _ in range(6):
        await use(database)
    watcher = await watch_afterwards(database)
    row = await watcher.fetchrow(
        "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 'schedules'"
    )
    await watcher.close()
    assert row is not None
    assert row["seq_tup_read"] < 500
    assert row["idx_tup_fetch"] < 500


async def explain(database: Database, statement: str, *arguments: object) -> str:
    async with database.transaction() as tx:
        await probe_by_key(tx)
        rows = await tx.fetch(
            f"EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) {statement}", *arguments
        )
    return "\n".join(row[0] for row in rows)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_batch_of_many_that_are_due_reads_that_batch(
    database: Database, analyzed: bool
) -> None:
    async with database.transaction() as tx:
        await fill_schedules(tx, FILLED, due_at=NOON)
        if analyzed:
            await tx.execute("ANALYZE schedules")
    queries = load("schedule_fires")
    plan = await explain(database, queries["claim"].text, NOON, 500, 1 << 24, [], False)
    assert re.search(r"using schedules_due on schedules .*rows=500\b", plan), plan
    async with database.transaction() as tx:
        ids = [row[0] for row in await tx.fetch("SELECT schedule_id FROM schedules LIMIT 500")]
    many = [FAR] * 500
    plan = await explain(
        database,
        queries["advance"].text,
        NOON,
        ids,
        many,
        many,
        [True] * 500,
        [0] * 500,
        [None] * 500,
        [1] * 500,
        [0] * 500,
        many,
    )
    assert "Seq Scan" not in plan, plan
    assert re.search(r"using schedules_key on schedules s .*rows=(500|1)\b", plan), plan
    plan = await explain(database, queries["remove"].text, ids)
    assert re.search(r"using schedules_key on schedules s .*rows=500\b", plan), plan


@pytest.mark.timeout(120)
async def test_a_look_at_many_that_are_due_reads_two_of_them(database: Database) -> None:
    async with database.transaction() as tx:
        await fill_schedules(tx, FILLED, due_at=NOON)
    plan = await explain(database, load("schedule_fires")["look"].text, NOON, [], False)
    assert "Seq Scan" not in plan, plan
    found = re.findall(r"using schedules_due on schedules .*rows=(\d+)\b", plan)
    assert len(found) == 2, plan
    assert sum(map(int, found)) <= 2, plan
