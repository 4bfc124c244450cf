"""Groups of logs: what they get, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from queuegate.gateway.operations.logs.consumer_groups import (
    change_group,
    delete_group,
    find_group,
    make_group,
    position_states,
    progress_of,
    seek,
    seek_offsets,
)
from queuegate.gateway.operations.logs.log_records import (
    ReadLimits,
    RecordRange,
    delete_record,
    read_records,
    requeue,
)
from queuegate.gateway.operations.logs.logs import delete_log, purge_log
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.logs import log_deliveries
from queuegate.storage.model import ConsumerGroupSettings, ReceiptAction, StoredLog
from queuegate.storage.storage_errors import (
    GroupDoesNotExist,
    GroupExists,
    PartitionDoesNotExist,
    PartitionHeld,
)
from tests.operations.log_groups import Orders, offsets, places
from tests.operations.world import TestClock
from tests.waiting import yield_turns


async def test_a_group_gets_every_record_once(orders: Orders) -> None:
    await orders.publish("1", "2", "3")
    await orders.publish("4", key="b")
    consumer = await orders.consumer()
    assert consumer.partitions == [0, 1]
    records = await consumer.fetch()
    assert [(one.key, one.record.payload) for one in records] == [
        ("a", b"1"),
        ("a", b"2"),
        ("a", b"3"),
        ("b", b"4"),
    ]
    assert await consumer.fetch() == []
    assert await consumer.ack(*records) == ["done"] * 4
    assert await consumer.ack(*records) == ["done"] * 4
    assert await consumer.fetch() == []


async def kept(engine: Engine, log: StoredLog, number: int = 0) -> list[bytes]:
    """The payloads of a partition, for who reads without a group."""
    [found] = await read_records(
        engine, log, [RecordRange(number, 0, 1_000)], ReadLimits(1_000, 1_000_000)
    )
    return [record.payload for record in found.records]


async def log_named(orders: Orders, name: str) -> StoredLog:
    log = await orders.engine.logs.find(orders.caller.account_id, orders.caller.region, name)
    assert log is not None
    return log


async def test_a_group_is_made_once(orders: Orders) -> None:
    await orders.group(batch_size=1)
    with pytest.raises(GroupExists):
        await orders.group()


async def test_a_group_begins_where_it_is_told(orders: Orders, clock: TestClock) -> None:
    await orders.publish("1", "2")
    clock.move_on(10)
    assert clock.fixed is not None
    at = clock.fixed.isoformat()
    await orders.publish("3")
    clock.move_on(10)
    await orders.group("latest", start="latest")
    await orders.group("time", start=at)
    clock.move_on(-20)
    await orders.publish("4")
    await orders.publish("5", key="b")
    found = {}
    for name in ("earliest", "latest", "time"):
        consumer = await orders.consumer(group=name)
        found[name] = places(await consumer.fetch())
    assert found == {
        "earliest": [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)],
        "latest": [(0, 3)],
        "time": [(0, 2), (0, 3)],
    }


async def test_settings_are_changed(orders: Orders) -> None:
    await orders.publish("1", "2", "3")
    consumer = await orders.consumer()
    changed = await change_group(
        orders.engine, consumer.log, "billing", lambda old: old._replace(batch_size=2)
    )
    consumer.group = changed
    assert offsets(await consumer.fetch()) == [0, 1]
    assert await find_group(orders.engine, consumer.log, "billing") == changed


async def test_who_is_deleted_gets_nothing(orders: Orders) -> None:
    await orders.publish("1")
    consumer = await orders.consumer()
    records = await consumer.fetch()
    await delete_group(orders.engine, consumer.log, "billing")
    with pytest.raises(GroupDoesNotExist):
        await find_group(orders.engine, consumer.log, "billing")
    assert await consumer.ack(*records) == ["gone"]
    with pytest.raises(GroupDoesNotExist):
        await consumer.beat()
    # Another one of the same name begins anew, and old receipts say nothing to it.
    other = await orders.consumer()
    assert offsets(await other.fetch()) == [0]
    assert await consumer.ack(*records) == ["gone"]


async def test_at_most_a_batch_of_a_partition_is_out(orders: Orders) -> None:
    await orders.group(batch_size=1)
    await orders.fill("a", "b", count=2)
    consumer = await orders.consumer()
    first = await consumer.fetch()
    assert places(first) == [(0, 0), (1, 0)]
    assert await consumer.fetch() == []
    await consumer.ack(first[0])
    assert places(await consumer.fetch()) == [(0, 1)]


async def test_a_fetch_brings_no_more_than_it_asks_for(orders: Orders) -> None:
    await orders.fill("a", "b", "c", count=2)
    consumer = await orders.consumer()
    assert [len(await consumer.fetch(4)), len(await consumer.fetch(4))] == [4, 2]


async def test_what_is_purged_is_not_in_flight(orders: Orders) -> None:
    await orders.publish("1", "2", "3")
    consumer = await orders.consumer()
    await consumer.fetch(2)
    await purge_log(orders.engine, consumer.log)
    progress, _ = await progress_of(orders.engine, consumer.log, consumer.group)
    assert (progress.lag, progress.in_flight) == (0, 0)


async def test_large_records_come_in_parts(orders: Orders) -> None:
    await orders.publish(*["x" * 900_000] * 7)
    consumer = await orders.consumer()
    found = []
    while records := await consumer.fetch():
        found.append(offsets(records))
    assert [one for some in found for one in some] == list(range(7))
    assert len(found) > 1


async def test_retry_counts_survive_and_the_last_attempt_is_a_dead_letter(orders: Orders) -> None:
    await orders.group(max_attempts=2, visibility_timeout_seconds=5)
    await orders.publish("1", "2")
    consumer = await orders.consumer()
    await consumer.fetch()
    await consumer.leave()
    orders.clock.move_on(5)
    consumer = await orders.consumer("two")
    again = await consumer.fetch()
    assert [one.attempt for one in again] == [2, 2]
    await consumer.ack(again[1])
    orders.clock.move_on(5)
    await consumer.beat()
    assert await consumer.fetch() == []
    dead = await log_named(orders, "orders_dlq")
    assert await kept(orders.engine, dead) == [b"1"]
    # Other groups still get it.
    assert offsets(await (await orders.consumer(group="other")).fetch()) == [0, 1]


async def test_a_dead_letter_says_what_it_was(orders: Orders, clock: TestClock) -> None:
    await orders.publish("1", key="shop")
    consumer = await orders.consumer()
    [record] = await consumer.fetch()
    outcome = await consumer.settle([record], ReceiptAction.REJECT, error="it has no price")
    assert outcome == ["dead_lettered"]
    dead = await log_named(orders, "orders_dlq")
    [found] = await read_records(orders.engine, dead, [RecordRange(0, 0, 9)], ReadLimits(9, 1_000))
    assert (found.partition.key, found.records[0].record_id) == ("shop", None)
    assert clock.fixed is not None
    assert json.loads(found.records[0].failure or "") == {
        "failed_at": clock.fixed.isoformat(timespec="milliseconds"),
        "failure_count": 1,
        "last_error": "it has no price",
        "original_topic": "orders",
        "original_group": "billing",
        "original_partition": 0,
        "original_offset": 0,
    }


async def test_a_dead_letter_is_in_one_place_at_least(
    orders: Orders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure between the two writes undoes the first one."""
    await orders.publish("1")
    consumer = await orders.consumer()
    [record] = await consumer.fetch()
    stores = log_deliveries._STORE
    fails = stores.replace("SELECT count(*) FROM stored", "SELECT count(*) / 0 FROM stored")
    monkeypatch.setattr(log_deliveries, "_STORE", fails)
    with pytest.raises(Exception, match="division by zero"):
        await consumer.settle([record], ReceiptAction.REJECT)
    monkeypatch.setattr(log_deliveries, "_STORE", stores)
    assert await orders.engine.logs.find(*orders.owner, "orders_dlq") is None
    assert await consumer.settle([record], ReceiptAction.REJECT) == ["dead_lettered"]


