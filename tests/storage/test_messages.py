"""The statements of standard queues, through their lanes, with time as an argument."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import cast

import orjson
import pytest

from queuegate.storage.database import Database
from queuegate.storage.queue_model import Received
from queuegate.storage.queues import standard_lanes, watermarks
from queuegate.storage.queues.messages import ChangeVisibility, Delete, Send
from queuegate.storage.storage_errors import QueueDoesNotExist
from tests.storage.fifo_queue import START, bodies, call, delete_queue
from tests.storage.standard_queue import (
    MovingClock,
    StandardQueue,
    handle_of,
    make_message,
    make_queue,
)
from tests.waiting import until_so, yield_turns


@pytest.fixture
async def other(standard: StandardQueue) -> AsyncIterator[StandardQueue]:
    """The queue as a second process sees it."""
    other = standard.elsewhere()
    yield other
    await other.lanes.close()


@pytest.fixture
async def second(database: Database, standard: StandardQueue) -> StandardQueue:
    """Another queue in the same process."""
    second = StandardQueue(database, await make_queue(database, "second"), standard.clock)
    second.lanes = standard.lanes
    return second


async def test_messages_come_in_the_order_of_sending(standard: StandardQueue) -> None:
    await standard.send("a", "b", "c")
    await standard.send("d")
    assert bodies(await standard.receive(2)) == ["a", "b"]
    assert bodies(await standard.receive()) == ["c", "d"]


async def test_marks_that_are_forgotten_under_a_receive_take_nothing_from_it(
    standard: StandardQueue, second: StandardQueue
) -> None:
    """A leased message must reach its caller, or it is hidden for nothing."""
    lanes = standard.lanes
    await standard.send("a")
    await second.send("b")
    forgotten: list[asyncio.Handle] = []
    loop = asyncio.get_running_loop()
    lanes.receive.observe = lambda _: forgotten.append(loop.call_soon(lanes.forget_marks))
    both = await asyncio.gather(standard.receive(), second.receive())
    assert [bodies(received) for received in both] == [["a"], ["b"]]
    assert len(forgotten) == 1


async def test_a_received_message_is_hidden_for_its_timeout(standard: StandardQueue) -> None:
    await standard.send("a")
    [first] = await standard.receive(visibility=30)
    standard.clock.wait(29)
    assert await standard.receive() == []
    standard.clock.wait(2)
    [again] = await standard.receive()
    assert (first.receive_count, again.receive_count) == (1, 2)
    assert again.sequence == first.sequence
    assert again.first_received_at_ms == first.first_received_at_ms
    assert again.sent_at_ms == first.sent_at_ms


async def test_a_timeout_of_zero_leaves_the_message_visible(standard: StandardQueue) -> None:
    await standard.send("a")
    counts = [(await standard.receive(visibility=0))[0].receive_count for _ in range(3)]
    assert counts == [1, 2, 3]


async def test_a_delayed_message_waits(standard: StandardQueue) -> None:
    await standard.send("late", delay_seconds=10)
    await standard.send("now")
    assert bodies(await standard.receive()) == ["now"]
    standard.clock.wait(9)
    assert await standard.receive() == []
    standard.clock.wait(2)
    assert bodies(await standard.receive()) == ["late"]


async def test_redelivery_comes_before_fresh_messages(standard: StandardQueue) -> None:
    await standard.send("old")
    await standard.receive(visibility=5)
    await standard.send("young", "younger")
    standard.clock.wait(6)
    assert bodies(await standard.receive(2)) == ["old", "young"]


async def test_messages_past_their_retention_are_left_out(standard: StandardQueue) -> None:
    await standard.send("a", "b")
    await standard.receive(1, visibility=5)
    standard.clock.wait(50)
    await standard.send("c")
    standard.clock.wait(20)
    received = await standard.receive(retention=60)
    assert bodies(received) == ["c"]
    await standard.delete(*received)
    assert await standard.next_visible(retention=60) == []


async def test_a_deleted_message_does_not_come_again(standard: StandardQueue) -> None:
    await standard.send("a", "b")
    received = await standard.receive()
    await standard.delete(received[0])
    standard.clock.wait(60)
    assert bodies(await standard.receive()) == ["b"]
    assert await standard.counted() == (1, 1)


async def test_delete_is_repeatable_and_takes_duplicates(standard: StandardQueue) -> None:
    await standard.send("a", "b")
    first, second = await standard.receive()
    await standard.delete(first, second, first)
    await standard.delete(first)
    assert await standard.counted() == (0, 0)


async def test_an_old_handle_deletes_too(standard: StandardQueue) -> None:
    await standard.send("a")
    [old] = await standard.receive(visibility=1)
    standard.clock.wait(2)
    await standard.receive()
    await standard.delete(old)
    assert await standard.counted() == (0, 0)


async def test_deletes_of_many_callers_share_a_flush(standard: StandardQueue) -> None:
    await standard.send(*"abcdefgh")
    received = await standard.receive()
    sizes: list[int] = []
    standard.lanes.delete.observe = sizes.append
    await asyncio.gather(*(standard.delete(message) for message in (*received, *received)))
    assert sizes == [16]
    assert await standard.counted() == (0, 0)


async def test_visibility_counts_from_the_change(standard: StandardQueue) -> None:
    await standard.send("a")
    [message] = await standard.receive(visibility=30)
    standard.clock.wait(20)
    assert await standard.hide(message, seconds=30) == [True]
    standard.clock.wait(29)
    assert await standard.receive() == []
    standard.clock.wait(2)
    assert bodies(await standard.receive()) == ["a"]


async def test_visibility_zero_shows_at_once(standard: StandardQueue) -> None:
    await standard.send("a")
    [message] = await standard.receive()
    assert await standard.hide(message, seconds=0) == [True]
    [again] = await standard.receive()
    assert again.receive_count == 2


async def test_an_expired_message_can_be_hidden_again(standard: StandardQueue) -> None:
    await standard.send("a")
    [message] = await standard.receive(visibility=5)
    standard.clock.wait(10)
    assert await standard.hide(message, seconds=5) == [True]
    assert await standard.receive() == []


async def test_an_earlier_receive_may_change_the_timeout(standard: StandardQueue) -> None:
    await standard.send("a")
    [old] = await standard.receive(visibility=1)
    standard.clock.wait(2)
    await standard.receive(visibility=30)
    assert await standard.hide(old, seconds=0) == [True]
    [new] = await standard.receive()
    await standard.delete(new)
    assert await standard.hide(new, seconds=0) == [False]


async def test_a_batch_of_changes_may_name_a_message_twice(standard: StandardQueue) -> None:
    await standard.send("a", "b")
    first, second = await standard.receive()
    assert await standard.hide(first, second, first, seconds=0) == [True, True, True]
    rows = [(*handle_of(m), ms) for m, ms in ((first, 0), (first, 9000))]
    changed = await call(standard.lanes.visibility, lambda reply: ChangeVisibility(rows, reply))
    assert changed == ["ok", "ok"]


async def test_two_changes_of_one_message_happen_one_after_the_other(
    standard: StandardQueue,
) -> None:
    await standard.send("a")
    [message] = await standard.receive()
    await asyncio.gather(standard.hide(message, seconds=0), standard.hide(message, seconds=30))
    assert await standard.receive() == []


async def test_released_messages_were_never_received(standard: StandardQueue) -> None:
    await standard.send("a")
    [first] = await standard.receive()
    await standard.release(first)
    standard.clock.wait(1)
    [again] = await standard.receive(visibility=1)
    assert again.receive_count == 1
    assert (again.first_received_at_ms or 0) > (first.first_received_at_ms or 0)
    standard.clock.wait(2)
    [second] = await standard.receive()
    await standard.release(second)
    [third] = await standard.receive()
    assert third.receive_count == 2
    assert third.first_received_at_ms == again.first_received_at_ms


async def test_a_release_that_comes_late_changes_nothing(standard: StandardQueue) -> None:
    await standard.send("a")
    [first] = await standard.receive(visibility=1)
    standard.clock.wait(2)
    await standard.receive(visibility=30)
    await standard.release(first)
    assert await standard.receive() == []


async def test_a_dead_letter_keeps_identity_and_count(
    standard: StandardQueue, second: StandardQueue
) -> None:
    rows = [make_message(standard.queue_id, "a", system='{"AWSTraceHeader":"t"}')]
    await call(standard.lanes.send, lambda reply: Send(rows, reply, 0))
    await standard.receive(visibility=0)
    [last] = await standard.receive()
    assert await standard.bury(second.queue_id, last) == 1
    [dead] = await second.receive()
    assert dead.message_id == last.message_id
    assert dead.sequence == last.sequence
    assert dead.sent_at_ms == last.sent_at_ms
    assert dead.first_received_at_ms == last.first_received_at_ms
    # The receive that moved it was seen by nobody; this one counts anew.
    assert dead.receive_count == last.receive_count
    assert orjson.loads(dead.system or "") == {
        "AWSTraceHeader": "t",
        "DeadLetterQueueSourceArn": "arn:source",
    }
    assert await standard.counted() == (0, 0)
    assert await second.counted() == (1, 1)


async def test_a_move_to_a_deleted_queue_moves_nothing(
    standard: StandardQueue, second: StandardQueue, database: Database
) -> None:
    await standard.send("a")
    [message] = await standard.receive(visibility=5)
    await delete_queue(database, second.queue_id)
    assert await standard.bury(second.queue_id, message) == 0
    standard.clock.wait(6)
    assert bodies(await standard.receive()) == ["a"]
    assert await standard.counted() == (1, 1)


async def test_a_queue_may_be_its_own_dead_letter_queue(standard: StandardQueue) -> None:
    await standard.send("a")
    [message] = await standard.receive(visibility=0)
    [message] = await standard.receive()
    assert await standard.bury(standard.queue_id, message) == 1
    [again] = await standard.receive()
    assert again.message_id == message.message_id
    assert await standard.counted() == (1, 1)


async def test_what_was_received_again_is_not_moved(
    standard: StandardQueue, second: StandardQueue
) -> None:
    await standard.send("a")
    [old] = await standard.receive(visibility=0)
    await standard.receive()
    assert await standard.bury(second.queue_id, old) == 0
    assert await second.counted() == (0, 0)


async def test_next_visible_says_when_to_look(standard: StandardQueue) -> None:
    assert await standard.next_visible() == []
    await standard.send("late", delay_seconds=10)
    [soon] = await standard.next_visible()
    assert (soon.ready, soon.in_ms) == (False, 10_000)
    await standard.send("now")
    [ready] = await standard.next_visible()
    assert ready.ready
    await standard.receive(visibility=3)
    [hidden] = await standard.next_visible()
    assert not hidden.ready
    assert 2_900 < hidden.in_ms <= 3_000


async def test_several_queues_share_a_flush(standard: StandardQueue, second: StandardQueue) -> None:
    sizes: list[int] = []
    standard.lanes.send.observe = sizes.append
    standard.lanes.receive.observe = sizes.append
    await asyncio.gather(standard.send("a", "b"), second.send("x"), standard.send("c"))
    results = await asyncio.gather(
        standard.receiving(2), second.receiving(), standard.receiving(2), second.receiving()
    )
    received = [bodies(cast("list[Received]", result)) for result in results]
    assert received == [["a", "b"], ["x"], ["c"], []]
    assert sizes == [3, 4]


async def test_a_deleted_queue_in_a_flush_fails_only_its_own_sends(
    standard: StandardQueue, second: StandardQueue, database: Database
) -> None:
    await delete_queue(database, second.queue_id)
    results = await asyncio.gather(
        standard.send("a"), second.send("x"), standard.send("b"), return_exceptions=True
    )
    assert isinstance(results[1], QueueDoesNotExist)
    assert (results[0], results[2]) == (None, None)
    assert await second.counted() == (0, 0)
    assert await standard.counted() == (2, 2)


async def test_each_receive_of_a_flush_gets_its_own_timeout(standard: StandardQueue) -> None:
    await standard.send("a", "b")
    one, two = await asyncio.gather(
        standard.receiving(1, visibility=5), standard.receiving(1, visibility=50)
    )
    assert bodies(cast("list[Received]", one)) == ["a"]
    assert bodies(cast("list[Received]", two)) == ["b"]
    standard.clock.wait(6)
    assert bodies(await standard.receive()) == ["a"]


async def test_many_receives_share_out_what_there_is(standard: StandardQueue) -> None:
    for _ in range(12):
        await standard.send(*"0123456789")
    results = await asyncio.gather(*(standard.receiving() for _ in range(60)))
    received = [
        message.sequence for result in results for message in cast("list[Received]", result)
    ]
    assert len(received) == len(set(received)) == 120


async def test_messages_survive_attributes_of_every_kind(standard: StandardQueue) -> None:
    plain = make_message(standard.queue_id, "plain")
    bare = make_message(standard.queue_id, "é\t\n\"'\\{},")
    rich = (*bare[:4], '{"a":{}}', '{"b":"c"}', 0, *bare[7:])
    await call(standard.lanes.send, lambda reply: Send([plain, rich], reply, 0))
    one, two = await standard.receive()
    assert (one.body, one.attributes, one.system) == ("plain", None, None)
    assert (two.body, two.attributes, two.system) == ("é\t\n\"'\\{},", '{"a":{}}', '{"b":"c"}')
    assert str(two.message_id) == rich[1]
    assert (one.body_md5, two.body_md5) == (plain[7], rich[7])


# Marks


async def _consume(queue: StandardQueue, seconds: float = 1.0) -> None:
    """Raise the marks: time passes, something is sent and received, the queue is drained."""
    queue.clock.wait(seconds)
    await queue.send("consumed")
    for message in await queue.receive():
        await queue.delete(message)


async def test_the_mark_follows_what_was_consumed(standard: StandardQueue) -> None:
    await _consume(standard, 100)
    behind = standard.clock.instant - standard.lanes.mark_of(standard.queue_id)
    assert timedelta(0) < behind < timedelta(seconds=11)


async def test_a_slow_commit_of_our_own_lowers_the_mark(
    standard: StandardQueue, other: StandardQueue
) -> None:
    await _consume(standard, 100)
    # The statement took its time from the clock, then its commit took five seconds.
    slow = MovingClock()
    slow.instant = standard.clock.instant - timedelta(seconds=5)
    rows = [make_message(standard.queue_id, "slow")]
    standard.lanes._now = slow.now
    await call(standard.lanes.send, lambda reply: Send(rows, reply, 0))
    standard.lanes._now = standard.clock.now
    assert bodies(await standard.receive()) == ["slow"]


async def test_a_slow_commit_elsewhere_is_found_after_its_hint(
    standard: StandardQueue, other: StandardQueue
) -> None:
    await _consume(standard, 100)
    standard.clock.wait(-5)
    await other.send("slow")
    standard.clock.wait(5)
    standard.lanes.look_near([standard.queue_id])
    assert bodies(await standard.receive()) == ["slow"]


async def test_what_lies_far_left_is_found_once_marks_are_forgotten(
    standard: StandardQueue, other: StandardQueue
) -> None:
    await _consume(standard, 1000)
    standard.clock.wait(-500)
    await other.send("long ago")
    standard.clock.wait(500)
    assert await standard.receive() == []
    standard.lanes.forget_marks()
    assert bodies(await standard.receive()) == ["long ago"]


async def test_receives_leave_long_scans_from_the_far_left_to_a_task(
    standard: StandardQueue, other: StandardQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every scan counts as long here. The task looks, and the next receive takes what it found."""
    for module in (standard_lanes, watermarks):
        monkeypatch.setattr(module, "LONG_SCAN_SECONDS", 0.0)
    lanes, queue_id = standard.lanes, standard.queue_id
    await _consume(standard, 1000)
    marks = lanes._marks[queue_id]
    assert marks.is_slow
    marks.far_at = 0.0
    assert await standard.receive() == []
    await until_so(lambda: lanes.far_scans._task is None and marks.far_at > 0.0)
    assert lanes._marks[queue_id] is marks
    standard.clock.wait(-500)
    await other.send("long ago")
    standard.clock.wait(500)
    marks.far_at = 0.0
    assert await standard.receive() == []
    await until_so(lambda: queue_id not in lanes._marks)
    assert bodies(await standard.receive()) == ["long ago"]


