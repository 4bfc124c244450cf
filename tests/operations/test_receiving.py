"""Long polls: what wakes them, what ends them, and what becomes of a receive whose caller goes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Counts, Queue, Received
from queuegate.storage.queues.messages import Receive
from queuegate.storage.storage_errors import OverLimit, QueueDoesNotExist, Unavailable
from tests.operations.conftest import (
    MakeQueue,
    ReceiveFrom,
    SendTo,
    bodies_of,
    find_again,
)
from tests.operations.sqs import set_queue_attributes
from tests.operations.world import World
from tests.sqs_calls import (
    ReceiveMessage,
    SendMessage,
    answered,
    change_message_visibility,
    receive_message,
    send_message,
)
from tests.storage.fifo_queue import delete_queue as delete_row
from tests.waiting import until_so, yield_turns

pytestmark = pytest.mark.timeout(60)

Poll = Callable[..., Awaitable[list[Received]]]


@pytest.fixture
def poll(engine: Engine, caller: Caller) -> Poll:
    """``await poll(queue, seconds)``: a long poll."""

    async def poll_for(queue: Queue, seconds: int = 20, **options: Any) -> list[Received]:
        request = ReceiveMessage(wait_seconds=seconds, **options)
        received: list[Received] = await answered(receive_message, engine, caller, queue, request)
        return received

    return poll_for


async def _parked(engine: Engine, count: int = 1) -> None:
    """Wait until so many receives are parked."""
    await until_so(lambda: engine.wakeups.parked_count() >= count)


async def test_a_send_answers_a_long_poll_without_a_look(world: World, poll: Poll) -> None:
    queue = await find_again(world.engine, await world.make_queue())
    waiting = [asyncio.ensure_future(poll(queue)) for _ in range(2)]
    await _parked(world.engine, 2)
    looks: list[int] = []
    world.engine.standard.receive.observe = looks.append
    await world.send(queue, "a")
    done, [still] = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    [message] = done.pop().result()
    assert (message.body, message.receive_count, looks) == ("a", 1, [])
    assert (world.engine.wakeups.parked_count(), still.done()) == (1, False)
    await world.send(queue, "b")
    assert (bodies_of(await still), looks) == (["b"], [])


async def test_who_goes_while_it_is_handed_something_gives_it_back(
    engine: Engine, make_queue: MakeQueue, send: SendTo, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await find_again(engine, await make_queue())
    leaving = asyncio.ensure_future(poll(queue))
    await _parked(engine)
    take = engine.wakeups.take

    def taken(queue_id: int) -> Receive | None:
        entry = take(queue_id)
        leaving.cancel()
        return entry

    monkeypatch.setattr(engine.wakeups, "take", taken)
    staying = asyncio.ensure_future(poll(queue, max_messages=10))
    await _parked(engine, 2)
    await send(queue, "a")
    [message] = await staying
    assert (message.body, message.receive_count) == ("a", 1)


async def test_a_send_that_is_lost_does_not_end_a_long_poll(
    engine: Engine, make_queue: MakeQueue, send: SendTo, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await find_again(engine, await make_queue())
    await send(queue, "before")
    await poll(queue)
    waiting = asyncio.ensure_future(poll(queue))
    await _parked(engine)
    looks: list[int] = []
    engine.standard.receive.observe = looks.append
    take = engine.wakeups.take

    def lost(queue_id: int) -> Receive | None:
        connection = engine.standard.send._connection
        assert connection is not None
        connection.terminate()
        return take(queue_id)

    monkeypatch.setattr(engine.wakeups, "take", lost)
    with pytest.raises(Unavailable):
        await send(queue, "lost")
    monkeypatch.undo()
    assert (engine.wakeups.parked_count(), looks) == (1, [])
    await send(queue, "a")
    assert (bodies_of(await waiting), looks) == (["a"], [])


async def test_who_is_handed_nothing_hears_that_the_queue_is_gone(world: World, poll: Poll) -> None:
    queue = await find_again(world.engine, await world.make_queue())
    waiting = asyncio.ensure_future(poll(queue))
    await _parked(world.engine)
    # Elsewhere, and we have not been told yet.
    await delete_row(world.engine.database, queue.queue_id)
    for told in (world.send(queue, "a"), waiting):
        with pytest.raises(QueueDoesNotExist):
            await told


@pytest.mark.parametrize("change", ["visibility", "attributes", "stopping"])
async def test_who_has_to_look_is_handed_nothing(world: World, poll: Poll, change: str) -> None:
    queue = await find_again(world.engine, await world.make_queue())
    seconds = 0 if change == "visibility" else 30
    waiting = asyncio.ensure_future(poll(queue, visibility_timeout_seconds=seconds))
    await _parked(world.engine)
    if change == "attributes":
        world.engine.queues.forget(queue.queue_id)
    world.engine.stopping = change == "stopping"
    assert world.engine.wakeups.take(queue.queue_id) is None
    world.engine.stopping = False
    await world.send(queue, "a")
    assert bodies_of(await waiting) == ["a"]


async def test_one_message_wakes_one_of_many(world: World, poll: Poll) -> None:
    queue = await world.make_queue()
    waiting = [asyncio.ensure_future(poll(queue)) for _ in range(5)]
    await _parked(world.engine, 5)
    for number in range(5):
        await world.send(queue, str(number))
    results = await asyncio.gather(*waiting)
    assert sorted(body for result in results for body in bodies_of(result)) == list("01234")


async def test_a_receive_that_takes_its_fill_wakes_the_next(world: World, poll: Poll) -> None:
    queue = await world.make_queue()
    waiting = [asyncio.ensure_future(poll(queue, max_messages=1)) for _ in range(3)]
    await _parked(world.engine, 3)
    # Three messages whose arrival was told as one.
    for body in "abc":
        await world.send(queue, body, delay_seconds=1)
    world.clock.move_on(2)
    world.engine.wakeups.arrived(queue.queue_id, 1)
    results = await asyncio.gather(*waiting)
    assert sorted(body for result in results for body in bodies_of(result)) == list("abc")


async def test_a_waiter_that_goes_passes_its_wake_on(world: World, poll: Poll) -> None:
    queue = await world.make_queue()
    found = await find_again(world.engine, queue)
    leaving = asyncio.ensure_future(poll(found))
    await _parked(world.engine, 1)
    staying = asyncio.ensure_future(poll(found))
    await _parked(world.engine, 2)
    await world.send(queue, "a", delay_seconds=1)
    world.clock.move_on(2)
    world.engine.wakeups.arrived(queue.queue_id, 1)
    # It was woken, and goes before it could look.
    leaving.cancel()
    assert bodies_of(await staying) == ["a"]


async def test_what_lies_behind_a_dead_letter_is_received(world: World, poll: Poll) -> None:
    dead = await world.make_queue("dead")
    policy = f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":1}}'
    queue = await world.make_queue(RedrivePolicy=policy)
    await world.send(queue, "a")
    await poll(queue, visibility_timeout_seconds=0)
    await world.send(queue, "b")
    assert bodies_of(await poll(queue, max_messages=1)) == ["b"]


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
async def test_a_cancelled_poll_gives_back_what_it_leased(
    world: World, poll: Poll, name: str
) -> None:
    queue = await world.make_queue(name)
    ids = {"group_id": "g", "deduplication_id": "d"} if queue.is_fifo else {}
    await world.send(queue, "a", **ids)
    leased = asyncio.Event()
    lanes = world.engine.fifo if queue.is_fifo else world.engine.standard
    lanes.receive.observe = lambda _: leased.set()
    leaving = asyncio.ensure_future(poll(queue))
    await leased.wait()
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    waiting = await poll(queue)
    assert [(m.body, m.receive_count) for m in waiting] == [("a", 1)]


async def test_a_stopping_engine_ends_its_polls(world: World, poll: Poll) -> None:
    queue = await world.make_queue()
    waiting = asyncio.ensure_future(poll(queue))
    await _parked(world.engine)
    world.engine.stopping = True
    world.engine.wakeups.wake_all()
    assert await waiting == []
    assert await poll(queue) == []


async def test_a_waiting_poll_obeys_a_redrive_policy_that_was_set_meanwhile(
    engine: Engine, caller: Caller, make_queue: MakeQueue, send: SendTo, poll: Poll
) -> None:
    dead = await make_queue("dead")
    queue = await make_queue()
    await send(queue, "a")
    [message] = await poll(queue)
    waiting = asyncio.ensure_future(poll(queue, 1))
    await _parked(engine)
    policy = f'{{"deadLetterTargetArn":"{dead.arn}","maxReceiveCount":1}}'
    await set_queue_attributes(engine, caller, queue, {"RedrivePolicy": policy})
    handle = engine.receipts.handle_of(message, engine.clock.seconds())
    await answered(change_message_visibility, engine, caller, queue, handle, 0)
    assert await waiting == []
    assert bodies_of(await poll(dead)) == ["a"]


async def test_a_lost_database_reaches_the_poll(
    engine: Engine, make_queue: MakeQueue, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await make_queue()

    async def flush(connection: object, batch: list[Any]) -> list[Any]:
        raise Unavailable("gone")

    monkeypatch.setattr(engine.standard.receive, "_flush", flush)
    with pytest.raises(Unavailable):
        await poll(queue)


async def test_a_send_in_another_process_wakes_a_poll(
    listening: Engine, elsewhere: Engine, caller: Caller, make_queue: MakeQueue, poll: Poll
) -> None:
    queue = await make_queue()
    for number in range(30):
        waiting = asyncio.ensure_future(poll(queue))
        if number % 3:
            await _parked(listening)
        request = SendMessage(str(number))
        await answered(send_message, elsewhere, caller, queue, request)
        [message] = await waiting
        assert message.body == str(number)


async def test_no_wake_is_lost_between_send_and_park(world: World, poll: Poll) -> None:
    """Nothing looks now and then here: a lost wake would last until the end of the poll."""
    queue = await world.make_queue()
    loop = asyncio.get_running_loop()

    async def consume() -> int:
        count = 0
        while count < 150:
            began = loop.time()
            count += len(await poll(queue, 20, max_messages=1))
            assert loop.time() - began < 15
        return count

    async def produce(yields: int) -> None:
        for number in range(100):
            await world.send(queue, str(number))
            await yield_turns((number * yields) % 7)

    results = await asyncio.gather(consume(), consume(), produce(1), produce(2), produce(3))
    assert (results[0], results[1]) == (150, 150)


async def test_a_full_queue_refuses_short_polls_and_lets_long_ones_wait(
    engine: Engine, make_queue: MakeQueue, send: SendTo, poll: Poll, receive: ReceiveFrom
) -> None:
    queue = await make_queue()
    for body in "abcdef":
        await send(queue, body)
    engine.in_flight.limit = 5
    assert len(await receive(queue, 4)) == 4
    # So many were handed out that it counts again.
    engine.in_flight.handed_out(queue.queue_id, 1_000)
    assert len(await receive(queue, 1)) == 1
    with pytest.raises(OverLimit):
        await receive(queue)
    assert await poll(queue, 1) == []
    engine.in_flight.limit = 7
    assert bodies_of(await receive(queue)) == ["f"]


async def test_many_receives_share_one_count(
    world: World, poll: Poll, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await world.make_queue()
    for body in "abcdef":
        await world.send(queue, body)
    counted = []
    count, going_on = queue.kind.count, asyncio.Event()

    async def slowly(tx: Any, now: datetime | None, queue_id: int) -> Counts:
        counted.append(queue_id)
        await going_on.wait()
        return await count(tx, now, queue_id)

    monkeypatch.setattr(type(queue.kind), "count", staticmethod(slowly))
    world.engine.in_flight.limit = 4
    world.engine.in_flight.handed_out(queue.queue_id, 1_000)
    polls = [asyncio.ensure_future(poll(queue, 0, max_messages=1)) for _ in range(7)]
    await until_so(lambda: bool(counted))
    polls[0].cancel()
    going_on.set()
    found = await asyncio.gather(*polls[1:], return_exceptions=True)
    assert counted == [queue.queue_id]
    assert sum(len(each) for each in found if isinstance(each, list)) == 6
