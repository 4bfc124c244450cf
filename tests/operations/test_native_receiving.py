"""Receives of more messages than one flush of the lane gives out at once."""

from __future__ import annotations

import asyncio
from datetime import datetime

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_many, receive_shown
from queuegate.gateway.operations.runtime import background_tasks
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue, Received
from tests.operations.conftest import MakeQueue, SendTo
from tests.operations.world import World
from tests.sqs_calls import ReceiveMessage, answered, receive_message
from tests.waiting import yield_turns

KINDS = pytest.mark.parametrize("name", ["jobs", "jobs.fifo"])


async def _fill(send: SendTo, queue: Queue, count: int) -> None:
    """Messages, on a FIFO queue in groups of ten."""
    for number in range(count):
        ids = {"group_id": str(number // 10), "deduplication_id": str(number)}
        await send(queue, str(number), **(ids if queue.is_fifo else {}))


@KINDS
async def test_a_caller_who_goes_while_messages_are_shown_leaves_nothing_hidden(
    engine: Engine, caller: Caller, make_queue: MakeQueue, send: SendTo, name: str
) -> None:
    queue = await make_queue(name)
    await _fill(send, queue, 3)
    ids = {"group_id": "z", "deduplication_id": "z"}
    await send(queue, "x" * 100_000, **(ids if queue.is_fifo else {}))

    def show(message: Received, _: datetime) -> str:
        if message.body[0] == "x":
            # The client goes away, and others go first.
            task.cancel()
        return message.body

    asked = receive_shown(engine, caller, queue, ReceiveMany(10), show)
    task = asyncio.create_task(asked)
    with pytest.raises(asyncio.CancelledError):
        await task
    await background_tasks.settle()
    assert len(await receive_many(engine, caller, queue, ReceiveMany(10))) == 4


@KINDS
async def test_a_caller_who_goes_leaves_nothing_hidden(world: World, name: str) -> None:
    """Whenever that is: before, between and after the parts."""
    queue = await world.make_queue(name)
    other = await world.make_queue(f"other-{name}")
    await _fill(world.send, queue, 30)
    was_cancelled = was_answered = 0
    for turns in range(0, 150, 5):
        task = asyncio.create_task(receive_many(world.engine, world.caller, queue, ReceiveMany(30)))
        await yield_turns(turns)
        task.cancel()
        try:
            assert len(await task) == 30
        except asyncio.CancelledError:
            was_cancelled += 1
        else:
            was_answered += 1
            world.clock.move_on(31)
        # What a flush under way leases for nobody is given back behind it.
        await receive_many(world.engine, world.caller, other, ReceiveMany(1))
        await background_tasks.settle()
    assert was_cancelled
    received = await receive_many(world.engine, world.caller, queue, ReceiveMany(100))
    assert {one.body for one in received} == {str(number) for number in range(30)}
    assert {one.receive_count for one in received} == {was_answered + 1}


@pytest.mark.parametrize("behind", [False, True])
async def test_a_caller_who_goes_in_the_moment_of_the_answer_leaves_nothing_hidden(
    world: World, monkeypatch: pytest.MonkeyPatch, behind: bool
) -> None:
    """Just before the answer is there, and just behind."""
    queue = await world.make_queue("jobs")
    await _fill(world.send, queue, 1)
    receive = answered(receive_message, world.engine, world.caller, queue, ReceiveMessage())
    task = asyncio.create_task(receive)

    def leave(*_: object) -> None:
        if behind:
            asyncio.get_running_loop().call_soon(task.cancel)
        else:
            task.cancel()

    with monkeypatch.context() as patch:
        patch.setattr(world.engine.series, "received", leave)
        with pytest.raises(asyncio.CancelledError):
            await task
    await background_tasks.settle()
    [message] = await receive_many(world.engine, world.caller, queue, ReceiveMany(1))
    assert message.receive_count == 1


async def test_a_group_gives_ten_at_once(world: World) -> None:
    """The rest of it waits until they are deleted; other groups fill the answer."""
    queue = await world.make_queue("jobs.fifo")
    for number in range(30):
        group = "one" if number < 25 else "other"
        await world.send(queue, str(number), group_id=group, deduplication_id=str(number))
    received = await receive_many(world.engine, world.caller, queue, ReceiveMany(100))
    assert [one.body for one in received] == [*map(str, range(10)), *map(str, range(25, 30))]
