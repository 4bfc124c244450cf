"""Standard queues whose messages have priorities or an end: order, expiry, counts, moves."""

from __future__ import annotations

from queuegate.storage.database import Database
from queuegate.storage.queue_model import Counts, Received
from queuegate.storage.queues import depths
from queuegate.storage.queues.kinds import PRIORITISED
from queuegate.storage.queues.messages import FanOut
from tests.storage.fifo_queue import RETENTION, call, of_kind
from tests.storage.standard_queue import (
    PriorityQueue,
    StandardQueue,
    make_message,
    make_queue,
)


def bodies(messages: list[Received]) -> list[str]:
    return [message.body for message in messages]


async def test_the_first_message_with_a_priority_gives_its_queue_priorities(
    urgent: PriorityQueue,
) -> None:
    await urgent.send("plain")
    assert not await urgent.is_prioritised()
    await urgent.send("zero", priority=0)
    assert not await urgent.is_prioritised()
    told: list[int] = []
    urgent.lanes.on_gone = told.append
    await urgent.send("urgent", priority=1)
    assert told == [urgent.queue_id]
    assert await urgent.is_prioritised()
    await urgent.send("urgent", priority=1)
    assert told == [urgent.queue_id]


async def test_so_does_the_first_that_expires(urgent: PriorityQueue) -> None:
    await urgent.send("short", ttl=5)
    assert await urgent.is_prioritised()
    [message] = await urgent.receive()
    assert message.priority == 0
    assert message.expires_at_ms == message.sent_at_ms + 5_000


async def test_the_most_urgent_first_and_the_oldest_of_each(urgent: PriorityQueue) -> None:
    for priority in (0, 10, 3, None, 10, 7, 3):
        await urgent.send(f"{priority}", priority=priority)
    found = bodies(await urgent.receive(4)) + bodies(await urgent.receive(10))
    assert found == ["10", "10", "7", "3", "3", "0", "None"]
    assert await urgent.receive() == []


async def test_every_priority_is_received_in_turn(urgent: PriorityQueue) -> None:
    for number in range(33):
        await urgent.send(f"{number}", priority=number % 11)
    found: list[int] = []
    while received := await urgent.receive(4):
        found += [int(message.body) for message in received]
    assert found == sorted(range(33), key=lambda number: (-(number % 11), number))


async def test_what_is_visible_again_comes_before_what_is_fresh_of_its_priority(
    urgent: PriorityQueue,
) -> None:
    await urgent.send("a", "b", priority=5)
    await urgent.receive(1, visibility=10)
    await urgent.send("c", priority=5)
    await urgent.send("d", priority=6)
    urgent.clock.wait(11)
    assert bodies(await urgent.receive(2)) == ["d", "a"]


async def test_what_was_sent_without_any_is_received_by_age_among_those_of_0(
    urgent: PriorityQueue,
) -> None:
    await urgent.plainly.send("old 1", "old 2")
    await urgent.send("urgent", priority=2)
    await urgent.send("new")
    await urgent.plainly.send("from one that has not heard of it")
    found = []
    while received := await urgent.receive(1):
        found += bodies(received)
    assert found == ["urgent", "old 1", "old 2", "new", "from one that has not heard of it"]
    assert await urgent.counted() == (5, 5)


async def test_several_callers_share_one_flush(urgent: PriorityQueue, database: Database) -> None:
    other = await make_queue(database, "other")
    await urgent.send("a", priority=1)
    await urgent.send("b", priority=2)
    rows = [make_message(other, "c", priority=9), make_message(other, "d")]
    await call(urgent.lanes.send, lambda reply: of_kind(PRIORITISED, FanOut(rows, reply, 0)))
    results = [
        urgent.receiving(1),
        urgent.receiving(10),
        urgent.receiving(10, queue_id=other),
    ]
    found = [await result for result in results]
    assert [[m.body for m in one] for one in found if isinstance(one, list)] == [
        ["b"],
        ["a"],
        ["c", "d"],
    ]


async def test_copies_for_queues_without_priorities_leave_them_so(
    urgent: PriorityQueue, database: Database
) -> None:
    plain = StandardQueue(database, await make_queue(database, "plain"), urgent.clock)
    rows = [make_message(plain.queue_id, "a"), make_message(urgent.queue_id, "b", priority=4)]
    await call(urgent.lanes.send, lambda reply: of_kind(PRIORITISED, FanOut(rows, reply, 0)))
    assert await urgent.is_prioritised()
    [message] = await plain.receive()
    assert (message.body, message.priority) == ("a", None)
    await plain.lanes.close()


async def test_a_late_commit_is_found_although_marks_have_risen(urgent: PriorityQueue) -> None:
    await urgent.send("first", priority=8)
    urgent.clock.wait(5)
    assert bodies(await urgent.receive()) == ["first"]
    now = urgent.clock.instant
    urgent.clock.wait(-4)
    await urgent.send("late", priority=8)
    urgent.clock.instant = now
    assert bodies(await urgent.receive()) == ["late"]


async def test_what_comes_from_elsewhere_is_found(urgent: PriorityQueue) -> None:
    other = urgent.elsewhere()
    await urgent.send("first", priority=8)
    urgent.clock.wait(5)
    assert bodies(await urgent.receive()) == ["first"]
    urgent.clock.wait(-3)
    await other.send("late", priority=8)
    urgent.clock.wait(3)
    urgent.lanes.look_near([urgent.queue_id])
    assert bodies(await urgent.receive()) == ["late"]
    await other.close()


