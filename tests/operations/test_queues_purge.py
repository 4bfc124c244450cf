"""PurgeQueue: everything goes, once a minute (docs/contract/sqs.md 2.1, 2.3)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from gateway.operations.caller import Caller
from gateway.operations.engine import Engine
from gateway.operations.queues import (
    GetQueueAttributes,
    PurgeQueue,
    get_queue_attributes,
    purge_queue,
)
from storage.errors import PurgeQueueInProgress
from storage.model import Queue
from tests.operations.conftest import MakeQueue, ReceiveFrom, SendTo, TestClock


async def count(engine: Engine, caller: Caller, queue: Queue) -> list[str]:
    names = (
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    )
    found = await get_queue_attributes(engine, caller, GetQueueAttributes(queue, names))
    return [found[name] for name in names]


async def test_purge_removes_visible_in_flight_and_delayed_messages(
    engine: Engine, caller: Caller, make_queue: MakeQueue, send: SendTo, receive: ReceiveFrom
) -> None:
    queue = await make_queue("orders")
    other = await make_queue("other")
    for _ in range(4):
        await send(queue)
    await send(other)
    await send(queue, delay_seconds=60)
    assert len(await receive(queue, 2)) == 2

    await purge_queue(engine, caller, PurgeQueue(queue))

    assert await count(engine, caller, queue) == ["0", "0", "0"]
    assert await count(engine, caller, other) == ["1", "0", "0"]
    await send(queue, "later")
    assert [message.body for message in await receive(queue)] == ["later"]


async def test_purge_in_many_batches_keeps_what_is_sent_meanwhile(
    engine: Engine,
    caller: Caller,
    make_queue: MakeQueue,
    send: SendTo,
    receive: ReceiveFrom,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.operations.queue_contents._PURGED_PER_BATCH", 3)
    queue = await make_queue("orders")
    for _ in range(20):
        await send(queue, "before")
    purging = asyncio.create_task(purge_queue(engine, caller, PurgeQueue(queue)))
    await asyncio.gather(*[send(queue, "meanwhile") for _ in range(20)])
    await purging
    await send(queue, "after")

    seen = []
    while received := await receive(queue):
        seen += [message.body for message in received]
    assert "before" not in seen
    assert "after" in seen
    assert await count(engine, caller, queue) == ["0", str(len(seen)), "0"]


async def test_second_purge_within_a_minute_is_refused(
    engine: Engine, caller: Caller, make_queue: MakeQueue, clock: TestClock
) -> None:
    queue = await make_queue("orders")
    await purge_queue(engine, caller, PurgeQueue(queue))
    assert clock.fixed is not None

    clock.fixed += timedelta(seconds=59)
    with pytest.raises(PurgeQueueInProgress) as refusal:
        await purge_queue(engine, caller, PurgeQueue(queue))
    assert str(refusal.value) == (
        "Only one PurgeQueue operation on orders is allowed every 60 seconds."
    )

    clock.fixed += timedelta(seconds=1)
    await purge_queue(engine, caller, PurgeQueue(queue))


async def test_clock_that_was_moved_back_does_not_block_purges(
    engine: Engine, caller: Caller, make_queue: MakeQueue, clock: TestClock
) -> None:
    queue = await make_queue("orders")
    assert clock.fixed is not None
    clock.fixed += timedelta(days=3)
    await purge_queue(engine, caller, PurgeQueue(queue))

    clock.fixed -= timedelta(days=3)
    await purge_queue(engine, caller, PurgeQueue(queue))


async def test_of_many_purges_at_once_one_is_done(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    queue = await make_queue("orders")

    results = await asyncio.gather(
        *[purge_queue(engine, caller, PurgeQueue(queue)) for _ in range(8)],
        return_exceptions=True,
    )
    assert results.count(None) == 1
    assert sum(isinstance(result, PurgeQueueInProgress) for result in results) == 7


async def test_interval_can_be_switched_off(
    engine: Engine, caller: Caller, make_queue: MakeQueue
) -> None:
    engine.rules.purge_interval_seconds = 0
    queue = await make_queue("orders")

    await purge_queue(engine, caller, PurgeQueue(queue))
    await purge_queue(engine, caller, PurgeQueue(queue))


async def test_purge_of_a_fifo_queue_forgets_its_deduplication_ids(
    engine: Engine, caller: Caller, make_queue: MakeQueue, send: SendTo, receive: ReceiveFrom
) -> None:
    queue = await make_queue("orders.fifo")
    for i in range(6):
        await send(queue, f"before {i}", group_id=f"g{i % 2}", deduplication_id=f"d{i}")
    assert await receive(queue, 1)

    await purge_queue(engine, caller, PurgeQueue(queue))
    assert await count(engine, caller, queue) == ["0", "0", "0"]

    await send(queue, "again", group_id="g0", deduplication_id="d0")
    assert [message.body for message in await receive(queue)] == ["again"]
