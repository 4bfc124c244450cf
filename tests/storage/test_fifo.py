"""Order, locking, deduplication and handles of FIFO queues (docs/contract/sqs.md 2.5 to 2.7)."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from queuegate.storage.queues.fifo_queues import clean_dedup, next_ready, release
from queuegate.storage.queues.messages import Receive, Send, dedup_key
from queuegate.storage.storage_errors import QueueDoesNotExist
from tests.storage.fifo_queue import (
    RETENTION,
    FifoQueue,
    Replied,
    bodies,
    call,
    delete_queue,
    make_message,
    make_queue,
)

VECTORS = Path(__file__).parent.parent / "protocol" / "vectors" / "fifo_receive.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
async def test_recorded_receives(fifo: FifoQueue, case: dict[str, Any]) -> None:
    """The recordings of AWS, step by step. The order of groups is free where they say so."""
    visibility = case.get("queue", {}).get("VisibilityTimeout", 30)
    named = any("-" in name for step in case["steps"] for name in step.get("expect", []))
    for group_id, body in case["send"]:
        await fifo.send(make_message(group_id, f"{group_id}-{body}" if named else body))
        fifo.wait(0.01)
    seen = {}
    for step in case["steps"]:
        if "after" in step:
            fifo.wait(visibility + 1)
        if "receive" in step:
            wish = step["receive"]
            found = await fifo.receive(wish["max"], wish.get("visibility", visibility))
            seen.update({message.body: message for message in found})
            got = bodies(found)
            expected = step.get("expect_any_of", [step.get("expect")])
            if "not guaranteed" in step.get("note", ""):
                assert by_group(got) == by_group(expected[0])
            else:
                assert got in expected
            last = found
        if "change_visibility" in step:
            name, seconds = step["change_visibility"]
            assert await fifo.hide(seen[name], seconds) == "ok"
        if "change_visibility_index_seconds" in step:
            index, seconds = step["change_visibility_index_seconds"]
            assert await fifo.hide(last[index], seconds) == "ok"
        if "delete" in step:
            names = step["delete"]
            assert await fifo.delete(*[seen[name] for name in names]) == ["ok"] * len(names)
        fifo.wait(step.get("sleep", 0.01))


def by_group(names: list[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(name.partition("-")[0], []).append(name)
    return groups


@pytest.mark.parametrize(("index", "expected"), [(0, []), (2, ["0", "1"])])
async def test_extending_the_first_or_the_last_of_three(
    fifo: FifoQueue, index: int, expected: list[str]
) -> None:
    await fifo.send(*[make_message("g", str(number)) for number in range(3)])
    found = await fifo.receive(5, 1)
    assert await fifo.hide(found[index], 4) == "ok"
    fifo.wait(2.5)
    assert bodies(await fifo.receive(5, 30)) == expected


async def test_received_message_is_complete(fifo: FifoQueue) -> None:
    message = make_message("g", "text")._replace(attributes='{"a": 1}', system='{"b": 2}')
    [(message_id, sequence, *_)] = await fifo.send(message)
    fifo.wait(2)
    [found] = await fifo.receive()
    sent_at_ms = int(fifo.now.timestamp() * 1000) - 2000
    assert found[:12] == (
        fifo.queue_id,
        sequence,
        found.message_id,
        1,
        "text",
        "sender",
        '{"a": 1}',
        '{"b": 2}',
        sent_at_ms,
        sent_at_ms + 2000,
        "g",
        message.deduplication_id,
    )
    assert str(found.message_id) == message_id == message.message_id
    fifo.wait(31)
    [again] = await fifo.receive()
    assert again == found._replace(receive_count=2)


async def test_group_keeps_order_beyond_ten(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message("g", str(number)) for number in range(25)])
    got: list[str] = []
    while found := await fifo.receive():
        assert await fifo.receive() == []
        got += bodies(found)
        await fifo.delete(*found)
    assert got == [str(number) for number in range(25)]
    assert await fifo.rows("fifo_groups") == await fifo.rows("fifo_messages") == 0


async def test_groups_of_one_batch_come_in_the_order_of_sending(fifo: FifoQueue) -> None:
    names = ["z", "m", "a", "q"]
    await fifo.send(*[make_message(name, name) for name in names])
    assert bodies(await fifo.receive(10)) == names


async def test_groups_that_were_received_together_come_again_in_the_order_of_their_messages(
    fifo: FifoQueue,
) -> None:
    """Their timeouts end at one instant, and their names say nothing."""
    await fifo.send(*[make_message(name, name) for name in "zya"])
    assert bodies(await fifo.receive(10, 5)) == ["z", "y", "a"]
    fifo.wait(6)
    assert bodies(await fifo.receive(10)) == ["z", "y", "a"]


async def test_a_group_goes_to_one_of_many_callers(fifo: FifoQueue) -> None:
    for name in ("a", "b", "c"):
        await fifo.send(*[make_message(name, name) for _ in range(4)])
    results = await asyncio.gather(*[fifo.receive(10) for _ in range(5)])
    groups = [{message.group_id for message in found} for found in results if found]
    assert sorted(len(found) for found in results) == [0, 0, 4, 4, 4]
    assert len(set.union(*groups)) == sum(map(len, groups)) == 3


async def test_callers_with_different_maxima_share_a_queue(fifo: FifoQueue) -> None:
    for number in range(12):
        await fifo.send(make_message(f"g{number}", str(number)))
    results = await asyncio.gather(*[fifo.receive(limit) for limit in (1, 10, 1)])
    assert [len(found) for found in results] == [1, 10, 1]
    got = [message.sequence for found in results for message in found]
    assert len(set(got)) == 12


async def test_several_queues_in_one_flush(fifo: FifoQueue) -> None:
    other = await make_queue(fifo.database, "other.fifo")
    empty = await make_queue(fifo.database, "empty.fifo")
    gone = await make_queue(fifo.database, "gone.fifo")
    await delete_queue(fifo.database, gone)
    results = await asyncio.gather(
        fifo.send(make_message("g", "mine", "same")),
        fifo.send(make_message("g", "gone", "same"), queue_id=gone),
        fifo.send(make_message("g", "other", "same"), queue_id=other),
        return_exceptions=True,
    )
    assert isinstance(results[1], QueueDoesNotExist)
    assert [row[2] for row in (results[0] + results[2])] == [False, False]  # type: ignore[operator]
    found = await asyncio.gather(
        fifo.receive(), fifo.receive(queue_id=empty), fifo.receive(2, 5, queue_id=other)
    )
    assert [bodies(messages) for messages in found] == [["mine"], [], ["other"]]
    assert await fifo.delete(*found[0], *found[2]) == ["ok", "ok"]
    assert await fifo.delete(*found[0], *found[2]) == ["gone", "gone"]


async def test_sending_to_more_groups_than_one_flush_may_lock(fifo: FifoQueue) -> None:
    await asyncio.gather(
        *[
            fifo.send(*[make_message(f"{call}.{number}") for number in range(10)])
            for call in range(120)
        ]
    )
    assert await fifo.rows("fifo_groups") == 1200
    assert (await fifo.counts()).visible == 1200


# Deduplication


async def test_duplicate_returns_the_first_send(fifo: FifoQueue) -> None:
    first = await fifo.send(make_message("g", "first", "d"))
    assert await fifo.send(make_message("h", "second", "d")) == [(*first[0][:2], True, None)]
    found = await fifo.receive()
    assert bodies(found) == ["first"]
    await fifo.delete(*found)
    fifo.wait(299)
    assert await fifo.send(make_message("g", "third", "d")) == [(*first[0][:2], True, None)]
    assert await fifo.receive() == []
    # The window starts with the first send; later duplicates do not prolong it.
    fifo.wait(1)
    [(_, sequence, was_duplicate, _)] = await fifo.send(make_message("g", "fourth", "d"))
    assert not was_duplicate
    assert sequence > first[0][1]
    assert bodies(await fifo.receive()) == ["fourth"]


@pytest.mark.parametrize("others", [0, 1])
async def test_the_window_ends_after_five_minutes_to_the_microsecond(
    fifo: FifoQueue, others: int
) -> None:
    """Alone and among others: two functions send."""
    now = [fifo.now]
    exact = FifoQueue(fifo.database, fifo.queue_id, lambda: now[0])

    async def is_duplicate() -> bool:
        more = [make_message("h") for _ in range(others)]
        [first, *_] = await exact.send(make_message("g", dedup="d"), *more)
        return bool(first.is_duplicate)

    found = [await is_duplicate()]
    now[0] += timedelta(minutes=5, microseconds=-1)
    async with fifo.database.transaction() as tx:
        assert await clean_dedup(tx, now[0], 10) == 0
    found.append(await is_duplicate())
    now[0] += timedelta(microseconds=1)
    found.append(await is_duplicate())
    await exact.lanes.close()
    assert found == [False, True, False]


async def test_duplicates_within_a_batch_and_within_a_flush(fifo: FifoQueue) -> None:
    batch = [make_message("g", "a", "x"), make_message("g", "b", "y"), make_message("g", "c", "x")]
    results = await asyncio.gather(fifo.send(*batch), *[fifo.send(batch[1]) for _ in range(3)])
    assert [row[2] for row in results[0]] == [False, False, True]
    assert {row[:2] for result in results for row in result} == {r[:2] for r in results[0][:2]}
    assert bodies(await fifo.receive()) == ["a", "b"]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_flush_writes_what_is_new_of_it(fifo: FifoQueue, fails: bool) -> None:
    """Beside a key that is known, and messages of a queue that was deleted."""
    gone = await make_queue(fifo.database, "gone.fifo")
    if fails:
        await delete_queue(fifo.database, gone)
    [first] = await fifo.send(make_message("g", "a", "x"))
    batch = [make_message("g", "b"), make_message("h", "again", "x"), make_message("h", "c")]
    results = await asyncio.gather(
        # Two flushes: who is alone goes first.
        fifo.send(make_message("i", "d")),
        fifo.send(*batch),
        fifo.send(make_message("g"), make_message("k"), queue_id=gone),
        return_exceptions=True,
    )
    assert isinstance(results[1], list)
    assert [row.is_duplicate for row in results[1]] == [False, True, False]
    assert results[1][1][:2] == first[:2]
    assert isinstance(results[2], QueueDoesNotExist) == fails
    assert sorted(bodies(await fifo.receive())) == ["a", "b", "c", "d"]
    assert await fifo.rows("fifo_groups") == 3
    async with fifo.database.transaction() as tx:
        query = "SELECT coalesce(sum(delta), 0)::int FROM queue_deltas WHERE queue_id = $1"
        assert await tx.fetchval(query, fifo.queue_id) == 4
        assert await tx.fetchval(query, gone) == (0 if fails else 2)


@pytest.mark.parametrize(("group_id", "duplicates"), [(None, [False, True]), ("g", [False, False])])
async def test_scope_of_deduplication(
    fifo: FifoQueue, group_id: str | None, duplicates: list[bool]
) -> None:
    got = []
    for group in ("g", "h"):
        key = dedup_key(None if group_id is None else group, "d")
        [row] = await fifo.send(make_message(group, dedup="d")._replace(dedup_key=key))
        got.append(row[2])
    assert got == duplicates


def test_dedup_keys_do_not_collide_across_scopes() -> None:
    keys = {dedup_key(None, "ab"), dedup_key("a", "b"), dedup_key("ab", ""), dedup_key("", "ab")}
    assert len(keys) == 4
    assert all(len(key) == 32 for key in keys)


async def test_send_to_a_deleted_queue(fifo: FifoQueue) -> None:
    await delete_queue(fifo.database, fifo.queue_id)
    with pytest.raises(QueueDoesNotExist):
        await fifo.send(make_message("g"))
    for table in ("fifo_messages", "fifo_groups", "fifo_dedup", "queue_deltas"):
        assert await fifo.rows(table) == 0


async def test_send_that_fails_leaves_its_neighbours_alone(fifo: FifoQueue) -> None:
    results = await asyncio.gather(
        fifo.send(make_message("g", "good")),
        fifo.send(make_message("g", "bad\0")),
        fifo.send(make_message("g", "also good")),
        return_exceptions=True,
    )
    assert [isinstance(result, Exception) for result in results] == [False, True, False]
    assert bodies(await fifo.receive()) == ["good", "also good"]


# Delays


async def test_delayed_message_blocks_its_group_only(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g", "late", delay_seconds=10), make_message("g", "behind"))
    await fifo.send(make_message("h", "now"))
    assert bodies(await fifo.receive()) == ["now"]
    fifo.wait(9.9)
    assert await fifo.receive() == []
    fifo.wait(0.1)
    assert bodies(await fifo.receive()) == ["late", "behind"]


async def test_delayed_message_behind_visible_ones(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g", "now"), make_message("g", "late", delay_seconds=10))
    first = await fifo.receive()
    assert bodies(first) == ["now"]
    await fifo.delete(*first)
    assert await fifo.receive() == []
    fifo.wait(10)
    assert bodies(await fifo.receive()) == ["late"]


# Handles


async def test_expired_handle(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g"))
    [first] = await fifo.receive(visibility=5)
    fifo.wait(5)
    assert await fifo.delete(first) == ["expired"]
    assert await fifo.hide(first, 10) == "expired"
    [second] = await fifo.receive(visibility=5)
    assert await fifo.delete(first) == ["expired"]
    assert await fifo.hide(first, 10) == "expired"
    assert await fifo.delete(second) == ["ok"]
    assert await fifo.delete(first, second) == ["gone", "gone"]
    assert await fifo.hide(second, 10) == "gone"


async def test_extended_handle_outlives_its_first_timeout(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g"))
    [found] = await fifo.receive(visibility=5)
    fifo.wait(4)
    assert await fifo.hide(found, 20) == "ok"
    fifo.wait(19)
    assert await fifo.receive() == []
    assert await fifo.delete(found) == ["ok"]


async def test_old_and_new_handle_in_one_flush(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g"))
    [old] = await fifo.receive(visibility=0)
    [new] = await fifo.receive()
    results = await asyncio.gather(fifo.delete(old), fifo.delete(new), fifo.delete(old))
    assert list(results) == [["expired"], ["ok"], ["expired"]]
    assert await fifo.rows("fifo_messages") == 0


@pytest.mark.parametrize("others", [0, 1, 2])
async def test_a_flush_of_handles_of_which_one_is_no_longer_good(
    fifo: FifoQueue, others: int
) -> None:
    """Each of its own group: they go together, but for the one. 'kept' has a second message."""
    await fifo.send(*[make_message(group) for group in ("kept", "a", "b", "kept")])
    short = await fifo.receive(1, 10)
    rest = await fifo.receive(1, 60) + await fifo.receive(1, 60)
    fifo.wait(20)
    good = rest[:others]
    assert await fifo.delete(*good, *short) == ["ok"] * others + ["expired"]
    assert await fifo.delete(*short, *good) == ["expired"] + ["gone"] * others
    again = await fifo.receive(1, 60)
    assert again[0].sequence == short[0].sequence
    assert await fifo.delete(*again, *rest[others:]) == ["ok"] * (3 - others)
    assert [message.group_id for message in await fifo.receive()] == ["kept"]
    assert (await fifo.counts()).in_flight == 1
    assert await fifo.rows("fifo_groups") == 1


async def test_visibility_changes_of_one_message_in_turn(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g"))
    [found] = await fifo.receive()
    results = await asyncio.gather(*[fifo.hide(found, seconds) for seconds in (9, 0, 9)])
    assert results == ["ok", "ok", "expired"]
    assert len(await fifo.receive()) == 1


async def test_timeout_zero_hands_out_and_counts(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g"), make_message("h"))
    counted = [
        [(message.group_id, message.receive_count) for message in await fifo.receive(1, 0)]
        for _ in range(4)
    ]
    assert counted == [[("g", 1)], [("h", 1)], [("g", 2)], [("h", 2)]]


async def test_callers_of_timeout_zero_all_get_the_message(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g"))
    results = await asyncio.gather(*[fifo.receive(1, 0) for _ in range(4)])
    assert sorted(found[0].receive_count for found in results) == [1, 2, 3, 4]


async def test_released_messages_were_never_received(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g", "a"), make_message("g", "b"), make_message("h", "c"))
    found = await fifo.receive()
    async with fifo.database.transaction() as tx:
        await release(tx, fifo.now, found)
    fifo.wait(1)
    again = await fifo.receive()
    assert bodies(again) == ["a", "b", "c"]
    assert [message.receive_count for message in again] == [1, 1, 1]
    assert again[0].first_received_at_ms == (found[0].first_received_at_ms or 0) + 1000
    assert await fifo.delete(*found) == ["ok"] * 3


# Waiting


async def test_next_ready(fifo: FifoQueue) -> None:
    async def ask() -> tuple[bool, int | None]:
        async with fifo.database.transaction() as tx:
            [row] = await next_ready(tx, fifo.now, [fifo.queue_id])
        return row[1:]

    assert await ask() == (False, None)
    await fifo.send(make_message("g"), make_message("h", delay_seconds=7))
    assert await ask() == (True, 7000)
    [found] = await fifo.receive(visibility=3)
    assert await ask() == (False, 3000)
    await fifo.delete(found)
    assert await ask() == (False, 7000)
    fifo.wait(7)
    assert await ask() == (True, None)


async def test_empty_receive_looks_again_when_a_group_is_ready(fifo: FifoQueue) -> None:
    """Somebody else holds the row for a moment: the caller is tried again, but not for ever."""
    await fifo.send(make_message("g"))
    async with fifo.database.transaction() as tx:
        await tx.execute("SELECT 1 FROM fifo_groups FOR UPDATE")
        flushes: list[int] = []
        fifo.lanes.receive.observe = flushes.append
        assert await fifo.receive() == []
        assert 1 < len(flushes) < 20
    assert len(await fifo.receive()) == 1


async def test_limit_of_messages_in_flight(fifo: FifoQueue) -> None:
    fifo.lanes.max_in_flight = 20
    await fifo.send(*[make_message(str(number)) for number in range(30)])
    first = await fifo.receive(10)
    second = await fifo.receive(10)
    assert len(first) + len(second) == 20
    assert await fifo.receive(10) == []


async def test_entries_of_callers_who_left_are_dropped(fifo: FifoQueue) -> None:
    await fifo.send(make_message("g"))
    unheard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    gone = Receive(fifo.queue_id, 1, 30_000, RETENTION, Replied(unheard))
    fifo.lanes.receive.submit(gone)
    gone.gone = True
    assert len(await fifo.receive()) == 1
    assert not unheard.done()


# Attempts


async def test_attempt_returns_the_same_messages(fifo: FifoQueue) -> None:
    await fifo.send(*[make_message("g", str(number)) for number in range(3)], make_message("h"))
    first = await fifo.receive(2, 30, attempt_id="a")
    fifo.wait(20)
    assert await fifo.receive(2, 30, attempt_id="a") == first
    # Its timeout was started again: the second one would be over by now.
    fifo.wait(20)
    assert [m.group_id for m in await fifo.receive(10, attempt_id="b")] == ["h"]
    assert await fifo.delete(*first) == ["ok", "ok"]


@pytest.mark.parametrize("change", ["deleted", "hidden", "received again", "five minutes"])
async def test_attempt_starts_anew(fifo: FifoQueue, change: str) -> None:
    await fifo.send(*[make_message("g", str(number)) for number in range(2)])
    first = await fifo.receive(2, 30, attempt_id="a")
    expected: list[int] = []
    if change == "deleted":
        await fifo.delete(first[0])
    elif change == "hidden":
        await fifo.hide(first[0], 60)
    elif change == "received again":
        fifo.wait(30)
        await fifo.receive(1, 30)
    else:
        fifo.wait(300)
        expected = [2, 2]
    again = await fifo.receive(2, 30, attempt_id="a")
    assert [message.receive_count for message in again] == expected


async def test_attempt_of_a_moved_on_queue_receives(fifo: FifoQueue) -> None:
    assert await fifo.receive(attempt_id="a") == []
    await fifo.send(make_message("g", "1"))
    assert bodies(await fifo.receive(attempt_id="a")) == ["1"]
    await asyncio.gather(*[fifo.receive(attempt_id="a"), fifo.receive(attempt_id="b")])
    assert (await fifo.counts()).in_flight == 1


async def test_a_batch_may_name_a_group_twice(fifo: FifoQueue) -> None:
    rows = [make_message("g", str(number)).row(fifo.queue_id) for number in range(10)]
    result = await call(fifo.lanes.send, lambda reply: Send(rows, reply, 0))
    assert isinstance(result, list)
    sequences = [row[1] for row in result]
    assert sequences == sorted(sequences)
    assert bodies(await fifo.receive()) == [str(number) for number in range(10)]
