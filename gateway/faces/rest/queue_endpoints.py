"""Endpoints of queues: create, list, get, pause, purge, delete."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    schema_name,
)
from queuegate.gateway.faces.json.json_fields import (
    QUEUE_NAME_PATTERN,
    ListQuery,
    PausedAt,
    QueueName,
    page_of_queues,
)
from queuegate.gateway.operations.access.authorization import find_own_queue
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.queues.queues import Archiving
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import names
from queuegate.storage.queue_model import Queue

_TAG = "queues"

ArchiveDays = Annotated[
    int,
    Meta(ge=1, le=3_650, description="Retention in days. Absent or null: no limit."),
]

MaxMessages = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.queue_size,
        description="Maximum number of messages. Absent or null: no limit. Cannot be changed.",
    ),
]


MaxShown = Annotated[
    int | UnsetType, Meta(description="Maximum number of messages. Absent: no limit.")
]


class QueuePath(Struct, forbid_unknown_fields=True):
    """A queue."""

    name: QueueName


@schema_name("NewQueue")
class NewQueueBody(Struct, forbid_unknown_fields=True):
    """A queue to create."""

    name: Annotated[
        str,
        Meta(
            description="Letters, digits, hyphens and underscores. The name of a FIFO queue ends "
            "in `.fifo`.",
            extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80},
        ),
    ]
    fifo: Annotated[
        bool,
        Meta(description="Order within groups. Adds a missing suffix `.fifo` to the name."),
    ] = False
    archive: Annotated[
        bool | UnsetType,
        Meta(description="True: archive deleted messages. Absent: false."),
    ] = UNSET
    archive_days: ArchiveDays | None = None
    max_messages: MaxMessages | None = None
    serial: Annotated[
        bool,
        Meta(
            description="Strict FIFO: one message in flight per group, and a deduplication id is "
            "free when its message is deleted."
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
    serial: Annotated[bool | UnsetType, Meta(description="True for a text queue, else absent.")] = (
        UNSET
    )
    paused_at: PausedAt = UNSET


class QueueMetrics(Struct):
    """Metrics of a queue. Ages are null for an empty queue."""

    name: str
    queue_length: Annotated[int, Meta(ge=0, description="Visible, in flight and delayed messages.")]
    queue_visible_length: Annotated[int, Meta(ge=0, description="Visible messages.")]
    newest_msg_age_sec: Annotated[int, Meta(ge=0)] | None
    oldest_msg_age_sec: Annotated[int, Meta(ge=0)] | None
    total_messages: Annotated[int, Meta(ge=0, description="Messages sent since the creation.")]
    scrape_time: datetime
    fifo: bool
    archive: bool
    archive_days: int | None
    max_messages: MaxShown = UNSET
    paused_at: PausedAt = UNSET


class QueuesQuery(ListQuery, forbid_unknown_fields=True):
    """A page of queues."""

    name_prefix: Annotated[str, Meta(max_length=80, description="Prefix of names.")] = ""


@schema_name("Purged")
class PurgedMessages(Struct):
    """The number of deleted messages."""

    deleted: Annotated[int, Meta(ge=0)]


def shown(queue: Queue) -> QueueShown:
    """Show a queue."""
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
    """Return the queue in the path. The caller needs the permission of the endpoint."""
    return await find_own_queue(call.engine, call.caller, call.right, call.path.name)


async def _create(call: Call) -> Answer:
    new: NewQueueBody = call.body
    archiving = None
    if new.archive is not UNSET or new.archive_days is not None:
        # A retention implies an archive.
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
    return Answer(200, PurgedMessages(await queues.purge_queue(call.engine, call.caller, queue)))


async def _delete(call: Call) -> Answer:
    queue = await queue_of(call)
    await queues.delete_queue(call.engine, call.caller, queue)
    return Answer(204)


def pause_endpoints(
    noun: str,
    change: Callable[[Call, bool], Awaitable[None]],
    effect: str,
    /,
    *,
    place: str,
    **declared: Any,
) -> tuple[Endpoint, Endpoint]:
    """Declare PUT and DELETE of ``{place}/pause``. ``effect`` documents a pause."""

    def endpoint(method: str, verb: str, description: str) -> Endpoint:
        async def handler(call: Call) -> Answer:
            await change(call, method == "PUT")
            return Answer(204)

        return Endpoint(
            method,
            f"{place}/pause",
            f"{verb}{noun.capitalize()}",
            f"{verb.capitalize()} a {noun}",
            description,
            handler=handler,
            answers=(Answered(204, None, "The pause is set or ended."),),
            **declared,
        )

    return (
        endpoint("PUT", "pause", effect),
        endpoint("DELETE", "resume", "Receives and retained deliveries continue at once."),
    )


async def _set_paused(call: Call, is_paused: bool) -> None:
    await queues.set_paused(call.engine, await queue_of(call), is_paused=is_paused)


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
        "A queue that exists with the same settings is a success. 409: it exists with other "
        "archive settings or another size. A queue with `max_messages` refuses further sends of "
        "every API with 429 until messages are deleted.",
        _TAG,
        _create,
        (
            Answered(
                201,
                QueueShown,
                "The queue.",
                EXAMPLE,
                headers={"Location": "Path of the queue."},
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
        body=NewQueueBody,
        example={"name": "jobs", "archive": True, "archive_days": 30},
        right="sqs:CreateQueue",
        resource="{name}",
    ),
    Endpoint(
        "GET",
        "/v1/queues",
        "listQueues",
        "List queues",
        "Lists queues by name in byte order. The header Link leads to the next page.",
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
        "Get metrics of a queue",
        "Returns the number and age of its messages, and the total since its creation.",
        _TAG,
        _metrics,
        (Answered(200, QueueMetrics, "The metrics.", _METRICS),),
        path_params=QueuePath,
        right="sqs:GetQueueAttributes",
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{name}",
        "deleteQueue",
        "Delete a queue",
        "Deletes all of its messages and its archive, too. The name is free at once.",
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
        "Deletes messages in flight and delayed messages, too, without archiving. Messages sent "
        "during the purge stay.",
        _TAG,
        _purge,
        (Answered(200, PurgedMessages, "The number of deleted messages.", {"deleted": 12}),),
        path_params=QueuePath,
        right="sqs:PurgeQueue",
    ),
    *pause_endpoints(
        "queue",
        _set_paused,
        "Receives and pushes of every API wait as if the queue were empty. Sends, deletes and "
        "changes of visibility of messages in flight, moves and retention continue.",
        tag=_TAG,
        place="/v1/queues/{name}",
        path_params=QueuePath,
        right="sqs:SetQueueAttributes",
    ),
)
