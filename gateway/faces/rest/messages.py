"""Messages of a queue: send, receive, change visibility, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.message_members import (
    Delay,
    FifoId,
    Headers,
    JsonMessage,
    MessageId,
    Priority,
    Timeout,
    Ttl,
    instant_of,
)
from queuegate.gateway.faces.rest.queues import QueuePath, queue_of
from queuegate.gateway.faces.rest.words import QueueName
from queuegate.gateway.operations.queues import priorities
from queuegate.gateway.operations.queues.deletions import change_by_number, finish_by_number
from queuegate.gateway.operations.queues.json_messages import (
    attributes_of,
    body_of,
    headers_of,
    message_of,
)
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_shown
from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage import model
from queuegate.storage.errors import InvalidParameterValue, Rejected, ResourceNotFound
from queuegate.storage.model import Queue, Received, SentMessage

_TAG = "messages"
_MOST_SENT = LIMITS.sent_messages
_ENTRIES_AT_ONCE = 16


class NewMessage(Struct, forbid_unknown_fields=True):
    """A message to send. FIFO queues need a `group_id`."""

    message: JsonMessage
    headers: Headers | None = None
    delay: Delay | None = None
    priority: Priority | None = None
    ttl: Ttl | None = None
    group_id: FifoId | None = None
    deduplication_id: FifoId | None = None
    sync_commit: Annotated[
        bool,
        Meta(
            description="False: the answer may come before the message is on disk; a crash of the "
            "database may lose it. Honoured when all that is written together with it agrees; FIFO "
            "queues wait for the disk all the same."
        ),
    ] = True


class SentOne(Struct):
    """The message that was sent."""

    id: MessageId


class SentMany(Struct):
    """The messages that were sent, in order."""

    ids: list[MessageId]


class ReceiveQuery(Struct, forbid_unknown_fields=True):
    """What to receive."""

    max: Annotated[
        int, Meta(ge=1, le=LIMITS.received_messages, description="At most so many messages.")
    ] = 1
    vt: Annotated[
        Timeout | None, Meta(description="Seconds to hide them. Absent: the queue's, normally 30.")
    ] = None
    wait: Annotated[
        Annotated[int, Meta(ge=0, le=LIMITS.receive_wait_seconds)] | None,
        Meta(description="Seconds to wait for one. Absent: the queue's, normally 0."),
    ] = None
    fifo: Annotated[bool, Meta(description="Changes nothing: the queue knows.")] = False


class ReceivedMessage(Struct):
    """A message as you received it."""

    id: MessageId
    message: JsonMessage
    headers: Annotated[
        Raw,
        Meta(description="An object.", extra_json_schema={"type": "object"}),
    ]
    read_ct: Annotated[int, Meta(ge=1, description="How many times it was received.")]
    enqueued_at: datetime
    visible_at: Annotated[datetime, Meta(description="When others see it unless you delete it.")]
    message_id: Annotated[str, Meta(description="As SQS calls it.")]
    group_id: str | UnsetType = UNSET
    priority: Annotated[
        int | UnsetType, Meta(description="Of a queue with priorities, or ends, of messages.")
    ] = UNSET
    expires_at: Annotated[
        datetime | UnsetType, Meta(description="From then on nobody gets it.")
    ] = UNSET


class MessagePath(Struct, forbid_unknown_fields=True):
    """Which message."""

    name: QueueName
    id: MessageId


class Ids(Struct, forbid_unknown_fields=True):
    """Messages of a queue."""

    ids: Annotated[list[MessageId], Meta(min_length=1, max_length=LIMITS.deleted_messages)]


class Deleted(Struct):
    """Those that were there, in the order in which you named them."""

    deleted: list[MessageId]


class NewTimeout(Struct, forbid_unknown_fields=True):
    """When others see the message again."""

    vt: Annotated[
        int,
        Meta(
            ge=0,
            le=LIMITS.visibility_timeout_seconds,
            description="Seconds from now; 0 shows it at once.",
        ),
    ]


class Hidden(Struct):
    """Until when the message is hidden."""

    id: MessageId
    visible_at: datetime


def _to_send(new: NewMessage) -> MessageToSend:
    headers = new.headers
    raw = {name: bytes(value) for name, value in headers.items()} if headers else None
    attributes, size = attributes_of(raw)
    # What the fields do not say, headers may, as attributes do in AWS.
    priority, ttl_seconds = priorities.of_stored(attributes, LIMITS)
    message = model.NewMessage(
        body_of(bytes(new.message)),
        attributes,
        delay_seconds=new.delay,
        group_id=new.group_id,
        deduplication_id=new.deduplication_id,
        priority=priority if new.priority is None else new.priority,
        ttl_seconds=ttl_seconds if new.ttl is None else new.ttl,
    )
    return MessageToSend(message, size)


async def _send(call: Call) -> Answer:
    queue = await queue_of(call)
    given: NewMessage | list[NewMessage] = call.body
    await call.engine.rates.take(call.caller, 1 if isinstance(given, NewMessage) else len(given))
    if isinstance(given, NewMessage):
        messages = [_to_send(given)]
    else:
        messages = []
        for number, one in enumerate(given, 1):
            messages.append(_entry(number, one))
            if number % _ENTRIES_AT_ONCE == 0:
                # Hundreds of messages with a hundred headers each take long: others go first.
                await yield_to_loop()
    all_given = [given] if isinstance(given, NewMessage) else given
    is_async = not any(one.sync_commit for one in all_given)
    sent: list[SentMessage] = await answered(
        send_all, call.engine, call.caller, queue, messages, is_async
    )
    ids = [one.sequence or 0 for one in sent]
    return Answer(201, SentOne(ids[0]) if isinstance(given, NewMessage) else SentMany(ids))


def _entry(number: int, new: NewMessage) -> MessageToSend:
    try:
        return _to_send(new)
    except Rejected as refusal:
        raise InvalidParameterValue(f"Message {number}: {refusal}") from None


async def _receive(call: Call) -> Answer:
    queue = await queue_of(call)
    query: ReceiveQuery = call.query
    request = ReceiveMany(query.max, query.vt, query.wait)
    shown = await receive_shown(call.engine, call.caller, queue, request, _shown)
    return Answer(200, shown)


def _shown(message: Received, visible_at: datetime) -> ReceivedMessage:
    group_id: Any = message.group_id
    if message.system is not None and group_id is None:
        group_id = message.system_members().get("MessageGroupId")
    return ReceivedMessage(
        message.sequence,
        Raw(message_of(message.body)),
        Raw(headers_of(message.attributes)),
        message.receive_count,
        instant_of(message.sent_at_ms),
        visible_at,
        str(message.message_id),
        UNSET if group_id is None else group_id,
        UNSET if message.priority is None else message.priority,
        UNSET if message.expires_at_ms is None else instant_of(message.expires_at_ms),
    )


async def _delete_many(call: Call) -> Answer:
    queue = await queue_of(call)
    return Answer(200, Deleted(await _deleted(call, queue, call.body.ids)))


async def _delete_one(call: Call) -> Answer:
    queue = await queue_of(call)
    if not await _deleted(call, queue, [call.path.id]):
        raise _no_message(queue, call.path.id)
    return Answer(204)


async def _deleted(call: Call, queue: Queue, ids: list[int]) -> list[int]:
    return await finish_by_number(call.engine, call.caller, queue, ids)


async def _change(call: Call) -> Answer:
    queue = await queue_of(call)
    visible_at = await change_by_number(call.engine, call.caller, queue, call.path.id, call.body.vt)
    if visible_at is None:
        raise _no_message(queue, call.path.id)
    return Answer(200, Hidden(call.path.id, visible_at))


def _no_message(queue: Queue, message_id: int) -> ResourceNotFound:
    return ResourceNotFound(f"Queue '{queue.name}' holds no message {message_id}.")


_FOUND = {
    "id": 1042,
    "message": {"job": "resize", "image": 7},
    "headers": {"tenant": "acme", "priority": 3},
    "read_ct": 1,
    "enqueued_at": "2030-01-31T09:00:00Z",
    "visible_at": "2030-01-31T09:00:30Z",
    "message_id": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
}
_NEW = {
    "message": {"job": "resize", "image": 7},
    "headers": {"tenant": "acme", "priority": 3},
    "delay": 5,
}
_THIS = {"name": "$request.path.name", "id": "$response.body#/id"}
_FIRST = {"name": "$request.path.name", "id": "$response.body#/0/id"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/queues/{name}/messages",
        "sendMessages",
        "Send one message or many",
        f"An object is one message, an array up to {_MOST_SENT}, of which all are sent or none: "
        "429 when the queue has no room for them. On a FIFO queue a message whose "
        "`deduplication_id` was used in the last five minutes is not sent again: you get the id of "
        "the first.",
        _TAG,
        _send,
        (
            Answered(
                201,
                (SentOne, SentMany),
                "`id` of the message, or `ids` of an array's.",
                {"id": 1042},
                links={"changeVisibility": _THIS, "deleteMessage": _THIS},
            ),
        ),
        path_params=QueuePath,
        refusals=(404, 429),
        carries_messages=True,
        body=NewMessage | Annotated[list[NewMessage], Meta(min_length=1, max_length=_MOST_SENT)],
        example={"examples": {"one": _NEW, "many": [_NEW, {"message": "as simple as that"}]}},
        right="sqs:SendMessage",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/messages",
        "receiveMessages",
        "Receive messages",
        "Others do not see them for `vt` seconds; delete them when you are done. With `wait` the "
        "answer comes as soon as there is a message. A FIFO group gives ten at once, and long "
        "messages come in smaller numbers. HEAD is not possible: asking hides messages.",
        _TAG,
        _receive,
        (
            Answered(
                200,
                list[ReceivedMessage],
                "Messages, maybe none.",
                [_FOUND],
                links={"changeVisibility": _FIRST, "deleteMessage": _FIRST},
            ),
        ),
        refusals=(404, 429),
        path_params=QueuePath,
        query=ReceiveQuery,
        is_safe=False,
        may_wait=True,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{name}/messages",
        "deleteMessages",
        "Delete messages",
        "By their ids, received or not; on a FIFO queue only what is in flight. `deleted` names "
        "those that were there.",
        _TAG,
        _delete_many,
        (Answered(200, Deleted, "What was deleted.", {"deleted": [1042]}),),
        path_params=QueuePath,
        body=Ids,
        example={"ids": [1042, 1043]},
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{name}/messages/{id}",
        "deleteMessage",
        "Delete a message",
        "By its id, received or not; on a FIFO queue only while it is in flight. 404 when it is "
        "not there (any more).",
        _TAG,
        _delete_one,
        (Answered(204, None, "The message is deleted."),),
        path_params=MessagePath,
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "PATCH",
        "/v1/queues/{name}/messages/{id}",
        "changeVisibility",
        "Hide a message for longer, or show it again",
        "Others see it `vt` seconds from now. On a FIFO queue only while it is in flight.",
        _TAG,
        _change,
        (
            Answered(
                200,
                Hidden,
                "Until when it is hidden.",
                {"id": 1042, "visible_at": "2030-01-31T09:01:00Z"},
            ),
        ),
        path_params=MessagePath,
        body=NewTimeout,
        example={"vt": 60},
        right="sqs:ChangeMessageVisibility",
    ),
)