async def test_dead_letters_of_two_groups_are_two(orders: Orders) -> None:
    await orders.publish("1")
    for group in ("billing", "search"):
        consumer = await orders.consumer(group=group)
        await consumer.settle(await consumer.fetch(), ReceiptAction.REJECT)
    assert await kept(orders.engine, await log_named(orders, "orders_dlq")) == [b"1", b"1"]


async def test_dead_letters_are_consumed_like_any_record(orders: Orders) -> None:
    await orders.publish("1")
    consumer = await orders.consumer()
    await consumer.settle(await consumer.fetch(), ReceiptAction.REJECT)
    dead = await log_named(orders, "orders_dlq")
    group = (await make_group(orders.engine, dead, "people", ConsumerGroupSettings())).group
    people = replace(consumer, log=dead, group=group, session=None)
    await people.beat()
    [record] = await people.fetch()
    assert record.record.failure is not None
    assert await people.ack(record) == ["done"]


async def test_requeued_records_are_for_the_group_that_gave_them_up(orders: Orders) -> None:
    await orders.publish("1", "2")
    other = await orders.consumer(group="other")
    await other.ack(*await other.fetch())
    consumer = await orders.consumer()
    records = await consumer.fetch()
    await consumer.settle(records[:1], ReceiptAction.REJECT)
    await consumer.ack(records[1])
    dead = await log_named(orders, "orders_dlq")
    done = await requeue(orders.engine, dead, None, source="orders", group=None, most=10)
    assert done == (1, 0)
    assert await kept(orders.engine, dead) == []
    [again] = await consumer.fetch()
    assert (again.record.payload, again.record.offset, again.attempt) == (b"1", 2, 1)
    assert await other.fetch() == []
    # Who reads without a group goes over it, too.
    assert await kept(orders.engine, consumer.log) == [b"1", b"2"]
    # The others have passed it.
    progress, _ = await progress_of(orders.engine, other.log, other.group)
    assert (progress.lag, progress.in_flight) == (0, 0)
    done = await requeue(orders.engine, dead, None, source="orders", group=None, most=10)
    assert done == (0, 0)


