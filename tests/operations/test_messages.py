"""Rules and limits of send, receive, delete and change visibility; no HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from queuegate.gateway.faces.aws.aws_refusals import text_of
from queuegate.gateway.operations.access.caller import Caller
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import (
    DeduplicationIdMissing,
    DeduplicationIdUnfit,
    DelayOutOfRange,
    DelayUnfit,
    IdInvalid,
    InvalidMessageContents,
    InvalidParameterValue,
    MessageTooLarge,
    MissingParameter,
    ReceiptHandleIsInvalid,
)
from queuegate.storage.stored_clocks import ClockSetting, StoredClock
from tests.operations.conftest import MakeQueue, SendTo
from tests.operations.world import TestClock, World
from tests.sqs_calls import (
    ReceiveMessage,
    SendMessage,
    SendResult,
    answered,
    change_message_visibility,
    delete_message,
    receive_message,
    send_message,
)


@pytest.fixture
async def queue(make_queue: MakeQueue) -> Queue:
    return await make_queue()


@pytest.fixture
async def fifo(make_queue: MakeQueue) -> Queue:
    return await make_queue("orders.fifo")


class Calls(World):
    """The operations as awaitables."""

    async def send_one(self, queue: Queue, body: str | None = "body", **more: Any) -> SendResult:
        request = SendMessage(body, **more)
        sent: SendResult = await answered(send_message, self.engine, self.caller, queue, request)
        return sent

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


@pytest.mark.parametrize("body", ["\0", "\x1f", "a\ufffe", "\ud800", "\x0b"])
async def test_characters_outside_of_xml_are_refused(calls: Calls, queue: Queue, body: str) -> None:
    with pytest.raises(InvalidMessageContents):
        await calls.send_one(queue, body)


async def test_the_size_limit_counts_body_and_attributes(
    calls: Calls, make_queue: MakeQueue
) -> None:
    queue = await make_queue("small", MaximumMessageSize="1024")
    await calls.send_one(queue, "é" * 512)
    with pytest.raises(MessageTooLarge) as refused:
        await calls.send_one(queue, "é" * 512 + "a")
    assert text_of(refused.value, is_query=False) == (
        "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    )
    # name, type and value: 1 + 6 + 3
    attributes = {"n": {"DataType": "String", "StringValue": "abc"}}
    await calls.send_one(queue, "a" * 1014, attributes=attributes)
    with pytest.raises(InvalidParameterValue):
        await calls.send_one(queue, "a" * 1015, attributes=attributes)


@pytest.mark.parametrize("delay", [-1, 901])
async def test_a_delay_has_its_range(send: SendTo, queue: Queue, delay: int) -> None:
    with pytest.raises(DelayOutOfRange) as refused:
        await send(queue, delay_seconds=delay)
    assert text_of(refused.value, is_query=False) == (
        f"Value {delay} for parameter DelaySeconds is invalid. "
        "Reason: DelaySeconds must be >= 0 and <= 900."
    )


async def test_fifo_ids_are_required_and_checked(send: SendTo, fifo: Queue, queue: Queue) -> None:
    ids = {"group_id": "g", "deduplication_id": "d"}
    for given, refusal in (
        ({"group_id": "g"}, DeduplicationIdMissing),
        (ids | {"group_id": "a b"}, IdInvalid),
        (ids | {"delay_seconds": 1}, DelayUnfit),
    ):
        with pytest.raises(refusal):
            await send(fifo, **given)
    with pytest.raises(DeduplicationIdUnfit):
        await send(queue, deduplication_id="d")


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


async def test_a_change_of_visibility_has_its_rules(
    calls: Calls, queue: Queue, clock: TestClock
) -> None:
    clock.fixed = None
    await calls.send_one(queue)
    handle = await calls.handle(queue)
    with pytest.raises(MissingParameter):
        await calls.change(queue, handle, None)
    for seconds in (-1, 43_201):
        with pytest.raises(InvalidParameterValue):
            await calls.change(queue, handle, seconds)
    await calls.change(queue, handle, 43_200)
    assert clock.move(StoredClock(ClockSetting(3_600), {}, 1))
    with pytest.raises(InvalidParameterValue, match="beyond the limit"):
        await calls.change(queue, handle, 43_200)
    await calls.change(queue, handle, 39_000)
    await calls.delete(queue, handle)
    with pytest.raises(InvalidParameterValue, match="not available for visibility timeout change"):
        await calls.change(queue, handle, 5)
