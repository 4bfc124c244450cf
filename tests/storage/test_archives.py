"""Archives: what a receiver deletes is kept, once, in the transaction that deletes it."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import asyncpg
import pytest

from queuegate.storage.database import SCHEMA, Database
from queuegate.storage.notifications import Notifications
from queuegate.storage.queue_model import ArchivedCopy, Handle, Queue, Received
from queuegate.storage.queues import archives, messages, stored_queues
from queuegate.storage.queues import standard_queues as standard_storage
from queuegate.storage.queues.archives import ArchiveFilter
from queuegate.storage.queues.fifo_lanes import FifoLanes
from queuegate.storage.queues.messages import Delete
from queuegate.storage.queues.standard_lanes import StandardLanes
from tests.storage.fifo_queue import START, FifoQueue, call
from tests.storage.fifo_queue import make_message as make_fifo_message
from tests.storage.standard_queue import StandardQueue, handle_of, make_queue
from tests.waiting import until_async

MUCH = 1 << 40
Either = StandardQueue | FifoQueue


async def set_archiving(database: Database, queue_id: int, on: bool = True) -> None:
    async with database.transaction() as tx:
        await stored_queues.set_archiving(tx, queue_id, on, None)


async def delete(queue: Either, *messages: Received) -> object:
    """As operations do on a queue that archives."""
    handles = [handle_of(message) for message in messages]
    lanes: StandardLanes | FifoLanes = queue.lanes
    return await call(lanes.delete, lambda reply: Delete(handles, reply, archives=True))


async def kept(database: Database, queue_id: int) -> list[ArchivedCopy]:
    async with database.transaction() as tx:
        found = await archives.find(tx, queue_id, ArchiveFilter(), limit=10_000, most_bytes=MUCH)
        return await archives.read(tx, queue_id, found.sequences)


async def archived(queue: Either) -> list[str]:
    return [one.message.body for one in await kept(queue.database, queue.queue_id)]


async def send(queue: Either, *bodies: str, group: str = "g") -> None:
    if isinstance(queue, FifoQueue):
        await queue.send(*(make_fifo_message(group, body) for body in bodies))
    else:
        await queue.send(*bodies)


@pytest.fixture(params=["standard", "fifo"])
async def queue(request: pytest.FixtureRequest, standard: StandardQueue, fifo: FifoQueue) -> Either:
    """A queue of each kind that archives."""
    queue: Either = standard if request.param == "standard" else fifo
    await set_archiving(queue.database, queue.queue_id)
    return queue


async def find_queue(database: Database, queue_id: int) -> Queue:
    async with database.transaction() as tx:
        found = await stored_queues.find_by_id(tx, queue_id)
    assert found is not None
    return found


async def test_deleted_messages_are_kept_whole(queue: Either) -> None:
    await send(queue, "a")
    [first] = await queue.receive(visibility=0)
    [message] = await queue.receive()
    outcome = await delete(queue, message)
    assert outcome == ["ok"]

    [one] = await kept(queue.database, queue.queue_id)
    assert one.message == message._replace(leased_at=None)
    assert (message.body, message.receive_count) == ("a", 2)
    assert first.first_received_at_ms == message.first_received_at_ms
    assert START <= one.sent_at < one.archived_at < START + timedelta(seconds=1)


async def test_repeated_delete_keeps_nothing_twice(queue: Either) -> None:
    await send(queue, "a", "b")
    messages = await queue.receive()
    await delete(queue, *messages)
    assert await delete(queue, *messages) == ["gone", "gone"]
    assert await archived(queue) == ["a", "b"]


async def test_of_deletes_at_once_one_has_the_message(queue: Either) -> None:
    """In one flush and in many, of one process and of several."""
    others = [queue]
    for _ in range(2):
        other: Either = (
            FifoQueue(queue.database, queue.queue_id, queue.lanes._now)
            if isinstance(queue, FifoQueue)
            else queue.elsewhere()
        )
        others.append(other)
    bodies = [f"{number:02}" for number in range(40)]
    for start in range(0, 40, 10):
        await send(queue, *bodies[start : start + 10], group=f"g{start}")
    messages: list[Received] = []
    while len(messages) < 40:
        messages += await queue.receive()
    calls = [delete(one, message) for message in messages for one in others for _ in range(2)]
    outcomes = await asyncio.gather(*calls)
    wins = [one for one in outcomes if one != ["gone"]]
    assert len(wins) == 40
    assert sorted(await archived(queue)) == bodies
    for other in others[1:]:
        await other.lanes.close()


async def test_queue_without_an_archive_keeps_nothing(
    standard: StandardQueue, fifo: FifoQueue
) -> None:
    """Whatever the entry was made for: the row of the queue decides when it is deleted."""
    for queue in (standard, fifo):
        await send(queue, "a", "b")
        one, two = await queue.receive()
        await set_archiving(queue.database, queue.queue_id)
        await set_archiving(queue.database, queue.queue_id, False)
        await delete(queue, one)
        await queue.delete(two)
        assert await archived(queue) == []
        assert await queue.receive() == []


async def test_a_change_is_told_with_its_commit(database: Database) -> None:
    queue_id = await make_queue(database)
    heard: asyncio.Queue[str] = asyncio.Queue()
    listening = await Notifications.open(database, heard.put_nowait, lambda: None)
    await set_archiving(database, queue_id)
    async with asyncio.timeout(10):
        assert await heard.get() == f"* Q {queue_id}:1"
    await listening.close()


async def test_deletes_for_queues_with_and_without_share_a_flush(
    database: Database, standard: StandardQueue
) -> None:
    plain = StandardQueue(database, await make_queue(database, "plain"), standard.clock)
    third = StandardQueue(database, await make_queue(database, "third"), standard.clock)
    await set_archiving(database, standard.queue_id)
    await set_archiving(database, third.queue_id)
    messages = {}
    for queue in (standard, plain, third):
        await queue.send("a", "b", "c")
        messages[queue.queue_id] = await queue.receive()

    def keys(queue: StandardQueue) -> list[Handle]:
        return [handle_of(message) for message in messages[queue.queue_id]]

    lane = standard.lanes.delete
    flushes: list[int] = []
    lane.observe = flushes.append
    absent = [*keys(third), (third.queue_id, None, 1 << 40, 0)]
    # The first is on its way alone; the others wait for it together.
    outcomes = await asyncio.gather(
        call(lane, lambda reply: Delete(keys(plain)[:1], reply)),
        call(lane, lambda reply: Delete(keys(standard), reply, archives=True)),
        call(lane, lambda reply: Delete(keys(plain)[1:], reply)),
        call(lane, lambda reply: Delete(absent, reply, archives=True)),
        call(lane, lambda reply: Delete(keys(plain), reply, archives=True)),
    )
    assert max(flushes) >= 4
    assert [*outcomes] == [
        ["ok"],
        ["ok"] * 3,
        ["ok"] * 2,
        ["ok", "ok", "ok", "gone"],
        ["gone"] * 3,
    ]
    assert [await archived(queue) for queue in (standard, plain, third)] == [
        ["a", "b", "c"],
        [],
        ["a", "b", "c"],
    ]
    for queue in (standard, plain, third):
        assert await queue.counted() == (0, 0)
    for queue in (plain, third):
        await queue.lanes.close()


async def locked_by(database: Database, queue: StandardQueue) -> asyncpg.Connection[asyncpg.Record]:
    """A session that holds all messages of a queue."""
    holder = await asyncpg.connect(database.dsn, server_settings={"search_path": SCHEMA})
    await holder.execute("BEGIN")
    await holder.execute(
        "UPDATE messages SET receive_count = receive_count + 1 WHERE queue_id = $1", queue.queue_id
    )
    return holder


async def until_waiting(database: Database) -> None:
    """Look until a session waits for a row."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
    async with database.transaction() as tx:
        await until_async(lambda: tx.fetchval(waiting))


