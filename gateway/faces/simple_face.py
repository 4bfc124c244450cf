"""The simple queue face: queues with ids and titles, and their messages, below ``/api/queues``.

Imported in the background, after the start or at its first request.
"""

from __future__ import annotations

import re
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from queuegate.gateway.faces.interface import CallerAuthenticator, CredentialRule
from queuegate.gateway.faces.json.decoding import unquoted
from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    Handler,
    schema_name,
    status_of,
)
from queuegate.gateway.faces.json.json_face import JsonFace, JsonFaceConfiguration
from queuegate.gateway.faces.json.json_fields import ListQuery, page_of_queues
from queuegate.gateway.faces.json.json_openapi import FaceDescription
from queuegate.gateway.operations.access.authorization import find_queue_by_id
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.queues.dead_letter_moves import requeue
from queuegate.gateway.operations.queues.deletions import finish_by_number
from queuegate.gateway.operations.queues.queue_cache import public_id
from queuegate.gateway.operations.queues.queues import TitledQueue, create_titled, dead_letter_queue
from queuegate.gateway.operations.queues.receives import ReceiveMany, receive_shown
from queuegate.gateway.operations.queues.sends import MessageToSend, send_all
from queuegate.gateway.operations.runtime.engine import Engine
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.protocol.routing import RouteMatch
from queuegate.storage.queue_model import NewMessage, Queue, Received, SentMessage
from queuegate.storage.storage_errors import (
    Kind,
    MalformedInput,
    OverLimit,
    QueueDoesNotExist,
    Rejected,
    ResourceNotFound,
    Unavailable,
)

_QUEUES = "queues"

QueueId = Annotated[
    str,
    Meta(
        description="A UUID. Every queue has one, whichever API created it.",
        examples=["0000002a-5c1f-8e3b-9a64-0f2d7c9b1e55"],
    ),
]
Title = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LIMITS.title_length,
        description="Title of the queue. Several queues may have the same title.",
    ),
]
Size = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.queue_size,
        description="Maximum number of messages, including those in flight. Absent or null: no "
        "limit.",
    ),
]
Seconds = Annotated[
    int,
    Meta(
        ge=0,
        le=LIMITS.visibility_timeout_seconds,
        description="Seconds for which a dequeued message stays hidden.",
    ),
]
Deliveries = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.deliveries,
        description="Number of deliveries without an acknowledgement after which a message moves "
        "to the dead-letter queue. Null: no limit.",
    ),
]


class SimpleQueuePath(Struct, forbid_unknown_fields=True):
    """A queue."""

    queue_id: QueueId


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
    queue_name: Annotated[str, Meta(description="The title of the queue.")]
    queue_size: Annotated[int, Meta(ge=1, description="Null: no limit.")] | None
    visibility_timeout: Annotated[int, Meta(ge=0)]
    max_deliveries: Annotated[int, Meta(ge=1, description="Null: no limit.")] | None
    current_message_count: Annotated[
        int, Meta(ge=0, description="Visible, in flight and delayed messages.")
    ]
    dlq_id: Annotated[
        QueueId | None, Meta(description="The dead-letter queue. Null: no message moved there.")
    ]
    sqs_name: Annotated[str, Meta(description="Name of the queue in SQS and the native API.")]


class ListedQueue(Struct):
    """A queue."""

    queue_id: QueueId
    queue_name: str
    sqs_name: str
    created_at: datetime


class Listed(Struct):
    """Queues in the order of their `sqs_name`."""

    queues: list[ListedQueue]


class SimpleQueuesQuery(ListQuery, forbid_unknown_fields=True):
    """A page of queues."""

    prefix: Annotated[str, Meta(max_length=80, description="Prefix of `sqs_name`.")] = ""
    after: Annotated[
        str, Meta(max_length=80, description="Only later `sqs_name`: the last of the page before.")
    ] = ""


class QueueDeleted(Struct):
    """The id of the deleted queue."""

    queue_id: QueueId
    deleted: bool


