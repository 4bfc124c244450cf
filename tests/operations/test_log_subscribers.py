"""Subscribers of a group: who holds which partitions, in one process and in two: the
scenarios of the seed (docs/seeds.md) under their names."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.model import ReceiptAction
from queuegate.storage.storage_errors import (
    GroupInvalid,
    SubscriberFenced,
    TooManyGroups,
    TooManySubscribers,
)
from tests.operations.log_groups import Consumer, Orders, drained, offsets, places, settled
from tests.operations.world import TestClock
from tests.waiting import yield_turns

KEYS = "abcdefgh"


def sizes(*consumers: Consumer) -> list[int]:
    return sorted(len(consumer.partitions) for consumer in consumers)


def is_partitioned(*consumers: Consumer, count: int = len(KEYS)) -> bool:
    """Return True if each partition is held by exactly one of them."""
    held = [number for consumer in consumers for number in consumer.partitions]
    return sorted(held) == list(range(count))


async def test_rebalance_on_leave(orders: Orders) -> None:
    await orders.fill(*KEYS)
    one, two, three = await orders.consumers("one", "two", "three")
    await two.leave()
    await settled(one, three)
    assert (sizes(one, three), is_partitioned(one, three)) == ([4, 4], True)
    with pytest.raises(SubscriberFenced):
        await two.fetch()
    await two.leave()
    await settled(one, three)
    assert sizes(one, three) == [4, 4]


async def test_crash_while_processing(orders: Orders, clock: TestClock) -> None:
    """The record comes again to another subscriber when its visibility is over and the lease is
    stolen, and its attempts are counted."""
    await orders.group(visibility_timeout_seconds=20)
    await orders.publish("1", "2")
    crashed = await orders.consumer("one")
    [record] = await crashed.fetch(1)
    survivor = await orders.consumer("two")
    clock.move_on(29)
    assert await survivor.beat() == []
    clock.move_on(1)
    assert await survivor.beat() == [0]
    again = await survivor.fetch()
    assert [(one.record.offset, one.attempt) for one in again] == [(0, 2), (1, 1)]
    # Who crashed, and did not know it, is told so.
    assert await crashed.ack(record) == ["superseded"]
    with pytest.raises(SubscriberFenced):
        await crashed.fetch()


async def test_a_stolen_lease_is_fenced(orders: Orders, clock: TestClock) -> None:
    """A subscriber that lost its lease finishes only records that nobody else received."""
    await orders.group(batch_size=1, visibility_timeout_seconds=60)
    await orders.publish("1", "2")
    slow = await orders.consumer("one")
    [record] = await slow.fetch()
    clock.move_on(30)
    thief = await orders.consumer("two")
    assert thief.partitions == [0]
    # Strict order: the record is still with whoever is slow, and the new holder waits for it.
    assert await thief.fetch() == []
    assert await slow.ack(record) == ["done"]
    [second] = await thief.fetch()
    assert second.record.offset == 1
    clock.move_on(60)
    await thief.beat()
    [again] = await thief.fetch()
    assert await thief.ack(second) == ["superseded"]
    assert await thief.ack(again) == ["done"]


async def test_a_younger_session_fences_an_older_one(orders: Orders) -> None:
    await orders.publish("1", "2")
    old = await orders.consumer("one")
    records = await old.fetch(1)
    young = await orders.consumer("one")
    assert young.partitions == [0]
    for calling in (old.fetch, old.beat):
        with pytest.raises(SubscriberFenced):
            await calling()
    # What it was given it may finish.
    assert await old.ack(*records) == ["done"]
    # Its leaving is not the other's.
    await old.leave(releases=True)
    assert offsets(await young.fetch()) == [1]


async def test_who_was_dead_goes_on_in_a_session_of_its_own(orders: Orders) -> None:
    await orders.publish("1")
    one = await orders.consumer("one")
    session = one.session
    orders.clock.move_on(30)
    # Dead, and nobody has noticed.
    assert (await one.outcome()).is_settled is False
    await one.beat()
    assert one.session == session
    orders.clock.move_on(30)
    two = await orders.consumer("two")
    assert two.partitions == [0]
    assert await one.beat() == []
    assert one.session != session


async def test_a_heartbeat_renews_all_leases(orders: Orders, clock: TestClock) -> None:
    await orders.fill(*KEYS)
    one, two = await orders.consumers("one", "two")
    for _ in range(5):
        clock.move_on(20)
        await settled(one, two)
    assert is_partitioned(one, two)


async def test_what_is_given_back_on_leaving_is_there_at_once(orders: Orders) -> None:
    await orders.publish("1", "2", "3")
    one, two = await orders.consumers("one", "two")
    holder, heir = (one, two) if one.partitions else (two, one)
    records = await holder.fetch(2)
    await holder.ack(records[0])
    await holder.leave(releases=True)
    await heir.beat()
    again = await heir.fetch()
    assert [(one.record.offset, one.attempt) for one in again] == [(1, 1), (2, 1)]
    assert await holder.ack(records[1]) == ["superseded"]


async def test_leaving_gives_back_nothing_of_others(orders: Orders, clock: TestClock) -> None:
    """A subscriber that leaves releases no record of an earlier holder."""
    await orders.group(visibility_timeout_seconds=100)
    await orders.publish("1", "2")
    slow = await orders.consumer("one")
    [record] = await slow.fetch(1)
    clock.move_on(30)
    two = await orders.consumer("two")
    assert offsets(await two.fetch()) == [1]
    await two.leave(releases=True)
    three = await orders.consumer("three")
    assert offsets(await three.fetch()) == [1]
    assert await slow.ack(record) == ["done"]


async def test_a_partition_that_is_made_is_shared_out(orders: Orders) -> None:
    one, two = await orders.consumers("one", "two")
    await orders.fill(*KEYS)
    await settled(one, two)
    assert is_partitioned(one, two)
    await orders.fill("x", "y")
    await settled(one, two)
    assert sizes(one, two) == [5, 5]


@pytest.mark.parametrize("name", ["", "a b", "x" * 81])
async def test_a_subscriber_cannot_be_called_anything(orders: Orders, name: str) -> None:
    with pytest.raises(GroupInvalid):
        await orders.consumer(name)


async def test_two_processes_share_a_group(orders: Orders, other: Engine) -> None:
    await orders.fill(*KEYS, count=3)
    one = await orders.consumer("one")
    two = await orders.consumer("two", engine=other)
    await settled(one, two)
    assert is_partitioned(one, two)
    assert sorted(await drained([one, two])) == [(n, o) for n in range(8) for o in range(3)]


async def test_one_subscriber_may_use_two_processes(orders: Orders, other: Engine) -> None:
    await orders.group(batch_size=1)
    await orders.fill(*KEYS, count=4)
    here = await orders.consumer("one")
    there = replace(here, engine=other)
    found: Counter[tuple[int, int]] = Counter()

    async def work(fetching: Consumer, acking: Consumer) -> None:
        while sum(found.values()) < 32:
            for record in await fetching.fetch(3):
                found.update(places([record]))
                assert await acking.ack(record) == ["done"]

    await asyncio.gather(work(here, there), work(there, here), work(there, there))
    assert found == Counter((n, o) for n in range(8) for o in range(4))


async def test_a_lease_stolen_in_another_process(orders: Orders, other: Engine) -> None:
    await orders.publish("1", "2")
    one = await orders.consumer("one")
    [first] = await one.fetch(1)
    orders.clock.move_on(30)
    two = await orders.consumer("two", engine=other)
    assert two.partitions == [0]
    assert offsets(await two.fetch()) == [0, 1]
    assert await one.ack(first) == ["superseded"]
    with pytest.raises(SubscriberFenced):
        await one.fetch()


async def test_acks_of_two_processes_are_all_kept(orders: Orders, other: Engine) -> None:
    """Neither takes a lock when nothing stands in its way, and none undoes the other's."""
    await orders.group(batch_size=200)
    await orders.publish(*["x"] * 200)
    here = await orders.consumer("one")
    there = replace(here, engine=other)
    records = await here.fetch(200)
    for _ in range(3):
        await asyncio.gather(
            *[(here, there)[n % 2].ack(record) for n, record in enumerate(records)]
        )
    assert await drained([here]) == []
    clock = orders.engine.clock
    assert isinstance(clock, TestClock)
    clock.move_on(29)
    assert await here.fetch() == []
    await here.beat()
    clock.move_on(2)
    assert await here.fetch() == []


