"""Endpoints of queues: create, list, get, pause, purge, delete."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType, structs

from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Answered, Call, Endpoints
from queuegate.gateway.faces.json.json_fields import (
    QUEUE_NAME_PATTERN,
    ListQuery,
    PausedAt,
    QueueName,
    about,
    example,
    page_of_queues,
    schema_name,
)
from queuegate.gateway.operations.access.authorization import find_own_queue
from queuegate.gateway.operations.queues import queues
from queuegate.gateway.operations.queues.queues import Archiving
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import names
from queuegate.storage.queue_model import Queue
from queuegate.storage.storage_errors import AccessDenied, QueueDoesNotExist

ArchiveDays = Annotated[int, about("Retention in days. Absent or null: no limit.", ge=1, le=3_650)]

MaxMessages = Annotated[
    int,
    about("Maximum number of messages. Absent or null: no limit. Cannot be changed."),
    Meta(ge=1, le=LIMITS.queue_size),
]


MaxShown = Annotated[int | UnsetType, about("Maximum number of messages. Absent: no limit.")]


@schema_name("NewQueue")
class NewQueueBody(Struct, forbid_unknown_fields=True):
    """A queue to create."""

    name: Annotated[
        str,
        about(
            "Letters, digits, hyphens and underscores. The name of a FIFO queue ends in `.fifo`.",
            extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80},
        ),
        example("jobs"),
    ]
    fifo: Annotated[
        bool, about("Order within groups. Adds a missing suffix `.fifo` to the name.")
    ] = False
    archive: Annotated[
        bool | UnsetType, about("True: archive deleted messages. Absent: false."), example(True)
    ] = UNSET
    archive_days: Annotated[ArchiveDays | None, example(30)] = None
    max_messages: MaxMessages | None = None
    serial: Annotated[
        bool,
        about(
            "Strict FIFO: one message in flight per group, and a deduplication id is "
            "free when its message is deleted."
        ),
    ] = False


class QueueShown(Struct):
    """A queue."""

    name: Annotated[str, example("jobs")]
    is_partitioned: Annotated[bool, about("Always false.")]
    is_unlogged: Annotated[bool, about("Always false.")]
    created_at: datetime
    fifo: bool
    archive: Annotated[bool, example(True)]
    archive_days: Annotated[int | None, example(30)]
    max_messages: MaxShown = UNSET
    serial: Annotated[bool | UnsetType, about("True for a text queue, else absent.")] = UNSET
    paused_at: PausedAt = UNSET


class QueueMetrics(Struct):
    """Metrics of a queue. Ages are null for an empty queue."""

    name: Annotated[str, example("jobs")]
    queue_length: Annotated[int, about("Visible, in flight and delayed messages.", 12, ge=0)]
    queue_visible_length: Annotated[int, about("Visible messages.", 9, ge=0)]
    queue_in_flight_length: Annotated[int, about("Messages in flight.", 2, ge=0)]
    queue_delayed_length: Annotated[int, about("Delayed messages.", 1, ge=0)]
    newest_msg_age_sec: Annotated[int, Meta(ge=0), example(1)] | None
    oldest_msg_age_sec: Annotated[int, Meta(ge=0), example(90)] | None
    total_messages: Annotated[int, about("Messages sent since the creation.", 2000, ge=0)]
    scrape_time: datetime
    fifo: bool
    archive: Annotated[bool, example(True)]
    archive_days: Annotated[int | None, example(30)]
    max_messages: MaxShown = UNSET
    paused_at: PausedAt = UNSET
    dead_letter_queue: Annotated[
        str | UnsetType, about("The dead-letter queue. Absent: no redrive policy.")
    ] = UNSET


class QueueEntry(QueueShown):
    """A queue of a list."""

    metrics: Annotated[
        QueueMetrics | UnsetType,
        about("With the parameter `metrics`. Absent: the caller may not read them."),
    ] = UNSET


class QueuesQuery(ListQuery, forbid_unknown_fields=True):
    """A page of queues."""

    name_prefix: Annotated[str, about("Prefix of names.", max_length=80)] = ""
    metrics: Annotated[bool, about("Return the metrics of each queue, too.")] = False


@schema_name("Purged")
class PurgedMessages(Struct):
    """The number of deleted messages."""

    deleted: Annotated[int, Meta(ge=0), example(12)]


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


endpoint = Endpoints("queues", name=QueueName)
PauseChange = Callable[[Call, bool], Awaitable[None]]

_NAME = {"name": "$response.body#/name"}
_READING = "sqs:GetQueueAttributes"
_NEXT = ("getQueueMetrics", "sendMessages", "receiveMessages", "purgeQueue", "deleteQueue")


@endpoint(
    "POST /v1/queues",
    "sqs:CreateQueue",
    resource="{name}",
    refusals=(409,),
    headers={"Location": "Path of the queue."},
    links=dict.fromkeys(_NEXT, _NAME),
)
async def create_queue(call: Call, body: NewQueueBody) -> Answer[QueueShown]:
    """Create a queue. A queue that exists with the same settings is a success. 409: it exists with
    other archive settings or another size. A queue with `max_messages` refuses further sends of
    every API with 429 until messages are deleted. Returns 201: The queue."""
    archiving = None
    if body.archive is not UNSET or body.archive_days is not None:
        # A retention implies an archive.
        archiving = Archiving(body.archive is not False, body.archive_days)
    has_suffix = not body.fifo or body.name.endswith(names.FIFO_SUFFIX)
    name = body.name if has_suffix else body.name + names.FIFO_SUFFIX
    request = queues.CreateQueue(
        name, archiving=archiving, is_serial=body.serial, most_messages=body.max_messages
    )
    queue, _ = await queues.create_queue(call.engine, call.caller, request)
    return Answer(201, shown(queue), {"location": f"/v1/queues/{queue.name}"})


@endpoint("GET /v1/queues", "sqs:ListQueues", resource="*", refusals=(), headers=PAGED)
async def list_queues(call: Call, query: QueuesQuery) -> Answer[list[QueueEntry]]:
    """List queues. Lists queues by name in byte order. The header Link leads to the next page.
    Returns 200: Queues."""
    more = {"metrics": "true"} if query.metrics else {}
    found, headers = await page_of_queues(call, "/v1/queues", more, name_prefix=query.name_prefix)
    listed = [QueueEntry(*structs.astuple(shown(queue))) for queue in found]
    for one in listed if query.metrics else ():
        with contextlib.suppress(AccessDenied, QueueDoesNotExist):
            queue = await find_own_queue(call.engine, call.caller, _READING, one.name)
            one.metrics = await _metrics(call, queue)
    return Answer(200, listed, headers)


@endpoint("GET /v1/queues/{name}", _READING)
async def get_queue_metrics(call: Call) -> Answer[QueueMetrics]:
    """Get metrics of a queue. Returns the number and age of its messages, and the total since its
    creation. Returns 200: The metrics."""
    return Answer(200, await _metrics(call, await queue_of(call)))


async def _metrics(call: Call, queue: Queue) -> QueueMetrics:
    found = await queues.metrics(call.engine, call.caller, queue)
    queue, counts = found.queue, found.counts
    target = queue.dead_letter_arn
    return QueueMetrics(
        queue.name,
        counts.visible + counts.in_flight + counts.delayed,
        counts.visible,
        counts.in_flight,
        counts.delayed,
        found.newest_age_seconds,
        found.oldest_age_seconds,
        found.total,
        found.looked_at,
        queue.is_fifo,
        queue.is_archiving,
        queue.archive_days,
        _max_of(queue),
        queue.paused_at or UNSET,
        UNSET if target is None else target.rpartition(":")[2],
    )


@endpoint("POST /v1/queues/{name}/purge", "sqs:PurgeQueue")
async def purge_queue(call: Call) -> Answer[PurgedMessages]:
    """Delete all messages of a queue. Deletes messages in flight and delayed messages, too, without
    archiving. Messages sent during the purge stay. Returns 200: The number of deleted messages."""
    queue = await queue_of(call)
    return Answer(200, PurgedMessages(await queues.purge_queue(call.engine, call.caller, queue)))


@endpoint("DELETE /v1/queues/{name}", "sqs:DeleteQueue")
async def delete_queue(call: Call) -> Answer[None]:
    """Delete a queue. Deletes all of its messages and its archive, too. The name is free at once.
    Returns 204: The queue is deleted."""
    queue = await queue_of(call)
    await queues.delete_queue(call.engine, call.caller, queue)
    return Answer(204)


def pausing(
    endpoints: Endpoints, noun: str, place: str, **declared: Any
) -> Callable[[PauseChange], PauseChange]:
    """Declare PUT and DELETE of ``{place}/pause``. The docstring documents a pause."""

    def declare(change: PauseChange) -> PauseChange:
        pause = " ".join((change.__doc__ or "").split())
        resume = "Receives and retained deliveries continue at once."
        for method, verb, description in (("PUT", "pause", pause), ("DELETE", "resume", resume)):

            async def handler(call: Call, is_paused: bool = method == "PUT") -> Answer[None]:
                await change(call, is_paused)
                return Answer(204)

            endpoints.declare(
                f"{method} {place}/pause",
                name=f"{verb}{noun.capitalize()}",
                summary=f"{verb.capitalize()} a {noun}",
                description=description,
                handler=handler,
                answers=(Answered(204, None, "The pause is set or ended."),),
                **declared,
            )
        return change

    return declare


@pausing(endpoint, "queue", "/v1/queues/{name}", right="sqs:SetQueueAttributes")
async def _set_paused(call: Call, is_paused: bool) -> None:
    """Receives and pushes of every API wait as if the queue were empty. Sends, deletes and changes
    of visibility of messages in flight, moves and retention continue."""
    await queues.set_paused(call.engine, await queue_of(call), is_paused=is_paused)