@pytest.mark.parametrize("count", [1, 2], ids=["one queue", "two queues"])
async def test_message_that_is_leased_anew_meanwhile_is_kept_as_it_is_then(
    database: Database, standard: StandardQueue, count: int
) -> None:
    other = StandardQueue(database, await make_queue(database, "other"), standard.clock)
    both = [standard, other][:count]
    messages: list[Received] = []
    for queue in both:
        await set_archiving(database, queue.queue_id)
        await queue.send("a")
        messages += await queue.receive()
    holders = [await locked_by(database, queue) for queue in both]
    deleting = asyncio.create_task(delete(standard, *messages))
    await until_waiting(database)
    for holder in holders:
        await holder.execute("COMMIT")
        await holder.close()
    assert await deleting == ["ok"] * count
    for queue in both:
        [one] = await kept(database, queue.queue_id)
        assert one.message.receive_count == 2
    await other.lanes.close()


@pytest.mark.parametrize("kind", ["standard", "fifo"])
async def test_archive_and_delete_are_one(
    database: Database, standard: StandardQueue, fifo: FifoQueue, kind: str
) -> None:
    """A backend that dies half way leaves the message where it was, and nothing in the archive."""
    queue: Either = standard if kind == "standard" else fifo
    await set_archiving(database, queue.queue_id)
    await send(queue, "a")
    [message] = await queue.receive()
    holder = await asyncpg.connect(database.dsn, server_settings={"search_path": SCHEMA})
    await holder.execute("BEGIN; LOCK TABLE message_archive IN SHARE MODE")
    deleting = asyncio.create_task(delete(queue, message))
    waiting = (
        "SELECT coalesce(max(l.pid), 0) FROM pg_locks AS l WHERE NOT l.granted"
        " AND l.relation = 'queuegate.message_archive'::regclass"
    )
    victim = await until_async(lambda: holder.fetchval(waiting))
    # It has deleted the message by now, and waits to archive it.
    assert await holder.fetchval("SELECT pg_terminate_backend($1, 20000)", victim)
    await holder.execute("COMMIT")
    await holder.close()
    with pytest.raises(Exception, match="outcome is unknown"):
        await deleting
    assert await archived(queue) == []
    await delete(queue, message)
    assert await archived(queue) == ["a"]
    assert await queue.receive() == []


