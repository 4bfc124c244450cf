"""Moves, purge, retention, delays and counts of FIFO queues."""

from __future__ import annotations

import asyncio
import json
import uuid

from queuegate.storage.queries import load
from queuegate.storage.queue_model import Counts, Received
from queuegate.storage.queues import fifo_queues as engine
from queuegate.storage.queues.kinds import FIFO
from tests.storage.fifo_queue import (
    RETENTION,
    FifoQueue,
    bodies,
    delete_queue,
    make_message,
    make_queue,
)
from tests.waiting import until_async

RECEIVE_ONE = load("queues/fifo_queues")["receive_one"].text
ARN = "arn:aws:sqs:r:0:orders.fifo"


async def bury(fifo: FifoQueue, target: int, *messages: Received) -> int:
    """Move to the dead-letter queue, as a receive one too many does."""
    async with fifo.database.transaction() as tx:
        return await engine.move_to_dead_letter(
            tx,
            fifo.now,
            source_queue_id=fifo.queue_id,
            target_queue_id=target,
            source_arn=ARN,
            rows=[(m.group_id or "", m.sequence, m.receive_count) for m in messages],
        )


async def waiting(fifo: FifoQueue) -> int:
    """Count the sessions that wait for a lock."""
    async with fifo.database.transaction() as tx:
        count: int = await tx.fetchval(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            " AND datname = current_database()"
        )
        return count


async def total(fifo: FifoQueue) -> int:
    counted = await fifo.counts()
    return counted.visible + counted.in_flight + counted.delayed


# Dead-letter queue


async def test_dead_letter_move_keeps_and_restarts_what_it_should(fifo: FifoQueue) -> None:
    target = await make_queue(fifo.database, "dead.fifo")
    message = make_message("g", "bad")._replace(attributes="{}", system='{"AWSTraceHeader": "t"}')
    await fifo.send(message, make_message("g", "next"))
    for _ in range(2):
        await fifo.receive(1, 0)
    [third] = await fifo.receive(1)
    assert third.receive_count == 3
    fifo.wait(5)
    assert await bury(fifo, target, third) == 1
    assert bodies(await fifo.receive()) == ["next"]
    [dead] = await fifo.receive(queue_id=target)
    assert dead.receive_count == 3
    assert (dead.body, dead.sender_id, dead.attributes) == ("bad", "sender", "{}")
    assert str(dead.message_id) == dead.deduplication_id == message.message_id
    assert json.loads(dead.system or "") == {"AWSTraceHeader": "t", "DeadLetterQueueSourceArn": ARN}
    assert dead.sent_at_ms >= third.sent_at_ms + 5000
    assert dead.sequence > third.sequence
    assert dead.group_id == "g"
    # The count goes on in the dead-letter queue, and its handle works.
    fifo.wait(31)
    [again] = await fifo.receive(queue_id=target)
    assert again.receive_count == 4
    assert await fifo.delete(dead, again) == ["expired"] * 2 or await fifo.delete(again) == ["gone"]


async def test_dead_letter_move_to_the_queue_itself(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message("g", name) for name in ("a", "b", "c")])
    first = await fifo.receive(2)
    assert await bury(fifo, fifo.queue_id, first[0]) == 1
    # b is still in flight and blocks what follows, the moved one last.
    assert await fifo.receive() == []
    await fifo.delete(first[1])
    found = await fifo.receive()
    assert [(m.body, m.receive_count) for m in found] == [("c", 1), ("a", 1)]
    assert await fifo.delete(*found) == ["ok", "ok"]
    assert await total(fifo) == await fifo.rows("fifo_groups") == 0


async def test_dead_letter_move_of_the_only_message(fifo: FifoQueue) -> None:
    target = await make_queue(fifo.database, "dead.fifo")
    await fifo.send(make_message("g"))
    assert await bury(fifo, target, *await fifo.receive()) == 1
    assert await fifo.rows("fifo_groups") == await total(fifo) == 0


async def test_dead_letter_move_passes_over_what_changed(fifo: FifoQueue) -> None:
    target = await make_queue(fifo.database, "dead.fifo")
    await fifo.send(make_message("g"), make_message("h"), make_message("i"))
    [first, second, third] = await fifo.receive(10, 5)
    await fifo.delete(first)
    fifo.wait(6)
    assert len(await fifo.receive(1)) == 1
    assert await bury(fifo, target, first, second, third) == 1
    assert await total(fifo) == 1


async def test_dead_letter_move_to_a_deleted_queue(fifo: FifoQueue) -> None:
    target = await make_queue(fifo.database, "dead.fifo")
    await delete_queue(fifo.database, target)
    await fifo.send(make_message("g"))
    found = await fifo.receive()
    assert await bury(fifo, target, *found) == 0
    assert await fifo.delete(*found) == ["ok"]