async def queue_of(call: Call) -> Queue:
    """Return the queue in the path. The caller needs the permission of the endpoint."""
    return await find_queue_by_id(call.engine, call.caller, call.right, call.path.queue_id)


_DEFAULT_DELIVERIES = 3


def _given(new: NewSimpleQueue, name: str, default: Any) -> Any:
    """Return the value of a field in either spelling."""
    snake, camel = getattr(new, name), getattr(new, f"camel_{name}")
    if snake is not UNSET and camel is not UNSET:
        raise MalformedInput(f"The field `{name}` is given in two spellings: send one.")
    found = camel if snake is UNSET else snake
    return default if found is UNSET else found


async def _create_queue(call: Call) -> Answer:
    new: NewSimpleQueue = call.body
    title = _given(new, "queue_name", None)
    if title is None:
        raise MalformedInput("The field `queue_name` is missing.")
    request = TitledQueue(
        title,
        _given(new, "visibility_timeout", call.engine.rules.default_visibility_timeout_seconds),
        _given(new, "queue_size", None),
        _given(new, "max_deliveries", _DEFAULT_DELIVERIES),
    )
    queue = await create_titled(call.engine, call.caller, request)
    queue_id = public_id(queue)
    return Answer(201, QueueCreated(queue_id), {"location": f"/api/queues/{queue_id}"})


async def _list_queues(call: Call) -> Answer:
    found, headers = await page_of_queues(call, "/api/queues", prefix=call.query.prefix)
    listed = [ListedQueue(public_id(one), one.title, one.name, one.created_at) for one in found]
    return Answer(200, Listed(listed), headers)


async def _get_queue(call: Call) -> Answer:
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


async def _delete_queue(call: Call) -> Answer:
    queue = await queue_of(call)
    await queues.delete_queue(call.engine, call.caller, queue)
    return Answer(200, QueueDeleted(call.path.queue_id, True))


ID = "0000002a-5c1f-8e3b-9a64-0f2d7c9b1e55"
_THIS_QUEUE = {"queue_id": "$response.body#/queue_id"}


_BY_KIND: Mapping[Kind, str] = {
    Kind.ABSENT: "message_not_found",
    Kind.FORBIDDEN: "forbidden",
    Kind.FULL: "queue_full",
}


def counted(operation: str, handle: Callable[[Call, Queue], Awaitable[Answer]]) -> Handler:
    """Return a handler that finds the queue in the path and counts the outcome."""

    async def handler(call: Call) -> Answer:
        queue = None
        outcome = "error"
        try:
            queue = await queue_of(call)
            answer = await handle(call, queue)
            outcome = "success"
        except Rejected as refusal:
            outcome = _outcome_of(refusal)
            raise
        except Unavailable:
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


def _outcome_of(refusal: Rejected) -> str:
    if isinstance(refusal, QueueDoesNotExist):
        return "queue_not_found"
    if isinstance(refusal, OverLimit):
        return "too_many_in_flight"
    return _BY_KIND.get(refusal.kind, "invalid")


_MESSAGES = "messages"
_NUMBER = re.compile("[1-9][0-9]{0,18}").fullmatch

MessageId = Annotated[str, Meta(description="Id of a message in its queue.", examples=["1042"])]


@schema_name("NewMessage")
class EnqueueBody(Struct, forbid_unknown_fields=True):
    """A message to enqueue."""

    data: Annotated[
        str,
        Meta(
            description="Any text that is not empty. Characters that XML cannot express are "
            "refused, because SQS clients may receive the message.",
            extra_json_schema={"minLength": 1},
        ),
    ]


class Enqueued(Struct):
    """The id of the message."""

    message_id: MessageId


class DequeueQuery(Struct, forbid_unknown_fields=True):
    """The number of messages and the time to wait."""

    limit: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=LIMITS.received_messages,
                description="Maximum number of messages. The answer is then a list.",
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
                description="Seconds to wait for a message. Absent: the setting of the queue, by "
                "default 0.",
            ),
        ]
        | None
    ) = None


