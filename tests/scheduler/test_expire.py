"""Retention: what is too old goes, nothing else does."""

from __future__ import annotations

from datetime import timedelta

import pytest

from queuegate.scheduler.sweeps import SweepJob, expire, remove_overdue, sweep
from queuegate.storage.queries import AccountFilter
from queuegate.storage.queue_model import Counts, Queue
from queuegate.storage.queues import stored_queues
from queuegate.storage.queues.kinds import STANDARD
from queuegate.storage.storage_errors import Away
from tests.scheduler.conftest import ACCOUNT, NOON, StillClock, Store
from tests.storage.standard_queue import make_message


async def test_messages_past_their_retention_are_deleted(store: Store, clock: StillClock) -> None:
    short = await store.make_queue("short", MessageRetentionPeriod="60")
    long = await store.make_queue("long")
    job = expire.job(store.database, clock.now)
    await store.send(short, 5)
    await store.send(long, 3)
    clock.instant = NOON + timedelta(seconds=30)
    await store.send(short, 2)

    clock.instant = NOON + timedelta(seconds=59)
    assert await job.run_round(100) == 0
    clock.instant = NOON + timedelta(seconds=60)
    assert await job.run_round(100) == 5
    assert await store.counts(short) == Counts(2, 0, 0)
    assert await store.counts(long) == Counts(3, 0, 0)
    clock.instant = NOON + timedelta(days=4)
    assert await job.run_round(100) == 5
    assert await store.number("SELECT count(*) FROM messages") == 0


async def test_rounds_are_bounded(store: Store, clock: StillClock) -> None:
    for name in "abc":
        queue = await store.make_queue(name, MessageRetentionPeriod="60")
        await store.send(queue, 10)
    clock.instant = NOON + timedelta(seconds=61)
    job = expire.job(store.database, clock.now)

    handled = [await job.run_round(12) for _ in range(4)]
    assert sum(handled) == 30
    assert handled[-1] < 12
    assert await store.number("SELECT sum(delta)::int FROM queue_deltas") == 0


async def test_long_looks_that_find_nothing_get_a_tenth_of_the_time(
    store: Store, clock: StillClock
) -> None:
    """Dead rows that no vacuum removes make them long, and a pause of the database makes one long.
    While it is away, work may wait."""

    async def look(job: SweepJob, rows: int) -> int:
        async with job.transaction() as tx:
            await tx.execute("SELECT pg_sleep(0.1)")
        if rows < 0:
            raise Away("away")
        return rows

    job = sweep("look", 0.5, 100)(look).job(store.database, clock.now)
    assert await job.run_round(0) == 0
    assert job.pause_seconds == 0.5
    assert await job.run_round(0) == 0
    assert job.pause_seconds > 0.9
    assert await job.run_round(5) == 5
    assert job.pause_seconds == 0.5
    for _ in range(2):
        with pytest.raises(Away):
            await job.run_round(-1)
        assert job.pause_seconds == 0.5


async def test_many_queues_are_looked_at_page_by_page(store: Store, clock: StillClock) -> None:
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at,"
            " attributes) SELECT '111122223333', 'eu-west-1', 'q' || n, false, now(), now(),"
            """ '{"MessageRetentionPeriod":"60"}' FROM generate_series(1, 1200) AS n"""
        )
        await tx.execute(
            "INSERT INTO messages (queue_id, visible_at, sent_at, message_id, sender_id, body)"
            " SELECT queue_id, $1::timestamptz, $1, gen_random_uuid(), '', '' FROM queues",
            NOON,
        )
    clock.instant = NOON + timedelta(seconds=61)
    job = expire.job(store.database, clock.now)

    assert await job.run_round(2_000) == 1_200


