"""Dead letters: messages that were handed out too often and never acknowledged."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from queuegate.gateway.faces.channels.words import ChannelName, existing_channel_of
from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.message_members import (
    JsonMessage,
    MessageId,
    Priority,
    instant_of,
)
from queuegate.gateway.operations.channels.channel_messages import (
    MOST_REQUEUED,
    list_dead_letters,
    requeue_dead_letters,
)
from queuegate.gateway.operations.queues.dead_letter_moves import came_from
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.queues.stored_messages import PLACE_PATTERN, Browse
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import arns
from queuegate.storage.model import Browsed

_TAG = "dead letters"
_SHOWN_AT_ONCE = 16


class DeadLetterQuery(Struct, forbid_unknown_fields=True):
    """Of which channel."""

    channel: ChannelName
    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_messages, description="At most so many.")
    ] = 100
    after: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="Only behind this place: `next` of an answer."),
    ] = None


class DeadLetter(Struct):
    """A message that nobody gets any more."""

    id: MessageId
    message_id: Annotated[str, Meta(description="As SQS calls it.")]
    channel: Annotated[
        str | None, Meta(description="Where it was published. Null: it was sent here.")
    ]
    payload: JsonMessage
    headers: Annotated[Raw, Meta(description="An object.", extra_json_schema={"type": "object"})]
    priority: Priority
    deliveries: Annotated[int, Meta(ge=0, description="How many times it was handed out.")]
    published_at: datetime


class DeadLetters(Struct):
    """Dead letters, by id."""

    messages: list[DeadLetter]
    next: Annotated[str | None, Meta(description="Give it as `after`. Null: that was the last.")]


class ToRequeue(Struct, forbid_unknown_fields=True):
    """What to requeue."""

    channel: ChannelName
    ids: Annotated[
        Annotated[list[MessageId], Meta(min_length=1, max_length=LIMITS.received_messages)]
        | Literal["all"],
        Meta(description='Of dead letters; or "all" that came from this channel.'),
    ]


class RequeuedShown(Struct):
    """How many were requeued."""

    requeued: Annotated[int, Meta(ge=0)]
    has_more: Annotated[bool, Meta(description="Whether there was more than one request may move.")]


def _shown(message: Browsed) -> DeadLetter:
    arn = came_from(message)
    return DeadLetter(
        message.sequence,
        str(message.message_id),
        None if arn is None else arns.parse_queue(arn).resource,
        Raw(message_of(message.body)),
        Raw(headers_of(message.attributes)),
        message.priority or 0,
        message.receive_count,
        instant_of(message.sent_at_ms),
    )


async def _list(call: Call) -> Answer:
    query: DeadLetterQuery = call.query
    channel = await existing_channel_of(call, query.channel)
    request = Browse(query.limit, query.after)
    page = await list_dead_letters(call.engine, call.caller, call.right, channel, request)
    shown = []
    for number, message in enumerate(page.messages, 1):
        shown.append(_shown(message))
        if number % _SHOWN_AT_ONCE == 0:
            # Large ones are looked at from end to end: others go first.
            await yield_to_loop()
    headers = {}
    if page.next is not None:
        headers = next_page(
            "/v1/dead-letter", channel=query.channel, limit=query.limit, after=page.next
        )
    return Answer(200, DeadLetters(shown, page.next), headers)


async def _requeue(call: Call) -> Answer:
    asked: ToRequeue = call.body
    channel = await existing_channel_of(call, asked.channel)
    numbers = None if isinstance(asked.ids, str) else asked.ids
    done = await requeue_dead_letters(call.engine, call.caller, call.right, channel, numbers)
    return Answer(200, RequeuedShown(*done))


_LETTER = {
    "id": 1042,
    "message_id": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
    "channel": "alerts",
    "payload": {"disk": "full", "host": "db-1"},
    "headers": {},
    "priority": 10,
    "deliveries": 5,
    "published_at": "2030-01-31T09:00:00Z",
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/dead-letter",
        "listDeadLetters",
        "Look at dead letters",
        "What is in the dead-letter queue of a channel: messages that were handed out as often as "
        "it allows, and never acknowledged. Nothing of them changes. The queue is a channel of its "
        "own, too: `GET /v1/channels/{name}` names it, and `POST /v1/queues/{name}/purge` empties "
        "it.",
        _TAG,
        _list,
        (
            Answered(
                200,
                DeadLetters,
                "Dead letters, maybe none.",
                {"messages": [_LETTER], "next": None},
                headers=PAGED,
            ),
        ),
        query=DeadLetterQuery,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "POST",
        "/v1/dead-letter/requeue",
        "requeueDeadLetters",
        "Publish dead letters again",
        "They go back to where they were published, as if nobody had ever got them. Those that "
        "you name keep their ids, and go whoever has them at the moment. All that came from the "
        f"channel go as new messages, about {MOST_REQUEUED} with one request, and what somebody "
        "has stays.",
        _TAG,
        _requeue,
        (Answered(200, RequeuedShown, "How many were.", {"requeued": 2, "has_more": False}),),
        refusals=(404, 429),
        body=ToRequeue,
        example={
            "examples": {
                "all": {"channel": "alerts", "ids": "all"},
                "some": {"channel": "alerts", "ids": [1042, 1043]},
            }
        },
        right="sqs:StartMessageMoveTask",
    ),
)
