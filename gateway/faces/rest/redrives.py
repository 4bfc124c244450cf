"""Redrives: dead letters back to where they came from, or elsewhere, all or those that match."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from queuegate.gateway.faces.json.endpoints import Answer, Answered, Call, Endpoint
from queuegate.gateway.faces.rest.browsing import AsOf, Instant, Receives
from queuegate.gateway.faces.rest.queues import QueuePath, queue_of
from queuegate.gateway.faces.rest.words import QueueName
from queuegate.gateway.operations.access.authorization import SEND, find_own_queue
from queuegate.gateway.operations.queues.dead_letter_moves import Matching, Redrive, redrive
from queuegate.gateway.operations.queues.stored_messages import PLACE_PATTERN, Browse
from queuegate.gateway.operations.runtime.limits import LIMITS

_MOST_NAMED = 1_000
_Text = Annotated[str, Meta(min_length=1, max_length=1_024)]


class NewRedrive(Struct, forbid_unknown_fields=True):
    """Which dead letters, and where to. All that is given has to hold; nothing: all of them."""

    to: Annotated[
        QueueName | None,
        Meta(description="A queue of the same kind. Absent: where each of them came from."),
    ] = None
    source: Annotated[
        _Text | None, Meta(description="Only from this queue, by its name or ARN.")
    ] = None
    group_ids: Annotated[
        list[Annotated[str, Meta(max_length=128)]],
        Meta(max_length=_MOST_NAMED, description="Only of these message groups."),
    ] = []
    message_ids: Annotated[
        Annotated[list[UUID], Meta(max_length=_MOST_NAMED)] | None,
        Meta(description="Only with these ids of SQS."),
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
    attributes: Annotated[
        dict[Annotated[str, Meta(max_length=256)], _Text],
        Meta(
            max_length=10,
            description="Only with these message attributes; a `*` at the end stands for any rest.",
        ),
    ] = {}
    text: Annotated[_Text | None, Meta(description="Only with this somewhere in the body.")] = None
    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_messages, description="At most so many at once.")
    ] = LIMITS.browsed_messages
    after: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="Go on behind `next` of the answer before."),
    ] = None
    as_of: AsOf | None = None
    dry_run: Annotated[bool, Meta(description="Only count.")] = False


class RedriveDone(Struct):
    """What became of them."""

    matched: Annotated[int, Meta(ge=0, description="How many were asked for.")]
    moved: Annotated[int, Meta(ge=0)]
    without_source: Annotated[
        int, Meta(ge=0, description="Those that stay: where they came from is unknown, or gone.")
    ]
    next: Annotated[
        str | None, Meta(description="Go on with this as `after`. Null: there is nothing more.")
    ]
    as_of: Annotated[str, Meta(description="Give it back with what goes on.")]


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
        "POST",
        "/v1/queues/{name}/redrives",
        "redriveQueue",
        "Move dead letters back",
        "Those that match go back to the queues that gave them up, or to another, as new messages "
        "that nobody has received: all of one request, or none. What somebody has at the moment "
        "stays, and what there is no room for. A request looks at 1,000 messages or 4 MB of them "
        "at most, and with `sent_since`, `sent_until`, `min_receives` or `message_ids` passes by "
        "20,000 others: go on with `next` and `as_of` until `next` is null. In a FIFO queue a "
        "message that stays keeps what is behind it in its group. `queuegate redrive` does all of "
        "a queue; StartMessageMoveTask of SQS moves all without anybody waiting.",
        "messages",
        _redrive,
        (
            Answered(
                200,
                RedriveDone,
                "How many matched, and how many of these moved.",
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