@pytest.fixture
async def running(orders: Orders, other: Engine) -> AsyncIterator[None]:
    """Both processes hear of each other."""
    await orders.engine.wakeups.start()
    await other.wakeups.start()
    yield
    await orders.engine.wakeups.stop()
    await other.wakeups.stop()


@pytest.mark.usefixtures("running")
async def test_another_process_wakes_who_waits(orders: Orders, other: Engine) -> None:
    elsewhere = Orders(other, orders.caller)
    await orders.publish("1")
    consumer = await orders.consumer()
    await consumer.ack(*await consumer.fetch())
    waiting = asyncio.create_task(consumer.fetch(wait=20))
    await yield_turns()
    await elsewhere.publish("2")
    assert offsets(await asyncio.wait_for(waiting, 5)) == [1]
    # A partition that is made there.
    telling = asyncio.create_task(consumer.outcome(wait=20))
    await yield_turns()
    await elsewhere.publish("3", key="b")
    assert (await asyncio.wait_for(telling, 5)).is_settled is False
    # Somebody who joins there.
    await consumer.beat()
    await consumer.ack(*await consumer.fetch())
    telling = asyncio.create_task(consumer.outcome(wait=20))
    await yield_turns()
    await elsewhere.consumer("two")
    assert (await asyncio.wait_for(telling, 5)).is_settled is False


async def test_a_log_has_so_many_groups_and_a_group_so_many_subscribers(orders: Orders) -> None:
    engine = orders.engine
    engine.limits = replace(engine.limits, log_groups=2, log_subscribers=2)
    one, two = await orders.consumers("one", "two")
    with pytest.raises(TooManySubscribers):
        await orders.consumer("three")
    await one.leave()
    three = await orders.consumer("three")
    # Who is there stays, and comes again.
    await two.beat()
    await orders.consumer("two")
    await three.beat()
    await orders.group("search")
    with pytest.raises(TooManyGroups):
        await orders.group("reports")
    await orders.group("search")


async def test_results_have_the_order_of_the_receipts(orders: Orders) -> None:
    """Neighbours are acked together, and nobody sees it."""
    await orders.fill("a", count=6)
    await orders.fill("b")
    one = await orders.consumer()
    *a, b = await one.fetch()
    await one.settle([a[4]], ReceiptAction.NACK, 60)
    mixed = [a[0], a[1], a[1], a[3], a[2], b, a[2], a[3], a[4], a[5]]
    assert await one.ack(*mixed) == ["done"] * 8 + ["superseded", "done"]
    assert await one.ack(a[3], a[4], a[5]) == ["done", "superseded", "done"]
    assert await one.fetch() == []
