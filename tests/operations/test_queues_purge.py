"""PurgeQueue: everything goes, once a minute (docs/contract/sqs.md 2.1, 2.3)."""

from __future__ import annotations

import asyncio

import pytest

from queuegate.gateway.faces.aws.aws_refusals import text_of
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import PurgeQueueInProgress
from tests.operations.sqs import (
    get_queue_attributes,
    purge_queue,
)
from tests.operations.world import World


async def count(world: World, queue: Queue) -> list[str]:
    names = (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    )
    found = await get_queue_attributes(world.engine, world.caller, queue, names)
    return [found[name] for name in names]


async def test_purge_in_many_batches_keeps_what_is_sent_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.gateway.operations.queues.queues._PURGED_PER_BATCH", 3)
    queue = await world.make_queue("orders")
    for _ in range(20):
        await world.send(queue, "before")
    purging = asyncio.create_task(purge_queue(world.engine, world.caller, queue))
    await asyncio.gather(*[world.send(queue, "meanwhile") for _ in range(20)])
    await purging
    await world.send(queue, "after")

    seen = []
    while received := await world.receive(queue):
        seen += [message.body for message in received]
    assert "before" not in seen
    assert "after" in seen
    assert await count(world, queue) == ["0", str(len(seen)), "0"]


async def test_second_purge_within_a_minute_is_refused(world: World) -> None:
    queue = await world.make_queue("orders")
    await purge_queue(world.engine, world.caller, queue)

    world.clock.move_on(59)
    with pytest.raises(PurgeQueueInProgress) as refusal:
        await purge_queue(world.engine, world.caller, queue)
    assert text_of(refusal.value, is_query=False) == (
        "Only one PurgeQueue operation on orders is allowed every 60 seconds."
    )

    world.clock.move_on(1)
    await purge_queue(world.engine, world.caller, queue)


async def test_clock_that_was_moved_back_does_not_block_purges(world: World) -> None:
    queue = await world.make_queue("orders")
    world.clock.move_on(days=3)
    await purge_queue(world.engine, world.caller, queue)

    world.clock.move_on(days=-3)
    await purge_queue(world.engine, world.caller, queue)


async def test_of_many_purges_at_once_one_is_done(world: World) -> None:
    queue = await world.make_queue("orders")

    results = await asyncio.gather(
        *[purge_queue(world.engine, world.caller, queue) for _ in range(8)],
        return_exceptions=True,
    )
    assert results.count(None) == 1
    assert sum(isinstance(result, PurgeQueueInProgress) for result in results) == 7


async def test_interval_can_be_switched_off(world: World) -> None:
    world.engine.rules.purge_interval_seconds = 0
    queue = await world.make_queue("orders")

    await purge_queue(world.engine, world.caller, queue)
    await purge_queue(world.engine, world.caller, queue)
