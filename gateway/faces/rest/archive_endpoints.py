"""Endpoints of archives: switch on and off, list, get, replay, clear."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.json_fields import BIGGEST_ID, JsonMessage, MessageId, QueueName
from queuegate.gateway.faces.rest.message_endpoints import MessagePath
from queuegate.gateway.faces.rest.queue_endpoints import (
    EXAMPLE,
    ArchiveDays,
    QueuePath,
    QueueShown,
    queue_of,
    shown,
)
from queuegate.gateway.operations.access.authorization import SEND, find_own_queue
from queuegate.gateway.operations.queues import stored_messages
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.queue_model import ArchivedCopy
from queuegate.storage.storage_errors import InvalidParameterValue

_TAG = "archives"

Instant = Annotated[datetime, Meta(tz=True)]
Since = Annotated[Instant | None, Meta(description="Minimum archive time.")]
Until = Annotated[Instant | None, Meta(description="Maximum archive time.")]
After = Annotated[int, Meta(ge=0, le=BIGGEST_ID, description="Only higher ids.")]


class QueueChange(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    archive: Annotated[
        bool | UnsetType,
        Meta(description="True: archive deleted messages. False: stop, and keep the archive."),
    ] = UNSET
    archive_days: ArchiveDays | UnsetType | None = UNSET


class ArchiveQuery(Struct, forbid_unknown_fields=True):
    """A page of archived messages."""

    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.listed, description="Maximum number of results.")
    ] = 100
    after: After = 0
    since: Since = None
    until: Until = None
    schedule: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        Meta(description="Only messages of this schedule: the name in `_schedule`."),
    ] = None


class ArchivedMessage(Struct):
    """An archived message."""

    id: MessageId
    message: JsonMessage
    headers: Annotated[Raw, Meta(description="An object.", extra_json_schema={"type": "object"})]
    read_ct: Annotated[int, Meta(ge=0, description="Number of receives.")]
    enqueued_at: datetime
    archived_at: datetime
    message_id: Annotated[str, Meta(description="The id of the message in SQS.")]
    group_id: str | UnsetType = UNSET


class NewReplay(Struct, forbid_unknown_fields=True):
    """Messages to send again: `ids`, or a range of the archive."""

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
        int, Meta(ge=1, le=LIMITS.replayed_messages, description="Maximum number of messages.")
    ] = LIMITS.replayed_messages
    to: Annotated[
        QueueName | None, Meta(description="Another queue of the same kind. Absent: this queue.")
    ] = None


class ReplayDone(Struct):
    """The sent messages."""

    replayed: Annotated[int, Meta(ge=0, description="Number of messages.")]
    ids: Annotated[list[MessageId], Meta(description="Ids of the new messages, in order.")]
    last_id: Annotated[
        int | None,
        Meta(
            description="`after` for the next request, or the limit below which `ids` are done. "
            "Null: all messages are sent."
        ),
    ]


class ClearQuery(Struct, forbid_unknown_fields=True):
    """Archived messages to delete."""

    before: Annotated[
        Instant | None, Meta(description="Only messages archived before. Absent: all.")
    ] = None


class Cleared(Struct):
    """The number of deleted archived messages."""

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


def _shown(kept: ArchivedCopy) -> ArchivedMessage:
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
        raise InvalidParameterValue("Send either `ids` or a range of the archive.")
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
        "Switch the archive of a queue on or off",
        "Applies to later deletes, on other gateways of the same database within milliseconds.",
        _TAG,
        _change,
        (Answered(200, QueueShown, "The changed queue.", EXAMPLE),),
        path_params=QueuePath,
        body=QueueChange,
        example={"archive": True, "archive_days": 30},
        right="sqs:SetQueueAttributes",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/archive",
        "listArchive",
        "List the archive of a queue",
        "Lists deleted messages by id. A request scans at most 20,000 archived messages: with "
        "`since`, `until` or `schedule` a page may be short although more messages match. The "
        "header Link leads to the next page.",
        _TAG,
        _list,
        (
            Answered(
                200,
                list[ArchivedMessage],
                "Archived messages. May be empty.",
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
        "Clear the archive of a queue",
        "Deletes all archived messages, or those archived before an instant.",
        _TAG,
        _clear,
        (Answered(200, Cleared, "The number of deleted messages.", {"deleted": 12}),),
        path_params=QueuePath,
        query=ClearQuery,
        right="sqs:PurgeQueue",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/archive/{id}",
        "getArchivedMessage",
        "Get an archived message",
        "Uses the id that the message had in the queue.",
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
        "Sends copies as new messages, in their groups for a FIFO queue: all of one request, or "
        "none. A request sends up to 1,000 messages, 8 MB or 500 groups. Continue with `last_id`. "
        "Set `until` to replay a range to the same queue, because deleted copies are archived, "
        "too.",
        _TAG,
        _replay,
        (
            Answered(
                201,
                ReplayDone,
                "The sent messages.",
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
