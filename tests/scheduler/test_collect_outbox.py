"""The outbox keeps what is new, up to a number for each account."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queuegate.scheduler.sweeps import collect_outbox
from queuegate.scheduler.worker import Worker
from queuegate.storage.database import Database
from queuegate.storage.topics import stored_outbox
from tests.scheduler.conftest import NOON, StillClock
from tests.storage.test_outbox import ACCOUNT, OTHER, make_message

ROUND = 1_000


async def write(database: Database, account_id: str, count: int, *, days_ago: int = 0) -> None:
    async with database.transaction() as tx:
        rows = [make_message(str(number), account_id=account_id) for number in range(count)]
        await stored_outbox.insert(tx, NOON - timedelta(days=days_ago), rows)


async def bodies(database: Database, account_id: str) -> list[str]:
    async with database.transaction() as tx:
        page = await stored_outbox.page(
            tx, stored_outbox.OutboxFilter(account_id), after_id=0, limit=100, most_bytes=1 << 30
        )
    return [message.written.body for message in page.messages]


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


async def test_old_messages_go(database: Database, clock: StillClock) -> None:
    await write(database, ACCOUNT, 3, days_ago=15)
    await write(database, OTHER, 2, days_ago=13)
    job = collect_outbox(days=14).job(database, clock.now)
    assert await job.run_round(ROUND) == 3
    assert await job.run_round(ROUND) == 0
    assert await bodies(database, ACCOUNT) == []
    assert await bodies(database, OTHER) == ["0", "1"]
    clock.instant = NOON + timedelta(days=2)
    assert await job.run_round(ROUND) == 2


async def test_old_messages_go_in_rounds(database: Database, clock: StillClock) -> None:
    await write(database, ACCOUNT, 5, days_ago=15)
    job = collect_outbox(days=14).job(database, clock.now)
    assert [await job.run_round(2) for _ in range(4)] == [2, 2, 1, 0]


async def test_what_an_account_has_too_many_of_goes(database: Database, clock: StillClock) -> None:
    await write(database, ACCOUNT, 7)
    await write(database, OTHER, 3)
    job = collect_outbox(days=14, most_messages=3).job(database, clock.now)
    assert [await job.run_round(3) for _ in range(3)] == [3, 1, 0]
    assert await bodies(database, ACCOUNT) == ["4", "5", "6"]
    assert await bodies(database, OTHER) == ["0", "1", "2"]


async def test_all_of_many_accounts_are_looked_at(database: Database, clock: StillClock) -> None:
    accounts = [f"{number:012}" for number in range(65)]
    for account_id in accounts:
        await write(database, account_id, 2)
    job = collect_outbox(days=14, most_messages=1).job(database, clock.now)
    assert await job.run_round(ROUND) == len(accounts)
    assert [await bodies(database, account_id) for account_id in accounts] == [["1"]] * 65


async def test_two_collectors_do_not_get_in_each_others_way(
    database: Database, clock: StillClock
) -> None:
    await write(database, ACCOUNT, 20, days_ago=20)
    await write(database, ACCOUNT, 10)
    job = collect_outbox(days=14, most_messages=5).job(database, clock.now)
    async with database.transaction() as tx:
        assert await stored_outbox.remove_old(tx, NOON, days=14, limit=10) == 10
        assert await Worker(job).run_once() == 10 + 5
    assert len(await bodies(database, ACCOUNT)) == 5