@schema_name("Message")
class DequeuedMessage(Struct):
    """The next message."""

    message_id: MessageId
    data: str
    invisible_until: Annotated[
        datetime, Meta(description="When the message is redelivered unless it is acknowledged.")
    ]


class Nothing(Struct):
    """There is no message."""

    message: None = None


class BatchMessage(DequeuedMessage):
    """One of several messages."""

    delivery_count: Annotated[int, Meta(ge=1, description="Number of deliveries.")]


class Batch(Struct):
    """The next messages. May be empty."""

    messages: list[BatchMessage]


class SimpleMessagePath(Struct, forbid_unknown_fields=True):
    """A message."""

    queue_id: QueueId
    message_id: MessageId


class Acknowledged(Struct):
    """The id of the deleted message."""

    message_id: MessageId
    deleted: bool


@schema_name("Requeued")
class RequeuedLetter(Struct):
    """The id of the message and its queue."""

    message_id: MessageId
    requeued_to: QueueId


async def _enqueue(call: Call, queue: Queue) -> Answer:
    new: EnqueueBody = call.body
    await call.engine.rates.take(call.caller)
    outgoing = [MessageToSend(NewMessage(new.data))]
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
    return Answer(200, DequeuedMessage(one.message_id, one.data, one.invisible_until))


def _shown(message: Received, until: datetime) -> BatchMessage:
    return BatchMessage(str(message.sequence), message.body, until, message.receive_count)


async def _acknowledge(call: Call, queue: Queue) -> Answer:
    message_id: str = call.path.message_id
    if not await finish_by_number(call.engine, call.caller, queue, [_number(message_id)]):
        raise ResourceNotFound(
            f"The queue holds no message '{message_id[:_MOST_SHOWN]}': it never existed, was "
            "acknowledged, or moved to the dead-letter queue."
        )
    return Answer(200, Acknowledged(message_id, True))


async def _requeue(call: Call, queue: Queue) -> Answer:
    message_id: str = call.path.message_id
    home = await requeue(call.engine, call.caller, queue, _number(message_id))
    if home is None:
        raise ResourceNotFound(
            f"The queue holds no dead letter '{message_id[:_MOST_SHOWN]}': it never existed, was "
            "requeued or acknowledged, or has no source queue."
        )
    return Answer(200, RequeuedLetter(message_id, public_id(home)))


def _number(message_id: str) -> int:
    """Return the number of a message id. 0: no message has this id."""
    return int(message_id) if _NUMBER(message_id) else 0


_MOST_SHOWN = 60

_THIS_MESSAGE = {"queue_id": "$request.path.queue_id", "message_id": "$response.body#/message_id"}
_FOUND = {"message_id": "1042", "data": "hello", "invisible_until": "2030-01-31T09:00:30Z"}


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