async def test_dead_letter_move_leaves_a_group_that_came_back(fifo: FifoQueue) -> None:
    """A message received during the move is redelivered after its timeout."""
    database = fifo.database
    target = await make_queue(database, "dead.fifo")
    await fifo.send(make_message("g", "first"))
    found = await fifo.receive()
    await fifo.delete(*found)

    async with database.transaction() as receiver:
        async with database.transaction() as sender:
            await sender.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended('g', $1::int))", target
            )
            move = asyncio.ensure_future(bury(fifo, target, *found))
            await until_async(lambda: waiting(fifo))
            await fifo.send(make_message("g", "second"))
            fifo.wait(1)
            rows = await receiver.fetch(
                RECEIVE_ONE, fifo.now, [fifo.queue_id], [1], [RETENTION], [30_000], None
            )
            assert [row["body"] for row in rows] == ["second"]
        await until_async(lambda: waiting(fifo), lambda found: move.done() or found > 0)
    assert await move == 0
    fifo.wait(31)
    assert bodies(await fifo.receive()) == ["second"]


# Move tasks


async def move_all(fifo: FifoQueue, source: int, target: int, limit: int = 10) -> int:
    moved = 0
    while True:
        async with fifo.database.transaction() as tx:
            found = await engine.take_for_move(
                tx, fifo.now, source, retention_seconds=RETENTION, limit=limit
            )
            if not found:
                return moved
            rows = [(m.group_id, m.sequence, target, str(uuid.uuid4())) for m in found]
            moved += await engine.move(tx, fifo.now, source, rows)


async def test_move_back_to_the_source(fifo: FifoQueue) -> None:
    dead = await make_queue(fifo.database, "dead.fifo")
    await fifo.send(*[make_message(f"g{n % 3}", str(n)) for n in range(9)])
    while found := await fifo.receive():
        await bury(fifo, dead, *found)
    async with fifo.database.transaction() as tx:
        taken = await engine.take_for_move(tx, fifo.now, dead, retention_seconds=RETENTION, limit=4)
    assert len(taken) == 4
    assert {m.dead_letter_source_arn for m in taken} == {ARN}
    fifo.wait(60)
    assert await move_all(fifo, dead, fifo.queue_id, 4) == 9
    found = await fifo.receive()
    by_group = {m.group_id: [o.body for o in found if o.group_id == m.group_id] for m in found}
    assert by_group == {"g0": ["0", "3", "6"], "g1": ["1", "4", "7"], "g2": ["2", "5", "8"]}
    assert {m.receive_count for m in found} == {1}
    assert {m.system for m in found} == {None}
    assert not {m.message_id for m in taken} & {m.message_id for m in found}
    assert await fifo.delete(*found) == ["ok"] * 9
    assert await fifo.rows("fifo_groups") == await total(fifo) == 0


async def test_move_leaves_what_is_in_flight(fifo: FifoQueue) -> None:
    target = await make_queue(fifo.database, "other.fifo")
    await fifo.send(*[make_message(group, group) for group in ("a", "a", "b")])
    held = await fifo.receive(1)
    assert await move_all(fifo, fifo.queue_id, target) == 1
    assert bodies(await fifo.receive(queue_id=target)) == ["b"]
    await fifo.delete(*held)
    assert await move_all(fifo, fifo.queue_id, target) == 1
    assert await total(fifo) == 0


async def test_move_takes_a_deep_group_in_order(fifo: FifoQueue) -> None:
    target = await make_queue(fifo.database, "other.fifo")
    await fifo.send(*[make_message("g", str(n)) for n in range(10)])
    await fifo.send(*[make_message("g", str(n)) for n in range(10, 20)])
    await fifo.receive(10, 0)
    fifo.wait(1)
    assert await move_all(fifo, fifo.queue_id, target, 7) == 20
    assert bodies(await fifo.receive(queue_id=target)) == [str(n) for n in range(10)]


# Purge


async def purge(fifo: FifoQueue, limit: int = 7) -> None:
    async with fifo.database.transaction() as tx:
        last = await FIFO.last_number(tx)
    gone = 1
    while gone:
        async with fifo.database.transaction() as tx:
            gone = await engine.purge(tx, fifo.queue_id, up_to=last, limit=limit)


async def test_purge_takes_everything_and_forgets_ids(fifo: FifoQueue) -> None:
    other = await make_queue(fifo.database, "other.fifo")
    await fifo.send(make_message("g"), queue_id=other)
    await fifo.send(*[make_message("deep", str(n), f"d{n}") for n in range(20)])
    await fifo.send(*[make_message(f"g{n}", delay_seconds=n) for n in range(10)])
    held = await fifo.receive(5, attempt_id="a")
    await purge(fifo)
    assert await total(fifo) == 0
    for table in ("fifo_messages", "fifo_groups", "fifo_dedup", "fifo_attempts"):
        assert await fifo.rows(table) == 0
    assert await fifo.delete(*held) == ["gone"] * 5
    assert [row[2] for row in await fifo.send(make_message("deep", "new", "d1"))] == [False]
    assert bodies(await fifo.receive(attempt_id="a")) == ["new"]
    assert len(await fifo.receive(queue_id=other)) == 1


