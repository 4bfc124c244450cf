"""Endpoints that browse a queue without receiving, and that redrive dead letters."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
    schema_name,
)
from queuegate.gateway.faces.json.json_fields import MessageId, QueueName
from queuegate.gateway.faces.rest.queue_endpoints import QueuePath, queue_of
from queuegate.gateway.operations.access.authorization import SEND, find_own_queue
from queuegate.gateway.operations.queues import stored_messages
from queuegate.gateway.operations.queues.dead_letter_moves import Matching, Redrive, redrive
from queuegate.gateway.operations.queues.stored_messages import AS_OF_PATTERN, PLACE_PATTERN, Browse
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import opaque_tokens
from queuegate.protocol.digests import md5_of_body
from queuegate.storage.queue_model import Browsed, MessageState

_TAG = "messages"
_MOST_RECEIVES = (1 << 31) - 1
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_MOST_IDS = 100
_LONGEST_IDS = 37 * _MOST_IDS - 1

AsOf = Annotated[
    str,
    Meta(
        pattern=AS_OF_PATTERN,
        description="The moment in an answer. Absent: now, which the answer contains.",
    ),
]
Instant = Annotated[datetime, Meta(tz=True)]
Receives = Annotated[int, Meta(ge=0, le=_MOST_RECEIVES)]


class BrowseQuery(Struct, forbid_unknown_fields=True):
    """A page of messages, and filters."""

    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_messages, description="Maximum number of results.")
    ] = 100
    after: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="Only later messages: `next`, or `after` of a range."),
    ] = None
    until: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="End, inclusive: `until` of a range."),
    ] = None
    as_of: AsOf | None = None
    group_id: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="Only this message group.")
    ] = None
    sent_since: Annotated[Instant | None, Meta(description="Minimum SentTimestamp.")] = None
    sent_until: Annotated[Instant | None, Meta(description="Maximum SentTimestamp.")] = None
    min_receives: Annotated[Receives | None, Meta(description="Minimum receive count.")] = None
    max_receives: Annotated[Receives | None, Meta(description="Maximum receive count.")] = None
    state: Annotated[MessageState | None, Meta(description="Only this state.")] = None
    message_id: Annotated[
        Annotated[
            str,
            Meta(
                pattern=f"^{_UUID}(,{_UUID}){{0,{_MOST_IDS - 1}}}$",
                max_length=_LONGEST_IDS,
            ),
        ]
        | None,
        Meta(description=f"Only this id of SQS, or up to {_MOST_IDS} ids: `id,id`."),
    ] = None


class BrowsedMessage(Struct):
    """A stored message."""

    id: MessageId
    message_id: Annotated[str, Meta(description="The id of the message in SQS.")]
    body: Annotated[str, Meta(description="The body in the form of ReceiveMessage.")]
    md5_of_body: str
    message_attributes: Annotated[
        Raw,
        Meta(
            description="All attributes in the form of ReceiveMessage: name to `DataType` and "
            "`StringValue`, or `BinaryValue` in base64.",
            extra_json_schema={"type": "object", "additionalProperties": {"type": "object"}},
        ),
    ]
    attributes: Annotated[
        dict[str, str],
        Meta(
            description="System attributes with the names of ReceiveMessage. For a message that "
            "was never received, ApproximateReceiveCount is 0 and "
            "ApproximateFirstReceiveTimestamp is absent."
        ),
    ]
    state: Annotated[
        MessageState,
        Meta(description="A message behind others of its group is visible, as in SQS counts."),
    ]
    visible_at: Annotated[datetime, Meta(description="When the message can be received.")]
    priority: Annotated[
        int | UnsetType, Meta(description="Present if the queue uses priorities or expiry.")
    ] = UNSET
    expires_at: Annotated[datetime | UnsetType, Meta(description="When the message expires.")] = (
        UNSET
    )


@schema_name("BrowsedPage")
class BrowsePage(Struct):
    """A page of messages."""

    messages: list[BrowsedMessage]
    next: Annotated[
        str | None,
        Meta(description="`after` for the next page. Null: this is the last page."),
    ]
    as_of: Annotated[str, Meta(description="`as_of` for the next pages.")]


class RangesQuery(Struct, forbid_unknown_fields=True):
    """The number of ranges of a queue."""

    parts: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_ranges, description="Maximum number of ranges.")
    ] = 1
    as_of: AsOf | None = None


@schema_name("Range")
class BrowseRange(Struct):
    """Messages after `after`, up to and including `until`. Null: the first, the last."""

    after: str | None
    until: str | None


@schema_name("Ranges")
class BrowseRanges(Struct):
    """At least one range."""

    as_of: Annotated[str, Meta(description="`as_of` for the pages of each range.")]
    ranges: list[BrowseRange]


async def _browse(call: Call) -> Answer:
    queue = await queue_of(call)
    query: BrowseQuery = call.query
    message_ids = None
    if query.message_id is not None:
        message_ids = [UUID(one) for one in query.message_id.split(",")]
    request = Browse(
        query.limit,
        query.after,
        query.until,
        query.as_of,
        query.group_id,
        query.sent_since,
        query.sent_until,
        query.min_receives,
        query.max_receives,
        query.state,
        message_ids,
    )
    page = await stored_messages.browse(call.engine, call.caller, queue, request)
    headers = {}
    if page.next is not None:
        asked = {name: value for name, value in structs.asdict(query).items() if value is not None}
        asked |= {"after": page.next, "as_of": page.as_of}
        headers = next_page(f"/v1/queues/{queue.name}/browse", **asked)
    messages = [_shown(one) for one in page.messages]
    return Answer(200, BrowsePage(messages, page.next, page.as_of), headers)


def _shown(message: Browsed) -> BrowsedMessage:
    digest = message.body_md5
    return BrowsedMessage(
        message.sequence,
        str(message.message_id),
        message.body,
        digest.hex() if digest is not None else md5_of_body(message.body),
        Raw(message.attributes.encode() if message.attributes else b"{}"),
        _system_attributes(message),
        message.state,
        message.visible_at,
        UNSET if message.priority is None else message.priority,
        UNSET if message.expires_at is None else message.expires_at,
    )


def _system_attributes(message: Browsed) -> dict[str, str]:
    attributes = {
        "SenderId": message.sender_id,
        "SentTimestamp": str(message.sent_at_ms),
        "ApproximateReceiveCount": str(message.receive_count),
    }
    if message.first_received_at_ms is not None:
        attributes["ApproximateFirstReceiveTimestamp"] = str(message.first_received_at_ms)
    if message.system is not None:
        attributes.update(orjson.loads(message.system))
    if message.group_id is not None:
        attributes["MessageGroupId"] = message.group_id
        attributes["MessageDeduplicationId"] = message.deduplication_id or ""
        attributes["SequenceNumber"] = opaque_tokens.queue_sequence_number(message.sequence)
    return attributes


async def _ranges(call: Call) -> Answer:
    queue = await queue_of(call)
    query: RangesQuery = call.query
    as_of, found = await stored_messages.split(
        call.engine, call.caller, queue, query.parts, query.as_of
    )
    return Answer(200, BrowseRanges(as_of, [BrowseRange(*one) for one in found]))


_PAGE = {
    "messages": [
        {
            "id": 1042,
            "message_id": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
            "body": '{"job": "resize", "image": 7}',
            "md5_of_body": "114c7d6626d5b19bd49fed30fff40ea7",
            "message_attributes": {"tenant": {"DataType": "String", "StringValue": "acme"}},
            "attributes": {
                "SenderId": "000000000000",
                "SentTimestamp": "1896080400000",
                "ApproximateReceiveCount": "1",
                "ApproximateFirstReceiveTimestamp": "1896080401000",
            },
            "state": "in_flight",
            "visible_at": "2030-01-31T09:00:31Z",
        }
    ],
    "next": "1042",
    "as_of": "2000",
}


_MOST_NAMED = 1_000
_Text = Annotated[str, Meta(min_length=1, max_length=1_024)]


class NewRedrive(Struct, forbid_unknown_fields=True):
    """Dead letters to move, and their target. A message must match all filters."""

    to: Annotated[
        QueueName | None,
        Meta(description="A target queue of the same kind. Absent: the source of each message."),
    ] = None
    source: Annotated[
        _Text | None, Meta(description="Only from this source queue, by name or ARN.")
    ] = None
    group_ids: Annotated[
        list[Annotated[str, Meta(max_length=128)]],
        Meta(max_length=_MOST_NAMED, description="Only these message groups."),
    ] = []
    message_ids: Annotated[
        Annotated[list[UUID], Meta(max_length=_MOST_NAMED)] | None,
        Meta(description="Only these ids of SQS."),
    ] = None
    sent_since: Annotated[Instant | None, Meta(description="Minimum SentTimestamp.")] = None
    sent_until: Annotated[Instant | None, Meta(description="Maximum SentTimestamp.")] = None
    min_receives: Annotated[Receives | None, Meta(description="Minimum receive count.")] = None
    attributes: Annotated[
        dict[Annotated[str, Meta(max_length=256)], _Text],
        Meta(
            max_length=10,
            description="Only these message attributes. A `*` at the end matches any rest.",
        ),
    ] = {}
    text: Annotated[_Text | None, Meta(description="Only bodies that contain this text.")] = None
    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_messages, description="Maximum number of moved messages.")
    ] = LIMITS.browsed_messages
    after: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="`next` of the answer before."),
    ] = None
    as_of: AsOf | None = None
    dry_run: Annotated[bool, Meta(description="Only count.")] = False


class RedriveDone(Struct):
    """The numbers of messages."""

    matched: Annotated[int, Meta(ge=0, description="Matching messages.")]
    moved: Annotated[int, Meta(ge=0)]
    without_source: Annotated[
        int, Meta(ge=0, description="Unmoved messages: their source is unknown or deleted.")
    ]
    next: Annotated[
        str | None, Meta(description="`after` for the next request. Null: the scan is complete.")
    ]
    as_of: Annotated[str, Meta(description="`as_of` for the next request.")]


async def _redrive(call: Call) -> Answer:
    queue = await queue_of(call)
    asked: NewRedrive = call.body
    target = None
    if asked.to is not None:
        target = await find_own_queue(call.engine, call.caller, SEND, asked.to)
    request = Redrive(
        Browse(
            LIMITS.browsed_messages,
            asked.after,
            as_of=asked.as_of,
            sent_since=asked.sent_since,
            sent_until=asked.sent_until,
            min_receives=asked.min_receives,
            message_ids=asked.message_ids,
        ),
        Matching(asked.source, asked.group_ids, asked.attributes, asked.text),
        asked.limit,
        target,
        asked.dry_run,
    )
    return Answer(200, RedriveDone(*await redrive(call.engine, call.caller, queue, request)))


ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/queues/{name}/browse",
        "browseQueue",
        "Browse the messages of a queue",
        "Lists visible, in flight and delayed messages without receiving them: no receive is "
        "counted, no message is hidden or locked, and groups of FIFO queues do not block. `as_of` "
        "is the moment of the first answer. With it on all pages or disjoint ranges, each message "
        "that existed then, and exists when its page is read, is returned exactly once. Messages "
        "sent later are not returned. State and counts are those of the moment of the page. "
        "Standard queues are ordered by id, FIFO queues by group and id. A page has at most 4 MB, "
        "but at least one message, and scans at most 20,000 messages: with a filter it may be "
        "short or empty although more messages match. `next` and the header Link lead to the next "
        "page. Values of `next` are opaque, and those of another kind of queue are refused.",
        _TAG,
        _browse,
        (Answered(200, BrowsePage, "Messages. May be empty.", _PAGE, headers=PAGED),),
        path_params=QueuePath,
        query=BrowseQuery,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/browse/ranges",
        "splitQueue",
        "Split a queue into ranges to browse in parallel",
        "Ranges are disjoint and together hold all messages. Browse each with its `after` and "
        "`until` and the common `as_of`. Up to 50,000 messages, ranges have equal numbers of "
        "messages. Larger queues are sampled at constant cost.",
        _TAG,
        _ranges,
        (
            Answered(
                200,
                BrowseRanges,
                "One range or more.",
                {
                    "as_of": "2000",
                    "ranges": [
                        {"after": None, "until": "1042"},
                        {"after": "1042", "until": None},
                    ],
                },
            ),
        ),
        path_params=QueuePath,
        query=RangesQuery,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "POST",
        "/v1/queues/{name}/redrives",
        "redriveQueue",
        "Move dead letters back",
        "Moves matching messages to their source queues, or to another queue, as new messages with "
        "a receive count of 0: all of one request, or none. Messages in flight stay, and messages "
        "without capacity in the target. A request scans at most 1,000 messages or 4 MB, and skips "
        "20,000 more with `sent_since`, `sent_until`, `min_receives` or `message_ids`. Continue "
        "with `next` and `as_of` until `next` is null. In a FIFO queue, a message that stays also "
        "blocks later messages of its group. `queuegate redrive` moves a whole queue. "
        "StartMessageMoveTask of SQS moves a whole queue in the background.",
        "messages",
        _redrive,
        (
            Answered(
                200,
                RedriveDone,
                "The numbers of matching and moved messages.",
                {"matched": 3, "moved": 3, "without_source": 0, "next": None, "as_of": "2000"},
            ),
        ),
        path_params=QueuePath,
        body=NewRedrive,
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
        right="sqs:StartMessageMoveTask",
    ),
)
