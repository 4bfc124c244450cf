"""Deletes and visibility by id, archives turned on and off, replays; no HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.queues import stored_messages
from queuegate.gateway.operations.queues.deletions import change_by_number, finish_by_number
from queuegate.gateway.operations.queues.stored_messages import (
    ArchivingChange,
    ListArchive,
    ReplayArchive,
)
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import ArchivedCopy, Queue, Received
from queuegate.storage.queues import messages
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    QueueDoesNotExist,
    VisibilityTimeoutOutOfRange,
)
from tests.operations.conftest import MakeQueue, ReceiveFrom, SendTo
from tests.operations.sqs import delete_queue
from tests.operations.world import TestClock
from tests.sqs_calls import (
    ReceiveMessage,
    answered,
    delete_message,
    delete_messages,
    receive_message,
)
from tests.waiting import until_so

ON, OFF = ArchivingChange(True), ArchivingChange(False)
ALL, EVERYTHING = ListArchive(), ReplayArchive()
KINDS = pytest.mark.parametrize("name", ["orders", "orders.fifo"])


async def until_parked(engine: Engine) -> None:
    """Let others have their turns until somebody waits."""
    await until_so(engine.wakeups.parked_count)


class Calls:
    """The operations as awaitables. Messages of a FIFO queue go to the group "g"."""

    def __init__(
        self,
        engine: Engine,
        caller: Caller,
        make_queue: MakeQueue,
        send: SendTo,
        receive: ReceiveFrom,
    ) -> None:
        self.engine = engine
        self.caller = caller
        self.make_queue = make_queue
        self._send = send
        self.receive = receive

    async def archiving_queue(self, name: str = "orders", **attributes: str) -> Queue:
        queue = await self.make_queue(name, **attributes)
        return await self.change(queue, ON)

    async def change(self, queue: Queue, change: ArchivingChange) -> Queue:
        return await stored_messages.change_archiving(self.engine, self.caller, queue, change)

    async def send(self, queue: Queue, *bodies: str, group: str = "g") -> None:
        for body in bodies:
            ids = {"group_id": group, "deduplication_id": body} if queue.is_fifo else {}
            await self._send(queue, body, **ids)

    async def delete(self, queue: Queue, *messages: Received) -> None:
        handles = [self.engine.receipts.handle_of(message, 0) for message in messages]
        if len(handles) == 1:
            await answered(delete_message, self.engine, self.caller, queue, handles[0])
        else:
            outcomes = await answered(delete_messages, self.engine, self.caller, queue, handles)
            assert outcomes == [None] * len(handles)

    async def finish_by_number(self, queue: Queue, *ids: int) -> list[int]:
        return await finish_by_number(self.engine, self.caller, queue, list(ids))

    async def consume(self, queue: Queue, *bodies: str, group: str = "g") -> list[int]:
        """Send, receive and delete; the ids."""
        await self.send(queue, *bodies, group=group)
        messages = await self.receive(queue)
        await self.delete(queue, *messages)
        return [message.sequence for message in messages]

    async def hide(self, queue: Queue, sequence: int, seconds: int) -> datetime | None:
        return await change_by_number(self.engine, self.caller, queue, sequence, seconds)

    async def kept(self, queue: Queue, request: ListArchive = ALL) -> list[ArchivedCopy]:
        page = await stored_messages.list_archive(self.engine, self.caller, queue, request)
        assert page.next_id is None
        return page.messages

    async def bodies(self, queue: Queue, request: ListArchive = ALL) -> list[str]:
        return [one.message.body for one in await self.kept(queue, request)]

    async def replay(
        self, queue: Queue, request: ReplayArchive = EVERYTHING, target: Queue | None = None
    ) -> stored_messages.Replayed:
        return await stored_messages.replay(
            self.engine, self.caller, queue, target or queue, request
        )

    def deleted_count(self, queue: Queue) -> int:
        """Return the number of deletes in the metrics."""
        return self.engine.series._of(queue).deleted


@pytest.fixture
def calls(
    engine: Engine, caller: Caller, make_queue: MakeQueue, send: SendTo, receive: ReceiveFrom
) -> Calls:
    return Calls(engine, caller, make_queue, send, receive)


@KINDS
async def test_deletes_by_ids_tell_what_was_there(calls: Calls, name: str) -> None:
    """In the order of the ids, each once, and nothing of another queue."""
    queue, other = await calls.make_queue(name), await calls.make_queue(f"other-{name}")
    for each in (queue, other):
        await calls.send(each, "1", "2", "3")
    mine = [message.sequence for message in await calls.receive(queue)]
    foreign = [message.sequence for message in await calls.receive(other)]
    asked = [mine[2], 0, -5, mine[0], mine[2], foreign[0], 1 << 70, mine[2] + 1_000]
    assert await calls.finish_by_number(queue, *asked) == [mine[2], mine[0]]
    assert await calls.finish_by_number(queue, *asked) == []
    assert await calls.finish_by_number(queue) == []
    assert await calls.finish_by_number(other, *foreign) == foreign
    assert calls.deleted_count(queue) == 2
    assert await calls.kept(queue) == []


@KINDS
async def test_of_deletes_by_ids_at_once_one_has_the_message(calls: Calls, name: str) -> None:
    queue = await calls.archiving_queue(name)
    await calls.send(queue, "1", "2", "3")
    ids = [message.sequence for message in await calls.receive(queue)]
    found = await asyncio.gather(*(calls.finish_by_number(queue, *ids) for _ in range(8)))
    assert sorted(one for deleted in found for one in deleted) == ids
    assert calls.deleted_count(queue) == 3
    assert await calls.bodies(queue) == ["1", "2", "3"]


async def test_standard_messages_are_deleted_by_id_in_any_state(calls: Calls) -> None:
    queue = await calls.archiving_queue()
    await calls.send(queue, "held", "fresh")
    [held] = await calls.receive(queue, 1)
    ids = held.sequence, held.sequence + 1
    assert await calls.finish_by_number(queue, *ids) == [*ids]
    assert [one.message.receive_count for one in await calls.kept(queue)] == [1, 0]


async def test_fifo_messages_are_deleted_by_id_only_in_flight(
    calls: Calls, clock: TestClock
) -> None:
    queue = await calls.make_queue("orders.fifo")
    await calls.send(queue, "1", "2")
    [first] = await calls.receive(queue, 1)
    ids = first.sequence, first.sequence + 1
    clock.move_on(31)
    assert await calls.finish_by_number(queue, *ids) == []
    # Somebody else has it now; whoever names it by id means the message, not the receive.
    [again] = await calls.receive(queue, 1)
    assert again.receive_count == 2
    assert await calls.finish_by_number(queue, *ids) == [first.sequence]
    [second] = await calls.receive(queue)
    assert second.sequence == ids[1]


async def test_fifo_message_received_anew_while_it_is_looked_up_is_deleted_all_the_same(
    calls: Calls, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await calls.make_queue("orders.fifo")
    await calls.send(queue, "1")
    [first] = await calls.receive(queue)
    look = messages.find_in_flight
    looks = 0

    async def slow(*arguments: object) -> object:
        nonlocal looks
        looks += 1
        found = await look(*arguments)  # type: ignore[arg-type] # passed on as they come
        if looks == 1:
            clock.move_on(31)
            assert len(await calls.receive(queue)) == 1
        return found

    monkeypatch.setattr(messages, "find_in_flight", slow)
    assert await calls.finish_by_number(queue, first.sequence) == [first.sequence]
    assert looks == 2


@KINDS
async def test_deleted_by_id_lets_what_is_behind_it_be_received(calls: Calls, name: str) -> None:
    queue = await calls.make_queue(name)
    await calls.send(queue, "1", "2")
    [first] = await calls.receive(queue, 1)
    request = ReceiveMessage(wait_seconds=20)
    if queue.is_fifo:
        assert await calls.receive(queue) == []
    waiting = asyncio.create_task(
        answered(receive_message, calls.engine, calls.caller, queue, request)
    )
    assert await calls.finish_by_number(queue, first.sequence) == [first.sequence]
    [second] = await asyncio.wait_for(waiting, 10)
    assert second.body == "2"


@KINDS
async def test_visibility_by_id(calls: Calls, clock: TestClock, name: str) -> None:
    queue = await calls.make_queue(name)
    await calls.send(queue, "1")
    [message] = await calls.receive(queue)
    assert clock.fixed is not None
    start = clock.fixed
    until = await calls.hide(queue, message.sequence, 600)
    assert until == start + timedelta(seconds=600)
    clock.fixed = start + timedelta(seconds=599)
    assert await calls.receive(queue) == []
    assert await calls.hide(queue, message.sequence, 0) == clock.fixed
    [again] = await calls.receive(queue)
    assert again.receive_count == 2
    assert await calls.hide(queue, message.sequence + 1_000, 60) is None
    assert await calls.hide(queue, 0, 60) is None
    assert await calls.hide(queue, 1 << 70, 60) is None
    await calls.delete(queue, again)
    assert await calls.hide(queue, message.sequence, 60) is None


@KINDS
async def test_shown_by_id_wakes_who_waits(calls: Calls, name: str) -> None:
    queue = await calls.make_queue(name)
    await calls.send(queue, "1")
    [message] = await calls.receive(queue)
    request = ReceiveMessage(wait_seconds=20)
    waiting = asyncio.create_task(
        answered(receive_message, calls.engine, calls.caller, queue, request)
    )
    await until_parked(calls.engine)
    await calls.hide(queue, message.sequence, 0)
    [again] = await asyncio.wait_for(waiting, 10)
    assert again.sequence == message.sequence


async def test_fifo_message_that_is_not_in_flight_cannot_be_hidden(calls: Calls) -> None:
    queue = await calls.make_queue("orders.fifo")
    await calls.send(queue, "1", "2")
    [first] = await calls.receive(queue, 1)
    assert await calls.hide(queue, first.sequence + 1, 60) is None


@pytest.mark.parametrize("seconds", [-1, 43_201])
async def test_visibility_by_id_has_limits(calls: Calls, seconds: int) -> None:
    queue = await calls.make_queue()
    with pytest.raises(VisibilityTimeoutOutOfRange):
        await calls.hide(queue, 1, seconds)


async def test_archiving_is_changed_part_by_part(calls: Calls) -> None:
    queue = await calls.make_queue()
    assert (queue.is_archiving, queue.archive_days) == (False, None)
    steps = (
        (ON, (True, None)),
        (ArchivingChange(archive_days=30, has_days=True), (True, 30)),
        (OFF, (False, 30)),
        (ArchivingChange(), (False, 30)),
        (ArchivingChange(True, None, True), (True, None)),
    )
    for change, expected in steps:
        queue = await calls.change(queue, change)
        assert (queue.is_archiving, queue.archive_days) == expected
        found = await calls.engine.queues.find(queue.account_id, queue.region, queue.name)
        assert found == queue
    await delete_queue(calls.engine, calls.caller, queue)
    with pytest.raises(QueueDoesNotExist):
        await calls.change(queue, ON)


@KINDS
async def test_off_is_off_also_for_who_has_not_heard_of_it(calls: Calls, name: str) -> None:
    stale = await calls.archiving_queue(name)
    await calls.send(stale, "1")
    messages = await calls.receive(stale)
    await calls.change(stale, OFF)
    await calls.delete(stale, *messages)
    assert await calls.kept(stale) == []


async def test_a_replay_takes_no_more_groups_than_a_send(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_messages, "_GROUPS_PER_REPLAY", 2)
    queue = await calls.archiving_queue("orders.fifo")
    for number in range(5):
        await calls.consume(queue, str(number), group=f"g{number}")
    first = await calls.replay(queue)
    assert len(first.ids) == 2
    assert first.last_id is not None
    second = await calls.replay(queue, ReplayArchive(after_id=first.last_id))
    assert second.last_id is not None
    third = await calls.replay(queue, ReplayArchive(after_id=second.last_id))
    assert (len(second.ids), len(third.ids), third.last_id) == (2, 1, None)
    assert sorted([one.body for one in await calls.receive(queue)]) == ["0", "1", "2", "3", "4"]


async def test_a_replay_wakes_who_waits_at_its_target(calls: Calls) -> None:
    queue = await calls.archiving_queue()
    await calls.consume(queue, "1")
    # A receive that found nothing: what comes next lies behind its mark.
    assert await calls.receive(queue) == []
    request = ReceiveMessage(wait_seconds=20)
    waiting = asyncio.create_task(
        answered(receive_message, calls.engine, calls.caller, queue, request)
    )
    await until_parked(calls.engine)
    done = await calls.replay(queue)
    [message] = await asyncio.wait_for(waiting, 10)
    assert [message.sequence] == done.ids


async def test_kinds_of_queues_do_not_mix_in_a_replay(calls: Calls) -> None:
    standard, fifo = [await calls.archiving_queue(name) for name in ("orders", "orders.fifo")]
    for source, target in ((standard, fifo), (fifo, standard)):
        await calls.consume(source, "1")
        with pytest.raises(InvalidParameterValue, match="one of them is a FIFO queue"):
            await calls.replay(source, target=target)
        assert await calls.receive(target) == []


@KINDS
async def test_a_replay_to_a_deleted_queue_is_refused(calls: Calls, name: str) -> None:
    queue, target = await calls.archiving_queue(name), await calls.make_queue(f"again-{name}")
    await calls.consume(queue, "1")
    await delete_queue(calls.engine, calls.caller, target)
    with pytest.raises(QueueDoesNotExist):
        await calls.replay(queue, target=target)


@KINDS
async def test_a_replay_of_nothing(calls: Calls, name: str) -> None:
    queue = await calls.archiving_queue(name)
    assert await calls.replay(queue) == ([], None)
    assert await calls.replay(queue, ReplayArchive([5, 1 << 70])) == ([], None)


async def test_an_archive_is_emptied_in_batches(
    calls: Calls, clock: TestClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_messages, "_REMOVED_PER_BATCH", 2)
    queue, other = [await calls.archiving_queue(name) for name in ("orders", "other")]
    await calls.consume(queue, "1", "2", "3", "4")
    await calls.consume(other, "1")
    assert clock.fixed is not None
    clock.move_on(hours=1)
    await calls.consume(queue, "5")

    async def clear(before: datetime | None = None) -> int:
        return await stored_messages.clear_archive(calls.engine, calls.caller, queue, before)

    assert await clear(datetime(2000, 1, 1, tzinfo=UTC)) == 0
    assert await clear(clock.fixed) == 4
    assert await calls.bodies(queue) == ["5"]
    assert await clear() == 1
    assert await calls.kept(queue) == []
    assert await calls.bodies(other) == ["1"]