async def test_a_task_that_looks_far_left_ends_with_its_lanes(
    standard: StandardQueue, database: Database
) -> None:
    """Also while its statement waits for a lock."""
    await _consume(standard, 100)
    async with database.transaction() as tx:
        await tx.execute("LOCK TABLE messages")
        standard.lanes.far_scans.start(standard.queue_id, 60)
        await yield_turns(20)
        await standard.lanes.far_scans.close()


async def test_scans_from_the_far_left_take_turns(database: Database) -> None:
    looked: list[int] = []
    marks = {queue_id: watermarks.Watermarks() for queue_id in (1, 2, 3)}
    scans = watermarks.FarScans(database, marks, looked.append)
    for queue_id in marks:
        scans.start(queue_id, 60)
    await until_so(lambda: scans._task is None)
    assert looked == [1, 2, 3]


async def test_a_scan_from_the_far_left_that_fails_is_put_off(database: Database) -> None:
    """Receives do not make it instead."""
    marks = watermarks.Watermarks()
    marks.is_slow = True
    scans = watermarks.FarScans(database, {1: marks}, lambda _: None)
    async with database.transaction() as tx:
        await tx.execute("LOCK TABLE messages")
        scans.start(1, 60)
        while not await tx.fetchval(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE NOT granted"
        ):
            await yield_turns(1)
        await until_so(lambda: scans._task is None)
    assert marks.is_slow
    assert marks.far_at > asyncio.get_running_loop().time()


