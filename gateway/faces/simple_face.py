"""The simple queue face: queues with ids and titles, and their messages, below ``/api/queues``.

Imported in the background, after the start or at its first request.
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Mapping
from datetime import datetime
from functools import partial, wraps
from http import HTTPStatus
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from queuegate.gateway.faces.interface import CallerAuthenticator, CredentialRule
from queuegate.gateway.faces.json.decoding import unquoted
from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Call,
    Endpoint,
    Endpoints,
    Handler,
    status_of,
)
from queuegate.gateway.faces.json.json_face import JsonFace, JsonFaceConfiguration
from queuegate.gateway.faces.json.json_fields import (
    ListQuery,
    about,
    example,
    page_of_queues,
    schema_name,
)
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.operations.access.authorization import find_queue_by_id
from queuegate.gateway.operations.queues import dead_letter_moves, queues
from queuegate.gateway.operations.queues.deletions import finish_by_number
from queuegate.gateway.operations.queues.queue_cache import public_id
from queuegate.gateway.operations.queues.queues import TitledQueue, create_titled, dead_letter_queue
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_shown
from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.protocol.routing import RouteMatch
from queuegate.storage import storage_errors
from queuegate.storage.queue_model import NewMessage, Queue, Received, SentMessage

QueueId = Annotated[
    str,
    about("A UUID. Every queue has one, whichever API created it."),
    Meta(examples=["0000002a-5c1f-8e3b-9a64-0f2d7c9b1e55"]),
]
Title = Annotated[
    str,
    about("Title of the queue. Several queues may have the same title."),
    Meta(min_length=1, max_length=LIMITS.title_length),
]
Size = Annotated[
    int,
    about("Maximum number of messages, including those in flight. Absent or null: no limit."),
    Meta(ge=1, le=LIMITS.queue_size),
]
Seconds = Annotated[
    int,
    about("Seconds for which a dequeued message stays hidden."),
    Meta(ge=0, le=LIMITS.visibility_timeout_seconds),
]
Deliveries = Annotated[
    int,
    about(
        "Number of deliveries without an acknowledgement after which a message moves "
        "to the dead-letter queue. Null: no limit."
    ),
    Meta(ge=1, le=LIMITS.deliveries),
]


@schema_name("NewQueue")
class NewSimpleQueue(Struct, forbid_unknown_fields=True):
    """A queue to create. Each field has two spellings: send one of them."""

    queue_name: Title | UnsetType = UNSET
    queue_size: Size | UnsetType | None = UNSET
    visibility_timeout: Seconds | UnsetType = UNSET
    max_deliveries: Deliveries | UnsetType | None = UNSET
    camel_queue_name: Title | UnsetType = field(name="queueName", default=UNSET)
    camel_queue_size: Size | UnsetType | None = field(name="queueSize", default=UNSET)
    camel_visibility_timeout: Seconds | UnsetType = field(name="visibilityTimeout", default=UNSET)
    camel_max_deliveries: Deliveries | UnsetType | None = field(name="maxDeliveries", default=UNSET)


class QueueCreated(Struct):
    """The id of the new queue."""

    queue_id: QueueId


@schema_name("QueueShown")
class SimpleQueue(Struct):
    """A queue and its number of messages."""

    queue_id: QueueId
    queue_name: Annotated[str, about("The title of the queue.", "orders")]
    queue_size: Annotated[int, about("Null: no limit.", 1000, ge=1)] | None
    visibility_timeout: Annotated[int, Meta(ge=0), example(30)]
    max_deliveries: Annotated[int, about("Null: no limit.", 3, ge=1)] | None
    current_message_count: Annotated[
        int, about("Visible, in flight and delayed messages.", 42, ge=0)
    ]
    dlq_id: Annotated[QueueId | None, about("The dead-letter queue. Null: no message moved there.")]
    sqs_name: Annotated[str, about("Name of the queue in SQS and the native API.", "orders")]


class ListedQueue(Struct):
    """A queue."""

    queue_id: QueueId
    queue_name: Annotated[str, example("orders")]
    sqs_name: Annotated[str, example("orders")]
    created_at: datetime


class Listed(Struct):
    """Queues in the order of their `sqs_name`."""

    queues: list[ListedQueue]


class SimpleQueuesQuery(ListQuery, forbid_unknown_fields=True):
    """A page of queues."""

    prefix: Annotated[str, about("Prefix of `sqs_name`.", max_length=80)] = ""
    after: Annotated[
        str, about("Only later `sqs_name`: the last of the page before.", max_length=80)
    ] = ""


class QueueDeleted(Struct):
    """The id of the deleted queue."""

    queue_id: QueueId
    deleted: Annotated[bool, example(True)]


async def queue_of(call: Call) -> Queue:
    """Return the queue in the path. The caller needs the permission of the endpoint."""
    return await find_queue_by_id(call.engine, call.caller, call.right, call.path.queue_id)


_DEFAULT_DELIVERIES = 3


def _given(new: NewSimpleQueue, name: str, default: Any) -> Any:
    """Return the value of a field in either spelling."""
    snake, camel = getattr(new, name), getattr(new, f"camel_{name}")
    if snake is not UNSET and camel is not UNSET:
        raise storage_errors.MalformedInput(
            f"The field `{name}` is given in two spellings: send one."
        )
    found = camel if snake is UNSET else snake
    return default if found is UNSET else found


queue_endpoint = Endpoints("queues", queue_id=QueueId)
ID = "0000002a-5c1f-8e3b-9a64-0f2d7c9b1e55"
_THIS_QUEUE = {"queue_id": "$response.body#/queue_id"}
_THIS_MESSAGE = {"queue_id": "$request.path.queue_id", "message_id": "$response.body#/message_id"}


@queue_endpoint(
    "POST /api/queues",
    "sqs:CreateQueue",
    resource="*",
    refusals=(409,),
    example={
        "examples": {
            "snake_case": {
                "queue_name": "orders",
                "queue_size": 1000,
                "visibility_timeout": 30,
                "max_deliveries": 3,
            },
            "camelCase": {"queueName": "orders", "maxDeliveries": 1},
        }
    },
    headers={"Location": "Path of the queue."},
    links=dict.fromkeys(("getQueue", "deleteQueue", "enqueue", "dequeue"), _THIS_QUEUE),
)
async def create_queue(call: Call, body: NewSimpleQueue) -> Answer[QueueCreated]:
    """Create a queue. Each request creates a new queue, because titles are not unique. By default
    `visibility_timeout` is 30 seconds and `max_deliveries` 3. Fields may also be spelled in
    camelCase. Returns 201: The queue."""
    title = _given(body, "queue_name", None)
    if title is None:
        raise storage_errors.MalformedInput("The field `queue_name` is missing.")
    request = TitledQueue(
        title,
        _given(body, "visibility_timeout", call.engine.rules.default_visibility_timeout_seconds),
        _given(body, "queue_size", None),
        _given(body, "max_deliveries", _DEFAULT_DELIVERIES),
    )
    queue = await create_titled(call.engine, call.caller, request)
    queue_id = public_id(queue)
    return Answer(201, QueueCreated(queue_id), {"location": f"/api/queues/{queue_id}"})


@queue_endpoint("GET /api/queues", "sqs:ListQueues", resource="*", refusals=(), headers=PAGED)
async def list_queues(call: Call, query: SimpleQueuesQuery) -> Answer[Listed]:
    """List queues. Lists all queues of the account in this region, whichever API created them, in
    the order of their `sqs_name`. The header Link leads to the next page. Returns 200: Queues."""
    found, headers = await page_of_queues(call, "/api/queues", prefix=query.prefix)
    listed = [ListedQueue(public_id(one), one.title, one.name, one.created_at) for one in found]
    return Answer(200, Listed(listed), headers)


@queue_endpoint("GET /api/queues/{queue_id}", "sqs:GetQueueAttributes")
async def get_queue(call: Call) -> Answer[SimpleQueue]:
    """Get a queue. Returns the settings, the number of messages and the dead-letter queue. Returns
    200: The queue."""
    queue, counts = await queues.count(call.engine, call.caller, await queue_of(call))
    dead_letters = await dead_letter_queue(call.engine, queue)
    return Answer(
        200,
        SimpleQueue(
            public_id(queue),
            queue.title,
            queue.most_messages,
            queue.visibility_timeout_seconds,
            queue.max_receive_count or None,
            counts.visible + counts.in_flight + counts.delayed,
            None if dead_letters is None else public_id(dead_letters),
            queue.name,
        ),
    )


@queue_endpoint("DELETE /api/queues/{queue_id}", "sqs:DeleteQueue")
async def delete_queue(call: Call) -> Answer[QueueDeleted]:
    """Delete a queue. Deletes all of its messages, too, and the dead-letter queue that was created
    for it. Returns 200: The queue is deleted."""
    queue = await queue_of(call)
    await queues.delete_queue(call.engine, call.caller, queue)
    return Answer(200, QueueDeleted(call.path.queue_id, True))


_BY_KIND: Mapping[storage_errors.Kind, str] = {
    storage_errors.Kind.ABSENT: "message_not_found",
    storage_errors.Kind.FORBIDDEN: "forbidden",
    storage_errors.Kind.FULL: "queue_full",
}


def counted(operation: str, handle: Handler) -> Handler:
    """Give a handler the queue in the path, and count its outcomes."""

    @wraps(handle)
    async def handler(call: Call, *given: Any) -> Answer[Any]:
        queue = None
        outcome = "error"
        try:
            queue = await queue_of(call)
            answer = await handle(call, queue, *given)
            outcome = "success"
        except storage_errors.Rejected as refusal:
            outcome = _outcome_of(refusal)
            raise
        except storage_errors.Unavailable:
            outcome = "unavailable"
            raise
        except CancelledError:
            outcome = "given_up"
            raise
        else:
            return answer
        finally:
            call.engine.series.tried(queue, operation, outcome)

    return handler


def _outcome_of(refusal: storage_errors.Rejected) -> str:
    if isinstance(refusal, storage_errors.QueueDoesNotExist):
        return "queue_not_found"
    if isinstance(refusal, storage_errors.OverLimit):
        return "too_many_in_flight"
    return _BY_KIND.get(refusal.kind, "invalid")


_NUMBER = re.compile("[1-9][0-9]{0,18}").fullmatch

MessageId = Annotated[str, about("Id of a message in its queue.", examples=["1042"])]


@schema_name("NewMessage")
class EnqueueBody(Struct, forbid_unknown_fields=True):
    """A message to enqueue."""

    data: Annotated[
        str,
        about(
            "Any text that is not empty. Characters that XML cannot express are "
            "refused, because SQS clients may receive the message.",
            extra_json_schema={"minLength": 1},
        ),
        example("hello"),
    ]


class Enqueued(Struct):
    """The id of the message."""

    message_id: MessageId


class DequeueQuery(Struct, forbid_unknown_fields=True):
    """The number of messages and the time to wait."""

    limit: (
        Annotated[
            int,
            about("Maximum number of messages. The answer is then a list."),
            Meta(ge=1, le=LIMITS.received_messages),
        ]
        | None
    ) = None
    wait: (
        Annotated[
            int,
            about("Seconds to wait for a message. Absent: the setting of the queue, by default 0."),
            Meta(ge=0, le=LIMITS.receive_wait_seconds),
        ]
        | None
    ) = None


@schema_name("Message")
class DequeuedMessage(Struct):
    """The next message."""

    message_id: MessageId
    data: Annotated[str, example("hello")]
    invisible_until: Annotated[
        datetime,
        about("When the message is redelivered unless it is acknowledged.", "2030-01-31T09:00:30Z"),
    ]


class Nothing(Struct):
    """There is no message."""

    message: None = None


class BatchMessage(DequeuedMessage):
    """One of several messages."""

    delivery_count: Annotated[int, about("Number of deliveries.", ge=1)]


class Batch(Struct):
    """The next messages. May be empty."""

    messages: list[BatchMessage]


class Acknowledged(Struct):
    """The id of the deleted message."""

    message_id: MessageId
    deleted: Annotated[bool, example(True)]


@schema_name("Requeued")
class RequeuedLetter(Struct):
    """The id of the message and its queue."""

    message_id: MessageId
    requeued_to: QueueId


message_endpoint = Endpoints("messages", queue_id=QueueId, message_id=MessageId)


@message_endpoint(
    "POST /api/queues/{queue_id}/messages",
    "sqs:SendMessage",
    refusals=(404, 429),
    carries_messages=True,
    links={"acknowledge": _THIS_MESSAGE},
)
@partial(counted, "enqueue")
async def enqueue(call: Call, queue: Queue, body: EnqueueBody) -> Answer[Enqueued]:
    """Enqueue a message. The message is durable when the answer arrives. 429: the queue is full.
    Retry later. Returns 201: The message is enqueued."""
    await call.engine.rates.take(call.caller)
    outgoing = [MessageToSend(NewMessage(body.data))]
    sent: list[SentMessage] = await answered(
        send_all, call.engine, call.caller, queue, outgoing, False
    )
    return Answer(201, Enqueued(str(sent[0].sequence)))


@message_endpoint(
    "GET /api/queues/{queue_id}/messages",
    "sqs:ReceiveMessage",
    refusals=(404, 429),
    is_safe=False,
    may_wait=True,
    links={"acknowledge": _THIS_MESSAGE},
)
@partial(counted, "dequeue")
async def dequeue(
    call: Call, queue: Queue, query: DequeueQuery
) -> Answer[DequeuedMessage | Nothing | Batch]:
    """Dequeue the next message. The message is hidden until `invisible_until`: acknowledge it
    before. Without a message the answer is `{"message": null}`. With `limit` the answer is a list
    with the number of deliveries of each message. With `wait` the answer arrives as soon as a
    message is available. HEAD is not allowed, because a request hides messages. Returns 200: The
    message, or null in `message`. A batch has `messages`."""
    request = ReceiveMany(query.limit or 1, None, query.wait, origin=call.request.origin)
    found = await receive_shown(call.engine, call.caller, queue, request, _shown)
    if query.limit is not None:
        return Answer(200, Batch(found))
    if not found:
        return Answer(200, Nothing())
    [one] = found
    return Answer(200, DequeuedMessage(one.message_id, one.data, one.invisible_until))


def _shown(message: Received, until: datetime) -> BatchMessage:
    return BatchMessage(str(message.sequence), message.body, until, message.receive_count)


@message_endpoint("DELETE /api/queues/{queue_id}/messages/{message_id}", "sqs:DeleteMessage")
@partial(counted, "ack")
async def acknowledge(call: Call, queue: Queue) -> Answer[Acknowledged]:
    """Acknowledge a message. Deletes the message. 404: the message does not exist any more. Returns
    200: The message is deleted."""
    message_id: str = call.path.message_id
    if not await finish_by_number(call.engine, call.caller, queue, [_number(message_id)]):
        raise storage_errors.ResourceNotFound(
            f"The queue holds no message '{message_id[:_MOST_SHOWN]}': it never existed, was "
            "acknowledged, or moved to the dead-letter queue."
        )
    return Answer(200, Acknowledged(message_id, True))


@message_endpoint(
    "POST /api/queues/{queue_id}/messages/{message_id}/requeue",
    "sqs:StartMessageMoveTask",
    refusals=(404, 429),
)
@partial(counted, "requeue")
async def requeue(call: Call, queue: Queue) -> Answer[RequeuedLetter]:
    """Requeue a dead letter. Moves the message from the dead-letter queue in the path to its source
    queue. The message keeps its id, is visible at once, and its delivery count restarts at 0. 429:
    the source queue is full. Returns 200: The message is in its source queue."""
    message_id: str = call.path.message_id
    home = await dead_letter_moves.requeue(call.engine, call.caller, queue, _number(message_id))
    if home is None:
        raise storage_errors.ResourceNotFound(
            f"The queue holds no dead letter '{message_id[:_MOST_SHOWN]}': it never existed, was "
            "requeued or acknowledged, or has no source queue."
        )
    return Answer(200, RequeuedLetter(message_id, public_id(home)))


def _number(message_id: str) -> int:
    """Return the number of a message id. 0: no message has this id."""
    return int(message_id) if _NUMBER(message_id) else 0


_MOST_SHOWN = 60


class Refusal(Struct):
    """The reason of a refusal."""

    status: int
    error: str
    """The reason phrase of the status."""
    message: str
    """The error, and the change that avoids it."""


ABOUT = FaceDescription(
    "Queuegate simple queue",
    "Queues with ids, sizes and dead-letter queues over plain HTTP and JSON. Every queue of the "
    "account has an id here. Messages can be sent and received over SQS and the native API, too. "
    "Times are UTC.",
    {
        "queues": "Create, inspect and delete queues.",
        "messages": "Enqueue, dequeue, acknowledge and requeue messages.",
        "about": "This API.",
    },
    "Needed only if the gateway has a key: `Bearer` and the key, or the key in `X-Api-Key`. The "
    "credential scope of an AWS signature (version 4) selects account and region. Without a "
    "signature, those of the gateway apply.",
    Refusal,
    needs_credentials=False,
)


def simple_face(engine: Engine, callers: CallerAuthenticator) -> JsonFace:
    """Make the face."""
    configuration = JsonFaceConfiguration(
        name="simple",
        prefix="/api",
        about=ABOUT,
        refused=_refused,
        worded=lambda status, text: Refusal(status, HTTPStatus(status).phrase, text),
        sign_in="This gateway requires a key: send it in the header X-Api-Key.",
        wants=CredentialRule.KEY,
    )
    return JsonFace(engine, callers, ENDPOINTS, configuration)


def _refused(
    refusal: storage_errors.Rejected, found: RouteMatch[Endpoint] | None
) -> tuple[int, str]:
    if isinstance(refusal, storage_errors.QueueDoesNotExist) and found is not None:
        asked = unquoted(found.values["queue_id"])
        return 404, f"No queue has the id '{asked[:_MOST_SHOWN]}'."
    return status_of(refusal), str(refusal)


ENDPOINTS = (*queue_endpoint, *message_endpoint)
