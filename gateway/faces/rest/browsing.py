"""Browsing: look at what lies in a queue, receive nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import orjson
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.message_members import MessageId
from queuegate.gateway.faces.rest.queues import QueuePath, queue_of
from queuegate.gateway.operations.queues import stored_messages
from queuegate.gateway.operations.queues.stored_messages import AS_OF_PATTERN, PLACE_PATTERN, Browse
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import opaque_tokens
from queuegate.protocol.digests import md5_of_body
from queuegate.storage.model import Browsed, MessageState

_TAG = "messages"
_MOST_RECEIVES = (1 << 31) - 1
_UUID = "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_MOST_IDS = 100
_LONGEST_IDS = 37 * _MOST_IDS - 1

AsOf = Annotated[
    str,
    Meta(
        pattern=AS_OF_PATTERN,
        description="The moment that an answer named. Absent: now, which the answer names.",
    ),
]
Instant = Annotated[datetime, Meta(tz=True)]
Receives = Annotated[int, Meta(ge=0, le=_MOST_RECEIVES)]


class BrowseQuery(Struct, forbid_unknown_fields=True):
    """Which messages."""

    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_messages, description="At most so many.")
    ] = 100
    after: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="Only behind this place: `next`, or `after` of a range."),
    ] = None
    until: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="Only up to and with this place: `until` of a range."),
    ] = None
    as_of: AsOf | None = None
    group_id: Annotated[
        Annotated[str, Meta(max_length=128)] | None, Meta(description="Only of this message group.")
    ] = None
    sent_since: Annotated[
        Instant | None, Meta(description="Only with a SentTimestamp then or later.")
    ] = None
    sent_until: Annotated[
        Instant | None, Meta(description="Only with a SentTimestamp then or earlier.")
    ] = None
    min_receives: Annotated[
        Receives | None, Meta(description="Only received that often, or more often.")
    ] = None
    max_receives: Annotated[
        Receives | None, Meta(description="Only received that often, or less often.")
    ] = None
    state: Annotated[MessageState | None, Meta(description="Only in this state.")] = None
    message_id: Annotated[
        Annotated[
            str,
            Meta(
                pattern=f"^{_UUID}(,{_UUID}){{0,{_MOST_IDS - 1}}}$",
                max_length=_LONGEST_IDS,
            ),
        ]
        | None,
        Meta(description=f"Only with this id of SQS, or one of up to {_MOST_IDS}: `id,id`."),
    ] = None


class BrowsedMessage(Struct):
    """A message as it lies in the queue."""

    id: MessageId
    message_id: Annotated[str, Meta(description="As SQS calls it.")]
    body: Annotated[str, Meta(description="As ReceiveMessage would give it.")]
    md5_of_body: str
    message_attributes: Annotated[
        Raw,
        Meta(
            description="As ReceiveMessage would give them, all: name to `DataType` and "
            "`StringValue`, or `BinaryValue` in base64.",
            extra_json_schema={"type": "object", "additionalProperties": {"type": "object"}},
        ),
    ]
    attributes: Annotated[
        dict[str, str],
        Meta(
            description="System attributes as ReceiveMessage names them. "
            "ApproximateReceiveCount is 0, and ApproximateFirstReceiveTimestamp absent, of one "
            "that was never received."
        ),
    ]
    state: Annotated[
        MessageState,
        Meta(description="A message that waits for others of its group is visible, as SQS counts."),
    ]
    visible_at: Annotated[datetime, Meta(description="From then on it can be received.")]
    priority: Annotated[
        int | UnsetType, Meta(description="Of a queue with priorities, or ends, of messages.")
    ] = UNSET
    expires_at: Annotated[
        datetime | UnsetType, Meta(description="From then on it is not there.")
    ] = UNSET


class BrowsedPage(Struct):
    """A page."""

    messages: list[BrowsedMessage]
    next: Annotated[
        str | None,
        Meta(description="Go on with this as `after`. Null: there is nothing more."),
    ]
    as_of: Annotated[str, Meta(description="Give it back with the next pages.")]


class RangesQuery(Struct, forbid_unknown_fields=True):
    """How to cut the queue."""

    parts: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_ranges, description="At most so many ranges.")
    ] = 1
    as_of: AsOf | None = None


class Range(Struct):
    """Messages behind `after`, up to and with `until`. Null: from the first, to the last."""

    after: str | None
    until: str | None


class Ranges(Struct):
    """At least one range."""

    as_of: Annotated[str, Meta(description="Give it back with the pages of each range.")]
    ranges: list[Range]


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
    return Answer(200, BrowsedPage(messages, page.next, page.as_of), headers)


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
    return Answer(200, Ranges(as_of, [Range(*one) for one in found]))


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

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/queues/{name}/browse",
        "browseQueue",
        "Look at the messages of a queue",
        "Visible, in flight and delayed ones, without receiving them: nothing is counted, hidden "
        "or locked, and groups of FIFO queues are no obstacle. `as_of` is the moment of the first "
        "answer: with it on all pages, a message that was there then, and still is when its page "
        "is read, comes exactly once, over the pages or over disjoint ranges; nothing that was "
        "sent later comes; one that is deleted before its page is read may be missing. State and "
        "counts are those of the page's moment. Standard queues go by id, FIFO queues by group and "
        "within one by id. A page has 4 MB at most (one message always comes) and looks at 20,000 "
        "messages at most: with a filter it may be short, or empty, although there are more. As "
        "long as there may be, `next` and the header Link lead on; places are texts without a "
        "meaning of their own, and one of another kind of queue is refused.",
        _TAG,
        _browse,
        (Answered(200, BrowsedPage, "Messages, maybe none.", _PAGE, headers=PAGED),),
        path_params=QueuePath,
        query=BrowseQuery,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/browse/ranges",
        "splitQueue",
        "Cut a queue into ranges to look at in parallel",
        "Ranges have no message in common and together all; browse each with its `after` and "
        "`until` and the common `as_of`. They hold about as many messages each, exactly up to "
        "50,000 messages; of more, a sample of constant cost decides.",
        _TAG,
        _ranges,
        (
            Answered(
                200,
                Ranges,
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
)
