"""The four methods of the text face, and its receipts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from gateway.faces.requests import Headers, Response
from gateway.faces.text import parameters
from gateway.operations.caller import Caller
from gateway.operations.engine import Engine
from gateway.operations.queues import sending, text_queues
from gateway.operations.queues.finishing import change, finish_last
from gateway.operations.queues.receiving_many import ReceiveMany, receive_many
from gateway.operations.replies import answered
from protocol.digests import md5_of_bytes, sha1_of
from storage.errors import MalformedInput, MessageIncomplete
from storage.model import Handle, NewMessage, Outcome, Queue, SentMessage

TEXT: tuple[bytes, bytes] = (b"content-type", b"text/plain")


class Asked(NamedTuple):
    """A request: by whom, with which parameters and payload, and the right that it takes."""

    engine: Engine
    caller: Caller
    right: str
    given: parameters.Enqueue | parameters.Dequeue | parameters.Delete | parameters.Change
    payload: bytes


def _done(**facts: object) -> Response:
    """What there is, in headers: ``message_id`` is Message-Id."""
    headers: Headers = [TEXT]
    for name, value in facts.items():
        headers.append((name.replace("_", "-").encode(), str(value).encode()))
    return Response(200, headers, b"")


def _nothing() -> Response:
    return Response(204, [TEXT], b"")


async def _enqueue(asked: Asked) -> Response:
    given = asked.given
    assert isinstance(given, parameters.Enqueue)
    engine, caller = asked.engine, asked.caller
    try:
        payload = asked.payload.decode()
    except UnicodeDecodeError as error:
        raise MalformedInput(
            f"The payload is not UTF-8 at its byte {error.start}: it is text here. Encode other "
            "bytes, in base64 for example."
        ) from None
    await engine.rates.take(caller)
    queue = await _queue_for(asked, given)
    deduplication_id = given.deduplication_id
    if deduplication_id is None and queue.kind.has_groups:
        deduplication_id = sha1_of(payload)
    message = NewMessage(
        payload,
        group_id=given.group_id,
        deduplication_id=deduplication_id,
        ttl_seconds=given.ttl,
    )
    encoded = sending.checked(engine, queue, message, 0)
    digest = md5_of_bytes(encoded)
    new = [message._replace(digest=digest)]
    outcomes: list[SentMessage] = await answered(
        sending.send, engine, caller, queue, new, len(encoded)
    )
    [sent] = outcomes
    if sent.is_duplicate:
        return _nothing()
    facts: dict[str, object] = {"message_id": sent.message_id, "message_md5": digest.hex()}
    if sent.sent_at_us is not None:
        facts["message_timestamp"] = sent.sent_at_us
    return _done(**facts)


async def _queue_for(asked: Asked, given: parameters.Enqueue) -> Queue:
    """The queue to send to. None is made for a message that it would not take."""
    if given.group_id is None or not asked.payload:
        queue = await text_queues.find(asked.engine, asked.caller, asked.right, given.queue)
        if queue is None:
            raise MessageIncomplete("group_id" if asked.payload else "body")
        return queue
    return await text_queues.find_or_make(asked.engine, asked.caller, asked.right, given.queue)


async def _dequeue(asked: Asked) -> Response:
    given = asked.given
    assert isinstance(given, parameters.Dequeue)
    engine = asked.engine
    queue = await text_queues.find(engine, asked.caller, asked.right, given.queue)
    if queue is None:
        return _nothing()
    request = ReceiveMany(1, given.visibility_timeout, given.wait)
    received = await receive_many(engine, asked.caller, queue, request)
    if not received:
        return _nothing()
    [message] = received
    now = engine.clock.of(queue.account_id).seconds()
    handle = engine.receipts.handle_of(message, now)
    response = _done(
        message_receipt_id=f"{handle}.{message.message_id.hex}",
        message_id=message.message_id,
        message_timestamp=message.sent_at_us,
    )
    response.body = message.body.encode()
    return response


class _Receipt(NamedTuple):
    """What a receipt id says. ``message_id`` is what a text queue's client was told: whoever writes
    another one tells himself."""

    handle: Handle
    message_id: str


def _receipt(engine: Engine, queue: Queue, text: str) -> _Receipt:
    handle, _, digits = text.partition(".")
    now = engine.clock.of(queue.account_id).seconds()
    receipt = engine.receipts.read(queue, handle, now)
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


async def _delete(asked: Asked) -> Response:
    given = asked.given
    assert isinstance(given, parameters.Delete)
    queue = await text_queues.find(asked.engine, asked.caller, asked.right, given.queue)
    if queue is None:
        return _nothing()
    receipt = _receipt(asked.engine, queue, given.receipt_id)
    outcomes = await answered(finish_last, asked.engine, queue, [receipt.handle])
    return _told(outcomes, receipt)


async def _change(asked: Asked) -> Response:
    given = asked.given
    assert isinstance(given, parameters.Change)
    queue = await text_queues.find(asked.engine, asked.caller, asked.right, given.queue)
    if queue is None:
        return _nothing()
    receipt = _receipt(asked.engine, queue, given.receipt_id)
    wanted = [(receipt.handle, given.visibility_timeout)]
    return _told(await answered(change, asked.engine, queue, wanted), receipt)


def _told(outcomes: list[Outcome], receipt: _Receipt) -> Response:
    """Of a receipt that is not that of the last receive, nothing is told."""
    return _done(message_id=receipt.message_id) if outcomes == ["ok"] else _nothing()


class Method(NamedTuple):
    """What a method does."""

    parameters: type[Struct]
    right: str
    answer: Callable[[Asked], Awaitable[Response]]


METHODS = {
    "POST": Method(parameters.Enqueue, "sqs:SendMessage", _enqueue),
    "GET": Method(parameters.Dequeue, "sqs:ReceiveMessage", _dequeue),
    "DELETE": Method(parameters.Delete, "sqs:DeleteMessage", _delete),
    "PATCH": Method(parameters.Change, "sqs:ChangeMessageVisibility", _change),
}
"""Every method of ``/queue``."""
