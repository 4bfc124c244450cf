"""Queues that hold only so many messages: what a send does when one is full."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from queuegate.gateway.operations.queues import deletions, queues, sends
from queuegate.gateway.operations.queues.queues import CreateQueue
from queuegate.gateway.operations.queues.sends import SendRequest, queue_for
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage.queue_model import NewMessage, Queue, SentMessage
from queuegate.storage.queues.capacity import capacity_of
from queuegate.storage.storage_errors import (
    QueueDoesNotExist,
    QueueFull,
    QueueNameExists,
    Unavailable,
)
from tests.operations.bounded import bounded, handle_of, held, messages, total
from tests.operations.world import World
from tests.waiting import until_async

# Those that wait for an advisory lock.
_END_WAITING = (
    "SELECT count(pg_terminate_backend(l.pid)) FROM pg_locks AS l"
    " WHERE l.locktype = 'advisory' AND NOT l.granted"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
KINDS = ("jobs", "jobs.fifo", "serial", "urgent")


async def send(
    world: World, queue: Queue, *new: NewMessage, how: SendRequest | None = None
) -> list[SentMessage | QueueFull]:
    def start(reply: Any) -> None:
        sends.send(world.engine, world.caller, queue, list(new), 0, reply, how or SendRequest())

    sent: list[SentMessage | QueueFull] = await answered(start)
    return sent


@pytest.mark.parametrize("name", KINDS)
async def test_a_full_queue_refuses_until_something_is_deleted(world: World, name: str) -> None:
    queue = await bounded(world, name, 2)
    await send(world, queue, *messages(queue, "a", "b"))
    with pytest.raises(QueueFull, match=rf"'{name}' is full: its size is 2"):
        await send(world, queue, *messages(queue, "c"))
    [first] = await world.receive(queue, 1)
    with pytest.raises(QueueFull):
        await send(world, queue, *messages(queue, "in flight is held, too"))
    await answered(deletions.finish, world.engine, queue, [handle_of(first)])
    assert len(await send(world, queue, *messages(queue, "d"))) == 1
    assert await total(world, queue) == 2


@pytest.mark.parametrize("name", KINDS)
async def test_a_call_is_taken_whole_or_not_at_all(world: World, name: str) -> None:
    queue = await bounded(world, name, 3)
    await send(world, queue, *messages(queue, "a", "b"))
    with pytest.raises(QueueFull):
        await send(world, queue, *messages(queue, "c", "d"))
    assert await total(world, queue) == 2
    await send(world, queue, *messages(queue, "e"))
    assert await held(world, queue) == ["a", "b", "e"]


@pytest.mark.parametrize("name", KINDS)
async def test_what_does_not_fit_leaves_its_room_to_others(world: World, name: str) -> None:
    queue = await bounded(world, name, 3)
    calls = [messages(queue, *bodies) for bodies in ("ab", "cd", "e")]
    outcomes = await asyncio.gather(
        *[send(world, queue, *call) for call in calls], return_exceptions=True
    )
    assert [isinstance(one, QueueFull) for one in outcomes] == [False, True, False]
    assert await held(world, queue) == ["a", "b", "e"]


@pytest.mark.parametrize("name", KINDS)
async def test_a_partial_call_is_taken_as_far_as_it_fits(world: World, name: str) -> None:
    queue = await bounded(world, name, 2)
    outcomes = await send(
        world, queue, *messages(queue, "a", "b", "c"), how=SendRequest(is_partial=True)
    )
    assert [isinstance(one, QueueFull) for one in outcomes] == [False, False, True]
    assert await held(world, queue) == ["a", "b"]


@pytest.mark.parametrize("name", KINDS)
async def test_many_senders_never_exceed_the_size(world: World, name: str) -> None:
    queue = await bounded(world, name, 7)
    outcomes = await asyncio.gather(
        *[send(world, queue, *messages(queue, str(n), f"x{n}")) for n in range(40)],
        return_exceptions=True,
    )
    assert sum(isinstance(one, list) for one in outcomes) == 3
    assert await total(world, queue) == 6
    series = world.engine.series.queues[queue.queue_id]
    assert (series.sent, series.was_full) == (6, 74)


async def test_a_repeat_takes_no_room(world: World) -> None:
    queue = await bounded(world, "jobs.fifo", 1)
    first = NewMessage("a", group_id="g", deduplication_id="same")
    [sent] = await send(world, queue, first)
    assert isinstance(sent, SentMessage)
    [again] = await send(world, queue, first)
    assert again == sent._replace(is_duplicate=True, sent_at_us=None)
    with pytest.raises(QueueFull):
        await send(world, queue, first, NewMessage("b", group_id="g", deduplication_id="other"))
    world.clock.move_on(minutes=6)
    with pytest.raises(QueueFull):
        await send(world, queue, first)


async def test_a_serial_queue_has_room_for_a_repeat_when_its_first_is_deleted(
    world: World,
) -> None:
    queue = await bounded(world, "serial", 1)
    [first] = await send(world, queue, *messages(queue, "same"))
    [again] = await send(world, queue, *messages(queue, "same"))
    assert isinstance(first, SentMessage)
    assert isinstance(again, SentMessage)
    assert (again.message_id, again.is_duplicate) == (first.message_id, True)
    with pytest.raises(QueueFull):
        await send(world, queue, *messages(queue, "other"))
    [received] = await world.receive(queue)
    await answered(deletions.finish, world.engine, queue, [handle_of(received)])
    [new] = await send(world, queue, *messages(queue, "same"))
    assert isinstance(new, SentMessage)
    assert not new.is_duplicate
    with pytest.raises(QueueFull):
        await send(world, queue, *messages(queue, "other"))


async def test_the_first_priority_makes_a_bounded_queue_urgent_at_once(world: World) -> None:
    queue = await bounded(world, "jobs", 3)
    await send(world, queue, *messages(queue, "a"))
    urgent = NewMessage("b", priority=7)
    await send(world, queue_for(queue, urgent), urgent)
    found = await world.engine.queues.find(queue.account_id, queue.region, queue.name)
    assert found.has_priorities
    assert [one.body for one in await world.receive(found)] == ["b", "a"]
    with pytest.raises(QueueFull):
        await send(world, found, *messages(found, "c", "d"))


async def test_repeats_within_one_flush_share_one_place(world: World) -> None:
    queue = await bounded(world, "jobs.fifo", 1)
    first = NewMessage("a", group_id="g", deduplication_id="same")
    outcomes = await asyncio.gather(*[send(world, queue, first) for _ in range(5)])
    assert [[one.is_duplicate for one in some] for some in outcomes] == [[False]] + [[True]] * 4  # type: ignore[union-attr]
    assert await total(world, queue) == 1


async def test_what_has_expired_takes_no_room(world: World) -> None:
    queue = await bounded(world, "jobs", 2)
    await send(world, queue, *messages(queue, "a", "b"))
    async with world.engine.database.transaction() as tx:
        await tx.execute("UPDATE messages SET expires_at = $1", world.clock.now())
        assert await capacity_of(tx, [queue.queue_id], world.clock.now()) == {queue.queue_id: 2}
    await send(world, queue, *messages(queue, "c", "d"))
    with pytest.raises(QueueFull):
        await send(world, queue, *messages(queue, "e"))


async def test_room_is_told_of_bounded_queues_alone(world: World) -> None:
    plain, small = await world.make_queue("plain"), await bounded(world, "small", 5)
    await send(world, small, *messages(small, "a"))
    async with world.engine.database.transaction() as tx:
        found = await capacity_of(tx, [plain.queue_id, small.queue_id, 999])
    assert found == {small.queue_id: 4}


@pytest.mark.parametrize("name", KINDS)
async def test_a_bounded_queue_that_is_gone(world: World, name: str) -> None:
    queue = await bounded(world, name, 1)
    async with world.engine.database.transaction() as tx:
        await tx.execute("UPDATE queues SET deleted_at = now()")
    with pytest.raises(QueueDoesNotExist):
        await send(world, queue, *messages(queue, "a"))
    assert world.engine.queues.by_id(queue.queue_id) is None


async def test_a_broken_off_send_leaks_no_room(world: World) -> None:
    queue = await bounded(world, "jobs", 1)
    await send(world, queue, *messages(queue, "first"))
    [first] = await world.receive(queue, 1)
    await answered(deletions.finish, world.engine, queue, [handle_of(first)])
    async with world.engine.database.transaction() as tx:
        assert await capacity_of(tx, [queue.queue_id]) == {queue.queue_id: 1}
        task = asyncio.create_task(send(world, queue, *messages(queue, "lost")))
        await until_async(lambda: tx.fetchval(_END_WAITING), bool)
    with pytest.raises(Unavailable):
        await task
    assert len(await send(world, queue, *messages(queue, "second"))) == 1
    assert await total(world, queue) == 1


async def test_the_size_of_a_queue_stays(world: World) -> None:
    queue = await bounded(world, "jobs", 5)
    assert (await bounded(world, "jobs", 5)).queue_id == queue.queue_id
    with pytest.raises(QueueNameExists, match="max_messages"):
        await bounded(world, "jobs", 6)
    plain = CreateQueue("jobs")
    same = await queues.create_queue(world.engine, world.caller, plain)
    assert same.queue.most_messages == 5
