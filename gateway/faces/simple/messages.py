"""Messages of the simple face: enqueue, dequeue, acknowledge, requeue."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.simple.counting import counted
from queuegate.gateway.faces.simple.queues import ID, QueueId, QueuePath
from queuegate.gateway.operations.queues.dead_letter_moves import requeue
from queuegate.gateway.operations.queues.deletions import finish_by_number
from queuegate.gateway.operations.queues.queue_cache import public_id
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_shown
from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage import model
from queuegate.storage.errors import ResourceNotFound
from queuegate.storage.model import Queue, Received, SentMessage

_TAG = "messages"
_NUMBER = re.compile("[1-9][0-9]{0,18}").fullmatch

MessageId = Annotated[str, Meta(description="Of a message, in its queue.", examples=["1042"])]


class NewMessage(Struct, forbid_unknown_fields=True):
    """A message to enqueue."""

    data: Annotated[
        str,
        Meta(
            description="Any text but none: nobody looks into it. Characters that XML cannot "
            "express are refused, for others may receive it over SQS.",
            extra_json_schema={"minLength": 1},
        ),
    ]


class Enqueued(Struct):
    """The id of the message."""

    message_id: MessageId


class DequeueQuery(Struct, forbid_unknown_fields=True):
    """How many messages, and how patiently."""

    limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=LIMITS.received_messages,
                description="Answer up to so many messages, as a list.",
            ),
        ]
        | None
    ) = None
    wait: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=LIMITS.receive_wait_seconds,
                description="Seconds to wait for a message. Absent: as the queue is set, normally "
                "0.",
            ),
        ]
        | None
    ) = None


class Message(Struct):
    """The next message."""

    message_id: MessageId
    data: str
    invisible_until: Annotated[
        datetime, Meta(description="Then others get it, unless you acknowledge it.")
    ]


class Nothing(Struct):
    """There is no message."""

    message: None = None


class BatchMessage(Message):
    """One of several messages."""

    delivery_count: Annotated[int, Meta(ge=1, description="How often it was delivered.")]


class Batch(Struct):
    """The next messages, maybe none."""

    messages: list[BatchMessage]


class MessagePath(Struct, forbid_unknown_fields=True):
    """Which message."""

    queue_id: QueueId
    message_id: MessageId


class Acknowledged(Struct):
    """The id of the message that was there."""

    message_id: MessageId
    deleted: bool


class Requeued(Struct):
    """The id of the message, and the queue that it is in now."""

    message_id: MessageId
    requeued_to: QueueId


async def _enqueue(call: Call, queue: Queue) -> Answer:
    new: NewMessage = call.body
    await call.engine.rates.take(call.caller)
    outgoing = [MessageToSend(model.NewMessage(new.data))]
    sent: list[SentMessage] = await answered(
        send_all, call.engine, call.caller, queue, outgoing, False
    )
    return Answer(201, Enqueued(str(sent[0].sequence)))


async def _dequeue(call: Call, queue: Queue) -> Answer:
    query: DequeueQuery = call.query
    request = ReceiveMany(query.limit or 1, None, query.wait)
    found = await receive_shown(call.engine, call.caller, queue, request, _shown)
    if query.limit is not None:
        return Answer(200, Batch(found))
    if not found:
        return Answer(200, Nothing())
    [one] = found
    return Answer(200, Message(one.message_id, one.data, one.invisible_until))


def _shown(message: Received, until: datetime) -> BatchMessage:
    return BatchMessage(str(message.sequence), message.body, until, message.receive_count)


async def _acknowledge(call: Call, queue: Queue) -> Answer:
    message_id: str = call.path.message_id
    if not await finish_by_number(call.engine, call.caller, queue, [_number(message_id)]):
        raise ResourceNotFound(
            f"The queue holds no message '{message_id[:_MOST_SHOWN]}': it was never there, was "
            "acknowledged, or went to the dead-letter queue."
        )
    return Answer(200, Acknowledged(message_id, True))


async def _requeue(call: Call, queue: Queue) -> Answer:
    message_id: str = call.path.message_id
    home = await requeue(call.engine, call.caller, queue, _number(message_id))
    if home is None:
        raise ResourceNotFound(
            f"The queue holds no dead letter '{message_id[:_MOST_SHOWN]}': it was never there, was "
            "requeued or acknowledged, or did not come from another queue."
        )
    return Answer(200, Requeued(message_id, public_id(home)))


def _number(message_id: str) -> int:
    """The number of the message that may have this id; 0: none has it."""
    return int(message_id) if _NUMBER(message_id) else 0


_MOST_SHOWN = 60

_THIS = {"queue_id": "$request.path.queue_id", "message_id": "$response.body#/message_id"}
_FOUND = {"message_id": "1042", "data": "hello", "invisible_until": "2030-01-31T09:00:30Z"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/api/queues/{queue_id}/messages",
        "enqueue",
        "Enqueue a message",
        "It is on disk when the answer comes. 429: the queue is full; try again later.",
        _TAG,
        counted("enqueue", _enqueue),
        (
            Answered(
                201,
                Enqueued,
                "The message is enqueued.",
                {"message_id": "1042"},
                links={"acknowledge": _THIS},
            ),
        ),
        refusals=(404, 429),
        path_params=QueuePath,
        carries_messages=True,
        body=NewMessage,
        example={"data": "hello"},
        right="sqs:SendMessage",
    ),
    Endpoint(
        "GET",
        "/api/queues/{queue_id}/messages",
        "dequeue",
        "Dequeue the next message",
        "Others do not see it until `invisible_until`; acknowledge it before. Without a message "
        'the answer is `{"message": null}`. With `limit` the answer is a list, and says how '
        "often each message was delivered. With `wait` the answer comes as soon as there is a "
        "message. HEAD is not possible: asking hides messages.",
        _TAG,
        counted("dequeue", _dequeue),
        (
            Answered(
                200,
                (Message, Nothing, Batch),
                "The message, or `message` null; `messages` of a batch.",
                _FOUND,
                links={"acknowledge": _THIS},
            ),
        ),
        refusals=(404, 429),
        path_params=QueuePath,
        query=DequeueQuery,
        is_safe=False,
        may_wait=True,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "DELETE",
        "/api/queues/{queue_id}/messages/{message_id}",
        "acknowledge",
        "Acknowledge a message",
        "It is deleted. 404 when it is not there (any more).",
        _TAG,
        counted("ack", _acknowledge),
        (
            Answered(
                200,
                Acknowledged,
                "The message is deleted.",
                {"message_id": "1042", "deleted": True},
            ),
        ),
        path_params=MessagePath,
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "POST",
        "/api/queues/{queue_id}/messages/{message_id}/requeue",
        "requeue",
        "Requeue a dead letter",
        "It goes from the dead-letter queue, which the path names, back to the queue that it came "
        "from, keeps its id, is visible at once, and its deliveries are counted from 0. 429: that "
        "queue is full.",
        _TAG,
        counted("requeue", _requeue),
        (
            Answered(
                200,
                Requeued,
                "The message is in its queue again.",
                {"message_id": "1042", "requeued_to": ID},
            ),
        ),
        refusals=(404, 429),
        path_params=MessagePath,
        right="sqs:StartMessageMoveTask",
    ),
)
