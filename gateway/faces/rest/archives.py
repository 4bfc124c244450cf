"""Archives of queues: turn them on and off, read what was consumed, replay it, empty them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.message_members import BIGGEST_ID, JsonMessage, MessageId
from queuegate.gateway.faces.rest.messages import MessagePath
from queuegate.gateway.faces.rest.queues import (
    EXAMPLE,
    ArchiveDays,
    QueuePath,
    QueueShown,
    queue_of,
    shown,
)
from queuegate.gateway.faces.rest.words import QueueName
from queuegate.gateway.operations.access.authorization import SEND, find_own_queue
from queuegate.gateway.operations.queues import stored_messages
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import InvalidParameterValue
from queuegate.storage.model import Archived

_TAG = "archives"

Instant = Annotated[datetime, Meta(tz=True)]
Since = Annotated[Instant | None, Meta(description="Only what was archived then or later.")]
Until = Annotated[Instant | None, Meta(description="Only what was archived then or earlier.")]
After = Annotated[int, Meta(ge=0, le=BIGGEST_ID, description="Only messages behind this id.")]


class QueueChange(Struct, forbid_unknown_fields=True):
    """What to change of a queue; what is absent stays as it is."""

    archive: Annotated[
        bool | UnsetType,
        Meta(
            description="Whether messages that consumers delete are kept. What is kept already "
            "stays when it is turned off."
        ),
    ] = UNSET
    archive_days: ArchiveDays | UnsetType | None = UNSET


class ArchiveQuery(Struct, forbid_unknown_fields=True):
    """Which archived messages."""

    limit: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="At most so many.")] = 100
    after: After = 0
    since: Since = None
    until: Until = None
    schedule: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        Meta(description="Only messages that this schedule fired: the name in `_schedule`."),
    ] = None


class ArchivedMessage(Struct):
    """A message that a consumer deleted."""

    id: MessageId
    message: JsonMessage
    headers: Annotated[Raw, Meta(description="An object.", extra_json_schema={"type": "object"})]
    read_ct: Annotated[int, Meta(ge=0, description="How many times it was received.")]
    enqueued_at: datetime
    archived_at: datetime
    message_id: Annotated[str, Meta(description="As SQS calls it.")]
    group_id: str | UnsetType = UNSET


class NewReplay(Struct, forbid_unknown_fields=True):
    """What to send again: `ids`, or a stretch of the archive."""

    ids: (
        Annotated[
            list[MessageId],
            Meta(min_length=1, max_length=LIMITS.replayed_messages, description="These messages."),
        ]
        | None
    ) = None
    since: Since = None
    until: Until = None
    after: After = 0
    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.replayed_messages, description="At most so many at once.")
    ] = LIMITS.replayed_messages
    to: Annotated[
        QueueName | None, Meta(description="Another queue of the same kind. Absent: the same one.")
    ] = None


class ReplayDone(Struct):
    """What was sent."""

    replayed: Annotated[int, Meta(ge=0, description="How many messages.")]
    ids: Annotated[list[MessageId], Meta(description="Of the new messages, in order.")]
    last_id: Annotated[
        int | None,
        Meta(
            description="Go on with this as `after`, or with those of your `ids` that are greater. "
            "Null: there is no more."
        ),
    ]


class ClearQuery(Struct, forbid_unknown_fields=True):
    """What to delete."""

    before: Annotated[
        Instant | None, Meta(description="Only what was archived before. Absent: everything.")
    ] = None


class Cleared(Struct):
    """How many archived messages were deleted."""

    deleted: Annotated[int, Meta(ge=0)]


async def _change(call: Call) -> Answer:
    queue = await queue_of(call)
    wanted: QueueChange = call.body
    days = wanted.archive_days
    change = stored_messages.ArchivingChange(
        None if wanted.archive is UNSET else wanted.archive,
        None if days is UNSET else days,
        days is not UNSET,
    )
    queue = await stored_messages.change_archiving(call.engine, call.caller, queue, change)
    return Answer(200, shown(queue))


async def _list(call: Call) -> Answer:
    queue = await queue_of(call)
    query: ArchiveQuery = call.query
    request = stored_messages.ListArchive(
        query.limit, query.after, query.since, query.until, query.schedule
    )
    page = await stored_messages.list_archive(call.engine, call.caller, queue, request)
    headers = {}
    if page.next_id is not None:
        headers = next_page(
            f"/v1/queues/{queue.name}/archive",
            limit=query.limit,
            after=page.next_id,
            since=query.since,
            until=query.until,
            schedule=query.schedule,
        )
    return Answer(200, [_shown(one) for one in page.messages], headers)


def _shown(kept: Archived) -> ArchivedMessage:
    return ArchivedMessage(
        kept.sequence,
        Raw(message_of(kept.body)),
        Raw(headers_of(kept.attributes)),
        kept.receive_count,
        kept.sent_at,
        kept.archived_at,
        str(kept.message_id),
        UNSET if kept.group_id is None else kept.group_id,
    )


async def _get(call: Call) -> Answer:
    queue = await queue_of(call)
    found = await stored_messages.find_archived(call.engine, call.caller, queue, call.path.id)
    return Answer(200, _shown(found))


async def _replay(call: Call) -> Answer:
    queue = await queue_of(call)
    body: NewReplay = call.body
    if body.ids is not None and (body.after or body.since is not None or body.until is not None):
        raise InvalidParameterValue("Name `ids`, or a stretch of the archive, not both.")
    target = queue
    if body.to is not None:
        target = await find_own_queue(call.engine, call.caller, SEND, body.to)
    request = stored_messages.Replay(body.ids, body.limit, body.after, body.since, body.until)
    done = await stored_messages.replay(call.engine, call.caller, queue, target, request)
    return Answer(201, ReplayDone(len(done.ids), done.ids, done.last_id))


async def _clear(call: Call) -> Answer:
    queue = await queue_of(call)
    deleted = await stored_messages.clear_archive(
        call.engine, call.caller, queue, call.query.before
    )
    return Answer(200, Cleared(deleted))


_KEPT = {
    "id": 1042,
    "message": {"job": "resize", "image": 7},
    "headers": {"tenant": "acme", "priority": 3},
    "read_ct": 1,
    "enqueued_at": "2030-01-31T09:00:00Z",
    "archived_at": "2030-01-31T09:00:04Z",
    "message_id": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "PATCH",
        "/v1/queues/{name}",
        "changeQueue",
        "Turn the archive of a queue on or off",
        "It takes what is deleted from then on; other gateways on the same database hear of it "
        "within milliseconds.",
        _TAG,
        _change,
        (Answered(200, QueueShown, "The queue as it is now.", EXAMPLE),),
        path_params=QueuePath,
        body=QueueChange,
        example={"archive": True, "archive_days": 30},
        right="sqs:SetQueueAttributes",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/archive",
        "listArchive",
        "Read the archive of a queue",
        "Messages that consumers deleted, by id. A request looks at 20,000 archived "
        "messages at most: with `since`, `until` or `schedule` a page may be short although there "
        "are more. As long as there may be, the header Link leads on.",
        _TAG,
        _list,
        (
            Answered(
                200,
                list[ArchivedMessage],
                "Archived messages, maybe none.",
                [_KEPT],
                headers=PAGED,
                links={
                    "getArchivedMessage": {
                        "name": "$request.path.name",
                        "id": "$response.body#/0/id",
                    }
                },
            ),
        ),
        path_params=QueuePath,
        query=ArchiveQuery,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "DELETE",
        "/v1/queues/{name}/archive",
        "clearArchive",
        "Empty the archive of a queue",
        "All of it, or what was archived before some instant.",
        _TAG,
        _clear,
        (Answered(200, Cleared, "How many were deleted.", {"deleted": 12}),),
        path_params=QueuePath,
        query=ClearQuery,
        right="sqs:PurgeQueue",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/archive/{id}",
        "getArchivedMessage",
        "Look at an archived message",
        "By the id that it had in the queue.",
        _TAG,
        _get,
        (Answered(200, ArchivedMessage, "The message.", _KEPT),),
        path_params=MessagePath,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "POST",
        "/v1/queues/{name}/archive/replays",
        "replayArchive",
        "Send archived messages again",
        "Copies become new messages, of a FIFO queue in their groups: all of one request, or none. "
        "A request sends up to 1,000, and fewer when they are larger than 8 MB or of more than 500 "
        "groups; go on with `last_id`. Replaying a stretch to the same queue, say `until` when: "
        "copies that are consumed meanwhile are archived, too.",
        _TAG,
        _replay,
        (
            Answered(
                201,
                ReplayDone,
                "What was sent.",
                {"replayed": 2, "ids": [2001, 2002], "last_id": None},
            ),
        ),
        path_params=QueuePath,
        body=NewReplay,
        example={
            "examples": {
                "some": {"ids": [1042, 1043]},
                "a day, elsewhere": {
                    "since": "2030-01-31T00:00:00Z",
                    "until": "2030-02-01T00:00:00Z",
                    "to": "jobs-again",
                },
            }
        },
        right="sqs:ReceiveMessage",
    ),
)