async def test_purge_spares_what_is_sent_after_its_start(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message("g", "old") for _ in range(3)])
    await fifo.receive(2)
    async with fifo.database.transaction() as tx:
        last = await FIFO.last_number(tx)
    await fifo.send(make_message("g", "new", "kept"))
    async with fifo.database.transaction() as tx:
        await engine.purge(tx, fifo.queue_id, up_to=last)
    assert bodies(await fifo.receive()) == ["new"]
    assert (await fifo.send(make_message("g", "new", "kept")))[0][2]


async def test_rest_of_a_deleted_queue(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message(f"g{n % 4}") for n in range(30)])
    await fifo.receive(10)
    await delete_queue(fifo.database, fifo.queue_id)
    gone: list[int] = []
    while not gone or gone[-1]:
        async with fifo.database.transaction() as tx:
            gone.append(await engine.delete_batch_of_deleted_queue(tx, fifo.queue_id, 7))
    assert sum(gone) == 30 + 30 + 4
    assert await total(fifo) == 0
    assert await fifo.rows("fifo_groups") == 0


# Retention


async def expire(fifo: FifoQueue, retention: int, limit: int = 100) -> int:
    async with fifo.database.transaction() as tx:
        return await engine.expire(tx, fifo.now, fifo.queue_id, retention, limit)


async def test_expired_messages_are_skipped_and_removed(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message("g", f"old {n}") for n in range(12)])
    fifo.wait(40)
    await fifo.send(make_message("g", "young"), make_message("h", "young too"))
    fifo.wait(20)
    # The first one comes upon the expired front of a group, the second finds it removed.
    found = await fifo.receive(retention=60) + await fifo.receive(retention=60)
    assert bodies(found) == ["young too", "young"]
    assert await total(fifo) == 2