async def test_turning_it_on_and_off_under_load_loses_and_doubles_nothing(queue: Either) -> None:
    """Messages deleted while the archive is on are kept, others are not."""
    database, total = queue.database, 400
    over = False
    states: list[bool] = []

    async def turn() -> None:
        on = True
        while not over:
            on = not on
            await set_archiving(database, queue.queue_id, on)
            states.append(on)

    async def consume() -> list[str]:
        deleted: list[str] = []
        while messages := await queue.receive(3):
            await delete(queue, *messages)
            deleted += [message.body for message in messages]
        return deleted

    for start in range(0, total, 10):
        bodies = [f"{number:03}" for number in range(start, start + 10)]
        await send(queue, *bodies, group=f"g{start}")
    turning = asyncio.create_task(turn())
    consumed = await asyncio.gather(*(consume() for _ in range(4)))
    over = True
    await turning
    everything = sorted(body for bodies in consumed for body in bodies)
    assert everything == [f"{number:03}" for number in range(total)]
    found = await archived(queue)
    assert len(found) == len(set(found))
    assert set(states) == {True, False}
    assert 0 < len(found) < total
    async with database.transaction() as tx:
        left = await tx.fetchval("SELECT coalesce(sum(delta), 0)::int FROM queue_deltas")
    assert left == 0


async def test_what_no_receiver_deletes_is_not_archived(
    database: Database, standard: StandardQueue
) -> None:
    target = await make_queue(database, "dead")
    await set_archiving(database, standard.queue_id)
    await standard.send("purged", "buried")
    _, buried = await standard.receive()
    assert await standard.bury(target, buried) == 1
    async with database.transaction() as tx:
        await standard_storage.purge_batch(
            tx, standard.queue_id, after_sequence=0, last_sequence=1 << 40, limit=10
        )
    assert await archived(standard) == []


async def everything(
    database: Database, queue_id: int, wanted: ArchiveFilter, limit: int
) -> list[int]:
    """All pages."""
    sequences: list[int] = []
    is_last = False
    while not is_last:
        async with database.transaction() as tx:
            found = await archives.find(tx, queue_id, wanted, limit=limit, most_bytes=MUCH)
        sequences += found.sequences
        is_last = found.is_last
        wanted = wanted._replace(after_sequence=found.last_sequence or 0)
    return sequences