@pytest.mark.parametrize(("seconds", "after"), [(0.01, 30.0), (3.0, 600.0), (60.0, 900.0)])
def test_long_scans_from_the_far_left_are_rare(seconds: float, after: float) -> None:
    marks = watermarks.Watermarks()
    assert marks.reach(1_000.0) is None
    marks.took(1_000.0, seconds)
    assert marks.far_at == 1_000.0 + after
    assert marks.is_slow == (seconds > 1)
    marks.took(1_001.0, 300.0)
    assert marks.far_at == 1_000.0 + after


async def test_a_clock_that_goes_back_loses_nothing(standard: StandardQueue) -> None:
    await _consume(standard, 5000)
    standard.clock.wait(-4000)
    standard.lanes.forget_marks()
    await standard.send("a")
    [message] = await standard.receive(visibility=5)
    standard.clock.wait(6)
    [again] = await standard.receive()
    assert again.sequence == message.sequence


async def test_a_second_process_has_marks_of_its_own(
    standard: StandardQueue, other: StandardQueue
) -> None:
    for _ in range(20):
        standard.clock.wait(10)
        await other.send("a", "b")
        first = await standard.receive(1)
        second = await other.receive(1)
        assert bodies(first) + bodies(second) == ["a", "b"]
        await other.delete(*first)
        await standard.delete(*second)
    assert await standard.counted() == (0, 0)


