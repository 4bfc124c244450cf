"""queuegate_queue_oldest_message_age_seconds: the oldest visible message of every kind of queue."""

from __future__ import annotations

import asyncpg

from queuegate.storage.queues import depths
from tests.operations.sqs import delete_queue
from tests.operations.world import World


async def _ages(world: World, most: int = 1_000) -> dict[str, int]:
    async with world.engine.database.transaction() as tx:
        now, marks = world.clock.now(), world.engine.standard.marks()
        found = await depths.oldest_ages(tx, now, most, marks)
    return {name: round(age) for _, _, name, age in found}


async def test_the_oldest_visible_message_counts(world: World) -> None:
    standard = await world.make_queue("standard", VisibilityTimeout="30")
    fifo = await world.make_queue("groups.fifo", VisibilityTimeout="30")
    gone = await world.make_queue("gone")
    await world.make_queue("empty")
    for queue in (standard, gone):
        await world.send(queue)
    for group in ("a", "b"):
        await world.send(fifo, group_id=group, deduplication_id=group)
        world.clock.move_on(10)
    await delete_queue(world.engine, world.caller, gone)
    await world.send(standard)
    assert await _ages(world) == {"standard": 20, "groups.fifo": 20}
    assert await _ages(world, 1) in ({"standard": 20}, {"groups.fifo": 20})
    # In flight, the first ones do not count; afterwards they do again.
    assert len(await world.receive(standard, 1)) == 1
    assert len(await world.receive(fifo, 1)) == 1
    world.clock.move_on(5)
    assert await _ages(world) == {"standard": 5, "groups.fifo": 15}
    world.clock.move_on(26)
    assert await _ages(world) == {"standard": 51, "groups.fifo": 51}


async def test_delayed_and_drained_queues_have_no_age(world: World) -> None:
    delayed, drained = await world.make_queue("delayed"), await world.make_queue("drained")
    await world.send(delayed, delay_seconds=60)
    await world.send(drained)
    assert len(await world.receive(drained)) == 1
    assert await _ages(world) == {}
    world.clock.move_on(61)
    assert await _ages(world) == {"delayed": 61, "drained": 61}


async def test_a_message_of_another_process_left_of_a_watermark_counts(world: World) -> None:
    """Its commit took longer than a receive here, which found nothing."""
    queue = await world.make_queue("orders")
    assert await world.receive(queue) == []
    [mark] = world.engine.standard.marks().values()
    connection = await asyncpg.connect(world.engine.database.dsn)
    try:
        await connection.execute(
            "INSERT INTO queuegate.messages"
            " (visible_at, sent_at, queue_id, message_id, sender_id, body)"
            " VALUES ($1, $1, $2, gen_random_uuid(), 'x', 'late')",
            mark,
            queue.queue_id,
        )
        await connection.execute(
            "INSERT INTO queuegate.queue_deltas VALUES ($1, 1)", queue.queue_id
        )
    finally:
        await connection.close()
    assert [*(await _ages(world))] == ["orders"]
