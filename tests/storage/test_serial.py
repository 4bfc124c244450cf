"""Serial queues: one message of a group out at a time, deduplication until the delete, receipts
that are good after their timeout; and messages of queues with groups that expire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from queuegate.storage.database import Database
from queuegate.storage.queue_model import Received
from queuegate.storage.queues import fifo_queues
from queuegate.storage.queues.kinds import FIFO, SERIAL
from queuegate.storage.queues.messages import serial_key
from tests.storage.fifo_queue import FifoMessage, FifoQueue, bodies, make_message, make_queue


class SerialQueue(FifoQueue):
    """One serial queue with its lanes and a clock that only the test moves."""

    kind = SERIAL

    def message(self, group_id: str, body: str, dedup: str | None = None) -> FifoMessage:
        made = make_message(group_id, body, dedup)
        return made._replace(dedup_key=serial_key(self.queue_id, group_id, made.deduplication_id))

    async def put(self, group_id: str, body: str, dedup: str | None = None) -> bool:
        """Send one; whether it is new."""
        [sent] = await self.send(self.message(group_id, body, dedup))
        return not sent.is_duplicate

    async def one(self, visibility: float = 30) -> Received:
        [received] = await self.receive(1, visibility)
        return received


async def make_serial_queue(database: Database, name: str = "turns", **attributes: str) -> int:
    queue_id = await make_queue(database, name, **attributes)
    async with database.transaction() as tx:
        await tx.execute("UPDATE queues SET is_serial = true WHERE queue_id = $1", queue_id)
    return queue_id


@pytest.fixture
async def serial(database: Database) -> AsyncIterator[SerialQueue]:
    queue = SerialQueue(database, await make_serial_queue(database))
    yield queue
    await queue.lanes.close()


@pytest.fixture
async def queue_of_groups(database: Database) -> AsyncIterator[FifoQueue]:
    queue = FifoQueue(database, await make_queue(database))
    yield queue
    await queue.lanes.close()


async def test_one_message_of_each_group_is_out_at_a_time(serial: SerialQueue) -> None:
    for number in range(3):
        await serial.put("g", f"g{number}")
        await serial.put("h", f"h{number}")
    first = await serial.receive(10)
    assert bodies(first) == ["g0", "h0"]
    assert await serial.receive(10) == []
    assert await serial.delete(first[0]) == ["ok"]
    assert bodies(await serial.receive(10)) == ["g1"]


async def test_a_message_that_timed_out_comes_again_before_those_behind_it(
    serial: SerialQueue,
) -> None:
    await serial.put("g", "first")
    await serial.put("g", "second")
    first = await serial.one(30)
    serial.wait(31)
    again = await serial.one(30)
    assert (again.body, again.receive_count) == ("first", 2)
    assert await serial.delete(first) == ["expired"]
    assert await serial.hide(first, 5) == "expired"
    assert await serial.delete(again) == ["ok"]
    assert (await serial.one()).body == "second"


async def test_a_receipt_is_good_after_its_timeout_until_somebody_else_receives(
    serial: SerialQueue,
) -> None:
    await serial.put("g", "first")
    await serial.put("g", "second")
    first = await serial.one(1)
    serial.wait(100)
    assert await serial.hide(first, 50) == "ok"
    assert await serial.receive() == []
    serial.wait(100)
    assert await serial.delete(first) == ["ok"]
    assert await serial.delete(first) == ["gone"]
    assert (await serial.one()).body == "second"


async def test_without_a_timeout_the_same_message_comes_again(serial: SerialQueue) -> None:
    await serial.put("g", "first")
    await serial.put("h", "second")
    for count in range(1, 4):
        received = await serial.one(0)
        assert (received.body, received.receive_count) == ("first", count)


async def test_what_is_shown_again_is_the_first_again(serial: SerialQueue) -> None:
    for name in ("g", "h", "i"):
        await serial.put(name, name)
    first = await serial.one()
    assert await serial.hide(first, 0) == "ok"
    assert bodies(await serial.receive(1)) == ["g"]


async def test_what_was_not_deleted_in_time_comes_before_what_was_sent_later(
    serial: SerialQueue,
) -> None:
    for name in "abcd":
        await serial.put(name, name)
    late = await serial.receive(2, 20)
    early = await serial.receive(1, 10)
    serial.wait(30)
    await serial.put("e", "e")
    assert bodies([*late, *early]) == ["a", "b", "c"]
    assert bodies(await serial.receive(1, 5)) == ["a"]
    assert bodies(await serial.receive(2, 5)) == ["b", "c"]
    serial.wait(6)
    assert sorted(bodies(await serial.receive(10))) == ["a", "b", "c", "d", "e"]


async def test_a_late_group_goes_on_where_its_next_message_stands(serial: SerialQueue) -> None:
    await serial.put("g", "g0")
    await serial.put("h", "h")
    await serial.put("g", "g1")
    first = await serial.one(10)
    serial.wait(11)
    assert await serial.delete(first) == ["ok"]
    assert bodies([await serial.one(), await serial.one()]) == ["h", "g1"]


async def test_many_groups_that_come_back_are_seen_to_a_part_at_a_time(
    serial: SerialQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.storage.queues.fifo_lanes._MOST_COMING_BACK", 3)
    for number in range(10):
        await serial.put(f"g{number}", f"{number}")
    await serial.receive(10, 5)
    serial.wait(6)
    await serial.put("h", "last")
    found = [(await serial.one()).body for _ in range(11)]
    assert found == [*map(str, range(10)), "last"]


async def test_groups_that_come_back_together_do_so_in_the_order_of_their_messages(
    serial: SerialQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("queuegate.storage.queues.fifo_lanes._MOST_COMING_BACK", 3)
    for number in range(10):
        await serial.put(f"g{number}", f"{number}")
    await serial.receive(10, 5)
    async with serial.database.transaction() as tx:
        # Rows and index entries lie in the table as they were written: the last group first.
        [ready_at] = await tx.fetchrow("SELECT DISTINCT ready_at FROM fifo_groups") or [None]
        await tx.execute("UPDATE fifo_groups SET ready_at = ready_at + interval '1 second'")
        for number in reversed(range(10)):
            await tx.execute(
                "UPDATE fifo_groups SET ready_at = $1 WHERE group_id = $2", ready_at, f"g{number}"
            )
    serial.wait(6)
    found = [(await serial.one()).body for _ in range(10)]
    assert found == [*map(str, range(10))]


async def test_queues_of_a_flush_each_keep_their_order(
    serial: SerialQueue, database: Database
) -> None:
    """The flush has the queue with the higher number first."""
    queues = [serial.queue_id, await make_serial_queue(database, "more")]
    for queue_id in queues:
        for number in range(10):
            name = f"{queue_id} {number}"
            message = make_message(name, name)
            key = serial_key(queue_id, name, message.deduplication_id)
            await serial.send(message._replace(dedup_key=key), queue_id=queue_id)
    found = await asyncio.gather(*[serial.receive(10, queue_id=one) for one in reversed(queues)])
    for queue_id, share in zip(reversed(queues), found, strict=True):
        assert bodies(share) == [f"{queue_id} {number}" for number in range(10)]


async def test_callers_of_a_flush_get_messages_of_different_groups(serial: SerialQueue) -> None:
    for number in range(5):
        await serial.put(f"g{number}", f"{number}")
    shares = await asyncio.gather(serial.receive(2), serial.receive(1), serial.receive(10))
    assert sorted(len(share) for share in shares) == [1, 2, 2]
    assert sorted(body for share in shares for body in bodies(share)) == [*"01234"]


async def test_an_id_is_new_in_its_group_when_its_message_is_deleted(serial: SerialQueue) -> None:
    assert await serial.put("g", "first", "d")
    assert not await serial.put("g", "second", "d")
    assert await serial.put("h", "other group", "d")
    serial.wait(3600)
    assert not await serial.put("g", "an hour later", "d")
    received = await serial.receive(10)
    assert not await serial.put("g", "in flight", "d")
    assert await serial.delete(*received) == ["ok", "ok"]
    assert await serial.rows("fifo_dedup") == 0
    assert await serial.put("g", "third", "d")
    assert bodies(await serial.receive(10)) == ["third"]


async def test_an_id_is_new_when_its_message_has_gone_another_way(serial: SerialQueue) -> None:
    """Purges, retention, expiry and moves may leave its row behind: it counts no more."""
    assert await serial.put("g", "first", "d")
    async with serial.database.transaction() as tx:
        await tx.execute("DELETE FROM fifo_messages WHERE queue_id = $1", serial.queue_id)
    assert await serial.put("g", "second", "d")
    assert not await serial.put("g", "again", "d")
    serial.wait(345_600)
    assert await serial.put("g", "past the retention of the second", "d")


async def test_groups_and_ids_cannot_be_mixed_up(serial: SerialQueue) -> None:
    assert await serial.put("a", "1", "bc")
    assert await serial.put("ab", "2", "c")
    assert await serial.put("é", "3", "ü\U0001f600")
    received = await serial.receive(10)
    assert bodies(received) == ["1", "2", "3"]
    await serial.delete(*received)
    # The key that SQL makes is that of Python, or the rows would be left.
    assert await serial.rows("fifo_dedup") == 0


async def test_equal_sends_at_once_give_one_message(
    serial: SerialQueue, database: Database
) -> None:
    """From two processes, each again as soon as the last message is deleted."""
    other = SerialQueue(database, serial.queue_id)
    for _ in range(20):
        new = await asyncio.gather(*[each.put("g", "x", "d") for each in (serial, other) * 5])
        assert sum(new) == 1
        message = await serial.one()
        deleted, is_new = await asyncio.gather(serial.delete(message), other.put("g", "y", "d"))
        assert deleted == ["ok"]
        # Whichever came first, a send after the delete is new, and then there is one message.
        assert await serial.put("g", "z", "d") is not is_new
        assert await serial.rows("fifo_messages") == 1
        assert await serial.delete(await serial.one()) == ["ok"]
    await other.lanes.close()


async def test_each_message_says_when_it_was_sent_to_the_microsecond(serial: SerialQueue) -> None:
    sent = await serial.send(*[serial.message(f"g{n}", str(n)) for n in range(3)])
    times = [one.sent_at_us for one in sent]
    assert times == sorted({*times})
    assert [one.sent_at_us for one in await serial.receive(10)] == times


async def test_a_release_keeps_the_group_in_order(serial: SerialQueue) -> None:
    await serial.put("g", "first")
    await serial.put("g", "second")
    first = await serial.one()
    async with serial.database.transaction() as tx:
        await SERIAL.release(tx, serial.now, [first])
    again = await serial.receive(10)
    assert [(one.body, one.receive_count) for one in again] == [("first", 1)]


async def test_counts_and_purge_are_those_of_groups(serial: SerialQueue) -> None:
    for number in range(4):
        await serial.put("g", str(number))
    await serial.one()
    counts = await serial.counts()
    assert (counts.visible, counts.in_flight) == (3, 1)
    async with serial.database.transaction() as tx:
        step = await SERIAL.purge(
            tx, serial.queue_id, up_to=await SERIAL.last_number(tx), after=0, limit=100
        )
    assert step.messages == 4
    for table in ("fifo_messages", "fifo_groups", "fifo_dedup"):
        assert await serial.rows(table) == 0


async def test_an_id_is_new_when_its_message_has_expired(serial: SerialQueue) -> None:
    await serial.send(serial.message("g", "first", "d")._replace(ttl_seconds=10))
    assert not await serial.put("g", "second", "d")
    serial.wait(10)
    async with serial.database.transaction() as tx:
        # Nothing is left of it that would have to wait for the longest retention.
        assert await fifo_queues.clean_dedup(tx, serial.now, 100) == 1
    assert await serial.put("g", "third", "d")
    assert bodies(await serial.receive(10)) == ["third"]


@pytest.mark.parametrize("is_serial", [False, True])
async def test_an_expired_message_is_passed_over(
    serial: SerialQueue, queue_of_groups: FifoQueue, is_serial: bool
) -> None:
    queue = serial if is_serial else queue_of_groups
    messages = [make_message("g", body) for body in ("a", "b", "c", "d")]
    for place in (0, 2):
        messages[place] = messages[place]._replace(ttl_seconds=10)
    await queue.send(*messages)
    queue.wait(10)
    counts = await queue.counts()
    assert (counts.visible, counts.in_flight, counts.delayed) == (2, 0, 0)
    found: list[str] = []
    while received := await queue.receive(1):
        found += bodies(received)
        await queue.delete(*received)
    assert found == ["b", "d"]
    for table in ("fifo_messages", "fifo_groups"):
        assert await queue.rows(table) == 0


async def test_what_expires_in_flight_holds_its_group_until_its_timeout_ends(
    serial: SerialQueue,
) -> None:
    message = serial.message("g", "short")._replace(ttl_seconds=5)
    await serial.send(message, serial.message("g", "long"))
    held = await serial.one(60)
    serial.wait(30)
    async with serial.database.transaction() as tx:
        assert await fifo_queues.expire(tx, serial.now, serial.queue_id, 345_600, 100) == 0
    assert await serial.receive() == []
    assert (await serial.counts()).in_flight == 1
    serial.wait(31)
    assert (await serial.one()).body == "long"
    assert await serial.delete(held) == ["gone"]


async def test_a_sweep_removes_what_has_expired_wherever_it_is(queue_of_groups: FifoQueue) -> None:
    queue = queue_of_groups
    messages = [make_message("g", str(n)) for n in range(5)]
    messages[2] = messages[2]._replace(ttl_seconds=5)
    await queue.send(*messages, make_message("alone", "6")._replace(ttl_seconds=5))
    async with queue.database.transaction() as tx:
        before, _ = await FIFO.find_expired(tx, queue.now, 0, 10)
    assert before == []
    queue.wait(5)
    async with queue.database.transaction() as tx:
        found, _ = await FIFO.find_expired(tx, queue.now, 0, 10)
        assert [one.queue_id for one in found] == [queue.queue_id]
        assert await FIFO.expire(tx, queue.now, found, 100) == (2, [])
    assert await queue.rows("fifo_groups") == 1
    assert bodies(await queue.receive(10)) == ["0", "1", "3", "4"]


async def test_a_dead_letter_keeps_no_expiry_and_a_moved_message_does(
    database: Database, queue_of_groups: FifoQueue
) -> None:
    queue = queue_of_groups
    target = await make_queue(database, "dead.fifo")
    await queue.send(make_message("g", "letter")._replace(ttl_seconds=100))
    await queue.send(make_message("h", "moved")._replace(ttl_seconds=100))
    [letter] = await queue.receive(1)
    async with database.transaction() as tx:
        await fifo_queues.move_to_dead_letter(
            tx,
            queue.now,
            source_queue_id=queue.queue_id,
            target_queue_id=target,
            source_arn="arn",
            rows=[("g", letter.sequence, 1)],
        )
        [movable] = await fifo_queues.take_for_move(
            tx, queue.now, queue.queue_id, retention_seconds=345_600, limit=10
        )
        row = ("h", movable.sequence, target, make_message("h").message_id)
        assert await fifo_queues.move(tx, queue.now, queue.queue_id, [row]) == 1
    queue.wait(100)
    assert bodies(await queue.receive(10, queue_id=target)) == ["letter"]
