"""Groups that feed queues: what comes of records, in which order, and what happens in between."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

import asyncpg
import pytest

from queuegate.gateway.operations.access.authorization import PUBLISH_RECORDS
from queuegate.gateway.operations.logs.consumer_groups import (
    change_group,
    find_group,
    make_group,
    progress_of,
    seek,
)
from queuegate.gateway.operations.logs.log_records import RecordToPublish, publish_records
from queuegate.gateway.operations.logs.logs import delete_log
from queuegate.gateway.operations.logs.queue_feeds import group_of
from queuegate.gateway.process.background import feeding_queues
from queuegate.scheduler.feed_queues import FeedQueues
from queuegate.storage.logs import feeds, stored_logs
from queuegate.storage.model import ConsumerGroup, ConsumerGroupSettings, Feed, ReceiptAction
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import GroupInvalid, Unavailable
from tests.operations.bounded import bounded, held
from tests.operations.log_groups import Orders, offsets
from tests.operations.world import World
from tests.waiting import until_async, until_so


@pytest.fixture
async def feed(world: World) -> AsyncIterator[FeedQueues]:
    """The worker; its loop is not started."""
    worker = feeding_queues(world.engine)
    yield worker
    await worker.stop()


async def lag(orders: Orders, group: ConsumerGroup) -> int:
    progress, _ = await progress_of(orders.engine, await orders.log(), group)
    return progress.lag


async def run_dry(feed: FeedQueues) -> int:
    """Rounds until one moves nothing; how many messages there were."""
    count = 0
    while moved := await feed.run_once():
        count += moved
    return count


async def test_records_become_messages_in_order_and_once(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    queue = await world.make_queue("jobs")
    await orders.log()
    await orders.publish("1", "2", key="a")
    await orders.publish("3", key="b")
    group = await orders.group(queue="jobs")
    assert await run_dry(feed) == 3
    assert await held(world, queue) == ["1", "2", "3"]
    assert await lag(orders, group) == 0
    await orders.publish("4", key="a")
    await orders.publish("5", key="of a new partition")
    assert await run_dry(feed) == 2
    assert sorted(await held(world, queue)) == ["1", "2", "3", "4", "5"]
    assert await run_dry(feed) == 0


async def test_a_fifo_queue_gets_each_key_as_a_group(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    """A key that is no id of a group is its digest; a seek back within the five minutes of
    deduplication brings nothing twice."""
    queue = await world.make_queue("jobs.fifo")
    await orders.log()
    group = await orders.group(queue="jobs.fifo")
    keys = ("a", "", "k k", "x" * 200)
    for n in range(3):
        for key in keys:
            await orders.publish(str(n), key=key)
    assert await run_dry(feed) == 12
    async with world.engine.database.transaction() as tx:
        rows = await tx.fetch("SELECT group_id, body FROM fifo_messages ORDER BY sequence")
    by_group: dict[str, list[str]] = {}
    for group_id, body in rows:
        by_group.setdefault(group_id, []).append(body)
    assert by_group == {group_of(key): ["0", "1", "2"] for key in keys}
    assert group_of("a") == "a"
    await seek(orders.engine, group, "earliest")
    assert await run_dry(feed) == 12
    assert len(await held(world, queue)) == 12


async def test_a_message_carries_what_the_record_has(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    queue = await world.make_queue("jobs")
    await orders.log()
    await orders.group(queue="jobs")
    metadata = '{"tenant": "acme", "bad name": "x", "empty": "", "Queuegate.Priority": "9"}'
    some = [
        RecordToPublish("a", b"text", "id-1", metadata),
        RecordToPublish("", b"\xff\x00"),
        RecordToPublish("", b"\x00"),
    ]
    await publish_records(world.engine, world.caller, PUBLISH_RECORDS, "orders", some)
    await run_dry(feed)
    found = {one.body: one.attributes for one in await world.receive(queue)}
    assert found == {
        "text": '{"Queuegate.PartitionKey":{"DataType":"String","StringValue":"a"},'
        '"Queuegate.RecordId":{"DataType":"String","StringValue":"id-1"},'
        '"tenant":{"DataType":"String","StringValue":"acme"}}',
        "/wA=": '{"Queuegate.Encoding":{"DataType":"String","StringValue":"base64"}}',
        "AA==": '{"Queuegate.Encoding":{"DataType":"String","StringValue":"base64"}}',
    }


async def test_what_the_queue_cannot_take_is_a_dead_letter(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    """And those behind it go on."""
    queue = await world.make_queue("jobs", MaximumMessageSize="1024")
    await orders.log()
    group = await orders.group(queue="jobs")
    await orders.publish("", "x" * 1025, "fine")
    assert await run_dry(feed) == 1
    assert await held(world, queue) == ["fine"]
    assert await lag(orders, group) == 0
    async with world.engine.database.transaction() as tx:
        rows = await tx.fetch(
            "SELECT failure::json ->> 'last_error' AS error FROM log_records "
            "WHERE failure IS NOT NULL ORDER BY record_offset"
        )
    assert [row["error"] for row in rows] == [
        "Messages are not empty.",
        "It has 1054 bytes; 1024 are the most.",
    ]


async def test_dead_letters_feed_a_queue_with_what_is_known_of_them(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    await orders.log()
    await orders.publish("1")
    consumer = await orders.consumer()
    await consumer.settle(await consumer.fetch(), ReceiptAction.REJECT, error="never")
    queue = await world.make_queue("jobs")
    log = await world.engine.logs.find(*orders.owner, "orders_dlq")
    assert log is not None
    await make_group(world.engine, log, "repair", ConsumerGroupSettings(queue="jobs"))
    assert await run_dry(feed) == 1
    [message] = await world.receive(queue)
    assert message.attributes is not None
    told = json.loads(json.loads(message.attributes)["Queuegate.Failure"]["StringValue"])
    assert (told["last_error"], told["original_group"]) == ("never", "billing")


async def test_a_full_queue_is_waited_for(world: World, orders: Orders, feed: FeedQueues) -> None:
    queue = await bounded(world, "jobs", 3)
    await orders.log()
    group = await orders.group(queue="jobs")
    await orders.publish(*[str(n) for n in range(7)])
    assert await feed.run_once() == 3
    assert (await held(world, queue), await lag(orders, group)) == (["0", "1", "2"], 4)
    feed.start()
    async with world.engine.database.transaction() as tx:
        await tx.execute("DELETE FROM messages")
        await tx.execute("DELETE FROM queue_deltas")
    await until_async(lambda: lag(orders, group), lambda left: left == 1)
    assert await held(world, queue) == ["3", "4", "5"]


async def test_a_queue_that_is_gone_stops_the_feed_until_it_is_back(
    world: World, orders: Orders, feed: FeedQueues, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "queuegate.feed")
    queue = await world.make_queue("jobs")
    await orders.log()
    group = await orders.group(queue="jobs")
    await orders.publish("1")
    assert await run_dry(feed) == 1
    async with world.engine.database.transaction() as tx:
        # Nobody is told: the cache still has it.
        await tx.execute("UPDATE queues SET deleted_at = now() WHERE queue_id = $1", queue.queue_id)
    await orders.publish("2")
    assert (await feed.run_once(), await feed.run_once()) == (0, 0)
    assert (await lag(orders, group), await waits(world)) == (1, [True])
    assert caplog.messages == ["orders/billing feeds jobs, which is not there: it waits"]
    again = await world.make_queue("jobs")
    feed.start()
    await until_async(lambda: lag(orders, group), lambda left: left == 0)
    found = await world.receive(again)
    assert [one.body for one in found] == ["2"]
    assert caplog.messages[-1] == "orders/billing feeds jobs again"
    assert await waits(world) == [False]


async def waits(world: World) -> list[bool | None]:
    """Return for each group, as /metrics does, whether its queue is missing."""
    async with world.engine.database.transaction() as tx:
        return [one.waits_for_queue for one in await stored_logs.group_gauges(tx, None, 10)]


@pytest.mark.parametrize("step", ["before messages", "between", "after positions"])
async def test_a_crash_between_the_steps_loses_nothing_and_doubles_nothing(
    world: World, orders: Orders, feed: FeedQueues, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The server ends the connection where a kill -9 of the gateway would."""
    queue = await world.make_queue("jobs")
    await orders.log()
    group = await orders.group(queue="jobs")
    await orders.publish("1", "2")
    target, name = (queue.kind, "send") if step == "before messages" else (feeds, "_pass_over")
    done = getattr(target, name)

    async def cut_off(tx: asyncpg.Connection, *arguments: object) -> object:
        if step == "after positions":
            await done(tx, *arguments)
        await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        raise AssertionError

    with monkeypatch.context() as patched:
        patched.setattr(target, name, cut_off)
        with pytest.raises(Unavailable):
            await feed.run_once()
    assert (await held(world, queue), await lag(orders, group)) == ([], 2)
    assert await run_dry(feed) == 2
    assert await held(world, queue) == ["1", "2"]


