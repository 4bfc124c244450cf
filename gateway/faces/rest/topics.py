"""Topics of SNS: list, look at, publish."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.message_members import FifoId, Headers, JsonMessage
from queuegate.gateway.faces.rest.words import PausedAt
from queuegate.gateway.operations.access.authorization import (
    GrantedTopic,
    granted_topic,
    own_arn,
    own_topic,
)
from queuegate.gateway.operations.events.event_publishing import TopicMessage, publish_to_topic
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics import topics
from queuegate.gateway.operations.topics.prepared_copies import Publisher
from queuegate.protocol import names

_TAG = "topics"
_NAME = r"^([A-Za-z0-9_-]{1,256}|[A-Za-z0-9_-]{1,251}\.fifo)$"
_SUBJECT = r"^[^\u0000-\u001f\u007f\ufffe\uffff]{1,100}$(?!\n)"

TopicName = Annotated[
    str,
    Meta(
        description="A topic of yours. The name of a FIFO topic ends in `.fifo`.",
        examples=["orders"],
        extra_json_schema={"pattern": _NAME, "maxLength": 256},
    ),
]


class TopicPath(Struct, forbid_unknown_fields=True):
    """Which topic."""

    name: TopicName


class TopicsQuery(Struct, forbid_unknown_fields=True):
    """Which page."""

    limit: Annotated[int, Meta(ge=1, le=LIMITS.listed, description="At most so many.")] = (
        LIMITS.listed
    )
    after: Annotated[
        str, Meta(max_length=256, description="Only names behind this one: the last one you got.")
    ] = ""


class TopicShown(Struct):
    """A topic in a list."""

    name: str
    arn: str
    fifo: bool


class TopicDescribed(Struct):
    """A topic with its settings and the number of its subscriptions."""

    name: str
    arn: str
    fifo: bool
    created_at: datetime
    display_name: str
    content_based_deduplication: bool
    max_message_bytes: Annotated[int, Meta(ge=1, description="Message and headers together.")]
    archive_days: Annotated[
        int, Meta(ge=0, description="Days for which messages are archived; 0: no archive.")
    ]
    subscriptions_confirmed: Annotated[int, Meta(ge=0)]
    subscriptions_pending: Annotated[int, Meta(ge=0, description="Not confirmed yet.")]
    subscriptions_deleted: Annotated[int, Meta(ge=0)]
    paused_at: PausedAt = UNSET


class NewTopicMessage(Struct, forbid_unknown_fields=True):
    """A message to publish. FIFO topics need a `group_id`."""

    message: JsonMessage
    subject: (
        Annotated[str, Meta(pattern=_SUBJECT, description="One line of at most 100 characters.")]
        | None
    ) = None
    headers: Headers | None = None
    group_id: FifoId | None = None
    deduplication_id: FifoId | None = None


class PublishedToTopic(Struct):
    """The message as SNS calls it."""

    message_id: str
    sequence_number: Annotated[str, Meta(description="Only of a FIFO topic.")] | UnsetType = UNSET


async def topic_of(call: Call) -> GrantedTopic:
    """Return the topic that the path names, if the caller has the endpoint's right to it."""
    arn = own_topic(call.caller, call.path.name)
    return await granted_topic(call.engine, call.caller, call.right, arn)


async def _list(call: Call) -> Answer:
    query: TopicsQuery = call.query
    limit = query.limit
    found = await topics.list_names(
        call.engine, call.caller, after_name=query.after, limit=limit + 1
    )
    shown = [
        TopicShown(name, own_arn(call.caller, call.right, name), name.endswith(names.FIFO_SUFFIX))
        for name in found[:limit]
    ]
    more = next_page("/v1/topics", limit=limit, after=shown[-1].name) if found[limit:] else {}
    return Answer(200, shown, more)


async def _describe(call: Call) -> Answer:
    topic, confirmed, pending, _ = await topics.describe(call.engine, await topic_of(call))
    return Answer(
        200,
        TopicDescribed(
            topic.name,
            topic.arn,
            topic.is_fifo,
            topic.created_at,
            topic.attributes.get("DisplayName", ""),
            topic.content_based_deduplication,
            topic.maximum_message_bytes,
            topic.archive_days,
            confirmed,
            pending,
            topic.subscriptions_deleted,
            topic.paused_at or UNSET,
        ),
    )


async def _publish(call: Call) -> Answer:
    new: NewTopicMessage = call.body
    headers = new.headers
    raw = {name: bytes(value) for name, value in headers.items()} if headers else None
    request = call.request
    publisher = Publisher(call.caller, request.links_url, request.headers.get("x-amzn-trace-id"))
    message = TopicMessage(
        call.path.name, bytes(new.message), raw, new.subject, new.group_id, new.deduplication_id
    )
    await call.engine.rates.take(call.caller)
    published = await publish_to_topic(call.engine, publisher, message)
    shown = PublishedToTopic(published.message_id, published.sequence_number or UNSET)
    return Answer(201, shown)


_ARN = "arn:aws:sns:us-east-1:000000000000:orders"
_LISTED = {"name": "orders", "arn": _ARN, "fifo": False}
_DESCRIBED = _LISTED | {
    "created_at": "2030-01-31T09:00:00Z",
    "display_name": "",
    "content_based_deduplication": False,
    "max_message_bytes": 262_144,
    "archive_days": 0,
    "subscriptions_confirmed": 2,
    "subscriptions_pending": 0,
    "subscriptions_deleted": 0,
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/topics",
        "listTopics",
        "List topics",
        "By name, in byte order. When there are more, the header Link leads to them.",
        _TAG,
        _list,
        (Answered(200, list[TopicShown], "Topics.", [_LISTED], headers=PAGED),),
        query=TopicsQuery,
        refusals=(),
        right="sns:ListTopics",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/v1/topics/{name}",
        "getTopic",
        "Look at a topic",
        "Its settings and the number of its subscriptions. `GET /v1/events/{pattern}/subscriptions`"
        " lists the subscriptions of a standard topic.",
        _TAG,
        _describe,
        (Answered(200, TopicDescribed, "The topic.", _DESCRIBED),),
        path_params=TopicPath,
        right="sns:GetTopicAttributes",
    ),
    Endpoint(
        "POST",
        "/v1/topics/{name}/messages",
        "publishToTopic",
        "Publish to a topic",
        "As Publish of SNS does, to all subscriptions of the topic and to those of patterns that "
        "match its name, in one transaction. A duplicate on a FIFO topic gets the answer of the "
        "first message and goes nowhere.",
        _TAG,
        _publish,
        (
            Answered(
                201,
                PublishedToTopic,
                "The message is published.",
                {"message_id": "0b9e1c7a-2f5d-4c3e-8a6b-7d8e9f0a1b2c"},
            ),
        ),
        refusals=(404, 429),
        path_params=TopicPath,
        carries_messages=True,
        body=NewTopicMessage,
        example={"message": {"order": 17}, "subject": "An order", "headers": {"color": "red"}},
        right="sns:Publish",
    ),
)
