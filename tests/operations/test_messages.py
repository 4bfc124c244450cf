"""Rules and limits of send, receive, delete and change visibility; no HTTP."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from queuegate.gateway.faces.aws.aws_refusals import text_of
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    BatchRequestTooLong,
    DeduplicationIdMissing,
    DeduplicationIdUnfit,
    DelayOutOfRange,
    DelayUnfit,
    IdInvalid,
    InvalidMessageContents,
    InvalidParameterValue,
    MessageIncomplete,
    MessageTooLarge,
    MissingParameter,
    QueueDoesNotExist,
    ReceiptHandleIsInvalid,
    Rejected,
)
from tests.operations.conftest import MakeQueue, ReceiveFrom, SendTo, TestClock
from tests.operations.sqs import DeleteQueue, delete_queue
from tests.sqs_calls import (
    ReceiveMessage,
    SendMessage,
    SendResult,
    answered,
    change_message_visibilities,
    change_message_visibility,
    delete_message,
    delete_messages,
    receive_message,
    send_message,
    send_messages,
)


@pytest.fixture
async def queue(make_queue: MakeQueue) -> Queue:
    return await make_queue()


@pytest.fixture
async def fifo(make_queue: MakeQueue) -> Queue:
    return await make_queue("orders.fifo")


class Calls:
    """The operations as awaitables."""

    def __init__(self, engine: Engine, caller: Caller) -> None:
        self.engine = engine
        self.caller = caller

    async def send(self, queue: Queue, body: str | None = "body", **more: Any) -> SendResult:
        request = SendMessage(body, **more)
        sent: SendResult = await answered(send_message, self.engine, self.caller, queue, request)
        return sent

    async def send_batch(self, queue: Queue, *requests: SendMessage) -> list[SendResult | Rejected]:
        result: list[SendResult | Rejected] = await answered(
            send_messages, self.engine, self.caller, queue, list(requests)
        )
        return result

    async def handle(self, queue: Queue, **more: Any) -> str:
        """The handle of the next message."""
        request = ReceiveMessage(wait_seconds=0, **more)
        [message] = await answered(receive_message, self.engine, self.caller, queue, request)
        return self.engine.receipts.handle_of(message, self.engine.clock.seconds())

    async def delete(self, queue: Queue, handle: str | None) -> None:
        await answered(delete_message, self.engine, self.caller, queue, handle)

    async def change(self, queue: Queue, handle: str | None, seconds: int | None) -> None:
        await answered(change_message_visibility, self.engine, self.caller, queue, handle, seconds)


@pytest.fixture
def calls(engine: Engine, caller: Caller) -> Calls:
    return Calls(engine, caller)


async def test_a_sender_is_told_id_and_digest(calls: Calls, queue: Queue) -> None:
    sent = await calls.send(queue, "hellö")
    assert sent.md5_of_body == hashlib.md5("hellö".encode()).hexdigest()
    assert sent.sequence_number is None
    assert sent.md5_of_attributes is None


async def test_a_receiver_sees_what_was_sent(
    calls: Calls, queue: Queue, receive: ReceiveFrom
) -> None:
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    sent = await calls.send(queue, "a", group_id="g", system_attributes=trace)
    [message] = await receive(queue)
    assert str(message.message_id) == sent.message_id
    assert message.sender_id == "AIDATESTER"
    assert message.system_members() == {"AWSTraceHeader": "Root=1", "MessageGroupId": "g"}
    assert sent.md5_of_system_attributes is not None


@pytest.mark.parametrize("body", [None, ""])
async def test_a_body_is_required(calls: Calls, queue: Queue, body: str | None) -> None:
    with pytest.raises(MessageIncomplete):
        await calls.send(queue, body)


@pytest.mark.parametrize("body", ["\0", "\x1f", "a\ufffe", "\ud800", "\x0b"])
async def test_characters_outside_of_xml_are_refused(calls: Calls, queue: Queue, body: str) -> None:
    with pytest.raises(InvalidMessageContents):
        await calls.send(queue, body)


async def test_the_size_limit_counts_body_and_attributes(
    calls: Calls, make_queue: MakeQueue
) -> None:
    queue = await make_queue("small", MaximumMessageSize="1024")
    await calls.send(queue, "é" * 512)
    with pytest.raises(MessageTooLarge) as refused:
        await calls.send(queue, "é" * 512 + "a")
    assert text_of(refused.value, is_query=False) == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    )
    # name, type and value: 1 + 6 + 3
    attributes = {"n": {"DataType": "String", "StringValue": "abc"}}
    await calls.send(queue, "a" * 1014, attributes=attributes)
    with pytest.raises(InvalidParameterValue):
        await calls.send(queue, "a" * 1015, attributes=attributes)


async def test_a_megabyte_goes_through(calls: Calls, queue: Queue, receive: ReceiveFrom) -> None:
    await calls.send(queue, "x" * 1_048_576)
    [message] = await receive(queue)
    assert len(message.body) == 1_048_576
    with pytest.raises(InvalidParameterValue):
        await calls.send(queue, "x" * 1_048_577)


@pytest.mark.parametrize("delay", [-1, 901])
async def test_a_delay_has_its_range(calls: Calls, queue: Queue, delay: int) -> None:
    with pytest.raises(DelayOutOfRange) as refused:
        await calls.send(queue, delay_seconds=delay)
    assert text_of(refused.value, is_query=False) == (
        f"Value {delay} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 "
        "and <= 900."
    )


async def test_the_queues_delay_holds_unless_one_is_given(
    calls: Calls, make_queue: MakeQueue, receive: ReceiveFrom, clock: TestClock
) -> None:
    queue = await make_queue("slow", DelaySeconds="10")
    await calls.send(queue, "late")
    await calls.send(queue, "now", delay_seconds=0)
    assert [message.body for message in await receive(queue)] == ["now"]
    assert clock.fixed is not None
    clock.fixed += timedelta(seconds=11)
    assert [message.body for message in await receive(queue)] == ["late"]


async def test_a_send_to_a_deleted_queue_is_refused(
    calls: Calls, queue: Queue, engine: Engine, caller: Caller
) -> None:
    await delete_queue(engine, caller, DeleteQueue(queue))
    with pytest.raises(QueueDoesNotExist):
        await calls.send(queue)


async def test_an_entry_that_is_refused_does_not_fail_its_neighbours(
    calls: Calls, queue: Queue, receive: ReceiveFrom
) -> None:
    one, two, three = await calls.send_batch(
        queue, SendMessage("1"), SendMessage("\0"), SendMessage("3")
    )
    assert isinstance(one, SendResult)
    assert isinstance(two, InvalidMessageContents)
    assert isinstance(three, SendResult)
    assert [message.body for message in await receive(queue)] == ["1", "3"]


async def test_a_batch_has_a_total(calls: Calls, queue: Queue, receive: ReceiveFrom) -> None:
    half = SendMessage("x" * 524_288)
    assert len(await calls.send_batch(queue, half, half)) == 2
    with pytest.raises(BatchRequestTooLong):
        await calls.send_batch(queue, half, half, SendMessage("x"))
    assert len(await receive(queue)) == 2


async def test_fifo_ids_are_required_and_checked(calls: Calls, fifo: Queue, queue: Queue) -> None:
    with pytest.raises(MessageIncomplete):
        await calls.send(fifo, deduplication_id="d")
    with pytest.raises(DeduplicationIdMissing):
        await calls.send(fifo, group_id="g")
    with pytest.raises(IdInvalid):
        await calls.send(fifo, group_id="a b", deduplication_id="d")
    with pytest.raises(IdInvalid):
        await calls.send(fifo, group_id="g", deduplication_id="x" * 129)
    with pytest.raises(DelayUnfit):
        await calls.send(fifo, group_id="g", deduplication_id="d", delay_seconds=1)
    with pytest.raises(DeduplicationIdUnfit):
        await calls.send(queue, deduplication_id="d")
    good = SendMessage("a", group_id="g", deduplication_id="d")
    with pytest.raises(InvalidParameterValue, match="MessageGroupId"):
        await calls.send_batch(fifo, good, SendMessage("b", deduplication_id="e"))


async def test_a_duplicate_gets_the_first_ones_ids(
    calls: Calls, fifo: Queue, receive: ReceiveFrom, clock: TestClock
) -> None:
    first = await calls.send(fifo, "a", group_id="g", deduplication_id="d", delay_seconds=0)
    again = await calls.send(fifo, "b", group_id="h", deduplication_id="d")
    assert again.message_id == first.message_id
    assert again.sequence_number == first.sequence_number
    assert len(first.sequence_number or "") == 20
    assert [message.body for message in await receive(fifo)] == ["a"]
    assert clock.fixed is not None
    clock.fixed += timedelta(seconds=301)
    later = await calls.send(fifo, "c", group_id="h", deduplication_id="d")
    assert later.message_id != first.message_id


@pytest.mark.parametrize(
    "request_",
    [
        ReceiveMessage(max_messages=0),
        ReceiveMessage(max_messages=11),
        ReceiveMessage(wait_seconds=-1),
        ReceiveMessage(wait_seconds=21),
        ReceiveMessage(visibility_timeout_seconds=-1),
        ReceiveMessage(visibility_timeout_seconds=43_201),
        ReceiveMessage(attempt_id="a b"),
    ],
    ids=repr,
)
async def test_a_receive_has_its_ranges(
    engine: Engine, caller: Caller, queue: Queue, request_: ReceiveMessage
) -> None:
    with pytest.raises(InvalidParameterValue):
        await answered(receive_message, engine, caller, queue, request_)


async def test_a_handle_must_be_one_of_this_queue(
    calls: Calls, queue: Queue, fifo: Queue, make_queue: MakeQueue, send: SendTo
) -> None:
    other = await make_queue("other")
    await send(other, "a")
    handle = await calls.handle(other)
    for wrong in ("garbage", handle[:-1], handle + "A", handle):
        with pytest.raises(ReceiptHandleIsInvalid):
            await calls.delete(queue, wrong)
        with pytest.raises(ReceiptHandleIsInvalid):
            await calls.change(queue, wrong, 5)
    with pytest.raises(ReceiptHandleIsInvalid):
        await calls.delete(fifo, handle)
    for missing in (None, ""):
        with pytest.raises(MissingParameter):
            await calls.delete(queue, missing)


async def test_delete_is_repeatable(calls: Calls, queue: Queue, send: SendTo) -> None:
    await send(queue, "a")
    handle = await calls.handle(queue)
    await calls.delete(queue, handle)
    await calls.delete(queue, handle)


async def test_an_expired_handle_deletes_on_a_standard_queue_only(
    calls: Calls, queue: Queue, fifo: Queue, clock: TestClock, receive: ReceiveFrom
) -> None:
    await calls.send(queue)
    await calls.send(fifo, group_id="g", deduplication_id="d")
    plain, ordered = await calls.handle(queue), await calls.handle(fifo)
    assert clock.fixed is not None
    clock.fixed += timedelta(seconds=31)
    await calls.delete(queue, plain)
    with pytest.raises(InvalidParameterValue, match="The receipt handle has expired"):
        await calls.delete(fifo, ordered)
    assert await receive(queue) == []
    assert len(await receive(fifo)) == 1


async def test_a_batch_of_deletes_answers_each(
    calls: Calls, engine: Engine, caller: Caller, queue: Queue, receive: ReceiveFrom
) -> None:
    await calls.send(queue)
    handle = await calls.handle(queue)
    handles: list[str | None] = [handle, "garbage", None, handle]
    one, two, three, four = await answered(delete_messages, engine, caller, queue, handles)
    assert one is None
    assert four is None
    assert isinstance(two, ReceiptHandleIsInvalid)
    assert isinstance(three, MissingParameter)
    assert all(
        isinstance(outcome, ReceiptHandleIsInvalid)
        for outcome in await answered(delete_messages, engine, caller, queue, ["garbage"])
    )


async def test_a_change_of_visibility_has_its_rules(
    calls: Calls, queue: Queue, clock: TestClock
) -> None:
    clock.fixed = None
    await calls.send(queue)
    handle = await calls.handle(queue)
    with pytest.raises(MissingParameter):
        await calls.change(queue, handle, None)
    for seconds in (-1, 43_201):
        with pytest.raises(InvalidParameterValue):
            await calls.change(queue, handle, seconds)
    await calls.change(queue, handle, 43_200)
    clock.set_ahead(3_600)
    with pytest.raises(InvalidParameterValue, match="beyond the limit"):
        await calls.change(queue, handle, 43_200)
    await calls.change(queue, handle, 39_000)
    await calls.delete(queue, handle)
    with pytest.raises(InvalidParameterValue, match="not available for visibility timeout change"):
        await calls.change(queue, handle, 5)


async def test_a_batch_of_changes_answers_each(
    calls: Calls, engine: Engine, caller: Caller, queue: Queue, receive: ReceiveFrom
) -> None:
    await calls.send(queue, "a")
    await calls.send(queue, "b")
    first, second = await calls.handle(queue), await calls.handle(queue)
    await calls.delete(queue, second)
    entries = [(first, 0), ("garbage", 0), (second, 0), (first, 50_000)]
    one, two, three, four = await answered(
        change_message_visibilities, engine, caller, queue, entries
    )
    assert one is None
    assert isinstance(two, ReceiptHandleIsInvalid)
    assert isinstance(three, InvalidParameterValue)
    assert isinstance(four, InvalidParameterValue)
    assert [message.body for message in await receive(queue)] == ["a"]
