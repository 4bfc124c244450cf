"""Priorities and time to live, whatever the face: who may have them, and when they take effect."""

from __future__ import annotations

import asyncio

import pytest

from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.storage.queue_model import NewMessage, Queue, Received
from queuegate.storage.queues.kinds import PRIORITISED, STANDARD
from queuegate.storage.storage_errors import PriorityOutOfRange, PriorityUnfit, TtlOutOfRange
from tests.operations.world import World
from tests.sqs_calls import ReceiveMessage, answered, receive_message
from tests.waiting import until_so


async def send(world: World, queue: Queue, *messages: NewMessage) -> None:
    await answered(
        send_all, world.engine, world.caller, queue, [MessageToSend(one) for one in messages], False
    )


async def current(world: World, queue: Queue) -> Queue:
    return await world.engine.queues.find(queue.account_id, queue.region, queue.name)


async def received(world: World, queue: Queue) -> list[Received]:
    return await world.receive(await current(world, queue))


@pytest.mark.parametrize("priority", [-1, 11, 1 << 40])
async def test_a_priority_has_its_range(world: World, priority: int) -> None:
    queue = await world.make_queue()
    with pytest.raises(PriorityOutOfRange, match=f"{priority}.* 0 to 10"):
        await send(world, queue, NewMessage("a", priority=priority))
    assert await received(world, queue) == []


@pytest.mark.parametrize("seconds", [-1, 0, 1_209_601, 1 << 40])
async def test_a_time_to_live_has_its_range(world: World, seconds: int) -> None:
    queue = await world.make_queue()
    with pytest.raises(TtlOutOfRange, match=f"{seconds}.* 1 to 1209600"):
        await send(world, queue, NewMessage("a", ttl_seconds=seconds))
    assert await received(world, queue) == []


@pytest.mark.parametrize("priority", [0, 5])
async def test_messages_in_groups_have_no_priority(world: World, priority: int) -> None:
    queue = await world.make_queue("jobs.fifo")
    with pytest.raises(PriorityUnfit):
        await send(world, queue, NewMessage("a", group_id="g", priority=priority))


async def test_a_queue_goes_by_priorities_from_the_first_one_on(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, NewMessage("plain"), NewMessage("zero", priority=0))
    assert (await current(world, queue)).kind is STANDARD
    await send(world, queue, NewMessage("low", priority=1), NewMessage("high", priority=10))
    assert (await current(world, queue)).kind is PRIORITISED
    found = await received(world, queue)
    assert [message.body for message in found] == ["high", "low", "plain", "zero"]


async def test_whoever_waits_gets_the_first_one(world: World) -> None:
    """They wait on a queue without priorities, and are woken on one that has some."""
    queue = await world.make_queue()
    request = ReceiveMessage(max_messages=10, wait_seconds=20)
    waiting = asyncio.ensure_future(
        answered(receive_message, world.engine, world.caller, queue, request)
    )
    await until_so(lambda: world.engine.wakeups.parked_count() == 1)
    await send(world, queue, NewMessage("a", priority=3, ttl_seconds=60))
    [message] = await waiting
    assert (message.body, message.priority) == ("a", 3)
    assert message.expires_at_ms == message.sent_at_ms + 60_000


async def test_nobody_gets_what_has_expired(world: World) -> None:
    queue = await world.make_queue()
    await send(world, queue, NewMessage("short", ttl_seconds=5), NewMessage("long", ttl_seconds=9))
    world.clock.move_on(6)
    assert [message.body for message in await received(world, queue)] == ["long"]
