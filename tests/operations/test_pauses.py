"""Pauses of queues: receives wait as if there were nothing, everything else goes on."""

from __future__ import annotations

import asyncio

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.queues import set_paused
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue, Received
from tests.operations.conftest import (
    MakeQueue,
    ReceiveFrom,
    SendTo,
    bodies_of,
    find_again,
)
from tests.operations.sqs import delete_queue
from tests.operations.world import World
from tests.sqs_calls import ReceiveMessage, answered, delete_message, receive_message
from tests.waiting import until_so

pytestmark = pytest.mark.timeout(60)


def _poll(engine: Engine, caller: Caller, queue: Queue) -> asyncio.Future[list[Received]]:
    """A long poll."""
    request = ReceiveMessage(wait_seconds=20)
    received: asyncio.Future[list[Received]] = asyncio.ensure_future(
        answered(receive_message, engine, caller, queue, request)
    )
    return received


async def _parked(engine: Engine, queue: Queue, *, paused: bool) -> None:
    """Wait until a long poll is parked, where sends find it or where they do not."""

    def parked() -> bool:
        return engine.wakeups.parked_count() == 1 and (
            engine.wakeups.waits(queue.queue_id) is not paused
        )

    await until_so(parked)


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_a_paused_queue_takes_messages_and_gives_none(world: World, name: str) -> None:
    queue = await world.make_queue(name)
    ids = {"group_id": "g", "deduplication_id": "d"} if queue.is_fifo else {}
    await set_paused(world.engine, queue, is_paused=True)
    paused_at = (await find_again(world.engine, queue)).paused_at
    await set_paused(world.engine, queue, is_paused=True)
    queue = await find_again(world.engine, queue)
    assert queue.paused_at == paused_at is not None
    await world.send(queue, "a", **ids)
    assert await world.receive(queue) == []
    for _ in range(2):
        await set_paused(world.engine, queue, is_paused=False)
    assert bodies_of(await world.receive(await find_again(world.engine, queue))) == ["a"]


async def test_a_message_in_flight_can_be_finished_during_a_pause(
    engine: Engine, make_queue: MakeQueue, send: SendTo, receive: ReceiveFrom, caller: Caller
) -> None:
    queue = await make_queue()
    await send(queue, "a")
    [message] = await receive(queue)
    await set_paused(engine, queue, is_paused=True)
    handle = engine.receipts.handle_of(message, engine.clock.of(queue.account_id).seconds())
    await answered(delete_message, engine, caller, queue, handle)
    await set_paused(engine, queue, is_paused=False)
    async with engine.database.transaction() as tx:
        counts = await queue.kind.count(tx, engine.clock.now(), queue.queue_id)
    assert counts.visible + counts.in_flight + counts.delayed == 0


async def test_a_send_hands_nothing_to_a_receive_of_a_paused_queue(world: World) -> None:
    queue = await find_again(world.engine, await world.make_queue())
    waiting = _poll(world.engine, world.caller, queue)
    await _parked(world.engine, queue, paused=False)
    await set_paused(world.engine, queue, is_paused=True)
    await _parked(world.engine, queue, paused=True)
    looks: list[int] = []
    world.engine.standard.receive.observe = looks.append
    await world.send(queue, "a")
    # Neither the send nor a clock that is moved makes it look.
    world.engine.wakeups.wake_all()
    await _parked(world.engine, queue, paused=True)
    assert (looks, waiting.done()) == ([], False)
    await set_paused(world.engine, queue, is_paused=False)
    assert bodies_of(await waiting) == ["a"]


async def test_another_process_pauses_and_resumes(
    listening: Engine, elsewhere: Engine, make_queue: MakeQueue, send: SendTo, caller: Caller
) -> None:
    queue = await find_again(listening, await make_queue())
    waiting = _poll(listening, caller, queue)
    await _parked(listening, queue, paused=False)
    await set_paused(elsewhere, queue, is_paused=True)
    await _parked(listening, queue, paused=True)
    await send(queue, "a")
    assert not waiting.done()
    await set_paused(elsewhere, queue, is_paused=False)
    assert bodies_of(await waiting) == ["a"]


async def test_a_receive_that_gives_up_during_a_pause_leaves_nothing_parked(world: World) -> None:
    queue = await world.make_queue()
    await set_paused(world.engine, queue, is_paused=True)
    queue = await find_again(world.engine, queue)
    waiting = _poll(world.engine, world.caller, queue)
    await _parked(world.engine, queue, paused=True)
    waiting.cancel()
    await until_so(lambda: world.engine.wakeups.parked_count() == 0)


async def test_deleting_a_paused_queue_ends_its_receives(world: World) -> None:
    queue = await world.make_queue()
    await set_paused(world.engine, queue, is_paused=True)
    queue = await find_again(world.engine, queue)
    waiting = _poll(world.engine, world.caller, queue)
    await _parked(world.engine, queue, paused=True)
    await delete_queue(world.engine, world.caller, queue)
    with pytest.raises(Exception, match="does not exist"):
        await waiting
