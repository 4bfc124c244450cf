"""Deleting and hiding messages of standard queues for whoever received them last."""

from __future__ import annotations

import asyncio

from queuegate.storage.database import Database
from queuegate.storage.queue_model import Handle, Received
from queuegate.storage.queues import standard_queues
from queuegate.storage.queues.messages import Delete, DeleteLast
from tests.storage.fifo_queue import call
from tests.storage.standard_queue import StandardQueue, handle_of, make_queue
from tests.storage.test_archives import archived, set_archiving


async def _finish(queue: StandardQueue, *messages: Received | Handle) -> list[str]:
    handles = [handle_of(one) if isinstance(one, Received) else one for one in messages]
    found = await call(queue.lanes.delete, lambda reply: DeleteLast(handles, reply))
    assert isinstance(found, list)
    return found


async def _hide(queue: StandardQueue, *messages: Received, seconds: int = 0) -> list[str]:
    async with queue.database.transaction() as tx:
        outcomes = await standard_queues.hide_last(
            tx, queue.clock.now(), [handle_of(one) for one in messages], seconds
        )
    return [*outcomes]


async def test_only_the_last_receiver_deletes(standard: StandardQueue) -> None:
    await standard.send("a", "b")
    early = await standard.receive(visibility=0)
    late = await standard.receive(limit=1, visibility=0)
    assert await _finish(standard, *early) == ["expired", "ok"]
    assert await _finish(standard, *late) == ["ok"]
    assert await _finish(standard, *early, *late) == ["gone"] * 3
    assert await standard.counted() == (0, 0)


async def test_a_late_delete_counts_while_nobody_has_received_it_since(
    standard: StandardQueue,
) -> None:
    await standard.send("a")
    [message] = await standard.receive(visibility=5)
    standard.clock.wait(60)
    assert await _finish(standard, message, message) == ["ok", "gone"]


async def test_two_receives_of_one_message_in_one_flush(standard: StandardQueue) -> None:
    await standard.send("a", "b")
    [one, two] = await standard.receive(visibility=0)
    [again] = await standard.receive(limit=1, visibility=0)
    assert again.sequence == one.sequence
    assert await _finish(standard, one, two, again) == ["gone", "ok", "ok"]


async def test_of_many_at_once_one_has_it(standard: StandardQueue) -> None:
    """In one flush and in many, of several processes, beside deletes that ask nothing."""
    queues = [standard, standard.elsewhere()]
    await standard.send(*[str(number) for number in range(10)])
    messages = await standard.receive()
    calls = [_finish(queue, *messages) for queue in queues for _ in range(5)]
    outcomes = await asyncio.gather(*calls)
    assert sorted(one for some in outcomes for one in some) == ["gone"] * 90 + ["ok"] * 10
    assert await standard.counted() == (0, 0)
    await queues[1].lanes.close()


async def test_several_queues_and_archives_share_a_flush(
    database: Database, standard: StandardQueue
) -> None:
    other = StandardQueue(database, await make_queue(database, "other"), standard.clock)
    await set_archiving(database, standard.queue_id)
    for queue in (standard, other):
        await queue.send("a", "b", "c")
    mine, theirs = await standard.receive(visibility=0), await other.receive()
    await standard.receive(limit=1)
    lane = standard.lanes.delete
    flushes: list[int] = []
    lane.observe = flushes.append
    absent = (other.queue_id, None, 1 << 40, 1)
    outcomes = await asyncio.gather(
        call(lane, lambda reply: Delete([handle_of(theirs[0])], reply)),
        _finish(standard, *mine),
        _finish(standard, *theirs, absent),
        call(lane, lambda reply: Delete([handle_of(theirs[1])], reply, archives=True)),
    )
    assert flushes == [2, 2]
    assert [*outcomes] == [["ok"], ["expired", "ok", "ok"], ["gone", "gone", "ok", "gone"], ["ok"]]
    assert await archived(standard) == ["b", "c"]
    assert await other.counted() == (0, 0)
    assert await standard.counted() == (1, 1)
    await other.lanes.close()


async def test_only_the_last_receiver_hides(standard: StandardQueue) -> None:
    await standard.send("a", "b", "c")
    early = await standard.receive(visibility=0)
    late = await standard.receive(limit=1, visibility=30)
    await standard.delete(early[2])
    assert await _hide(standard, *early, seconds=60) == ["expired", "ok", "gone"]
    assert await _hide(standard, early[0], *late) == ["expired", "ok"]
    again = await standard.receive()
    assert [(one.body, one.receive_count) for one in again] == [("a", 3)]
    standard.clock.wait(61)
    assert [one.body for one in await standard.receive()] == ["a", "b"]