async def test_what_has_no_group_any_more_stays_a_dead_letter(orders: Orders) -> None:
    await orders.publish("1", "2")
    for group in ("billing", "search"):
        consumer = await orders.consumer(group=group)
        await consumer.settle(await consumer.fetch(1), ReceiptAction.REJECT)
    await delete_group(orders.engine, consumer.log, "search")
    dead = await log_named(orders, "orders_dlq")
    both = [(0, 0), (0, 1), (0, 7)]
    done = await requeue(orders.engine, dead, both, source="orders", group=None, most=10)
    assert done == (1, 1)
    assert len(await kept(orders.engine, dead)) == 1
    with pytest.raises(PartitionDoesNotExist):
        await requeue(orders.engine, dead, [(9, 0)], source="orders", group=None, most=10)


async def test_requeue_takes_those_of_one_group(orders: Orders) -> None:
    await orders.publish("1")
    for group in ("billing", "search"):
        consumer = await orders.consumer(group=group)
        await consumer.settle(await consumer.fetch(), ReceiptAction.REJECT)
    dead = await log_named(orders, "orders_dlq")
    done = await requeue(orders.engine, dead, None, source="orders", group="billing", most=10)
    assert done == (1, 0)
    done = await requeue(orders.engine, dead, None, source="others", group=None, most=10)
    assert done == (0, 0)


async def test_a_postponed_record_holds_its_partition_alone(orders: Orders) -> None:
    await orders.fill("a", "b", count=2)
    consumer = await orders.consumer()
    records = await consumer.fetch(1)
    await consumer.settle(records, ReceiptAction.POSTPONE, 20)
    assert places(await consumer.fetch()) == [(1, 0), (1, 1)]
    orders.clock.move_on(20)
    await consumer.beat()
    again = await consumer.fetch()
    assert places(again) == [(0, 0), (0, 1)]
    assert again[0].attempt == 1


async def test_what_was_deleted_or_purged_is_passed(orders: Orders) -> None:
    await orders.publish("1", "2", "3")
    consumer = await orders.consumer()
    await delete_record(orders.engine, consumer.log, 0, 1)
    records = await consumer.fetch()
    assert offsets(records) == [0, 2]
    await purge_log(orders.engine, consumer.log)
    await orders.publish("4")
    assert offsets(await consumer.fetch()) == [3]
    assert await consumer.ack(*records) == ["done", "done"]
    [state], _ = await position_states(
        orders.engine, consumer.log, consumer.group, after=-1, limit=9
    )
    assert (state.watermark, state.next_offset, state.in_flight) == (2, 4, 1)


