"""Endpoints that browse a queue without receiving, redrive dead letters, and show archives."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from queuegate.gateway.faces.aws.sqs.sqs_messages import system_members
from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Call, Endpoints, next_page
from queuegate.gateway.faces.json.json_fields import (
    BIGGEST_ID,
    Instant,
    JsonMessage,
    Limit,
    MessageId,
    QueueName,
    ShownHeaders,
    SqsId,
    about,
    example,
    schema_name,
)
from queuegate.gateway.faces.rest import queue_endpoints
from queuegate.gateway.faces.rest.queue_endpoints import queue_of
from queuegate.gateway.operations.access.authorization import SEND, find_own_queue
from queuegate.gateway.operations.queues import stored_messages
from queuegate.gateway.operations.queues.dead_letter_moves import Redrive, redrive
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.queues.stored_messages import (
    AS_OF_PATTERN,
    PLACE_PATTERN,
    Browse,
    Matching,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol.digests import md5_of_body
from queuegate.storage.queue_model import ArchivedCopy, Browsed, MessageState
from queuegate.storage.storage_errors import InvalidParameterValue

_MOST_RECEIVES = (1 << 31) - 1
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_MOST_IDS = 100
_LONGEST_IDS = 37 * _MOST_IDS - 1
_Text = Annotated[str, Meta(min_length=1, max_length=1_024)]

AsOf = Annotated[
    str,
    about(
        "The moment in an answer. Absent: now, which the answer contains.", pattern=AS_OF_PATTERN
    ),
]
Place = Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)]
Receives = Annotated[int, Meta(ge=0, le=_MOST_RECEIVES)]


class BrowseQuery(Struct, forbid_unknown_fields=True):
    """A page of messages, and filters."""

    limit: Annotated[int, about("Maximum number of results.", ge=1, le=LIMITS.browsed_messages)] = (
        100
    )
    after: Annotated[Place | None, about("Only later messages: `next`, or `after` of a range.")] = (
        None
    )
    until: Annotated[Place | None, about("End, inclusive: `until` of a range.")] = None
    as_of: AsOf | None = None
    group_id: Annotated[
        Annotated[str, Meta(max_length=128)] | None, about("Only this message group.")
    ] = None
    sent_since: Annotated[Instant | None, about("Minimum SentTimestamp.")] = None
    sent_until: Annotated[Instant | None, about("Maximum SentTimestamp.")] = None
    min_receives: Annotated[Receives | None, about("Minimum receive count.")] = None
    max_receives: Annotated[Receives | None, about("Maximum receive count.")] = None
    state: Annotated[MessageState | None, about("Only this state.")] = None
    message_id: Annotated[
        Annotated[
            str, Meta(pattern=f"^{_UUID}(,{_UUID}){{0,{_MOST_IDS - 1}}}$", max_length=_LONGEST_IDS)
        ]
        | None,
        about(f"Only this id of SQS, or up to {_MOST_IDS} ids: `id,id`."),
    ] = None
    text: Annotated[_Text | None, about("Only bodies that contain this text.")] = None
    attribute: Annotated[
        Annotated[str, Meta(pattern="^[^=]{1,256}=[^\\x00]+$", max_length=1_281)] | None,
        about("Only this message attribute: `name=value`, or `name=prefix*`."),
    ] = None


class BrowsedMessage(Struct):
    """A stored message."""

    id: MessageId
    message_id: SqsId
    body: Annotated[
        str, about("The body in the form of ReceiveMessage.", '{"job": "resize", "image": 7}')
    ]
    md5_of_body: Annotated[str, example("114c7d6626d5b19bd49fed30fff40ea7")]
    message_attributes: Annotated[
        Raw,
        about(
            "All attributes in the form of ReceiveMessage: name to `DataType` and "
            "`StringValue`, or `BinaryValue` in base64.",
            {"tenant": {"DataType": "String", "StringValue": "acme"}},
            extra_json_schema={"type": "object", "additionalProperties": {"type": "object"}},
        ),
    ]
    attributes: Annotated[
        dict[str, str],
        about(
            "System attributes with the names of ReceiveMessage. For a message that "
            "was never received, ApproximateReceiveCount is 0 and "
            "ApproximateFirstReceiveTimestamp is absent.",
            {
                "SenderId": "000000000000",
                "SentTimestamp": "1896080400000",
                "ApproximateReceiveCount": "1",
                "ApproximateFirstReceiveTimestamp": "1896080401000",
            },
        ),
    ]
    state: Annotated[
        MessageState,
        about("A message behind others of its group is visible, as in SQS counts.", "in_flight"),
    ]
    visible_at: Annotated[
        datetime, about("When the message can be received.", "2030-01-31T09:00:31Z")
    ]
    priority: Annotated[
        int | UnsetType, about("Present if the queue uses priorities or expiry.")
    ] = UNSET
    expires_at: Annotated[datetime | UnsetType, about("When the message expires.")] = UNSET


@schema_name("BrowsedPage")
class BrowsePage(Struct):
    """A page of messages."""

    messages: list[BrowsedMessage]
    next: Annotated[
        str | None, about("`after` for the next page. Null: this is the last page.", "1042")
    ]
    as_of: Annotated[str, about("`as_of` for the next pages.", "2000")]


class RangesQuery(Struct, forbid_unknown_fields=True):
    """The number of ranges of a queue."""

    parts: Annotated[int, about("Maximum number of ranges.", ge=1, le=LIMITS.browsed_ranges)] = 1
    as_of: AsOf | None = None


@schema_name("Range")
class QueueRange(Struct):
    """Messages after `after`, up to and including `until`. Null: the first, the last."""

    after: str | None
    until: str | None


@schema_name("Ranges")
class BrowseRanges(Struct):
    """At least one range."""

    as_of: Annotated[str, about("`as_of` for the pages of each range.", "2000")]
    ranges: Annotated[
        list[QueueRange],
        example([{"after": None, "until": "1042"}, {"after": "1042", "until": None}]),
    ]


endpoint = Endpoints("messages", name=QueueName)


@endpoint("GET /v1/queues/{name}/browse", "sqs:ReceiveMessage", headers=PAGED)
async def browse_queue(call: Call, query: BrowseQuery) -> Answer[BrowsePage]:
    """Browse the messages of a queue. Lists visible, in flight and delayed messages without
    receiving them: no receive is counted, no message is hidden or locked, and groups of FIFO queues
    do not block. `as_of` is the moment of the first answer. With it on all pages or disjoint
    ranges, each message that existed then, and exists when its page is read, is returned exactly
    once. Messages sent later are not returned. State and counts are those of the moment of the
    page. Standard queues are ordered by id, FIFO queues by group and id. A page has at most 4 MB,
    but at least one message, and scans at most 20,000 messages: with a filter it may be short or
    empty although more messages match. With `text` or `attribute` it reads the bodies of at most
    10,000 messages or 40 MB. `next` and the header Link lead to the next page. Values of `next` are
    opaque, and those of another kind of queue are refused. Returns 200: Messages. May be empty."""
    queue = await queue_of(call)
    filters = structs.asdict(query)
    ids = filters.pop("message_id")
    message_ids = None if ids is None else [UUID(one) for one in ids.split(",")]
    text, attribute = filters.pop("text"), filters.pop("attribute")
    request = Browse(**filters, message_ids=message_ids)
    if text is None and attribute is None:
        page = await stored_messages.browse(call.engine, call.caller, queue, request)
    else:
        name, _, value = (attribute or "").partition("=")
        matching = Matching(attributes={name: value} if name else {}, text=text)
        page = await stored_messages.search(call.engine, call.caller, queue, request, matching)
    asked = structs.asdict(query) | {"after": page.next, "as_of": page.as_of}
    headers = next_page(f"/v1/queues/{queue.name}/browse", **asked)
    messages = [_shown(one) for one in page.messages]
    return Answer(200, BrowsePage(messages, page.next, page.as_of), headers)


def _shown(browsed: Browsed) -> BrowsedMessage:
    message = browsed.message
    digest = message.body_md5
    return BrowsedMessage(
        message.sequence,
        str(message.message_id),
        message.body,
        digest.hex() if digest is not None else md5_of_body(message.body),
        Raw(message.attributes.encode() if message.attributes else b"{}"),
        system_members(message),
        browsed.state,
        browsed.visible_at,
        UNSET if message.priority is None else message.priority,
        UNSET if browsed.expires_at is None else browsed.expires_at,
    )


@endpoint("GET /v1/queues/{name}/browse/ranges", "sqs:ReceiveMessage")
async def split_queue(call: Call, query: RangesQuery) -> Answer[BrowseRanges]:
    """Split a queue into ranges to browse in parallel. Ranges are disjoint and together hold all
    messages. Browse each with its `after` and `until` and the common `as_of`. Up to 50,000
    messages, ranges have equal numbers of messages. Larger queues are sampled at constant cost.
    Returns 200: One range or more."""
    queue = await queue_of(call)
    as_of, found = await stored_messages.split(
        call.engine, call.caller, queue, query.parts, query.as_of
    )
    return Answer(200, BrowseRanges(as_of, [QueueRange(*one) for one in found]))


_MOST_NAMED = 1_000


class NewRedrive(Struct, forbid_unknown_fields=True):
    """Dead letters to move, and their target. A message must match all filters."""

    to: Annotated[
        QueueName | None,
        about("A target queue of the same kind. Absent: the source of each message."),
    ] = None
    source: Annotated[_Text | None, about("Only from this source queue, by name or ARN.")] = None
    group_ids: Annotated[
        list[Annotated[str, Meta(max_length=128)]],
        about("Only these message groups.", max_length=_MOST_NAMED),
    ] = []
    message_ids: Annotated[
        Annotated[list[UUID], Meta(max_length=_MOST_NAMED)] | None, about("Only these ids of SQS.")
    ] = None
    sent_since: Annotated[Instant | None, about("Minimum SentTimestamp.")] = None
    sent_until: Annotated[Instant | None, about("Maximum SentTimestamp.")] = None
    min_receives: Annotated[Receives | None, about("Minimum receive count.")] = None
    attributes: Annotated[
        dict[Annotated[str, Meta(max_length=256)], _Text],
        about("Only these message attributes. A `*` at the end matches any rest.", max_length=10),
    ] = {}
    text: Annotated[_Text | None, about("Only bodies that contain this text.")] = None
    limit: Annotated[
        int, about("Maximum number of moved messages.", ge=1, le=LIMITS.browsed_messages)
    ] = LIMITS.browsed_messages
    after: Annotated[Place | None, about("`next` of the answer before.")] = None
    as_of: AsOf | None = None
    dry_run: Annotated[bool, about("Only count.")] = False


class RedriveDone(Struct):
    """The numbers of messages."""

    matched: Annotated[int, about("Matching messages.", 3, ge=0)]
    moved: Annotated[int, Meta(ge=0), example(3)]
    without_source: Annotated[
        int, about("Unmoved messages: their source is unknown or deleted.", ge=0)
    ]
    next: Annotated[str | None, about("`after` for the next request. Null: the scan is complete.")]
    as_of: Annotated[str, about("`as_of` for the next request.", "2000")]


@endpoint(
    "POST /v1/queues/{name}/redrives",
    "sqs:StartMessageMoveTask",
    example={
        "examples": {
            "all": {},
            "some": {
                "source": "jobs",
                "attributes": {"ErrorCode": "Timeout*"},
                "sent_until": "2030-01-31T09:00:00Z",
                "dry_run": True,
            },
        }
    },
)
async def redrive_queue(call: Call, body: NewRedrive) -> Answer[RedriveDone]:
    """Move dead letters back. Moves matching messages to their source queues, or to another queue,
    as new messages with a receive count of 0: all of one request, or none. Messages in flight stay,
    and messages without capacity in the target. A request scans at most 1,000 messages or 4 MB, and
    skips 20,000 more with `sent_since`, `sent_until`, `min_receives` or `message_ids`. Continue
    with `next` and `as_of` until `next` is null. In a FIFO queue, a message that stays also blocks
    later messages of its group. `queuegate redrive` moves a whole queue. StartMessageMoveTask of
    SQS moves a whole queue in the background. Returns 200: The numbers of matching and moved
    messages."""
    queue = await queue_of(call)
    target = None
    if body.to is not None:
        target = await find_own_queue(call.engine, call.caller, SEND, body.to)
    request = Redrive(
        Browse(
            LIMITS.browsed_messages,
            body.after,
            as_of=body.as_of,
            sent_since=body.sent_since,
            sent_until=body.sent_until,
            min_receives=body.min_receives,
            message_ids=body.message_ids,
        ),
        Matching(body.source, body.group_ids, body.attributes, body.text),
        body.limit,
        target,
        body.dry_run,
    )
    return Answer(200, RedriveDone(*await redrive(call.engine, call.caller, queue, request)))


Since = Annotated[Instant | None, about("Minimum archive time.")]
Until = Annotated[Instant | None, about("Maximum archive time.")]
After = Annotated[int, about("Only higher ids.", ge=0, le=BIGGEST_ID)]


class QueueChange(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    archive: Annotated[
        bool | UnsetType,
        about("True: archive deleted messages. False: stop, and keep the archive."),
        example(True),
    ] = UNSET
    archive_days: Annotated[queue_endpoints.ArchiveDays | UnsetType | None, example(30)] = UNSET


class ArchiveQuery(Struct, forbid_unknown_fields=True):
    """A page of archived messages."""

    limit: Limit = 100
    after: After = 0
    since: Since = None
    until: Until = None
    schedule: Annotated[
        Annotated[str, Meta(max_length=256)] | None,
        about("Only messages of this schedule: the name in `_schedule`."),
    ] = None


class ArchivedMessage(Struct):
    """An archived message."""

    id: MessageId
    message: Annotated[JsonMessage, example({"job": "resize", "image": 7})]
    headers: ShownHeaders
    read_ct: Annotated[int, about("Number of receives.", 1, ge=0)]
    enqueued_at: datetime
    archived_at: Annotated[datetime, example("2030-01-31T09:00:04Z")]
    message_id: SqsId
    group_id: str | UnsetType = UNSET


class NewReplay(Struct, forbid_unknown_fields=True):
    """Messages to send again: `ids`, or a range of the archive."""

    ids: (
        Annotated[
            list[MessageId],
            about("These messages.", min_length=1, max_length=LIMITS.replayed_messages),
        ]
        | None
    ) = None
    since: Since = None
    until: Until = None
    after: After = 0
    limit: Annotated[
        int, about("Maximum number of messages.", ge=1, le=LIMITS.replayed_messages)
    ] = LIMITS.replayed_messages
    to: Annotated[
        QueueName | None, about("Another queue of the same kind. Absent: this queue.")
    ] = None


class ReplayDone(Struct):
    """The sent messages."""

    replayed: Annotated[int, about("Number of messages.", 2, ge=0)]
    ids: Annotated[list[MessageId], about("Ids of the new messages, in order.", [2001, 2002])]
    last_id: Annotated[
        int | None,
        about(
            "`after` for the next request, or the limit below which `ids` are done. "
            "Null: all messages are sent."
        ),
    ]


class ClearQuery(Struct, forbid_unknown_fields=True):
    """Archived messages to delete."""

    before: Annotated[Instant | None, about("Only messages archived before. Absent: all.")] = None


class Cleared(Struct):
    """The number of deleted archived messages."""

    deleted: Annotated[int, Meta(ge=0), example(12)]


archives = Endpoints("archives", name=QueueName, id=MessageId)


@archives("PATCH /v1/queues/{name}", "sqs:SetQueueAttributes")
async def change_queue(call: Call, body: QueueChange) -> Answer[queue_endpoints.QueueShown]:
    """Switch the archive of a queue on or off. Applies to later deletes, on other gateways of the
    same database within milliseconds. Returns 200: The changed queue."""
    queue = await queue_endpoints.queue_of(call)
    days = body.archive_days
    change = stored_messages.ArchivingChange(
        None if body.archive is UNSET else body.archive,
        None if days is UNSET else days,
        days is not UNSET,
    )
    queue = await stored_messages.change_archiving(call.engine, call.caller, queue, change)
    return Answer(200, queue_endpoints.shown(queue))


@archives(
    "GET /v1/queues/{name}/archive",
    "sqs:ReceiveMessage",
    headers=PAGED,
    links={"getArchivedMessage": {"name": "$request.path.name", "id": "$response.body#/0/id"}},
)
async def list_archive(call: Call, query: ArchiveQuery) -> Answer[list[ArchivedMessage]]:
    """List the archive of a queue. Lists deleted messages by id. A request scans at most 20,000
    archived messages: with `since`, `until` or `schedule` a page may be short although more
    messages match. The header Link leads to the next page. Returns 200: Archived messages. May be
    empty."""
    queue = await queue_endpoints.queue_of(call)
    filters = structs.asdict(query)
    request = stored_messages.ListArchive(after_id=filters.pop("after"), **filters)
    page = await stored_messages.list_archive(call.engine, call.caller, queue, request)
    asked = structs.asdict(query) | {"after": page.next_id}
    headers = next_page(f"/v1/queues/{queue.name}/archive", **asked)
    return Answer(200, [_archived(one) for one in page.messages], headers)


def _archived(kept: ArchivedCopy) -> ArchivedMessage:
    message = kept.message
    return ArchivedMessage(
        message.sequence,
        Raw(message_of(message.body)),
        Raw(headers_of(message.attributes)),
        message.receive_count,
        kept.sent_at,
        kept.archived_at,
        str(message.message_id),
        UNSET if message.group_id is None else message.group_id,
    )


@archives("GET /v1/queues/{name}/archive/{id}", "sqs:ReceiveMessage")
async def get_archived_message(call: Call) -> Answer[ArchivedMessage]:
    """Get an archived message. Uses the id that the message had in the queue. Returns 200: The
    message."""
    queue = await queue_endpoints.queue_of(call)
    found = await stored_messages.find_archived(call.engine, call.caller, queue, call.path.id)
    return Answer(200, _archived(found))


@archives(
    "POST /v1/queues/{name}/archive/replays",
    "sqs:ReceiveMessage",
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
)
async def replay_archive(call: Call, body: NewReplay) -> Answer[ReplayDone]:
    """Send archived messages again. Sends copies as new messages, in their groups for a FIFO queue:
    all of one request, or none. A request sends up to 1,000 messages, 8 MB or 500 groups. Continue
    with `last_id`. Set `until` to replay a range to the same queue, because deleted copies are
    archived, too. Returns 201: The sent messages."""
    queue = await queue_endpoints.queue_of(call)
    if body.ids is not None and (body.after or body.since is not None or body.until is not None):
        raise InvalidParameterValue("Send either `ids` or a range of the archive.")
    target = queue
    if body.to is not None:
        target = await find_own_queue(call.engine, call.caller, SEND, body.to)
    request = stored_messages.ReplayArchive(
        body.ids, body.limit, body.after, body.since, body.until
    )
    done = await stored_messages.replay(call.engine, call.caller, queue, target, request)
    return Answer(201, ReplayDone(len(done.ids), done.ids, done.last_id))


@archives("DELETE /v1/queues/{name}/archive", "sqs:PurgeQueue")
async def clear_archive(call: Call, query: ClearQuery) -> Answer[Cleared]:
    """Clear the archive of a queue. Deletes all archived messages, or those archived before an
    instant. Returns 200: The number of deleted messages."""
    queue = await queue_endpoints.queue_of(call)
    deleted = await stored_messages.clear_archive(call.engine, call.caller, queue, query.before)
    return Answer(200, Cleared(deleted))
