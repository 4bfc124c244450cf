"""Queues of the simple face: create, list, look at, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, field

from queuegate.gateway.faces.json.endpoints import PAGED, Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.listing import ListQuery, page_of_queues
from queuegate.gateway.operations.access.authorization import find_queue_by_id
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.queues.queue_cache import public_id
from queuegate.gateway.operations.queues.queues import TitledQueue, create_titled, dead_letter_queue
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import MalformedInput
from queuegate.storage.model import Queue

_TAG = "queues"

QueueId = Annotated[
    str,
    Meta(
        description="A UUID. Every queue has one, whichever API made it.",
        examples=["0000002a-5c1f-8e3b-9a64-0f2d7c9b1e55"],
    ),
]
Title = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LIMITS.title_length,
        description="What people call the queue. Others may be called the same.",
    ),
]
Size = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.queue_size,
        description="How many messages it holds at most, those in flight too. Absent or null: any "
        "number.",
    ),
]
Seconds = Annotated[
    int,
    Meta(
        ge=0,
        le=LIMITS.visibility_timeout_seconds,
        description="For how many seconds others do not see a message that was dequeued.",
    ),
]
Deliveries = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.deliveries,
        description="After how many deliveries without an acknowledgement a message goes to the "
        "dead-letter queue. Null: never.",
    ),
]


class QueuePath(Struct, forbid_unknown_fields=True):
    """Which queue."""

    queue_id: QueueId


class NewQueue(Struct, forbid_unknown_fields=True):
    """A queue to create. Each field has two spellings, of which you send one."""

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


class QueueShown(Struct):
    """A queue, and how full it is."""

    queue_id: QueueId
    queue_name: Annotated[str, Meta(description="As it was called.")]
    queue_size: Annotated[int, Meta(ge=1, description="Null: any number.")] | None
    visibility_timeout: Annotated[int, Meta(ge=0)]
    max_deliveries: Annotated[int, Meta(ge=1, description="Null: any number.")] | None
    current_message_count: Annotated[
        int, Meta(ge=0, description="Visible, in flight and delayed ones.")
    ]
    dlq_id: Annotated[QueueId | None, Meta(description="Null until a message went there.")]
    sqs_name: Annotated[str, Meta(description="What SQS and the native API call it.")]


class ListedQueue(Struct):
    """A queue."""

    queue_id: QueueId
    queue_name: str
    sqs_name: str
    created_at: datetime


class Listed(Struct):
    """Queues, by what SQS calls them."""

    queues: list[ListedQueue]


class QueuesQuery(ListQuery, forbid_unknown_fields=True):
    """Which queues to list."""

    prefix: Annotated[
        str, Meta(max_length=80, description="Only queues whose `sqs_name` begins so.")
    ] = ""
    after: Annotated[
        str, Meta(max_length=80, description="Only `sqs_name` behind this one: the last you got.")
    ] = ""


class QueueDeleted(Struct):
    """The id of the queue that was there."""

    queue_id: QueueId
    deleted: bool


async def queue_of(call: Call) -> Queue:
    """The queue that the path names, for whoever has the right that the endpoint needs."""
    return await find_queue_by_id(call.engine, call.caller, call.right, call.path.queue_id)


_DEFAULT_DELIVERIES = 3


def _given(new: NewQueue, name: str, default: Any) -> Any:
    """The value of a field, in whichever spelling it came."""
    snake, camel = getattr(new, name), getattr(new, f"camel_{name}")
    if snake is not UNSET and camel is not UNSET:
        raise MalformedInput(f"The field `{name}` is there in two spellings.")
    found = camel if snake is UNSET else snake
    return default if found is UNSET else found


async def _create(call: Call) -> Answer:
    new: NewQueue = call.body
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


async def _list(call: Call) -> Answer:
    found, headers = await page_of_queues(call, "/api/queues", prefix=call.query.prefix)
    listed = [ListedQueue(public_id(one), one.title, one.name, one.created_at) for one in found]
    return Answer(200, Listed(listed), headers)


async def _read(call: Call) -> Answer:
    queue, counts = await queues.count(call.engine, call.caller, await queue_of(call))
    dead_letters = await dead_letter_queue(call.engine, queue)
    return Answer(
        200,
        QueueShown(
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


async def _delete(call: Call) -> Answer:
    queue = await queue_of(call)
    await queues.delete_queue(call.engine, call.caller, queue)
    return Answer(200, QueueDeleted(call.path.queue_id, True))


ID = "0000002a-5c1f-8e3b-9a64-0f2d7c9b1e55"
_THIS = {"queue_id": "$response.body#/queue_id"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/api/queues",
        "createQueue",
        "Create a queue",
        "Always a new one: queues may be called the same. `visibility_timeout` is 30 seconds and "
        "`max_deliveries` 3 unless you say otherwise. Fields may be spelt in camelCase, too.",
        _TAG,
        _create,
        (
            Answered(
                201,
                QueueCreated,
                "The queue.",
                {"queue_id": ID},
                headers={"Location": "Where the queue is."},
                links={"getQueue": _THIS, "deleteQueue": _THIS, "enqueue": _THIS, "dequeue": _THIS},
            ),
        ),
        refusals=(409,),
        body=NewQueue,
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
        "All of the account in this region, whichever API made them, in the order of their "
        "`sqs_name`. When there are more, the header Link leads to them.",
        _TAG,
        _list,
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
        query=QueuesQuery,
        right="sqs:ListQueues",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/api/queues/{queue_id}",
        "getQueue",
        "Look at a queue",
        "How it is set, how many messages it holds, and which queue has its dead letters.",
        _TAG,
        _read,
        (
            Answered(
                200,
                QueueShown,
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
        path_params=QueuePath,
        right="sqs:GetQueueAttributes",
    ),
    Endpoint(
        "DELETE",
        "/api/queues/{queue_id}",
        "deleteQueue",
        "Delete a queue",
        "And all of its messages, with the dead-letter queue that was made for it.",
        _TAG,
        _delete,
        (Answered(200, QueueDeleted, "The queue is deleted.", {"queue_id": ID, "deleted": True}),),
        path_params=QueuePath,
        right="sqs:DeleteQueue",
    ),
)