async def fill(database: Database, queue_id: int, count: int) -> None:
    """Message n was archived n seconds after START."""
    async with database.transaction() as tx:
        await tx.execute(
            "INSERT INTO message_archive (queue_id, sequence, archived_at, sent_at, receive_count,"
            " message_id, sender_id, body, attributes) SELECT $1::int, n, $2::timestamptz"
            " + n * interval '1 second', $2::timestamptz, 1, gen_random_uuid(), 's', 'body',"
            ' CASE WHEN n % 100 = 0 THEN \'{"_schedule":{"StringValue":"nightly"}}\' END'
            " FROM generate_series(1, $3::int) AS n",
            queue_id,
            START,
            count,
        )


async def test_pages_go_through_an_archive_of_any_size(database: Database) -> None:
    queue_id = await make_queue(database)
    await fill(database, queue_id, 25_000)
    await fill(database, await make_queue(database, "other"), 10)
    assert await everything(database, queue_id, ArchiveFilter(), 3_000) == [*range(1, 25_001)]
    assert await everything(database, queue_id, ArchiveFilter(24_990), 3) == [
        *range(24_991, 25_001)
    ]
    assert await everything(database, queue_id, ArchiveFilter(25_000), 3) == []


@pytest.mark.parametrize(("since", "until"), [(24_000, 24_005), (1_000, 20_000), (30_000, 40_000)])
async def test_bounds_in_time_hold_on_both_ways_to_look(
    database: Database, since: int, until: int
) -> None:
    queue_id = await make_queue(database)
    await fill(database, queue_id, 25_000)
    bounds = START + timedelta(seconds=since), START + timedelta(seconds=until)
    expected = [*range(since, min(until, 25_000) + 1)]
    assert await everything(database, queue_id, ArchiveFilter(0, *bounds), 5_000) == expected
    firm = ArchiveFilter(0, None, bounds[1], "nightly")
    fired = [number for number in range(1, min(until, 25_000) + 1) if number % 100 == 0]
    assert await everything(database, queue_id, firm, 5_000) == fired
    none = ArchiveFilter(0, *bounds, "weekly")
    assert await everything(database, queue_id, none, 5_000) == []


async def test_few_in_a_stretch_of_time_are_found_at_once(database: Database) -> None:
    queue_id = await make_queue(database)
    await fill(database, queue_id, 25_000)
    wanted = ArchiveFilter(0, START + timedelta(seconds=24_998))
    async with database.transaction() as tx:
        found = await archives.find(tx, queue_id, wanted, limit=10, most_bytes=MUCH)
    assert found.sequences == [24_998, 24_999, 25_000]
    assert found.is_last


async def test_a_page_is_no_larger_than_asked(database: Database) -> None:
    queue_id = await make_queue(database)
    await fill(database, queue_id, 10)
    async with database.transaction() as tx:
        found = await archives.find(tx, queue_id, ArchiveFilter(), limit=10, most_bytes=9)
        assert (found.sequences, found.is_last) == ([1, 2, 3], False)
        found = await archives.find(tx, queue_id, ArchiveFilter(3), limit=10, most_bytes=1)
        assert (found.sequences, found.last_sequence) == ([4], 4)
        by_id = await archives.find_ids(tx, queue_id, [9, 2, 77, 5], limit=2, most_bytes=MUCH)
        assert by_id == ([2, 5], 5, False)
        by_id = await archives.find_ids(tx, queue_id, [9, 77], limit=2, most_bytes=MUCH)
        assert by_id == ([9], 9, True)


async def test_archive_of_an_empty_queue(database: Database) -> None:
    queue_id = await make_queue(database)
    async with database.transaction() as tx:
        found = await archives.find(tx, queue_id, ArchiveFilter(), limit=10, most_bytes=9)
        assert found == ([], None, True)
        assert await archives.read(tx, queue_id, [1]) == []


