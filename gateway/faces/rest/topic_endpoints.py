"""Endpoints of SNS topics: list, get, publish, pause."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.json_fields import FifoId, Headers, JsonMessage, PausedAt
from queuegate.gateway.faces.rest.queue_endpoints import pause_endpoints
from queuegate.gateway.operations.access.authorization import (
    GrantedTopic,
    granted_topic,
    own_arn,
    own_topic,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics import topics
from queuegate.gateway.operations.topics.events import TopicMessage, publish_to_topic
from queuegate.gateway.operations.topics.fan_out import Publisher
from queuegate.protocol import names

_TAG = "topics"
_NAME = r"^([A-Za-z0-9_-]{1,256}|[A-Za-z0-9_-]{1,251}\.fifo)$"
_SUBJECT = r"^[^\u0000-\u001f\u007f\ufffe\uffff]{1,100}$(?!\n)"

TopicName = Annotated[
    str,
    Meta(
        description="Name of a topic of the account. The name of a FIFO topic ends in `.fifo`.",
        examples=["orders"],
        extra_json_schema={"pattern": _NAME, "maxLength": 256},
    ),
]


class TopicPath(Struct, forbid_unknown_fields=True):
    """A topic."""

    name: TopicName


class TopicsQuery(Struct, forbid_unknown_fields=True):
    """A page of topics."""

    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.listed, description="Maximum number of results.")
    ] = LIMITS.listed
    after: Annotated[
        str, Meta(max_length=256, description="Only later names: the last name of the page before.")
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
    max_message_bytes: Annotated[
        int, Meta(ge=1, description="Limit of message and headers together.")
    ]
    archive_days: Annotated[
        int, Meta(ge=0, description="Retention of the archive in days. 0: no archive.")
    ]
    subscriptions_confirmed: Annotated[int, Meta(ge=0)]
    subscriptions_pending: Annotated[int, Meta(ge=0, description="Unconfirmed subscriptions.")]
    subscriptions_deleted: Annotated[int, Meta(ge=0)]
    paused_at: PausedAt = UNSET


class NewTopicMessage(Struct, forbid_unknown_fields=True):
    """A message to publish. FIFO topics require a `group_id`."""

    message: JsonMessage
    subject: (
        Annotated[str, Meta(pattern=_SUBJECT, description="One line of at most 100 characters.")]
        | None
    ) = None
    headers: Headers | None = None
    group_id: FifoId | None = None
    deduplication_id: FifoId | None = None


class PublishedToTopic(Struct):
    """The ids of the message in SNS."""

    message_id: str
    sequence_number: Annotated[str, Meta(description="Only for FIFO topics.")] | UnsetType = UNSET


async def topic_of(call: Call) -> GrantedTopic:
    """Return the topic in the path. The caller needs the permission of the endpoint."""
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


async def _set_paused(call: Call, is_paused: bool) -> None:
    await topics.set_paused(call.engine, await topic_of(call), is_paused=is_paused)


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
        "Lists topics by name in byte order. The header Link leads to the next page.",
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
        "Get a topic",
        "Returns the settings and the numbers of subscriptions. "
        "`GET /v1/events/{pattern}/subscriptions` lists the subscriptions of a standard topic.",
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
        "Publishes as Publish of SNS does, in one transaction, to all subscriptions of the topic "
        "and of patterns that match its name. A duplicate on a FIFO topic gets the answer of the "
        "first message, and is dropped.",
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
    *pause_endpoints(
        "topic",
        _set_paused,
        "Deliveries to the web hooks of all subscriptions are retained until the topic is resumed. "
        "Publishes continue, and so do copies to queues and logs.",
        tag=_TAG,
        place="/v1/topics/{name}",
        path_params=TopicPath,
        right="sns:SetTopicAttributes",
    ),
)