def _refused(refusal: Rejected, found: RouteMatch[Endpoint] | None) -> tuple[int, str]:
    if isinstance(refusal, QueueDoesNotExist) and found is not None:
        asked = unquoted(found.values["queue_id"])
        return 404, f"No queue has the id '{asked[:_MOST_SHOWN]}'."
    return status_of(refusal), str(refusal)


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/api/queues",
        "createQueue",
        "Create a queue",
        "Each request creates a new queue, because titles are not unique. By default "
        "`visibility_timeout` is 30 seconds and `max_deliveries` 3. Fields may also be spelled in "
        "camelCase.",
        _QUEUES,
        _create_queue,
        (
            Answered(
                201,
                QueueCreated,
                "The queue.",
                {"queue_id": ID},
                headers={"Location": "Path of the queue."},
                links={
                    "getQueue": _THIS_QUEUE,
                    "deleteQueue": _THIS_QUEUE,
                    "enqueue": _THIS_QUEUE,
                    "dequeue": _THIS_QUEUE,
                },
            ),
        ),
        refusals=(409,),
        body=NewSimpleQueue,
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
        right="sqs:CreateQueue",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/api/queues",
        "listQueues",
        "List queues",
        "Lists all queues of the account in this region, whichever API created them, in the order "
        "of their `sqs_name`. The header Link leads to the next page.",
        _QUEUES,
        _list_queues,
        (
            Answered(
                200,
                Listed,
                "Queues.",
                {
                    "queues": [
                        {
                            "queue_id": ID,
                            "queue_name": "orders",
                            "sqs_name": "orders",
                            "created_at": "2030-01-31T09:00:00Z",
                        }
                    ]
                },
                headers=PAGED,
            ),
        ),
        refusals=(),
        query=SimpleQueuesQuery,
        right="sqs:ListQueues",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/api/queues/{queue_id}",
        "getQueue",
        "Get a queue",
        "Returns the settings, the number of messages and the dead-letter queue.",
        _QUEUES,
        _get_queue,
        (
            Answered(
                200,
                SimpleQueue,
                "The queue.",
                {
                    "queue_id": ID,
                    "queue_name": "orders",
                    "queue_size": 1000,
                    "visibility_timeout": 30,
                    "max_deliveries": 3,
                    "current_message_count": 42,
                    "dlq_id": None,
                    "sqs_name": "orders",
                },
            ),
        ),
        path_params=SimpleQueuePath,
        right="sqs:GetQueueAttributes",
    ),
    Endpoint(
        "DELETE",
        "/api/queues/{queue_id}",
        "deleteQueue",
        "Delete a queue",
        "Deletes all of its messages, too, and the dead-letter queue that was created for it.",
        _QUEUES,
        _delete_queue,
        (Answered(200, QueueDeleted, "The queue is deleted.", {"queue_id": ID, "deleted": True}),),
        path_params=SimpleQueuePath,
        right="sqs:DeleteQueue",
    ),
    Endpoint(
        "POST",
        "/api/queues/{queue_id}/messages",
        "enqueue",
        "Enqueue a message",
        "The message is durable when the answer arrives. 429: the queue is full. Retry later.",
        _MESSAGES,
        counted("enqueue", _enqueue),
        (
            Answered(
                201,
                Enqueued,
                "The message is enqueued.",
                {"message_id": "1042"},
                links={"acknowledge": _THIS_MESSAGE},
            ),
        ),
        refusals=(404, 429),
        path_params=SimpleQueuePath,
        carries_messages=True,
        body=EnqueueBody,
        example={"data": "hello"},
        right="sqs:SendMessage",
    ),
    Endpoint(
        "GET",
        "/api/queues/{queue_id}/messages",
        "dequeue",
        "Dequeue the next message",
        "The message is hidden until `invisible_until`: acknowledge it before. Without a message "
        'the answer is `{"message": null}`. With `limit` the answer is a list with the number of '
        "deliveries of each message. With `wait` the answer arrives as soon as a message is "
        "available. HEAD is not allowed, because a request hides messages.",
        _MESSAGES,
        counted("dequeue", _dequeue),
        (
            Answered(
                200,
                (DequeuedMessage, Nothing, Batch),
                "The message, or null in `message`. A batch has `messages`.",
                _FOUND,
                links={"acknowledge": _THIS_MESSAGE},
            ),
        ),
        refusals=(404, 429),
        path_params=SimpleQueuePath,
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
        "Deletes the message. 404: the message does not exist any more.",
        _MESSAGES,
        counted("ack", _acknowledge),
        (
            Answered(
                200,
                Acknowledged,
                "The message is deleted.",
                {"message_id": "1042", "deleted": True},
            ),
        ),
        path_params=SimpleMessagePath,
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "POST",
        "/api/queues/{queue_id}/messages/{message_id}/requeue",
        "requeue",
        "Requeue a dead letter",
        "Moves the message from the dead-letter queue in the path to its source queue. The message "
        "keeps its id, is visible at once, and its delivery count restarts at 0. 429: the source "
        "queue is full.",
        _MESSAGES,
        counted("requeue", _requeue),
        (
            Answered(
                200,
                RequeuedLetter,
                "The message is in its source queue.",
                {"message_id": "1042", "requeued_to": ID},
            ),
        ),
        refusals=(404, 429),
        path_params=SimpleMessagePath,
        right="sqs:StartMessageMoveTask",
    ),
)