async def test_copies_start_anew(queue: Either) -> None:
    await send(queue, "a", "b", "c")
    messages = await queue.receive()
    await delete(queue, *messages)
    target = await find_queue(queue.database, queue.queue_id)
    before = await kept(queue.database, queue.queue_id)
    async with queue.database.transaction() as tx:
        ids = await archives.send_again(tx, queue.lanes._now(), target, before)
    again = await queue.receive()
    assert [message.body for message in again] == ["a", "b", "c"]
    assert [message.sequence for message in again] == ids
    assert {message.receive_count for message in again} == {1}
    assert [message.group_id for message in again] == [m.group_id for m in messages]
    assert {m.message_id for m in again}.isdisjoint({m.message_id for m in messages})
    assert {m.body_md5 for m in again} == {m.body_md5 for m in messages}
    assert await kept(queue.database, queue.queue_id) == before


async def test_copies_were_never_dead_letters(database: Database, standard: StandardQueue) -> None:
    source = standard.elsewhere()
    dead = StandardQueue(database, await make_queue(database, "dead"), standard.clock)
    await set_archiving(database, dead.queue_id)
    await source.send("a")
    await source.bury(dead.queue_id, *await source.receive())
    await delete(dead, *await dead.receive())
    target = await find_queue(database, dead.queue_id)
    found = await kept(database, dead.queue_id)
    assert "DeadLetterQueueSourceArn" in (found[0].message.system or "")
    async with database.transaction() as tx:
        await archives.send_again(tx, dead.clock.now(), target, found)
    [again] = await dead.receive()
    assert again.system is None
    for one in (source, dead):
        await one.lanes.close()


async def test_copies_for_a_queue_that_is_gone_are_not_sent(queue: Either) -> None:
    await send(queue, "a")
    await delete(queue, *await queue.receive())
    target = await find_queue(queue.database, queue.queue_id)
    async with queue.database.transaction() as tx:
        await stored_queues.delete(tx, START, queue.queue_id)
    found = await kept(queue.database, queue.queue_id)
    async with queue.database.transaction() as tx:
        assert await archives.send_again(tx, queue.lanes._now(), target, found) == []


async def test_removal_takes_the_oldest_first(database: Database) -> None:
    queue_id = await make_queue(database)
    await fill(database, queue_id, 10)
    async with database.transaction() as tx:
        before = START + timedelta(seconds=6)
        assert await archives.remove_before(tx, queue_id, before, limit=3) == 3
        assert await archives.remove_before(tx, queue_id, before, limit=3) == 2
        assert await archives.remove_before(tx, queue_id, before, limit=3) == 0
    assert [one.message.sequence for one in await kept(database, queue_id)] == [6, 7, 8, 9, 10]
    async with database.transaction() as tx:
        assert await archives.remove_before(tx, queue_id, None, limit=30) == 5


async def test_fifo_messages_in_flight_are_found_by_number(fifo: FifoQueue) -> None:
    for group in ("a", "b", "c"):
        await send(fifo, "1", "2", group=group)
    first, second = await fifo.receive(2)
    await fifo.receive(1)
    wanted = [first.sequence, second.sequence, second.sequence + 10_000]

    async def found() -> list[tuple[int, str, int]]:
        async with fifo.database.transaction() as tx:
            rows = await messages.find_in_flight(tx, fifo.now, fifo.queue_id, wanted)
        return sorted((row.sequence, row.group_id, row.receive_count) for row in rows)

    assert await found() == [(first.sequence, "a", 1), (second.sequence, "a", 1)]
    # The head was given back: the group is ready, and the other one is still in flight.
    await fifo.hide(first, 0)
    assert await found() == [(second.sequence, "a", 1)]
    fifo.wait(31)
    assert await found() == []


async def test_visibility_of_any_standard_message_can_be_set(standard: StandardQueue) -> None:
    await standard.send("held", "fresh")
    [held] = await standard.receive(1)
    fresh = held.sequence + 1
    async with standard.database.transaction() as tx:
        for sequence in (held.sequence, fresh, fresh + 1):
            at = await messages.set_visible_at(tx, START, standard.queue_id, sequence, 60)
            assert at == (START + timedelta(seconds=60) if sequence <= fresh else None)
    assert await standard.receive() == []
    async with standard.database.transaction() as tx:
        await messages.set_visible_at(tx, standard.clock.now(), standard.queue_id, fresh, 0)
    assert [message.body for message in await standard.receive()] == ["fresh"]
    standard.clock.wait(61)
    assert [message.body for message in await standard.receive()][:1] == ["held"]