async def test_nobody_gets_what_has_expired(urgent: PriorityQueue) -> None:
    await urgent.send("a", priority=3, ttl=10)
    await urgent.send("b", priority=3, ttl=20)
    await urgent.send("c", ttl=10)
    assert len(await urgent.receive(visibility=5)) == 3
    urgent.clock.wait(10)
    assert bodies(await urgent.receive(visibility=5)) == ["b"]
    urgent.clock.wait(10)
    assert await urgent.receive() == []


async def test_nor_does_a_process_that_has_not_heard_of_it(urgent: PriorityQueue) -> None:
    await urgent.send("fresh", ttl=10)
    await urgent.send("received", ttl=10)
    await urgent.plainly.receive(1, visibility=1)
    urgent.clock.wait(11)
    assert await urgent.plainly.receive() == []


async def test_there_is_nothing_to_wait_for_in_what_expires_before(urgent: PriorityQueue) -> None:
    await urgent.send("a", ttl=10)
    await urgent.send("b", delay_seconds=10, ttl=5)
    assert [one.ready for one in await urgent.next_visible()] == [True]
    await urgent.receive(1, visibility=30)
    assert await urgent.next_visible() == []
    await urgent.send("c", delay_seconds=3, ttl=5)
    [found] = await urgent.next_visible()
    assert not found.ready
    assert 2_990 < found.in_ms <= 3_000
    urgent.clock.wait(6)
    assert await urgent.next_visible() == []


async def test_what_has_expired_counts_nowhere(urgent: PriorityQueue, database: Database) -> None:
    await urgent.send("stays", priority=1)
    urgent.clock.wait(1)
    await urgent.send("visible", ttl=10)
    await urgent.send("delayed", delay_seconds=60, ttl=20)
    await urgent.send("in flight", priority=9, ttl=30)
    await urgent.receive(1, visibility=600)
    assert await urgent.counts() == Counts(2, 1, 1)
    for seconds, expected in ((10, Counts(1, 1, 1)), (10, Counts(1, 1, 0)), (10, Counts(1, 0, 0))):
        urgent.clock.wait(seconds)
        assert await urgent.counts() == expected
    async with database.transaction() as tx:
        ages = await depths.standard_ages(tx, urgent.clock.now(), urgent.queue_id)
    assert ages.oldest_at == ages.newest_at
    assert await urgent.remove_overdue() == 3
    assert await urgent.counted() == (1, 1)
    assert await urgent.counts() == Counts(1, 0, 0)


async def test_what_has_expired_is_removed_a_part_at_a_time(urgent: PriorityQueue) -> None:
    await urgent.send(*map(str, range(7)), ttl=5)
    await urgent.send("stays", ttl=60)
    assert await urgent.remove_overdue() == 0
    urgent.clock.wait(5)
    assert [await urgent.remove_overdue(3) for _ in range(4)] == [3, 3, 1, 0]
    assert bodies(await urgent.receive()) == ["stays"]


async def test_retention_ends_messages_with_a_priority_too(urgent: PriorityQueue) -> None:
    await urgent.send("a", priority=5)
    await urgent.send("b", priority=5)
    await urgent.receive(1, visibility=0)
    urgent.clock.wait(RETENTION + 1)
    assert await urgent.receive() == []


async def test_a_dead_letter_keeps_its_priority_and_does_not_expire(
    urgent: PriorityQueue, database: Database
) -> None:
    dead = PriorityQueue(database, await make_queue(database, "dead"), urgent.clock)
    await dead.send("there before")
    await urgent.send("a", priority=7, ttl=10)
    await urgent.send("b", ttl=10)
    received = await urgent.receive()
    assert await urgent.bury(dead.queue_id, *received) == 2
    assert await dead.is_prioritised()
    urgent.clock.wait(60)
    found = await dead.receive()
    assert [(m.body, m.priority, m.expires_at_ms) for m in found] == [
        ("a", 7, None),
        ("there before", None, None),
        ("b", 0, None),
    ]
    await dead.close()


async def test_a_plain_dead_letter_leaves_its_queue_plain(
    standard: StandardQueue, database: Database
) -> None:
    dead = PriorityQueue(database, await make_queue(database, "dead"), standard.clock)
    await standard.send("a")
    await standard.bury(dead.queue_id, *await standard.receive())
    assert not await dead.is_prioritised()
    assert bodies(await dead.plainly.receive()) == ["a"]
    await dead.close()


async def test_a_receive_that_nobody_hears_of_is_undone(urgent: PriorityQueue) -> None:
    await urgent.send("a", priority=5)
    await urgent.release(*await urgent.receive())
    [message] = await urgent.receive()
    assert message.receive_count == 1


async def test_hiding_and_deleting_go_by_the_same_lanes(urgent: PriorityQueue) -> None:
    await urgent.send("a", "b", priority=5)
    first, second = await urgent.receive()
    assert await urgent.hide(first, seconds=0) == [True]
    await urgent.delete(second)
    assert bodies(await urgent.receive()) == ["a"]
    assert await urgent.counted() == (1, 1)


async def test_the_first_visible_message_of_each_priority_has_an_age(
    urgent: PriorityQueue, database: Database
) -> None:
    await urgent.plainly.send("without any")
    await urgent.send("in flight", priority=9)
    await urgent.receive(1, visibility=600)
    await urgent.send("expires", priority=3, ttl=5)
    await urgent.send("delayed", priority=4, delay_seconds=600)
    urgent.clock.wait(100)
    await urgent.send("urgent", "urgent", priority=7)
    urgent.clock.wait(10)
    async with database.transaction() as tx:
        found = await depths.oldest_by_priority(tx, urgent.clock.now(), 10)
    assert [(one.name, one.priority, round(one.age_seconds)) for one in found] == [
        ("orders", 7, 10),
        ("orders", 0, 110),
    ]
