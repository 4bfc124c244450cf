"""Queues that hold only so many messages, for tests."""

from __future__ import annotations

from queuegate.gateway.operations.queues import deletions, queues
from queuegate.gateway.operations.queues.queues import CreateQueue
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.scheduler.sweeps import send_waiting
from queuegate.storage.queue_model import Handle, NewMessage, Queue, Received
from tests.operations.world import World


async def bounded(world: World, name: str, most: int) -> Queue:
    """A queue of that size, of the kind that the beginning or the end of its name says."""
    request = CreateQueue(
        name,
        most_messages=most,
        is_serial=name.startswith("serial"),
        has_priorities=name.startswith("urgent"),
    )
    return (await queues.create_queue(world.engine, world.caller, request)).queue


async def held(world: World, queue: Queue) -> list[str]:
    """The bodies of all that the queue holds, in the order of sending."""
    table = "fifo_messages" if queue.kind.has_groups else "messages"
    async with world.engine.database.transaction() as tx:
        rows = await tx.fetch(f"SELECT body FROM {table} ORDER BY sequence")
    return [row["body"] for row in rows]


def messages(queue: Queue, *bodies: str) -> list[NewMessage]:
    group = "g" if queue.kind.has_groups else None
    return [NewMessage(body, group_id=group) for body in bodies]


async def total(world: World, queue: Queue) -> int:
    async with world.engine.database.transaction() as tx:
        counts = await queue.kind.count(tx, world.clock.now(), queue.queue_id)
    return counts.visible + counts.in_flight + counts.delayed


def handle_of(one: Received) -> Handle:
    return one.queue_id, one.group_id, one.sequence, one.receive_count


async def fill(world: World, queue: Queue, *bodies: str) -> None:
    """Send to the queue, with the body as deduplication id."""
    more = {}
    for body in bodies:
        if queue.kind.has_groups:
            more = {"group_id": "g", "deduplication_id": body}
        await world.send(queue, body, **more)


async def drain(world: World, queue: Queue, count: int = 1) -> list[str]:
    """Receive and delete; the bodies."""
    found = await world.receive(queue, count)
    if found:
        await answered(deletions.finish, world.engine, queue, [handle_of(one) for one in found])
    return [one.body for one in found]


async def let_in(world: World) -> int:
    """One round of the worker that sends what waits."""
    job = send_waiting(world.engine.wakeups.arrived).job(world.engine.database, world.clock.now)
    return await job.run_round(1_000)


async def waiting_count(world: World) -> int:
    async with world.engine.database.transaction() as tx:
        count: int = await tx.fetchval("SELECT count(*) FROM waiting_messages")
    return count
