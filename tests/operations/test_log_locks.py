"""Groups of logs and those who lock at the same time: all lock in one order, so nobody fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from queuegate.gateway.operations.logs.consumer_groups import delete_group
from queuegate.gateway.operations.logs.log_records import requeue
from queuegate.gateway.operations.logs.logs import delete_log
from queuegate.storage.database import Database
from queuegate.storage.logs import log_groups, stored_logs, stored_records
from queuegate.storage.model import ReceiptAction, StoredLog
from tests.operations.log_groups import Consumer, Orders
from tests.waiting import until_async

LOCKED = "SELECT 1 FROM {table} WHERE {column} = ANY($1::bigint[]) FOR UPDATE NOWAIT"
POSITIONS = LOCKED.format(table="log_positions", column="partition_id")
PARTITIONS = LOCKED.format(table="log_partitions", column="partition_id")


async def log_named(orders: Orders, name: str) -> StoredLog:
    found = await orders.engine.logs.find(*orders.owner, name)
    assert found is not None
    return found


async def partition_ids(database: Database, log: StoredLog) -> list[int]:
    async with database.transaction() as tx:
        rows = await tx.fetch(
            "SELECT partition_id FROM log_partitions WHERE log_id = $1 ORDER BY 1", log.log_id
        )
    return [partition_id for (partition_id,) in rows]


async def begun(database: Database, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Under way, and waiting for a lock."""
    task = asyncio.create_task(work)
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        " AND datname = current_database()"
    )
    watcher = await database.connect()
    assert await until_async(lambda: watcher.fetchval(waiting)) == 1
    await watcher.close()
    return task


async def held(orders: Orders, *keys: str) -> Consumer:
    await orders.fill(*keys)
    return await orders.consumer()


async def test_who_leaves_locks_the_group_before_positions(orders: Orders) -> None:
    consumer = await held(orders, "a", "b")
    await consumer.fetch()
    ids = await partition_ids(orders.engine.database, consumer.log)
    async with orders.engine.database.transaction() as tx:
        # As a heartbeat, or a seek: the group first, then positions.
        await log_groups.lock(tx, consumer.group.group_id)
        leaving = await begun(orders.engine.database, consumer.leave(releases=True))
        assert len(await tx.fetch(POSITIONS, ids)) == 2
    await leaving
    other = await orders.consumer("two")
    assert [one.attempt for one in await other.fetch()] == [1, 1]


@pytest.mark.parametrize("whole", [False, True])
async def test_who_deletes_locks_groups_before_positions(orders: Orders, whole: bool) -> None:
    consumer = await held(orders, "a", "b")
    ids = await partition_ids(orders.engine.database, consumer.log)
    deletes = (
        delete_log(orders.engine, consumer.log)
        if whole
        else delete_group(orders.engine, consumer.log, consumer.group.name)
    )
    async with orders.engine.database.transaction() as tx:
        await log_groups.lock(tx, consumer.group.group_id)
        deleting = await begun(orders.engine.database, deletes)
        assert len(await tx.fetch(POSITIONS, ids)) == 2
        assert len(await tx.fetch(PARTITIONS, ids)) == 2
    await deleting
    async with orders.engine.database.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM log_positions") == 0


async def test_positions_that_are_made_meanwhile_go_with_their_group(orders: Orders) -> None:
    consumer = await held(orders, "a")
    await orders.publish("1", key="b")
    async with orders.engine.database.transaction() as tx:
        await log_groups.lock(tx, consumer.group.group_id)
        deleting = await begun(
            orders.engine.database, delete_group(orders.engine, consumer.log, consumer.group.name)
        )
    await deleting
    async with orders.engine.database.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM log_positions") == 0


async def test_dead_letters_of_several_logs_lock_partitions_by_id(orders: Orders) -> None:
    """Of the logs of dead letters the one that is later by name has the lower partition."""
    await orders.group("billing", dead_letter_log="z")
    await orders.group("search", dead_letter_log="y")
    await orders.publish("1", "2")
    billing, search = await orders.consumer(), await orders.consumer(group="search")
    for consumer in (billing, search):
        [record] = await consumer.fetch(1)
        await consumer.settle([record], ReceiptAction.REJECT)
    [low] = await partition_ids(orders.engine.database, await log_named(orders, "z"))
    [high] = await partition_ids(orders.engine.database, await log_named(orders, "y"))
    assert low < high
    [first], [second] = await billing.fetch(), await search.fetch()
    async with orders.engine.database.transaction() as tx:
        await stored_records.lock_partitions(tx, [low])
        # One flush has both.
        work = asyncio.gather(
            billing.settle([first], ReceiptAction.REJECT),
            search.settle([second], ReceiptAction.REJECT),
        )
        waiting = await begun(orders.engine.database, _awaited(work))
        assert len(await tx.fetch(PARTITIONS, [high])) == 1
    assert await waiting == [["dead_lettered"], ["dead_lettered"]]


async def _awaited(work: asyncio.Future[Any]) -> Any:
    return await work


async def test_requeue_locks_partitions_of_both_logs_by_id(orders: Orders) -> None:
    consumer = await held(orders, "a")
    await consumer.settle(await consumer.fetch(), ReceiptAction.REJECT)
    dead = await log_named(orders, "orders_dlq")
    [low] = await partition_ids(orders.engine.database, consumer.log)
    [high] = await partition_ids(orders.engine.database, dead)
    async with orders.engine.database.transaction() as tx:
        await stored_records.lock_partitions(tx, [low])
        work = requeue(orders.engine, dead, None, source="orders", group=None, most=10)
        requeueing = await begun(orders.engine.database, work)
        assert len(await tx.fetch(PARTITIONS, [high])) == 1
    assert (await requeueing).requeued == 1
    assert [one.record.offset for one in await consumer.fetch()] == [1]


async def test_a_dead_letter_is_not_lost_with_a_log_that_is_deleted_meanwhile(
    orders: Orders, database: Database
) -> None:
    """It is written to another one of that name."""
    await orders.publish("1", "2")
    consumer = await orders.consumer()
    first, second = await consumer.fetch()
    await consumer.settle([first], ReceiptAction.REJECT)
    dead = await log_named(orders, "orders_dlq")
    async with database.transaction() as tx:
        await stored_logs.delete(tx, None, dead.log_id)
        rejecting = await begun(database, consumer.settle([second], ReceiptAction.REJECT))
    assert await rejecting == ["dead_lettered"]
    orders.engine.logs.forget(dead)
    made = await log_named(orders, "orders_dlq")
    assert made.log_id != dead.log_id
    done = await requeue(orders.engine, made, None, source="orders", group=None, most=10)
    assert done.requeued == 1


async def test_dead_letters_stay_when_their_group_is_deleted_meanwhile(orders: Orders) -> None:
    consumer = await held(orders, "a")
    await consumer.settle(await consumer.fetch(), ReceiptAction.REJECT)
    dead = await log_named(orders, "orders_dlq")
    async with orders.engine.database.transaction() as tx:
        await log_groups.delete(tx, consumer.group.group_id)
        work = requeue(orders.engine, dead, None, source="orders", group=None, most=10)
        requeueing = await begun(orders.engine.database, work)
    assert (await requeueing)[:2] == (0, 1)
