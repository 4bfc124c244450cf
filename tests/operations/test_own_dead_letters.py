"""Queues that say after how many deliveries a message is a dead letter."""

from __future__ import annotations

import asyncio
import json

from queuegate.gateway.operations.queues.queues import (
    CreateQueue,
    change_attributes,
    count,
    create_queue,
    dead_letter_queue,
    delete_queue,
    look,
)
from queuegate.storage.queue_model import Counts, Queue
from tests.operations.world import World


async def make(world: World, name: str = "orders", **members: object) -> Queue:
    """A queue whose messages are dead after two deliveries."""
    request = CreateQueue(name, **({"max_deliveries": 2} | members))  # type: ignore[arg-type]
    return (await create_queue(world.engine, world.caller, request)).queue


def pass_time(world: World, seconds: int = 31) -> None:
    """Let visibility timeouts end."""
    world.clock.move_on(seconds)


async def wear_out(world: World, queue: Queue, deliveries: int = 2) -> None:
    """Receive what is there as often as it may be, and let the timeout end."""
    for _ in range(deliveries):
        assert await world.receive(queue)
        pass_time(world)


async def own(world: World, queue: Queue) -> Queue | None:
    """Its dead-letter queue."""
    return await dead_letter_queue(world.engine, await look(world.engine, world.caller, queue))


async def held(world: World, queue: Queue) -> Counts:
    return (await count(world.engine, world.caller, queue))[1]