async def test_a_full_receive_leaves_the_rest_right_of_the_mark(standard: StandardQueue) -> None:
    for number in range(5):
        standard.clock.wait(10)
        await standard.send(*(f"{number}{letter}" for letter in "abcd"))
    received = []
    while found := await standard.receive(3):
        received += bodies(found)
    assert received == [f"{number}{letter}" for number in range(5) for letter in "abcd"]


async def test_a_message_that_timed_out_behind_fresh_ones_is_found(
    standard: StandardQueue,
) -> None:
    await standard.send("a", "b")
    await standard.receive(2, visibility=100)
    for _ in range(9):
        await _consume(standard, 10)
    standard.clock.wait(11)
    assert bodies(await standard.receive()) == ["a", "b"]


async def test_a_delayed_message_stays_right_of_the_mark(standard: StandardQueue) -> None:
    await standard.send("late", delay_seconds=95)
    for _ in range(9):
        await _consume(standard, 10)
    standard.clock.wait(6)
    assert bodies(await standard.receive()) == ["late"]


async def test_the_database_clock_is_used_when_none_is_given(database: Database) -> None:
    queue = StandardQueue(database, await make_queue(database, "real"), MovingClock())
    queue.lanes._now = queue.lanes._now_of_sends = lambda: None
    await queue.send("a")
    [message] = await queue.receive(visibility=0)
    assert message.sent_at_ms > START.timestamp() * 1000 - 10**12
    assert abs((message.first_received_at_ms or 0) - message.sent_at_ms) < 60_000
    await call(queue.lanes.delete, lambda reply: Delete([handle_of(message)], reply))
    assert await queue.counted() == (0, 0)
    await queue.lanes.close()
