"""Counters are folded, deleted queues and old deduplication ids disappear."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial

import pytest

from queuegate.scheduler.sweeps import fold_counters, forget_deduplication, remove_deleted_queues
from queuegate.storage.database import Database
from queuegate.storage.queues import standard_queues, stored_queues
from tests.scheduler.conftest import NOON, StillClock, Store

SUM = "SELECT coalesce(sum(delta), 0)::int FROM queue_deltas WHERE queue_id = $1"


async def append(database: Database, queue_id: int, delta: int) -> None:
    async with database.transaction() as tx:
        await tx.execute("INSERT INTO queue_deltas VALUES ($1, $2)", queue_id, delta)


async def test_many_deltas_become_one_and_the_sum_stays(store: Store) -> None:
    for queue_id, count in ((1, 50), (2, 3), (3, 20)):
        for _ in range(count):
            await append(store.database, queue_id, queue_id)
    job = fold_counters.job(store.database, lambda: None)

    assert await job.run_round(1_000) == 70
    rows = "SELECT count(*) FROM queue_deltas WHERE queue_id = $1"
    assert [await store.number(rows, queue_id) for queue_id in (1, 2, 3)] == [1, 3, 1]
    assert [await store.number(SUM, queue_id) for queue_id in (1, 2, 3)] == [50, 6, 60]
    assert await job.run_round(1_000) == 0


async def arrived(store: Store, queue_id: int = 1) -> int:
    async with store.database.transaction() as tx:
        return await stored_queues.total_arrived(tx, queue_id)


async def test_empty_queue_keeps_what_arrived(store: Store) -> None:
    """Through as many foldings as there may be, of deltas folded before and of new ones."""
    for turn in range(1, 4):
        for i in range(20):
            await append(store.database, 1, 3 if i % 2 else -3)
        assert await arrived(store) == 30 * turn
        await fold_counters.job(store.database, lambda: None).run_round(1_000)
        assert await store.number("SELECT count(*) FROM queue_deltas") == 1
        assert await arrived(store) == 30 * turn
        assert await store.number(SUM, 1) == 0


async def test_queue_that_nothing_arrived_at_needs_no_delta(store: Store) -> None:
    for _ in range(20):
        await append(store.database, 1, 0)
    await fold_counters.job(store.database, lambda: None).run_round(1_000)
    assert await store.number("SELECT count(*) FROM queue_deltas") == 0
    assert await arrived(store) == 0


async def test_what_arrived_is_exact_while_many_send_delete_and_fold(store: Store) -> None:
    """Real sends and deletes; the number never falls, never leads, and is the truth at the end."""
    queue = await store.make_queue()
    sent = 0
    over = False

    async def send() -> None:
        nonlocal sent
        for number in range(60):
            await store.send(queue, 1 + number % 3)
            sent += 1 + number % 3

    async def work(once: Callable[[], Awaitable[int]]) -> None:
        while not over:
            await once()

    async def watch() -> None:
        last = 0
        while not over:
            before = sent
            found = await arrived(store, queue.queue_id)
            # At most the two senders' statements are under way.
            assert max(before, last) <= found <= sent + 6
            last = found

    async def senders() -> None:
        nonlocal over
        await asyncio.gather(send(), send())
        over = True

    jobs = [
        fold_counters.job(store.database, lambda: None),
        fold_counters.job(store.database, lambda: None),
    ]
    folding = [work(partial(job.run_round, 7)) for job in jobs]
    consuming = work(partial(store.consume, queue))
    await asyncio.gather(senders(), consuming, *folding, watch())
    left = sum([await store.consume(queue, 100) for _ in range(3)])
    assert await store.number(SUM, queue.queue_id) == 0
    await fold_counters.job(store.database, lambda: None).run_round(1_000)
    assert (sent, await arrived(store, queue.queue_id)) == (240, 240)
    assert left < sent


async def test_what_moves_on_has_arrived_on_both_queues(store: Store) -> None:
    """A dead letter counts where it came in first and where it went."""
    source, target = await store.make_queue(), await store.make_queue("dead")
    await store.send(source, 3)
    received = await store.receive(source)
    async with store.database.transaction() as tx:
        await standard_queues.move_to_dead_letter(
            tx,
            store.clock.now(),
            source_id=source.queue_id,
            target_id=target.queue_id,
            source_arn=source.arn,
            messages=received[:2],
        )
    assert [await arrived(store, one.queue_id) for one in (source, target)] == [3, 2]
    assert [(await store.counts(one)).in_flight for one in (source, target)] == [1, 0]


async def test_sum_never_wavers_while_many_fold_and_send(store: Store) -> None:
    appended = 0
    folding = True

    async def send() -> None:
        nonlocal appended
        for _ in range(150):
            await append(store.database, 1, 1)
            appended += 1

    async def fold() -> None:
        job = fold_counters.job(store.database, lambda: None)
        while folding:
            await job.run_round(7)

    async def watch() -> None:
        while folding:
            before = appended
            found = await store.number(SUM, 1)
            # At most the two senders' statements are under way.
            assert before <= found <= appended + 2

    async def senders() -> None:
        nonlocal folding
        await asyncio.gather(send(), send())
        folding = False

    await asyncio.gather(senders(), fold(), fold(), fold(), watch())
    assert await store.number(SUM, 1) == 300


async def test_deleted_queue_is_emptied_and_then_forgotten(store: Store, clock: StillClock) -> None:
    queue = await store.make_queue("orders")
    other = await store.make_queue("other")
    await store.send(queue, 25)
    await store.send(other, 2)
    job = remove_deleted_queues(keep_seconds=120).job(store.database, clock.now)
    assert await job.run_round(10) == 0

    await store.delete_queue(queue)
    assert [await job.run_round(10) for _ in range(4)] == [10, 10, 5, 0]
    rows = "SELECT count(*) FROM queues WHERE deleted_at IS NOT NULL"
    assert await store.number(rows) == 1

    clock.instant = NOON + timedelta(seconds=121)
    await job.run_round(10)
    assert await store.number(rows) == 0
    assert await store.number(SUM, queue.queue_id) == 0
    assert (await store.counts(other)).visible == 2


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_deleted_queue_takes_its_archive_along(
    store: Store, clock: StillClock, name: str
) -> None:
    queue, other = await store.make_queue(name), await store.make_queue("other")
    for one in (queue, other):
        await store.archive(one, 25)
    await store.delete_queue(queue)
    clock.instant = NOON + timedelta(seconds=121)
    job = remove_deleted_queues(keep_seconds=120).job(store.database, clock.now)
    assert [await job.run_round(10) for _ in range(4)] == [10, 10, 5, 0]
    assert await store.number("SELECT count(*) FROM queues") == 1
    assert await store.number("SELECT count(*) FROM message_archive") == 25


async def test_send_that_commits_late_is_cleared_before_the_queue_is_forgotten(
    store: Store, clock: StillClock
) -> None:
    queue = await store.make_queue("orders")
    await store.delete_queue(queue)
    clock.instant = NOON + timedelta(seconds=200)
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO messages (queue_id, visible_at, sent_at, message_id, sender_id, body)"
            " VALUES ($1, now(), now(), gen_random_uuid(), '', '')",
            queue.queue_id,
        )
    job = remove_deleted_queues(keep_seconds=120).job(store.database, clock.now)

    assert await job.run_round(10) == 1
    assert await store.number("SELECT count(*) FROM queues") == 1
    assert await job.run_round(10) == 0
    assert await store.number("SELECT count(*) FROM queues") == 0


async def test_hundreds_of_deleted_queues_are_gone_through(store: Store, clock: StillClock) -> None:
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO queues (account_id, region, queue_name, is_fifo, created_at, modified_at,"
            " deleted_at) SELECT '111122223333', 'eu-west-1', 'q' || n, n % 2 = 0, now(), now(),"
            " $1 FROM generate_series(1, 250) AS n",
            NOON,
        )
    clock.instant = NOON + timedelta(seconds=200)
    job = remove_deleted_queues(keep_seconds=120).job(store.database, clock.now)
    for _ in range(3):
        await job.run_round(10)

    assert await store.number("SELECT count(*) FROM queues") == 0


async def test_deduplication_ids_are_forgotten_after_their_time(
    store: Store, clock: StillClock
) -> None:
    async with store.database.transaction() as tx:
        await tx.execute(
            "INSERT INTO fifo_dedup SELECT 1, gen_random_uuid(), gen_random_uuid(), n,"
            " $1::timestamptz + n * interval '1 second' FROM generate_series(1, 10) AS n",
            NOON,
        )
    job = forget_deduplication.job(store.database, clock.now)
    assert await job.run_round(100) == 0

    clock.instant = NOON + timedelta(seconds=4)
    assert await job.run_round(3) == 3
    assert await job.run_round(3) == 1
    assert await store.number("SELECT count(*) FROM fifo_dedup") == 6