async def test_it_is_made_for_the_first_dead_letter(world: World) -> None:
    attributes = {"VisibilityTimeout": "5", "DelaySeconds": "0", "MaximumMessageSize": "2048"}
    queue = await make(world, attributes=attributes, most_messages=7)
    await world.send(queue, "poison")
    await wear_out(world, queue)
    assert await own(world, queue) is None
    assert await world.receive(queue) == []
    dead = await own(world, queue)
    assert dead is not None
    assert (dead.name, dead.most_messages, dead.max_deliveries) == ("orders-dead-letters", 7, None)
    assert dead.visibility_timeout_seconds == 5
    assert dead.maximum_message_size_bytes == 2048
    [letter] = await world.receive(dead)
    assert (letter.body, letter.receive_count) == ("poison", 3)
    assert await held(world, queue) == Counts(0, 0, 0)
    changed = await look(world.engine, world.caller, queue)
    policy = {"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2}
    assert json.loads(changed.attributes["RedrivePolicy"]) == policy


async def test_whoever_had_the_answer_finds_it(world: World) -> None:
    """The cache drops the queue before the answer, not by a later notification."""
    queue = await make(world)
    await world.send(queue, "poison")
    await wear_out(world, queue)
    key = (queue.account_id, queue.region, queue.name)
    await world.engine.queues.find(*key)
    assert await world.receive(queue) == []
    assert await dead_letter_queue(world.engine, await world.engine.queues.find(*key)) is not None


async def test_what_is_behind_a_dead_letter_is_received_at_once(world: World) -> None:
    queue = await make(world)
    await world.send(queue, "poison")
    await wear_out(world, queue)
    await world.send(queue, "good")
    assert [one.body for one in await world.receive(queue, 1)] == ["good"]


async def test_of_many_receivers_one_makes_it(world: World) -> None:
    queue = await make(world)
    for _ in range(10):
        await world.send(queue)
    await wear_out(world, queue)
    found = await asyncio.gather(*[world.receive(queue, 1) for _ in range(10)])
    assert found == [[]] * 10
    dead = await own(world, queue)
    assert dead is not None
    assert await held(world, dead) == Counts(10, 0, 0)
    async with world.engine.database.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM queues") == 2


async def test_its_name_is_another_where_that_is_taken(world: World) -> None:
    long = "x" * 80
    taken = await make(world, "orders-dead-letters", max_deliveries=None)
    for name, beginning in (("orders", "orders-dead-letters-"), (long, "x" * 67 + "-dead-")):
        queue = await make(world, name)
        await world.send(queue)
        await wear_out(world, queue)
        await world.receive(queue)
        dead = await own(world, queue)
        assert dead is not None
        assert dead.name.startswith(beginning)
        assert len(dead.name) <= 80
    assert await held(world, taken) == Counts(0, 0, 0)


async def test_it_goes_with_its_queue(world: World) -> None:
    queue = await make(world)
    await world.send(queue)
    await wear_out(world, queue)
    await world.receive(queue)
    assert await own(world, queue) is not None
    await delete_queue(world.engine, world.caller, queue)
    async with world.engine.database.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM queues WHERE deleted_at IS NULL") == 0


async def test_one_that_was_deleted_is_made_again(world: World) -> None:
    queue = await make(world)
    for _ in range(2):
        await world.send(queue)
        await wear_out(world, queue)
        assert await world.receive(queue) == []
        dead = await own(world, queue)
        assert dead is not None
        assert await held(world, dead) == Counts(1, 0, 0)
        await delete_queue(world.engine, world.caller, dead)
        assert await own(world, queue) is None


async def test_a_redrive_policy_goes_before(world: World) -> None:
    queue = await make(world)
    elsewhere = await make(world, "elsewhere", max_deliveries=None)
    policy = {"deadLetterTargetArn": elsewhere.arn, "maxReceiveCount": 1}
    texts = {"RedrivePolicy": json.dumps(policy)}
    await change_attributes(world.engine, world.caller, queue, lambda _: texts)
    queue = await look(world.engine, world.caller, queue)
    await world.send(queue)
    await wear_out(world, queue, 1)
    assert await world.receive(queue) == []
    assert await held(world, elsewhere) == Counts(1, 0, 0)
    await change_attributes(world.engine, world.caller, queue, lambda _: {"RedrivePolicy": ""})
    queue = await look(world.engine, world.caller, queue)
    assert queue.max_receive_count == 2


async def test_queues_with_groups_have_one_of_their_kind(world: World) -> None:
    queue = await make(world, "orders.fifo")
    await world.send(queue, "poison", group_id="g", deduplication_id="1")
    await wear_out(world, queue)
    assert await world.receive(queue) == []
    dead = await own(world, queue)
    assert dead is not None
    assert (dead.name, dead.kind) == ("orders-dead-letters.fifo", queue.kind)
    assert await held(world, dead) == Counts(1, 0, 0)


async def make_full(world: World, poison: int, room: int = 2) -> tuple[Queue, Queue]:
    """A queue with so many messages that are dead already, and its dead-letter queue without room
    for any of them."""
    queue = await make(world, most_messages=room)
    for _ in range(room):
        await world.send(queue, "dead")
    await wear_out(world, queue)
    assert await world.receive(queue) == []
    dead = await own(world, queue)
    assert dead is not None
    async with world.engine.database.transaction() as tx:
        await tx.execute("UPDATE queues SET most_messages = NULL WHERE max_deliveries = 2")
    world.engine.queues.clear()
    queue = await look(world.engine, world.caller, queue)
    for number in range(poison):
        await world.send(queue, f"poison {number}")
    for _ in range(2):
        for _ in range(0, poison, 10):
            assert await world.receive(queue)
        pass_time(world)
    return queue, dead


async def test_what_does_not_fit_stays_and_is_not_delivered(world: World) -> None:
    queue, dead = await make_full(world, 3)
    assert await world.receive(queue) == []
    assert await held(world, dead) == Counts(2, 0, 0)
    assert await held(world, queue) == Counts(0, 3, 0)
    for _ in range(3):
        pass_time(world)
        assert await world.receive(queue) == []
    async with world.engine.database.transaction() as tx:
        counts = await tx.fetch(
            "SELECT receive_count FROM messages WHERE queue_id = $1", queue.queue_id
        )
    assert [row["receive_count"] for row in counts] == [2, 2, 2]
    await world.receive(dead, 1)
    async with world.engine.database.transaction() as tx:
        await tx.execute("DELETE FROM messages WHERE queue_id = $1", dead.queue_id)
        await tx.execute("DELETE FROM queue_deltas WHERE queue_id = $1", dead.queue_id)
    pass_time(world)
    assert await world.receive(queue) == []
    assert (await held(world, dead), await held(world, queue)) == (
        Counts(2, 0, 0),
        Counts(0, 1, 0),
    )


async def test_it_starves_nothing_behind_it(world: World) -> None:
    queue, _ = await make_full(world, 60)
    await world.send(queue, "good")
    assert [one.body for one in await world.receive(queue, 1)] == ["good"]


async def test_a_full_dead_letter_queue_of_a_redrive_policy_does_the_same(world: World) -> None:
    target = await make(world, "full", max_deliveries=None, most_messages=1)
    await world.send(target, "there already")
    policy = {"deadLetterTargetArn": target.arn, "maxReceiveCount": 1}
    queue = await make(world, max_deliveries=None, attributes={"RedrivePolicy": json.dumps(policy)})
    await world.send(queue, "poison")
    await wear_out(world, queue, 1)
    for _ in range(3):
        assert await world.receive(queue) == []
        pass_time(world)
    assert await held(world, target) == Counts(1, 0, 0)