async def test_seek_makes_what_is_out_void(orders: Orders, clock: TestClock) -> None:
    await orders.publish("1", "2", "3")
    consumer = await orders.consumer()
    records = await consumer.fetch()
    await seek(orders.engine, consumer.group, "earliest")
    assert await consumer.ack(*records) == ["superseded"] * 3
    assert offsets(await consumer.fetch()) == [0, 1, 2]
    await seek(orders.engine, consumer.group, "latest")
    assert await consumer.fetch() == []
    await seek_offsets(orders.engine, consumer.log, consumer.group, {0: 2})
    assert offsets(await consumer.fetch()) == [2]
    await seek_offsets(orders.engine, consumer.log, consumer.group, {0: 99})
    assert await consumer.fetch() == []
    assert clock.fixed is not None
    await seek(orders.engine, consumer.group, clock.fixed)
    assert offsets(await consumer.fetch()) == [0, 1, 2]
    await seek(orders.engine, consumer.group, clock.fixed + timedelta(seconds=1))
    assert await consumer.fetch() == []
    with pytest.raises(PartitionDoesNotExist):
        await seek_offsets(orders.engine, consumer.log, consumer.group, {9: 0})


async def test_a_commit_moves_nothing_that_is_held(orders: Orders, clock: TestClock) -> None:
    await orders.publish("1", "2", "3")
    group = await orders.group()
    log = await orders.log()
    await seek_offsets(orders.engine, log, group, {0: 2}, spares_held=True)
    assert (await progress_of(orders.engine, log, group))[0].lag == 1
    consumer = await orders.consumer()
    with pytest.raises(PartitionHeld):
        await seek_offsets(orders.engine, log, group, {0: 1}, spares_held=True)
    clock.move_on(30)
    await seek_offsets(orders.engine, log, group, {0: 1}, spares_held=True)
    await consumer.beat()
    assert offsets(await consumer.fetch()) == [1, 2]


async def test_lag_and_what_is_in_flight(orders: Orders, clock: TestClock) -> None:
    await orders.fill("a", "b", count=3)
    await orders.group()
    group = await find_group(orders.engine, await orders.log(), "billing")
    progress, live = await progress_of(orders.engine, await orders.log(), group)
    assert (progress.lag, progress.in_flight, live) == (6, 0, [])
    assert progress.oldest_at == clock.fixed
    consumer = await orders.consumer()
    records = await consumer.fetch()
    await consumer.ack(records[0], records[4])
    progress, [one] = await progress_of(orders.engine, consumer.log, group)
    assert (progress.lag, progress.in_flight) == (5, 4)
    assert (one.name, one.partition_count) == ("one", 2)
    states, has_more = await position_states(orders.engine, consumer.log, group, after=-1, limit=1)
    assert has_more
    assert states[0][:6] == (0, "a", 0, 3, 2, "one")
    clock.move_on(30)
    progress, live = await progress_of(orders.engine, consumer.log, group)
    assert (progress.in_flight, live) == (0, [])
    [state], _ = await position_states(orders.engine, consumer.log, group, after=0, limit=1)
    assert (state.number, state.held_by) == (1, None)


async def test_a_record_that_is_published_wakes_who_waits(orders: Orders) -> None:
    await orders.publish("1")
    consumer = await orders.consumer()
    await consumer.ack(*await consumer.fetch())
    waiting = asyncio.create_task(consumer.fetch(wait=20))
    await yield_turns()
    await orders.publish("2")
    assert offsets(await asyncio.wait_for(waiting, 5)) == [1]


async def test_an_ack_wakes_who_waits_for_room(orders: Orders) -> None:
    await orders.group(batch_size=1)
    await orders.publish("1", "2")
    consumer = await orders.consumer()
    records = await consumer.fetch()
    waiting = asyncio.create_task(consumer.fetch(wait=20))
    await yield_turns()
    await consumer.ack(*records)
    assert offsets(await asyncio.wait_for(waiting, 5)) == [1]


async def test_a_partition_that_is_made_wakes_who_waits(orders: Orders) -> None:
    consumer = await orders.consumer()
    waiting = asyncio.create_task(consumer.outcome(wait=20))
    await yield_turns()
    await orders.publish("1")
    outcome = await asyncio.wait_for(waiting, 5)
    assert (outcome.records, outcome.is_settled) == ([], False)
    assert await consumer.beat() == [0]
    assert offsets(await consumer.fetch()) == [0]


async def test_who_goes_away_leaves_records_to_others(orders: Orders) -> None:
    await orders.publish("1")
    consumer = await orders.consumer()
    going = asyncio.create_task(consumer.fetch(wait=20))
    await yield_turns()
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    [record] = await consumer.fetch(wait=20)
    assert record.attempt == 1


async def test_what_ends_with_a_log_ends_with_it(orders: Orders) -> None:
    await orders.publish("1")
    consumer = await orders.consumer()
    await delete_log(orders.engine, consumer.log)
    with pytest.raises(GroupDoesNotExist):
        await consumer.beat()
