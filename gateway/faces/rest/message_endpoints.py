"""Endpoints of messages: send, receive, change visibility and delete, by id or receipt handle.

Receipts are for bulk readers such as the Spark source. They do for 1,000 messages what
ReceiveMessage, DeleteMessageBatch and ChangeMessageVisibilityBatch do for ten, with the members and
refusals of SQS.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.aws.aws_refusals import failed_entry
from queuegate.gateway.faces.aws.sqs import sqs_receiving
from queuegate.gateway.faces.aws.sqs.sqs_messages import ReceiveSelection, received_members
from queuegate.gateway.faces.json.json_endpoints import (
    Answer,
    Answered,
    Call,
    Endpoint,
    schema_name,
)
from queuegate.gateway.faces.json.json_fields import (
    AttemptId,
    Delay,
    FifoId,
    Headers,
    JsonMessage,
    MessageId,
    Priority,
    QueueName,
    Timeout,
    Ttl,
    instant_of,
)
from queuegate.gateway.faces.rest.queue_endpoints import QueuePath, queue_of
from queuegate.gateway.operations.access.authorization import find_queue_by_url
from queuegate.gateway.operations.queues import sends
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
from queuegate.storage.queue_model import NewMessage, Queue, Received, SentMessage
from queuegate.storage.storage_errors import InvalidParameterValue, Rejected, ResourceNotFound

_TAG = "messages"
_MOST_SENT = LIMITS.sent_messages
_ENTRIES_AT_ONCE = 16


@schema_name("NewMessage")
class NewQueueMessage(Struct, forbid_unknown_fields=True):
    """A message to send. FIFO queues require a `group_id`."""

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
            description="False: the answer may arrive before the message is durable, so a crash of "
            "the database may lose it. Effective only if all messages of the same write batch have "
            "it. FIFO queues ignore it."
        ),
    ] = True


class SentOne(Struct):
    """The sent message."""

    id: MessageId


class SentMany(Struct):
    """The sent messages, in order."""

    ids: list[MessageId]


class ReceiveQuery(Struct, forbid_unknown_fields=True):
    """Limits of a receive."""

    max: Annotated[
        int, Meta(ge=1, le=LIMITS.received_messages, description="Maximum number of messages.")
    ] = 1
    vt: Annotated[
        Timeout | None,
        Meta(description="Visibility timeout. Absent: that of the queue, by default 30."),
    ] = None
    wait: Annotated[
        Annotated[int, Meta(ge=0, le=LIMITS.receive_wait_seconds)] | None,
        Meta(description="Seconds to wait. Absent: the setting of the queue, by default 0."),
    ] = None
    fifo: Annotated[bool, Meta(description="Ignored: the queue decides.")] = False


class ReceivedMessage(Struct):
    """A received message."""

    id: MessageId
    message: JsonMessage
    headers: Annotated[
        Raw,
        Meta(description="An object.", extra_json_schema={"type": "object"}),
    ]
    read_ct: Annotated[int, Meta(ge=1, description="Number of receives.")]
    enqueued_at: datetime
    visible_at: Annotated[datetime, Meta(description="When the message is visible again.")]
    message_id: Annotated[str, Meta(description="The id of the message in SQS.")]
    group_id: str | UnsetType = UNSET
    priority: Annotated[
        int | UnsetType, Meta(description="Present if the queue uses priorities or expiry.")
    ] = UNSET
    expires_at: Annotated[datetime | UnsetType, Meta(description="When the message expires.")] = (
        UNSET
    )


class MessagePath(Struct, forbid_unknown_fields=True):
    """A message of a queue."""

    name: QueueName
    id: MessageId


class Ids(Struct, forbid_unknown_fields=True):
    """Messages of a queue."""

    ids: Annotated[list[MessageId], Meta(min_length=1, max_length=LIMITS.deleted_messages)]


class Deleted(Struct):
    """The deleted messages, in the order of the request."""

    deleted: list[MessageId]


class NewTimeout(Struct, forbid_unknown_fields=True):
    """A new visibility timeout."""

    vt: Annotated[
        int,
        Meta(
            ge=0,
            le=LIMITS.visibility_timeout_seconds,
            description="Seconds from now. 0 shows the message at once.",
        ),
    ]


class Hidden(Struct):
    """The end of the visibility timeout."""

    id: MessageId
    visible_at: datetime


def _to_send(new: NewQueueMessage) -> MessageToSend:
    headers = new.headers
    raw = {name: bytes(value) for name, value in headers.items()} if headers else None
    attributes, size = attributes_of(raw)
    # Headers may set absent fields, as message attributes do in AWS.
    priority, ttl_seconds = sends.urgency_of_stored(attributes, LIMITS)
    message = NewMessage(
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
    given: NewQueueMessage | list[NewQueueMessage] = call.body
    await call.engine.rates.take(
        call.caller, 1 if isinstance(given, NewQueueMessage) else len(given)
    )
    if isinstance(given, NewQueueMessage):
        messages = [_to_send(given)]
    else:
        messages = []
        for number, one in enumerate(given, 1):
            messages.append(_entry(number, one))
            if number % _ENTRIES_AT_ONCE == 0:
                # Hundreds of messages with 100 headers each take long: yield to other requests.
                await yield_to_loop()
    all_given = [given] if isinstance(given, NewQueueMessage) else given
    is_async = not any(one.sync_commit for one in all_given)
    sent: list[SentMessage] = await answered(
        send_all, call.engine, call.caller, queue, messages, is_async
    )
    ids = [one.sequence or 0 for one in sent]
    return Answer(201, SentOne(ids[0]) if isinstance(given, NewQueueMessage) else SentMany(ids))


def _entry(number: int, new: NewQueueMessage) -> MessageToSend:
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


_RECEIVED = {
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


_RECEIPTS = "receipts"
_PATH = "/v1/receipts"
_MOST_BYTES = 8 << 20
_MOST_NAMES = 100
_LONGEST_NAME = 256

QueueUrl = Annotated[
    str, Meta(max_length=2048, description="The URL of a queue in SQS, or its name.")
]
Names = Annotated[
    list[Annotated[str, Meta(max_length=_LONGEST_NAME)]], Meta(max_length=_MOST_NAMES)
]
ReceiptHandles = Annotated[
    list[str],
    Meta(min_length=1, max_length=LIMITS.receipts, description="Receipt handles of this queue."),
]


@schema_name("Receive")
class ReceiveReceipts(Struct, forbid_unknown_fields=True):
    """Limits of a receive."""

    queue: QueueUrl
    max: Annotated[
        int, Meta(ge=1, le=LIMITS.receipts, description="Maximum number of messages.")
    ] = LIMITS.receipts
    visibility_timeout: Annotated[
        Timeout | None, Meta(description="Absent: that of the queue, by default 30.")
    ] = None
    wait: Annotated[
        Annotated[int, Meta(ge=0, le=LIMITS.receive_wait_seconds)] | None,
        Meta(description="Seconds to wait. Absent: the setting of the queue, by default 0."),
    ] = None
    attempt_id: Annotated[
        AttemptId | None,
        Meta(description="ReceiveRequestAttemptId, which repeats a lost answer."),
    ] = None
    attributes: Annotated[Names, Meta(description="MessageSystemAttributeNames, or `All`.")] = []
    message_attributes: Annotated[
        Names, Meta(description="MessageAttributeNames, `prefix.*` or `All`.")
    ] = []


class ReceivedMessages(Struct):
    """Messages. May be empty."""

    messages: Annotated[
        list[dict[str, Any]], Meta(description="Messages in the form of ReceiveMessage.")
    ]


@schema_name("Delete")
class DeleteReceipts(Struct, forbid_unknown_fields=True):
    """Messages to delete."""

    queue: QueueUrl
    receipt_handles: ReceiptHandles


@schema_name("Hide")
class HideReceipts(Struct, forbid_unknown_fields=True):
    """Messages to hide."""

    queue: QueueUrl
    receipt_handles: ReceiptHandles
    visibility_timeout: Annotated[
        Timeout, Meta(description="Seconds from now. 0 shows the messages at once.")
    ]


class Failed(Struct):
    """The failed messages. All others succeeded."""

    failed: Annotated[
        list[dict[str, Any]],
        Meta(
            description="Entries as in batch answers of SQS: `Code`, `Message`, `SenderFault`, and "
            "in `Id` the index of the receipt handle in the request, from 0."
        ),
    ]


async def _queue(call: Call) -> Queue:
    return await find_queue_by_url(call.engine, call.caller, call.right, call.body.queue)


async def _receive_receipts(call: Call) -> Answer:
    queue = await _queue(call)
    asked: ReceiveReceipts = call.body
    request = ReceiveMany(
        asked.max, asked.visibility_timeout, asked.wait, asked.attempt_id, _MOST_BYTES
    )
    want = ReceiveSelection(tuple(asked.attributes), tuple(asked.message_attributes))
    now = call.engine.clock.of(queue.account_id).seconds
    handle_of = call.engine.receipts.handle_of

    def show(message: Received, _: datetime) -> dict[str, Any]:
        return received_members(message, want, handle_of(message, now()))

    shown = await receive_shown(call.engine, call.caller, queue, request, show)
    return Answer(200, ReceivedMessages(shown))


async def _delete_receipts(call: Call) -> Answer:
    queue = await _queue(call)
    asked: DeleteReceipts = call.body
    handles = asked.receipt_handles
    outcomes = await answered(sqs_receiving.delete_messages, call.engine, queue, handles)
    return _failed(outcomes)


async def _hide_receipts(call: Call) -> Answer:
    queue = await _queue(call)
    asked: HideReceipts = call.body
    changes = [(handle, asked.visibility_timeout) for handle in asked.receipt_handles]
    outcomes = await answered(
        sqs_receiving.change_message_visibilities, call.engine, queue, changes
    )
    return _failed(outcomes)


def _failed(outcomes: sqs_receiving.Outcomes) -> Answer:
    failed = [
        failed_entry("sqs", str(place), outcome)
        for place, outcome in enumerate(outcomes)
        if isinstance(outcome, Rejected)
    ]
    return Answer(200, Failed(failed))


_QUEUE = "http://127.0.0.1:9324/000000000000/jobs"
_HANDLE = "QGS2AAAAAQAAAAAAAAQSAAAAAWXyAAAt9m2Jc1yVxgr3"
_FOUND = {
    "MessageId": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
    "ReceiptHandle": _HANDLE,
    "MD5OfBody": "114c7d6626d5b19bd49fed30fff40ea7",
    "Body": '{"job": "resize", "image": 7}',
    "Attributes": {"SentTimestamp": "1896080400000"},
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/queues/{name}/messages",
        "sendMessages",
        "Send one message or many",
        f"An object is one message. An array has up to {_MOST_SENT} messages: all are sent, or "
        "none. 429: the queue has no capacity for them. On a FIFO queue, a `deduplication_id` of "
        "the last five minutes is a duplicate: the answer has the id of the first message.",
        _TAG,
        _send,
        (
            Answered(
                201,
                (SentOne, SentMany),
                "The `id` of one message, or the `ids` of an array.",
                {"id": 1042},
                links={"changeVisibility": _THIS, "deleteMessage": _THIS},
            ),
        ),
        path_params=QueuePath,
        refusals=(404, 429),
        carries_messages=True,
        body=NewQueueMessage
        | Annotated[list[NewQueueMessage], Meta(min_length=1, max_length=_MOST_SENT)],
        example={"examples": {"one": _NEW, "many": [_NEW, {"message": "as simple as that"}]}},
        right="sqs:SendMessage",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/messages",
        "receiveMessages",
        "Receive messages",
        "Hides the messages for `vt` seconds: delete them before. With `wait` the answer arrives "
        "as soon as a message is available. A FIFO group returns at most ten messages. Answers "
        "with long messages have fewer. HEAD is not allowed, because a request hides messages.",
        _TAG,
        _receive,
        (
            Answered(
                200,
                list[ReceivedMessage],
                "Messages. May be empty.",
                [_RECEIVED],
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
        "Deletes messages by their ids, received or not. On a FIFO queue, only messages in flight "
        "are deleted. `deleted` lists the existing ones.",
        _TAG,
        _delete_many,
        (Answered(200, Deleted, "The deleted messages.", {"deleted": [1042]}),),
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
        "Deletes a message by its id, received or not. On a FIFO queue it must be in flight. 404: "
        "the message does not exist any more.",
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
        "Change the visibility of a message",
        "Shows the message `vt` seconds from now. On a FIFO queue it must be in flight.",
        _TAG,
        _change,
        (
            Answered(
                200,
                Hidden,
                "The end of the visibility timeout.",
                {"id": 1042, "visible_at": "2030-01-31T09:01:00Z"},
            ),
        ),
        path_params=MessagePath,
        body=NewTimeout,
        example={"vt": 60},
        right="sqs:ChangeMessageVisibility",
    ),
    Endpoint(
        "POST",
        _PATH,
        "receiveReceipts",
        "Receive many messages, with receipt handles",
        "Does what ReceiveMessage of SQS does for ten: hides the messages for `visibility_timeout` "
        "seconds. A FIFO group returns at most ten messages. An answer ends at 8 MB and ten "
        "messages, so fewer than `max` messages do not mean that the queue is empty.",
        _RECEIPTS,
        _receive_receipts,
        (Answered(200, ReceivedMessages, "Messages. May be empty.", {"messages": [_FOUND]}),),
        refusals=(404, 429),
        body=ReceiveReceipts,
        example={"queue": _QUEUE, "max": 1000, "wait": 5, "attributes": ["SentTimestamp"]},
        may_wait=True,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "DELETE",
        _PATH,
        "deleteReceipts",
        "Delete many messages by receipt handle",
        "Does what DeleteMessageBatch of SQS does for ten: each message succeeds or fails on its "
        "own. A deleted message is a success.",
        _RECEIPTS,
        _delete_receipts,
        (Answered(200, Failed, "The failed messages.", {"failed": []}),),
        body=DeleteReceipts,
        example={"queue": _QUEUE, "receipt_handles": [_HANDLE]},
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "PATCH",
        _PATH,
        "changeReceipts",
        "Change the visibility of many messages",
        "Does what ChangeMessageVisibilityBatch of SQS does for ten.",
        _RECEIPTS,
        _hide_receipts,
        (Answered(200, Failed, "The failed messages.", {"failed": []}),),
        body=HideReceipts,
        example={"queue": _QUEUE, "receipt_handles": [_HANDLE], "visibility_timeout": 60},
        right="sqs:ChangeMessageVisibility",
    ),
)