async def test_message_that_someone_holds_waits_for_the_next_round(
    store: Store, clock: StillClock
) -> None:
    queue = await store.make_queue("orders", MessageRetentionPeriod="60")
    await store.send(queue, 3)
    clock.instant = NOON + timedelta(seconds=61)
    job = expire.job(store.database, clock.now)
    async with store.database.transaction() as tx:
        await tx.fetch("SELECT 1 FROM messages ORDER BY sequence LIMIT 1 FOR UPDATE")
        assert await job.run_round(100) == 2

    assert await job.run_round(100) == 1


async def test_longer_retention_takes_effect_at_once(store: Store, clock: StillClock) -> None:
    queue = await store.make_queue("orders", MessageRetentionPeriod="60")
    await store.send(queue, 3)
    async with store.database.transaction() as tx:
        changed = stored_queues.with_attributes(queue, {"MessageRetentionPeriod": "600"})
        await stored_queues.set_attributes(tx, clock.now(), changed)
    clock.instant = NOON + timedelta(seconds=300)

    assert await expire.job(store.database, clock.now).run_round(100) == 0


async def test_fifo_messages_past_their_retention_are_deleted(
    store: Store, clock: StillClock
) -> None:
    queue = await store.make_queue("orders.fifo", MessageRetentionPeriod="60")
    async with store.database.transaction() as tx:
        for group in ("a", "b"):
            for sequence in (1, 2):
                await tx.execute(
                    "INSERT INTO fifo_messages (sequence, visible_at, sent_at, queue_id,"
                    " message_id, group_id, sender_id, body)"
                    " VALUES ($1, $2, $2, $3, gen_random_uuid(), $4, '', '')",
                    sequence,
                    NOON,
                    queue.queue_id,
                    group,
                )
            await tx.execute(
                "INSERT INTO fifo_groups (queue_id, group_id, ready_at, head_seq)"
                " VALUES ($1, $2, $3, 1)",
                queue.queue_id,
                group,
                NOON,
            )
    job = expire.job(store.database, clock.now)

    clock.instant = NOON + timedelta(seconds=59)
    assert await job.run_round(100) == 0
    clock.instant = NOON + timedelta(seconds=61)
    assert await job.run_round(100) == 4
    assert await store.number("SELECT count(*) FROM fifo_groups") == 0


async def send_until(store: Store, queue: Queue, count: int, ttl: int | None) -> None:
    """Messages that live for so many seconds."""
    rows = [make_message(queue.queue_id, ttl=ttl) for _ in range(count)]
    async with store.database.transaction() as tx:
        await STANDARD.send(tx, store.clock.now(), rows)


async def test_what_has_expired_is_removed_whatever_its_queue(
    store: Store, clock: StillClock
) -> None:
    job = remove_overdue.job(store.database, clock.now)
    for name in "abc":
        queue = await store.make_queue(name)
        await send_until(store, queue, 10, 60)
        await send_until(store, queue, 3, 600)
        await send_until(store, queue, 2, None)
    clock.instant = NOON + timedelta(seconds=59)
    assert await job.run_round(100) == 0
    clock.instant = NOON + timedelta(seconds=60)
    handled = [await job.run_round(12) for _ in range(4)]
    assert sum(handled) == 30
    assert handled[-1] < 12
    assert await store.counts(queue) == Counts(5, 0, 0)
    assert await store.number("SELECT count(*) FROM messages") == 15
    assert await store.number("SELECT sum(delta)::int FROM queue_deltas") == 15


async def test_messages_expire_by_the_clock_of_their_account(
    store: Store, clock: StillClock
) -> None:
    queue = await store.make_queue("mine")
    await send_until(store, queue, 2, 60)
    mine, others = AccountFilter((ACCOUNT,), are_chosen=True), AccountFilter((ACCOUNT,))
    clock.instant = NOON + timedelta(seconds=60)
    assert await remove_overdue.job(store.database, clock.now, lambda: others).run_round(9) == 0
    assert await remove_overdue.job(store.database, clock.now, lambda: mine).run_round(9) == 2