async def test_a_feed_that_fails_holds_no_other_up(
    world: World, orders: Orders, feed: FeedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.make_queue("jobs")
    await orders.log()
    first, second = await orders.group(queue="jobs"), await orders.group("other", queue="jobs")
    await orders.publish("1")
    move = feeds.move

    async def fails(tx: asyncpg.Connection, now: datetime, of: Feed, *more: Any) -> object:
        if of.group.group_id == first.group_id:
            raise ZeroDivisionError
        return await move(tx, now, of, *more)

    monkeypatch.setattr(feeds, "move", fails)
    with pytest.raises(ZeroDivisionError):
        await feed.run_once()
    assert await feed.run_once() == 1
    assert (await lag(orders, first), await lag(orders, second)) == (1, 0)


async def test_two_gateways_share_the_work(world: World, orders: Orders, feed: FeedQueues) -> None:
    """A gateway skips records that another is moving, and looks again later."""
    queue = await world.make_queue("jobs")
    await orders.log()
    group = await orders.group(queue="jobs")
    await orders.publish("1", key="a")
    await orders.publish("2", key="b")
    [found] = await feeds_of(world)
    async with world.engine.database.transaction() as tx:
        places = await feeds.find_positions(tx, found, 0)
    async with world.engine.database.transaction() as tx:
        await tx.execute("SELECT 1 FROM log_positions WHERE number = 0 FOR UPDATE")
        assert await feed.run_once() == 1
        assert await held(world, queue) == ["2"]
    assert [place.is_behind for place in places] == [True, True]
    feed.start()
    await until_async(lambda: lag(orders, group), lambda left: left == 0)
    assert await held(world, queue) == ["2", "1"]


async def feeds_of(world: World) -> list[Feed]:
    async with world.engine.database.transaction() as tx:
        return await feeds.find_all(tx)


async def test_a_feed_takes_over_what_subscribers_had(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    """Not what they have acknowledged; and nobody joins any more."""
    queue = await world.make_queue("jobs")
    log = await orders.log()
    await orders.publish(*"0123")
    consumer = await orders.consumer()
    first, second, third = await consumer.fetch(3)
    await consumer.ack(second)
    assert offsets([first, second, third]) == [0, 1, 2]
    await change_group(
        world.engine, log, "billing", lambda settings: settings._replace(queue="jobs")
    )
    assert await run_dry(feed) == 3
    assert await held(world, queue) == ["0", "2", "3"]
    assert await consumer.ack(first) == ["done"]
    with pytest.raises(GroupInvalid, match="feeds the queue 'jobs'"):
        await orders.consumer("two")
    consumer.group = await find_group(world.engine, log, "billing")
    with pytest.raises(GroupInvalid, match="receive from that"):
        await consumer.fetch()


async def test_another_queue_counts_at_once(world: World, orders: Orders, feed: FeedQueues) -> None:
    """Also where the worker has not heard of it yet."""
    old, new = await world.make_queue("old"), await world.make_queue("new")
    log = await orders.log()
    await orders.group(queue="old")
    await orders.publish("1")
    assert await run_dry(feed) == 1
    await change_group(world.engine, log, "billing", lambda was: was._replace(queue="new"))
    await orders.publish("2")
    assert await run_dry(feed) == 0
    feed.changed()
    assert await run_dry(feed) == 1
    for queue, bodies in ((old, ["1"]), (new, ["2"])):
        assert [one.body for one in await world.receive(queue)] == bodies


async def test_a_feed_sleeps_until_it_is_woken(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    """No statement while nothing happens; a publish, a new key and a seek wake it."""
    queue = await world.make_queue("jobs")
    await orders.log()
    group = await orders.group(queue="jobs")
    rounds: list[int] = []
    run_once = feed.run_once

    async def noted() -> int:
        rounds.append(await run_once())
        return rounds[-1]

    feed.run_once = noted  # type: ignore[method-assign]
    feed.start()
    await until_so(lambda: rounds)
    assert feed.pause() is None
    for n, key in enumerate("aab", 1):
        await orders.publish(str(n), key=key)
        await until_so(lambda: sum(rounds) == n)  # noqa: B023 - it is waited for
    await seek(world.engine, group, "earliest")
    await until_so(lambda: sum(rounds) == 6)
    assert feed.pause() is None
    assert await held(world, queue) == ["1", "2", "3", "1", "2", "3"]


async def test_further_partitions_are_looked_at_alone(
    world: World, orders: Orders, feed: FeedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice: what comes between a look and the wait for records is found by the next look."""
    await world.make_queue("jobs")
    await orders.log()
    group = await orders.group(queue="jobs")
    await orders.fill("a", "b", "c")
    looks: list[int] = []
    find_places = feeds.find_positions

    async def noted(tx: asyncpg.Connection, of: Feed, first: int) -> list[feeds.FeedPosition]:
        looks.append(first)
        return await find_places(tx, of, first)

    monkeypatch.setattr(feeds, "find_positions", noted)
    assert await run_dry(feed) == 3
    await orders.fill("d", "e")
    assert await run_dry(feed) == 2
    await seek(world.engine, group, "earliest")
    assert await run_dry(feed) == 5
    assert looks == [0, 0, 3, 3, 0]


async def test_a_feed_ends_with_its_log_or_its_setting(
    world: World, orders: Orders, feed: FeedQueues
) -> None:
    await world.make_queue("jobs")
    log = await orders.log()
    await orders.group(queue="jobs")
    await orders.publish("1")
    assert await run_dry(feed) == 1
    parked = world.engine.wakeups.parked_count()
    await change_group(world.engine, log, "billing", lambda was: was._replace(queue=None))
    feed.changed()
    await orders.publish("2")
    assert await run_dry(feed) == 0
    assert (parked, world.engine.wakeups.parked_count()) == (3, 0)
    await change_group(world.engine, log, "billing", lambda was: was._replace(queue="jobs"))
    feed.changed()
    assert await run_dry(feed) == 1
    await delete_log(world.engine, log)
    feed.changed()
    assert await run_dry(feed) == 0
    assert world.engine.wakeups.parked_count() == 0


async def test_much_is_moved_in_parts(world: World, orders: Orders, feed: FeedQueues) -> None:
    """By records, and by bytes: in order all the same."""
    queue: Queue = await world.make_queue("jobs")
    await orders.log()
    group = await orders.group(queue="jobs")
    await orders.publish(*[str(n) for n in range(1_200)])
    assert await feed.run_once() == 500
    assert await run_dry(feed) == 700
    assert await held(world, queue) == [str(n) for n in range(1_200)]
    for n in range(6):
        await orders.publish(str(n) * 1_000_000, key=f"large {n % 2}")
    assert await feed.run_once() == 5
    assert await run_dry(feed) == 1
    assert await lag(orders, group) == 0
    assert len(await held(world, queue)) == 1_206
