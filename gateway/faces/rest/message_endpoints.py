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
from queuegate.gateway.faces.aws.sqs import sqs_messages
from queuegate.gateway.faces.aws.sqs.sqs_messages import ReceiveSelection, received_members
from queuegate.gateway.faces.json.json_endpoints import Answer, Call, Endpoints
from queuegate.gateway.faces.json.json_fields import (
    AttemptId,
    Delay,
    FifoId,
    Headers,
    JsonMessage,
    MessageId,
    Priority,
    QueueName,
    ShownHeaders,
    SqsId,
    Timeout,
    Ttl,
    about,
    example,
    instant_of,
    schema_name,
)
from queuegate.gateway.faces.rest.queue_endpoints import queue_of
from queuegate.gateway.operations.access.authorization import find_queue_by_url
from queuegate.gateway.operations.queues import json_messages, sends
from queuegate.gateway.operations.queues.deletions import change_by_number, finish_by_number
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_shown
from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage.queue_model import NewMessage, Queue, Received, SentMessage
from queuegate.storage.storage_errors import InvalidParameterValue, Rejected, ResourceNotFound

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
        about(
            "False: the answer may arrive before the message is durable, so a crash of "
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

    max: Annotated[int, about("Maximum number of messages.", ge=1, le=LIMITS.received_messages)] = 1
    vt: Annotated[
        Timeout | None, about("Visibility timeout. Absent: that of the queue, by default 30.")
    ] = None
    wait: Annotated[
        Annotated[int, Meta(ge=0, le=LIMITS.receive_wait_seconds)] | None,
        about("Seconds to wait. Absent: the setting of the queue, by default 0."),
    ] = None
    fifo: Annotated[bool, about("Ignored: the queue decides.")] = False


class ReceivedMessage(Struct):
    """A received message."""

    id: MessageId
    message: Annotated[JsonMessage, example({"job": "resize", "image": 7})]
    headers: ShownHeaders
    read_ct: Annotated[int, about("Number of receives.", 1, ge=1)]
    enqueued_at: datetime
    visible_at: Annotated[
        datetime, about("When the message is visible again.", "2030-01-31T09:00:30Z")
    ]
    message_id: SqsId
    group_id: str | UnsetType = UNSET
    priority: Annotated[
        int | UnsetType, about("Present if the queue uses priorities or expiry.")
    ] = UNSET
    expires_at: Annotated[datetime | UnsetType, about("When the message expires.")] = UNSET


class Ids(Struct, forbid_unknown_fields=True):
    """Messages of a queue."""

    ids: Annotated[
        list[MessageId],
        Meta(min_length=1, max_length=LIMITS.deleted_messages),
        example([1042, 1043]),
    ]


class Deleted(Struct):
    """The deleted messages, in the order of the request."""

    deleted: list[MessageId]


class NewTimeout(Struct, forbid_unknown_fields=True):
    """A new visibility timeout."""

    vt: Annotated[
        int,
        about("Seconds from now. 0 shows the message at once."),
        Meta(ge=0, le=LIMITS.visibility_timeout_seconds),
        example(60),
    ]


class Hidden(Struct):
    """The end of the visibility timeout."""

    id: MessageId
    visible_at: Annotated[datetime, example("2030-01-31T09:01:00Z")]


def _to_send(new: NewQueueMessage) -> MessageToSend:
    headers = new.headers
    raw = {name: bytes(value) for name, value in headers.items()} if headers else None
    attributes, size = json_messages.attributes_of(raw)
    # Headers may set absent fields, as message attributes do in AWS.
    priority, ttl_seconds = sends.urgency_of_stored(attributes, LIMITS)
    message = NewMessage(
        json_messages.body_of(bytes(new.message)),
        attributes,
        delay_seconds=new.delay,
        group_id=new.group_id,
        deduplication_id=new.deduplication_id,
        priority=priority if new.priority is None else new.priority,
        ttl_seconds=ttl_seconds if new.ttl is None else new.ttl,
    )
    return MessageToSend(message, size)


endpoint = Endpoints("messages", name=QueueName, id=MessageId)
receipts = Endpoints("receipts")
_NEW = {
    "message": {"job": "resize", "image": 7},
    "headers": {"tenant": "acme", "priority": 3},
    "delay": 5,
}
_THIS = {"name": "$request.path.name", "id": "$response.body#/id"}
_FIRST = {"name": "$request.path.name", "id": "$response.body#/0/id"}


@endpoint(
    "POST /v1/queues/{name}/messages",
    "sqs:SendMessage",
    refusals=(404, 429),
    carries_messages=True,
    example={"examples": {"one": _NEW, "many": [_NEW, {"message": "as simple as that"}]}},
    links={"changeVisibility": _THIS, "deleteMessage": _THIS},
)
async def send_messages(
    call: Call,
    body: NewQueueMessage
    | Annotated[list[NewQueueMessage], Meta(min_length=1, max_length=_MOST_SENT)],
) -> Answer[SentOne | SentMany]:
    """Send one message or many. An object is one message. An array has up to {limits.sent_messages}
    messages: all are sent, or none. 429: the queue has no capacity for them. On a FIFO queue, a
    `deduplication_id` of the last five minutes is a duplicate: the answer has the id of the first
    message. Returns 201: The `id` of one message, or the `ids` of an array."""
    queue = await queue_of(call)
    await call.engine.rates.take(call.caller, 1 if isinstance(body, NewQueueMessage) else len(body))
    if isinstance(body, NewQueueMessage):
        messages = [_to_send(body)]
    else:
        messages = []
        for number, one in enumerate(body, 1):
            messages.append(_entry(number, one))
            if number % _ENTRIES_AT_ONCE == 0:
                # Hundreds of messages with 100 headers each take long: yield to other requests.
                await yield_to_loop()
    all_given = [body] if isinstance(body, NewQueueMessage) else body
    is_async = not any(one.sync_commit for one in all_given)
    sent: list[SentMessage] = await answered(
        send_all, call.engine, call.caller, queue, messages, is_async
    )
    ids = [one.sequence or 0 for one in sent]
    return Answer(201, SentOne(ids[0]) if isinstance(body, NewQueueMessage) else SentMany(ids))


def _entry(number: int, new: NewQueueMessage) -> MessageToSend:
    try:
        return _to_send(new)
    except Rejected as refusal:
        raise InvalidParameterValue(f"Message {number}: {refusal}") from None


@endpoint(
    "GET /v1/queues/{name}/messages",
    "sqs:ReceiveMessage",
    refusals=(404, 429),
    is_safe=False,
    may_wait=True,
    links={"changeVisibility": _FIRST, "deleteMessage": _FIRST},
)
async def receive_messages(call: Call, query: ReceiveQuery) -> Answer[list[ReceivedMessage]]:
    """Receive messages. Hides the messages for `vt` seconds: delete them before. With `wait` the
    answer arrives as soon as a message is available. A FIFO group returns at most ten messages.
    Answers with long messages have fewer. HEAD is not allowed, because a request hides messages.
    Returns 200: Messages. May be empty."""
    queue = await queue_of(call)
    request = ReceiveMany(query.max, query.vt, query.wait, origin=call.request.origin)
    shown = await receive_shown(call.engine, call.caller, queue, request, _shown)
    return Answer(200, shown)


def _shown(message: Received, visible_at: datetime) -> ReceivedMessage:
    group_id: Any = message.group_id
    if message.system is not None and group_id is None:
        group_id = message.system_members().get("MessageGroupId")
    return ReceivedMessage(
        message.sequence,
        Raw(json_messages.message_of(message.body)),
        Raw(json_messages.headers_of(message.attributes)),
        message.receive_count,
        instant_of(message.sent_at_ms),
        visible_at,
        str(message.message_id),
        UNSET if group_id is None else group_id,
        UNSET if message.priority is None else message.priority,
        UNSET if message.expires_at_ms is None else instant_of(message.expires_at_ms),
    )


@endpoint("DELETE /v1/queues/{name}/messages", "sqs:DeleteMessage")
async def delete_messages(call: Call, body: Ids) -> Answer[Deleted]:
    """Delete messages. Deletes messages by their ids, received or not. On a FIFO queue, only
    messages in flight are deleted. `deleted` lists the existing ones. Returns 200: The deleted
    messages."""
    queue = await queue_of(call)
    deleted = await finish_by_number(call.engine, call.caller, queue, body.ids)
    return Answer(200, Deleted(deleted))


@endpoint("DELETE /v1/queues/{name}/messages/{id}", "sqs:DeleteMessage")
async def delete_message(call: Call) -> Answer[None]:
    """Delete a message. Deletes a message by its id, received or not. On a FIFO queue it must be in
    flight. 404: the message does not exist any more. Returns 204: The message is deleted."""
    queue = await queue_of(call)
    if not await finish_by_number(call.engine, call.caller, queue, [call.path.id]):
        raise _no_message(queue, call.path.id)
    return Answer(204)


@endpoint("PATCH /v1/queues/{name}/messages/{id}", "sqs:ChangeMessageVisibility")
async def change_visibility(call: Call, body: NewTimeout) -> Answer[Hidden]:
    """Change the visibility of a message. Shows the message `vt` seconds from now. On a FIFO queue
    it must be in flight. Returns 200: The end of the visibility timeout."""
    queue = await queue_of(call)
    visible_at = await change_by_number(call.engine, call.caller, queue, call.path.id, body.vt)
    if visible_at is None:
        raise _no_message(queue, call.path.id)
    return Answer(200, Hidden(call.path.id, visible_at))


def _no_message(queue: Queue, message_id: int) -> ResourceNotFound:
    return ResourceNotFound(f"Queue '{queue.name}' holds no message {message_id}.")


_MOST_BYTES = 8 << 20
_MOST_NAMES = 100
_LONGEST_NAME = 256

QueueUrl = Annotated[str, about("The URL of a queue in SQS, or its name.", max_length=2048)]
Names = Annotated[
    list[Annotated[str, Meta(max_length=_LONGEST_NAME)]], Meta(max_length=_MOST_NAMES)
]
ReceiptHandles = Annotated[
    list[str], about("Receipt handles of this queue.", min_length=1, max_length=LIMITS.receipts)
]


@schema_name("Receive")
class ReceiveReceipts(Struct, forbid_unknown_fields=True):
    """Limits of a receive."""

    queue: Annotated[QueueUrl, example("http://127.0.0.1:9324/000000000000/jobs")]
    max: Annotated[
        int, about("Maximum number of messages.", ge=1, le=LIMITS.receipts), example(1000)
    ] = LIMITS.receipts
    visibility_timeout: Annotated[
        Timeout | None, about("Absent: that of the queue, by default 30.")
    ] = None
    wait: Annotated[
        Annotated[int, Meta(ge=0, le=LIMITS.receive_wait_seconds)] | None,
        about("Seconds to wait. Absent: the setting of the queue, by default 0."),
        example(5),
    ] = None
    attempt_id: Annotated[
        AttemptId | None, about("ReceiveRequestAttemptId, which repeats a lost answer.")
    ] = None
    attributes: Annotated[
        Names, about("MessageSystemAttributeNames, or `All`."), example(["SentTimestamp"])
    ] = []
    message_attributes: Annotated[Names, about("MessageAttributeNames, `prefix.*` or `All`.")] = []


class ReceivedMessages(Struct):
    """Messages. May be empty."""

    messages: Annotated[
        list[dict[str, Any]],
        about(
            "Messages in the form of ReceiveMessage.",
            [
                {
                    "MessageId": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
                    "ReceiptHandle": "QGS2AAAAAQAAAAAAAAQSAAAAAWXyAAAt9m2Jc1yVxgr3",
                    "MD5OfBody": "114c7d6626d5b19bd49fed30fff40ea7",
                    "Body": '{"job": "resize", "image": 7}',
                    "Attributes": {"SentTimestamp": "1896080400000"},
                }
            ],
        ),
    ]


@schema_name("Delete")
class DeleteReceipts(Struct, forbid_unknown_fields=True):
    """Messages to delete."""

    queue: Annotated[QueueUrl, example("http://127.0.0.1:9324/000000000000/jobs")]
    receipt_handles: Annotated[
        ReceiptHandles, example(["QGS2AAAAAQAAAAAAAAQSAAAAAWXyAAAt9m2Jc1yVxgr3"])
    ]


@schema_name("Hide")
class HideReceipts(Struct, forbid_unknown_fields=True):
    """Messages to hide."""

    queue: Annotated[QueueUrl, example("http://127.0.0.1:9324/000000000000/jobs")]
    receipt_handles: Annotated[
        ReceiptHandles, example(["QGS2AAAAAQAAAAAAAAQSAAAAAWXyAAAt9m2Jc1yVxgr3"])
    ]
    visibility_timeout: Annotated[
        Timeout, about("Seconds from now. 0 shows the messages at once."), example(60)
    ]


class Failed(Struct):
    """The failed messages. All others succeeded."""

    failed: Annotated[
        list[dict[str, Any]],
        about(
            "Entries as in batch answers of SQS: `Code`, `Message`, `SenderFault`, and "
            "in `Id` the index of the receipt handle in the request, from 0.",
            [],
        ),
    ]


async def _queue(call: Call) -> Queue:
    return await find_queue_by_url(call.engine, call.caller, call.right, call.body.queue)


@receipts("POST /v1/receipts", "sqs:ReceiveMessage", refusals=(404, 429), may_wait=True)
async def receive_receipts(call: Call, body: ReceiveReceipts) -> Answer[ReceivedMessages]:
    """Receive many messages, with receipt handles. Does what ReceiveMessage of SQS does for ten:
    hides the messages for `visibility_timeout` seconds. A FIFO group returns at most ten messages.
    An answer ends at 8 MB and ten messages, so fewer than `max` messages do not mean that the queue
    is empty. Returns 200: Messages. May be empty."""
    queue = await _queue(call)
    request = ReceiveMany(
        body.max,
        body.visibility_timeout,
        body.wait,
        body.attempt_id,
        _MOST_BYTES,
        origin=call.request.origin,
    )
    want = ReceiveSelection(tuple(body.attributes), tuple(body.message_attributes))
    now = call.engine.clock.of(queue.account_id).seconds
    handle_of = call.engine.receipts.handle_of

    def show(message: Received, _: datetime) -> dict[str, Any]:
        return received_members(message, want, handle_of(message, now()))

    shown = await receive_shown(call.engine, call.caller, queue, request, show)
    return Answer(200, ReceivedMessages(shown))


@receipts("DELETE /v1/receipts", "sqs:DeleteMessage")
async def delete_receipts(call: Call, body: DeleteReceipts) -> Answer[Failed]:
    """Delete many messages by receipt handle. Does what DeleteMessageBatch of SQS does for ten:
    each message succeeds or fails on its own. A deleted message is a success. Returns 200: The
    failed messages."""
    queue = await _queue(call)
    handles = body.receipt_handles
    outcomes = await answered(sqs_messages.delete_messages, call.engine, queue, handles)
    return _failed(outcomes)


@receipts("PATCH /v1/receipts", "sqs:ChangeMessageVisibility")
async def change_receipts(call: Call, body: HideReceipts) -> Answer[Failed]:
    """Change the visibility of many messages. Does what ChangeMessageVisibilityBatch of SQS does
    for ten. Returns 200: The failed messages."""
    queue = await _queue(call)
    changes = [(handle, body.visibility_timeout) for handle in body.receipt_handles]
    outcomes = await answered(sqs_messages.change_message_visibilities, call.engine, queue, changes)
    return _failed(outcomes)


def _failed(outcomes: sqs_messages.Outcomes) -> Answer[Failed]:
    failed = [
        failed_entry("sqs", str(place), outcome)
        for place, outcome in enumerate(outcomes)
        if isinstance(outcome, Rejected)
    ]
    return Answer(200, Failed(failed))
