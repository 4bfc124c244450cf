"""The four methods of the text face, and its receipts."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.text import parameters
from queuegate.gateway.operations.queues import queues, sends
from queuegate.gateway.operations.queues.deletions import change, finish_last
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_many
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.protocol.digests import md5_of_bytes, sha1_of
from queuegate.storage.errors import MalformedInput, MessageIncomplete
from queuegate.storage.model import Handle, NewMessage, Outcome, Queue, SentMessage


def _done(content: bytes | None = None, /, **facts: object) -> Answer:
    """What there is, in headers: ``message_id`` is Message-Id."""
    return Answer(
        200, content, {name.replace("_", "-"): str(value) for name, value in facts.items()}
    )


_NOTHING = Answer(204)


async def _enqueue(call: Call) -> Answer:
    given: parameters.Enqueue = call.query
    engine, caller = call.engine, call.caller
    try:
        payload = call.body.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(
            f"The payload is not UTF-8 at its byte {error.start}: it is text here. Encode other "
            "bytes, in base64 for example."
        ) from None
    await engine.rates.take(caller)
    queue = await _queue_for(call, given)
    deduplication_id = given.deduplication_id
    if deduplication_id is None and queue.kind.has_groups:
        deduplication_id = sha1_of(payload)
    message = NewMessage(
        payload,
        group_id=given.group_id,
        deduplication_id=deduplication_id,
        ttl_seconds=given.ttl,
    )
    encoded = sends.checked(engine, queue, message, 0)
    digest = md5_of_bytes(encoded)
    new = [message._replace(digest=digest)]
    outcomes: list[SentMessage] = await answered(
        sends.send, engine, caller, queue, new, len(encoded)
    )
    [sent] = outcomes
    if sent.is_duplicate:
        return _NOTHING
    facts: dict[str, object] = {"message_id": sent.message_id, "message_md5": digest.hex()}
    if sent.sent_at_us is not None:
        facts["message_timestamp"] = sent.sent_at_us
    return _done(**facts)


async def _queue_for(call: Call, given: parameters.Enqueue) -> Queue:
    """The queue to send to. None is made for a message that it would not take."""
    if given.group_id is None or not call.body:
        queue = await queues.find(call.engine, call.caller, call.right, given.queue)
        if queue is None:
            raise MessageIncomplete("group_id" if call.body else "body")
        return queue
    return await queues.find_or_make(call.engine, call.caller, call.right, given.queue)


async def _dequeue(call: Call) -> Answer:
    given: parameters.Dequeue = call.query
    engine = call.engine
    queue = await queues.find(engine, call.caller, call.right, given.queue)
    if queue is None:
        return _NOTHING
    request = ReceiveMany(1, given.visibility_timeout, given.wait)
    received = await receive_many(engine, call.caller, queue, request)
    if not received:
        return _NOTHING
    [message] = received
    now = engine.clock.of(queue.account_id).seconds()
    handle = engine.receipts.handle_of(message, now)
    return _done(
        message.body.encode(),
        message_receipt_id=f"{handle}.{message.message_id.hex}",
        message_id=message.message_id,
        message_timestamp=message.sent_at_us,
    )


class _Receipt(NamedTuple):
    """What a receipt id says. ``message_id`` is what a text queue's client was told: whoever writes
    another one tells himself."""

    handle: Handle
    message_id: str


def _receipt(engine: Engine, queue: Queue, text: str) -> _Receipt:
    handle, _, digits = text.partition(".")
    receipt = engine.receipts.read(queue, handle, engine.clock)
    try:
        message_id = UUID(hex=digits)
    except ValueError:
        receipt = None
    if receipt is None:
        raise MalformedInput(
            f"receipt-id is none of queue '{queue.name}': give what the header Message-Receipt-Id "
            "said, and the parameter queue as you received."
        )
    return _Receipt(receipt.handle, str(message_id))


async def _delete(call: Call) -> Answer:
    given: parameters.Delete = call.query
    queue = await queues.find(call.engine, call.caller, call.right, given.queue)
    if queue is None:
        return _NOTHING
    receipt = _receipt(call.engine, queue, given.receipt_id)
    outcomes = await answered(finish_last, call.engine, queue, [receipt.handle])
    return _told(outcomes, receipt)


async def _change(call: Call) -> Answer:
    given: parameters.Change = call.query
    queue = await queues.find(call.engine, call.caller, call.right, given.queue)
    if queue is None:
        return _NOTHING
    receipt = _receipt(call.engine, queue, given.receipt_id)
    wanted = [(receipt.handle, given.visibility_timeout)]
    return _told(await answered(change, call.engine, queue, wanted), receipt)


def _told(outcomes: list[Outcome], receipt: _Receipt) -> Answer:
    """Of a receipt that is not that of the last receive, nothing is told."""
    return _done(message_id=receipt.message_id) if outcomes == ["ok"] else _NOTHING


_TAG = "messages"
_MESSAGE_ID = {"Message-Id": "As SQS calls the message."}
_TIMESTAMP = {"Message-Timestamp": "When it was sent, in microseconds."}
_RECEIPT = {
    "receipt-id": "$response.header.Message-Receipt-Id",
    "queue": "$request.query.queue",
}
_NOT_THE_LAST = "Nothing was done: somebody has received it since, or it is gone."

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/queue",
        "sendText",
        "Send a message",
        "It is on disk when this is answered. The queue is made if it is not there.",
        _TAG,
        _enqueue,
        (
            Answered(
                200,
                None,
                "It is sent.",
                headers={**_MESSAGE_ID, "Message-Md5": "Of the payload.", **_TIMESTAMP},
            ),
            Answered(204, None, "It is a duplicate of one that is still there."),
        ),
        refusals=(404, 429),
        query=parameters.Enqueue,
        body=str,
        example="Waddap",
        right="sqs:SendMessage",
    ),
    Endpoint(
        "GET",
        "/queue",
        "receiveText",
        "Receive a message",
        "One message of a group is out at a time. Unless you delete it within its timeout, it "
        "comes again.",
        _TAG,
        _dequeue,
        (
            Answered(
                200,
                str,
                "Its payload.",
                "Waddap",
                headers={
                    "Message-Receipt-Id": "Of this receive: to delete the message by.",
                    **_MESSAGE_ID,
                    **_TIMESTAMP,
                },
                media_type="text/plain",
                links={"deleteText": _RECEIPT, "changeText": _RECEIPT},
            ),
            Answered(204, None, "There is none."),
        ),
        refusals=(404, 429),
        query=parameters.Dequeue,
        is_safe=False,
        may_wait=True,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "DELETE",
        "/queue",
        "deleteText",
        "Delete a message",
        "By the receipt of its last receive.",
        _TAG,
        _delete,
        (
            Answered(200, None, "It is deleted.", headers=_MESSAGE_ID),
            Answered(204, None, _NOT_THE_LAST),
        ),
        query=parameters.Delete,
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "PATCH",
        "/queue",
        "changeText",
        "Change the timeout of a message",
        "By the receipt of its last receive: so many seconds from now on, 0 shows it.",
        _TAG,
        _change,
        (
            Answered(200, None, "It is changed.", headers=_MESSAGE_ID),
            Answered(204, None, _NOT_THE_LAST),
        ),
        query=parameters.Change,
        right="sqs:ChangeMessageVisibility",
    ),
)
"""Every method of ``/queue``."""
