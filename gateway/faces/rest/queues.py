"""Queues: create, list, look at, purge, delete."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import PAGED, Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.json.listing import ListQuery, page_of_queues
from queuegate.gateway.faces.json.message_members import QUEUE_NAME_PATTERN
from queuegate.gateway.faces.rest.words import PausedAt, QueueName
from queuegate.gateway.operations.access.authorization import find_own_queue
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.queues.queues import Archiving
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import names
from queuegate.storage.model import Queue

_TAG = "queues"

ArchiveDays = Annotated[
    int,
    Meta(ge=1, le=3_650, description="For how many days. Absent or null: until you delete them."),
]

MaxMessages = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.queue_size,
        description="How many messages the queue may hold. Absent or null: any number. It cannot "
        "be changed.",
    ),
]


MaxShown = Annotated[
    int | UnsetType, Meta(description="How many messages it may hold; absent: any number.")
]


class QueuePath(Struct, forbid_unknown_fields=True):
    """Which queue."""

    name: QueueName


class NewQueue(Struct, forbid_unknown_fields=True):
    """A queue to create."""

    name: Annotated[
        str,
        Meta(
            description="Letters, digits, hyphens and underscores. A name that ends in `.fifo` is "
            "that of a FIFO queue.",
            extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80},
        ),
    ]
    fifo: Annotated[
        bool,
        Meta(description="Order within groups. The suffix `.fifo` is added to a name without it."),
    ] = False
    archive: Annotated[
        bool | UnsetType,
        Meta(description="Whether messages that consumers delete are kept. Absent: no."),
    ] = UNSET
    archive_days: ArchiveDays | None = None
    max_messages: MaxMessages | None = None
    serial: Annotated[
        bool,
        Meta(
            description="Order within groups as text queues have it: one message of a group is out "
            "at a time, and a deduplication id is new when its message is deleted."
        ),
    ] = False


class QueueShown(Struct):
    """A queue."""

    name: str
    is_partitioned: Annotated[bool, Meta(description="Always false.")]
    is_unlogged: Annotated[bool, Meta(description="Always false.")]
    created_at: datetime
    fifo: bool
    archive: bool
    archive_days: int | None
    max_messages: MaxShown = UNSET
    serial: Annotated[
        bool | UnsetType, Meta(description="True of a text queue, absent of others.")
    ] = UNSET
    paused_at: PausedAt = UNSET


class QueueMetrics(Struct):
    """What a queue holds. Ages are null of an empty queue."""

    name: str
    queue_length: Annotated[int, Meta(ge=0, description="Visible, in flight and delayed.")]
    queue_visible_length: Annotated[int, Meta(ge=0, description="Those that can be received.")]
    newest_msg_age_sec: Annotated[int, Meta(ge=0)] | None
    oldest_msg_age_sec: Annotated[int, Meta(ge=0)] | None
    total_messages: Annotated[int, Meta(ge=0, description="All that ever came in.")]
    scrape_time: datetime
    fifo: bool
    archive: bool
    archive_days: int | None
    max_messages: MaxShown = UNSET
    paused_at: PausedAt = UNSET


class QueuesQuery(ListQuery, forbid_unknown_fields=True):
    """Which queues to list."""

    name_prefix: Annotated[
        str, Meta(max_length=80, description="Only queues whose names begin so.")
    ] = ""


class Purged(Struct):
    """How many messages were deleted."""

    deleted: Annotated[int, Meta(ge=0)]


def shown(queue: Queue) -> QueueShown:
    """A queue as this API shows it."""
    return QueueShown(
        queue.name,
        False,
        False,
        queue.created_at,
        queue.is_fifo,
        queue.is_archiving,
        queue.archive_days,
        _max_of(queue),
        queue.is_serial or UNSET,
        queue.paused_at or UNSET,
    )


def _max_of(queue: Queue) -> int | UnsetType:
    return UNSET if queue.most_messages is None else queue.most_messages


async def queue_of(call: Call) -> Queue:
    """The queue that the path names, for whoever has the right that the endpoint needs."""
    return await find_own_queue(call.engine, call.caller, call.right, call.path.name)


async def _create(call: Call) -> Answer:
    new: NewQueue = call.body
    archiving = None
    if new.archive is not UNSET or new.archive_days is not None:
        # Who says for how long wants an archive.
        archiving = Archiving(new.archive is not False, new.archive_days)
    has_suffix = not new.fifo or new.name.endswith(names.FIFO_SUFFIX)
    name = new.name if has_suffix else new.name + names.FIFO_SUFFIX
    request = queues.CreateQueue(
        name, archiving=archiving, is_serial=new.serial, most_messages=new.max_messages
    )
    queue, _ = await queues.create_queue(call.engine, call.caller, request)
    return Answer(201, shown(queue), {"location": f"/v1/queues/{queue.name}"})


async def _list(call: Call) -> Answer:
    prefix = call.query.name_prefix
    found, headers = await page_of_queues(call, "/v1/queues", name_prefix=prefix)
    return Answer(200, [shown(queue) for queue in found], headers)


async def _metrics(call: Call) -> Answer:
    queue = await queue_of(call)
    found = await queues.metrics(call.engine, call.caller, queue)
    counts = found.counts
    return Answer(
        200,
        QueueMetrics(
            found.queue.name,
            counts.visible + counts.in_flight + counts.delayed,
            counts.visible,
            found.newest_age_seconds,
            found.oldest_age_seconds,
            found.total,
            found.looked_at,
            found.queue.is_fifo,
            found.queue.is_archiving,
            found.queue.archive_days,
            _max_of(found.queue),
            found.queue.paused_at or UNSET,
        ),
    )


async def _purge(call: Call) -> Answer:
    queue = await queue_of(call)
    return Answer(200, Purged(await queues.purge_queue(call.engine, call.caller, queue)))


async def _delete(call: Call) -> Answer:
    queue = await queue_of(call)
    await queues.delete_queue(call.engine, call.caller, queue)
    return Answer(204)


EXAMPLE = {
    "name": "jobs",
    "is_partitioned": False,
    "is_unlogged": False,
    "created_at": "2030-01-31T09:00:00Z",
    "fifo": False,
    "archive": True,
    "archive_days": 30,
}
_METRICS = {
    "name": "jobs",
    "queue_length": 12,
    "queue_visible_length": 10,
    "newest_msg_age_sec": 1,
    "oldest_msg_age_sec": 90,
    "total_messages": 2_000,
    "scrape_time": "2030-01-31T09:00:00Z",
    "fifo": False,
    "archive": True,
    "archive_days": 30,
}
_NAME = {"name": "$response.body#/name"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/queues",
        "createQueue",
        "Create a queue",
        "To create a queue that is there already changes nothing and answers the same. 409 when it "
        "archives otherwise than asked, or is of another size. A queue with `max_messages` takes "
        "no more than that from anybody: sends get 429 until some were deleted.",
        _TAG,
        _create,
        (
            Answered(
                201,
                QueueShown,
                "The queue.",
                EXAMPLE,
                headers={"Location": "Where the queue is."},
                links={
                    "getQueueMetrics": _NAME,
                    "sendMessages": _NAME,
                    "receiveMessages": _NAME,
                    "purgeQueue": _NAME,
                    "deleteQueue": _NAME,
                },
            ),
        ),
        refusals=(409,),
        body=NewQueue,
        example={"name": "jobs", "archive": True, "archive_days": 30},
        right="sqs:CreateQueue",
        resource="{name}",
    ),
    Endpoint(
        "GET",
        "/v1/queues",
        "listQueues",
        "List queues",
        "By name, in byte order. When there are more, the header Link leads to them.",
        _TAG,
        _list,
        (Answered(200, list[QueueShown], "Queues.", [EXAMPLE], headers=PAGED),),
        query=QueuesQuery,
        refusals=(),
        right="sqs:ListQueues",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}",
        "getQueueMetrics",
        "Look at a queue",
        "How many messages it holds, how old they are, how many there ever were.",
        _TAG,
        _metrics,
        (Answered(200, QueueMetrics, "The numbers of the queue.", _METRICS),),
        path_params=QueuePath,
        right="sqs:GetQueueAttributes",
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{name}",
        "deleteQueue",
        "Delete a queue",
        "And all of its messages, archived ones too. The name can be used again at once.",
        _TAG,
        _delete,
        (Answered(204, None, "The queue is deleted."),),
        path_params=QueuePath,
        right="sqs:DeleteQueue",
    ),
    Endpoint(
        "POST",
        "/v1/queues/{name}/purge",
        "purgeQueue",
        "Delete all messages of a queue",
        "In flight and delayed ones too; none of them is archived. What is sent meanwhile stays.",
        _TAG,
        _purge,
        (Answered(200, Purged, "How many messages were deleted.", {"deleted": 12}),),
        path_params=QueuePath,
        right="sqs:PurgeQueue",
    ),
)