async def test_expired_message_in_flight_keeps_its_group(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g", "a"), make_message("g", "b"))
    [held] = await fifo.receive(1, 100)
    fifo.wait(70)
    await fifo.send(make_message("g", "c"))
    assert await expire(fifo, 60) == 0
    assert await fifo.receive(retention=60) == []
    assert await fifo.delete(held) == ["ok"]
    assert bodies(await fifo.receive(retention=60)) == ["c"]


async def test_expired_message_in_flight_behind_one_that_came_back(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g", "a"), make_message("g", "b"))
    _, second = await fifo.receive(2, 10)
    assert await fifo.hide(second, 1000) == "ok"
    fifo.wait(80)
    assert await expire(fifo, 60) == 1
    assert await fifo.delete(second) == ["ok"]
    assert await total(fifo) == 0


async def test_expired_after_its_timeout(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g", "a"), make_message("h", "b"))
    held = await fifo.receive(1, 10)
    fifo.wait(65)
    assert await fifo.receive(retention=60) == []
    assert await fifo.delete(*held) == ["gone"]
    assert await fifo.rows("fifo_groups") == await total(fifo) == 0


async def test_deleting_what_retention_has_ended_is_fine(fifo: FifoQueue) -> None:
    short = FifoQueue(
        fifo.database, await make_queue(fifo.database, "s.fifo", MessageRetentionPeriod="60")
    )
    for queue, retention in ((fifo, RETENTION), (short, 60)):
        await queue.send(make_message("g", "a"), make_message("h", "b"))
        first, second = await queue.receive(visibility=10)
        queue.wait(retention - 5)
        assert await queue.delete(first) == ["expired"]
        queue.wait(6)
        # No worker has been here.
        assert await queue.rows("fifo_messages") == 2
        young = make_message("i", "c")
        await queue.send(young)
        [third] = await queue.receive(visibility=0, retention=retention)
        queue.wait(1)
        assert await queue.delete(first, third, second) == ["gone", "expired", "gone"]
        # In flight it can be deleted at any age.
        assert bodies(await queue.receive(retention=retention)) == ["c"]
    await short.lanes.close()


async def test_expire_works_in_batches(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message(f"g{n % 3}") for n in range(25)])
    await fifo.send(*[make_message("deep") for _ in range(25)])
    fifo.wait(61)
    await fifo.send(make_message("deep", "young"))
    gone: list[int] = []
    while not gone or gone[-1]:
        gone.append(await expire(fifo, 60, 10))
    assert gone == [10, 10, 10, 10, 10, 0]
    assert bodies(await fifo.receive(retention=60)) == ["young"]


async def test_clean_dedup(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message("g") for _ in range(5)])
    await fifo.receive(attempt_id="a")
    fifo.wait(200)
    await fifo.send(make_message("g", "young", "young"))
    fifo.wait(101)
    cleaned = []
    for _ in range(3):
        async with fifo.database.transaction() as tx:
            cleaned.append(await engine.clean_dedup(tx, fifo.now, 3))
            await engine.clean_attempts(tx, fifo.now, 3)
    assert cleaned == [3, 2, 0]
    assert await fifo.rows("fifo_attempts") == 0
    assert (await fifo.send(make_message("g", dedup="young")))[0][2]


# Counts and delays


async def test_counts(fifo: FifoQueue) -> None:
    async with fifo.database.transaction() as tx:
        await tx.execute('UPDATE queues SET attributes = \'{"DelaySeconds": "10"}\'')
    await fifo.send(*[make_message("g") for _ in range(5)])
    fifo.wait(1)
    await fifo.send(make_message("g", delay_seconds=10), make_message("h", delay_seconds=10))
    assert await fifo.counts() == Counts(visible=5, in_flight=0, delayed=2)
    found = await fifo.receive(3)
    assert await fifo.counts() == Counts(visible=2, in_flight=3, delayed=2)
    # The head is given back: the others stay in flight.
    await fifo.hide(found[0], 0)
    assert await fifo.counts() == Counts(visible=3, in_flight=2, delayed=2)
    await fifo.delete(found[1])
    assert await fifo.counts() == Counts(visible=3, in_flight=1, delayed=2)
    fifo.wait(40)
    assert await fifo.counts() == Counts(visible=6, in_flight=0, delayed=0)


async def set_delay(fifo: FifoQueue, seconds: int) -> int:
    async with fifo.database.transaction() as tx:
        return await engine.set_delay(tx, fifo.now, fifo.queue_id, seconds)


async def test_delay_is_retroactive(fifo: FifoQueue) -> None:
    await fifo.send(make_message("old", "old"))
    fifo.wait(30)
    await fifo.send(make_message("held", "held"), make_message("held", "behind"))
    await fifo.send(make_message("new", "new"))
    assert bodies(await fifo.receive(1)) == ["old"]
    held = await fifo.receive(1)
    assert await set_delay(fifo, 20) == 2
    assert await fifo.receive() == []
    await fifo.delete(*held)
    assert await fifo.receive() == []
    assert await set_delay(fifo, 10) == 2
    fifo.wait(10)
    assert bodies(await fifo.receive()) == ["behind", "new"]


async def test_delay_can_be_lifted(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g", delay_seconds=900))
    assert await fifo.receive() == []
    assert await set_delay(fifo, 0) == 1
    assert len(await fifo.receive()) == 1
    assert await set_delay(fifo, 900) == 0


async def test_a_delete_and_a_new_delay_wait_in_one_order(fifo: FifoQueue) -> None:
    """The delete waits for "c"; "a" is created again meanwhile and locked by the new delay."""
    lock = "SELECT FROM fifo_groups WHERE queue_id = $1 AND group_id = 'c' FOR NO KEY UPDATE"
    await fifo.send(make_message("a"), make_message("c"))
    stale, held = await fifo.receive()
    assert (stale.group_id, held.group_id) == ("a", "c")
    await fifo.delete(stale)
    async with fifo.database.transaction() as tx:
        await tx.execute(lock, fifo.queue_id)
        deletion = asyncio.ensure_future(fifo.delete(stale, held))
        await until_async(lambda: waiting(fifo))
        await fifo.send(make_message("a", "second"))
        change = asyncio.ensure_future(set_delay(fifo, 60))
        await until_async(lambda: waiting(fifo), lambda found: found == 2)
    assert await change == 1
    assert await deletion == ["gone", "ok"]


async def test_everything_at_once(fifo: FifoQueue) -> None:
    """Workers, purge and lanes in parallel: nothing deadlocks and the books balance."""
    target = await make_queue(fifo.database, "other.fifo")

    async def churn() -> None:
        for _ in range(15):
            await fifo.send(*[make_message(f"g{n % 7}") for n in range(10)])
            found = await fifo.receive(10)
            if found:
                await bury(fifo, target, found[0])
                await fifo.delete(*found)

    async def keep() -> None:
        for _ in range(10):
            await set_delay(fifo, 0)
            await expire(fifo, RETENTION)
            await move_all(fifo, target, fifo.queue_id, 3)

    await asyncio.gather(churn(), churn(), keep(), purge(fifo), churn())
    fifo.wait(60)
    await move_all(fifo, target, fifo.queue_id)
    expected = await fifo.rows("fifo_messages")
    assert await total(fifo) == expected
    got = 0
    while found := await fifo.receive():
        got += len(found)
        await fifo.delete(*found)
    assert got == expected
    assert await fifo.rows("fifo_groups") == await total(fifo) == 0
