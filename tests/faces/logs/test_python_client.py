"""The Python client, at a running gateway."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from queuegate.log import (
    AsyncDelivery,
    Closed,
    Conflict,
    LogClient,
    NewRecord,
    NotFound,
    Replaced,
    Subscription,
    Superseded,
    sync,
)
from tests.faces.clients import new_account
from tests.faces.servers import Server
from tests.waiting import until_so, yield_turns


@pytest.fixture
async def client(server: Server) -> AsyncIterator[LogClient]:
    found = LogClient(server.url, account=new_account())
    yield found
    await found.close(0)


async def lag(client: LogClient, group: str = "billing") -> int:
    return (await client.group("orders", group)).lag


async def taken(subscription: Subscription, count: int) -> list[AsyncDelivery]:
    async with asyncio.timeout(20):
        return [await anext(subscription) for _ in range(count)]


async def fill(client: LogClient, count: int, keys: int = 1) -> None:
    records = [NewRecord(str(number), key=str(number % keys)) for number in range(count)]
    await client.publish_many("orders", records)


async def test_from_publish_to_acknowledgement(client: LogClient) -> None:
    first = await client.publish("orders", '{"n": 1}', key="a", id="1", metadata={"x": "y"})
    assert (first.partition, first.offset, first.duplicate) == (0, 0, False)
    assert (await client.publish("orders", "other", key="a", id="1")).duplicate
    await client.publish("orders", b"\xff\x00")
    one, two = await taken(client.subscribe("orders", "billing"), 2)
    assert (one.key, one.id, one.metadata, one.json(), one.attempt) == (
        "a",
        "1",
        {"x": "y"},
        {"n": 1},
        1,
    )
    assert (two.key, two.payload) == ("", b"\xff\x00")
    assert one.published_at.tzinfo is not None
    assert await lag(client) == 2
    await asyncio.gather(one.ack(), two.ack())
    assert await lag(client) == 0
    await one.ack()


async def test_what_was_given_back_comes_again_until_it_is_a_dead_letter(
    client: LogClient,
) -> None:
    await fill(client, 3)
    subscription = client.subscribe(
        "orders", "billing", max_attempts=2, backoff={"initial": 0, "factor": 1, "most": 0}
    )
    one, two, three = await taken(subscription, 3)
    await one.nack()
    [again] = await taken(subscription, 1)
    assert (again.offset, again.attempt) == (0, 2)
    await again.nack(error="no stock")
    await two.reject("never")
    await three.ack()
    assert await lag(client) == 0
    dead = await client.dead_letters("orders")
    assert [one.text for one in dead] == ["0", "1"]
    assert dead[0].failure is not None
    assert (dead[0].failure.last_error, dead[0].failure.failure_count) == ("no stock", 2)
    assert await client.requeue("orders") == 2
    assert {one.text for one in await taken(subscription, 2)} == {"0", "1"}
    assert await client.dead_letters("orders") == []


async def test_strict_order(client: LogClient) -> None:
    await fill(client, 60, keys=3)
    subscription = client.subscribe("orders", "billing", batch_size=1)
    found: dict[str, list[int]] = defaultdict(list)
    busy: set[str] = set()

    async def handle(delivery: AsyncDelivery) -> None:
        assert delivery.key not in busy
        busy.add(delivery.key)
        found[delivery.key].append(int(delivery.text))
        await yield_turns()
        busy.remove(delivery.key)
        if sum(map(len, found.values())) == 60:
            subscription.stop()

    async with asyncio.timeout(30):
        await subscription.run(handle, concurrency=8)
    await subscription.close()
    assert all(sorted(numbers) == numbers for numbers in found.values())
    assert await lag(client) == 0


async def test_subscribers_share_partitions_and_hand_over(client: LogClient) -> None:
    await fill(client, 8, keys=8)
    first = client.subscribe("orders", "billing", subscriber="one", most_in_hand=8)
    for delivery in await taken(first, 8):
        await delivery.ack()
    second = client.subscribe("orders", "billing", subscriber="two")
    async with second:
        await until_so(lambda: len(first.partitions) == len(second.partitions) == 4)
        assert not first.partitions.keys() & second.partitions.keys()
        await fill(client, 8, keys=8)
        mine, theirs = await asyncio.gather(taken(first, 4), taken(second, 4))
        assert {one.partition for one in mine} == set(first.partitions)
        for delivery in (*mine, *theirs):
            await delivery.ack()
    # Who leaves hands over at once: nobody has to be silent for the length of a lease.
    await until_so(lambda: len(first.partitions) == 8)
    await fill(client, 8, keys=8)
    assert len({one.partition for one in await taken(first, 8)}) == 8


async def test_who_dies_is_replaced_and_cannot_finish_any_more(
    client: LogClient, server: Server
) -> None:
    await fill(client, 1)
    [held] = await taken(client.subscribe("orders", "billing", subscriber="dies"), 1)
    dead = client._subscriptions[-1]
    for task in dead._tasks[:2]:
        task.cancel()
    assert dead._fetching is not None
    dead._fetching.cancel()
    server.advance(31)
    lives = client.subscribe("orders", "billing", subscriber="lives")
    [again] = await taken(lives, 1)
    assert (again.offset, again.attempt) == (0, 2)
    with pytest.raises(Superseded):
        await held.ack()
    await again.ack()
    assert await lag(client) == 0


async def test_the_younger_of_two_with_one_name_stays(client: LogClient) -> None:
    await fill(client, 2)
    older = client.subscribe("orders", "billing", subscriber="one", most_in_hand=1)
    [first] = await taken(older, 1)
    younger = client.subscribe("orders", "billing", subscriber="one")
    [second] = await taken(younger, 1)
    await first.ack()
    with pytest.raises(Replaced):
        await taken(older, 1)
    await second.ack()
    assert await lag(client) == 0


async def test_the_clock_is_moved(client: LogClient, server: Server) -> None:
    subscription = client.subscribe("orders", "billing")
    await subscription.start()
    server.advance(3_600)
    await fill(client, 1)
    [delivery] = await taken(subscription, 1)
    await delivery.ack()


async def test_a_shutdown_gives_back_what_nobody_saw(client: LogClient) -> None:
    await fill(client, 10)
    async with client.subscribe("orders", "billing", subscriber="one") as subscription:
        [first] = await taken(subscription, 1)
        first.ack()
    group = await client.group("orders", "billing")
    assert (group.lag, group.in_flight, group.subscribers) == (9, 0, ())
    found = await taken(client.subscribe("orders", "billing"), 9)
    # It did not count.
    assert {one.attempt for one in found} == {1}


async def test_groups_are_administered(client: LogClient) -> None:
    await client.create_log("orders", partitions=2, max_age=3_600)
    await fill(client, 4, keys=4)
    await client.create_group("orders", "late", start="latest")
    await client.create_group("orders", "billing", batch_size=3)
    with pytest.raises(Conflict):
        await client.subscribe("orders", "billing", batch_size=4).start()
    assert (await client.change_group("orders", "billing", batch_size=4)).batch_size == 4
    assert [(one.group, one.lag) for one in await client.groups("orders")] == [
        ("billing", 4),
        ("late", 0),
    ]
    await client.seek("orders", "late", "earliest")
    assert await lag(client, "late") == 4
    await client.seek("orders", "late", datetime.now(UTC) + timedelta(days=9))
    ends = {one.partition: one.end for one in await client.partitions("orders")}
    await client.seek("orders", "late", {number: end - 1 for number, end in ends.items() if end})
    progress = await client.progress("orders", "late")
    assert sum(one.lag for one in progress) == sum(1 for end in ends.values() if end)
    await client.delete_group("orders", "late")
    with pytest.raises(NotFound):
        await client.group("orders", "late")


async def test_a_group_that_is_deleted_ends_its_subscriptions(client: LogClient) -> None:
    subscription = client.subscribe("orders", "billing")
    await subscription.start()
    await client.delete_group("orders", "billing")
    await fill(client, 1)
    with pytest.raises(NotFound):
        await taken(subscription, 1)


async def test_threads(server: Server) -> None:
    def work() -> tuple[list[str], int]:
        with sync.LogClient(server.url, account=new_account()) as client:
            client.publish_many("orders", [NewRecord(str(number)) for number in range(5)])
            found = []
            for delivery in client.subscribe("orders", "billing"):
                with delivery:
                    found.append(delivery.text)
                if len(found) == 5:
                    break
            delivery.ack().result()
            return found, client.group("orders", "billing").lag

    assert await asyncio.to_thread(work) == (["0", "1", "2", "3", "4"], 0)


@pytest.fixture
def threads_that_switch_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("threads_that_switch_often")
async def test_each_of_many_threads_hears_what_became_of_its_own(server: Server) -> None:
    count = 400

    def work() -> int:
        with sync.LogClient(server.url, account=new_account()) as client:
            client.publish_many("orders", [NewRecord("x", key=str(n % 100)) for n in range(count)])
            subscription = client.subscribe("orders", "billing", most_in_hand=count)
            taken = list(islice(subscription, count))
            with ThreadPoolExecutor(8) as threads:
                list(threads.map(lambda delivery: delivery.ack().result(20), taken))
            return client.group("orders", "billing").lag

    assert await asyncio.to_thread(work) == 0


async def test_whoever_waits_in_a_thread_hears_of_the_end(server: Server) -> None:
    def work() -> None:
        client = sync.LogClient(server.url, account=new_account())
        client.publish("orders", "x")
        subscription = client.subscribe("orders", "billing")
        delivery = next(subscription)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(next, subscription, None)
            client.close(0)
            assert waiting.result(20) is None
        with pytest.raises(Closed):
            delivery.ack()
        with pytest.raises(Closed):
            delivery.ack()
        with pytest.raises(Closed):
            client.logs()
        client.close()

    await asyncio.to_thread(work)
