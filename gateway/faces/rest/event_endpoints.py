"""Endpoints of events: publish by routing key, and subscriptions to patterns of keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.json_endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
    schema_name,
)
from queuegate.gateway.faces.json.json_fields import (
    BIGGEST_ID,
    Delay,
    Headers,
    JsonMessage,
    MessageId,
    PausedAt,
    QueueName,
)
from queuegate.gateway.faces.logs.log_endpoints import LogName
from queuegate.gateway.faces.rest.queue_endpoints import QueuePath, pause_endpoints, queue_of
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics import events, topic_subscriptions
from queuegate.gateway.operations.topics.events import EventToPublish, SubscribeToEvents
from queuegate.gateway.operations.topics.fan_out import Publisher
from queuegate.gateway.operations.topics.topic_cache import SubscriptionSettings
from queuegate.gateway.operations.topics.topic_subscriptions import SubscriptionPage
from queuegate.protocol import arns
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.urls import without_password
from queuegate.storage.model import TopicSubscription

_TAG = "events"
_KEY = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_SEGMENT = r"([A-Za-z0-9_-]+|\*|#)"
_OBJECT = {"type": "object"}

RoutingKey = Annotated[
    str,
    Meta(
        description="Segments of letters, digits, hyphens and underscores, separated by dots. At "
        "most 256 characters.",
        examples=["order.created"],
        extra_json_schema={"pattern": _KEY, "maxLength": 256},
    ),
]
Pattern = Annotated[
    str,
    Meta(
        description="A routing key in which `*` matches exactly one segment and `#` matches any "
        "number of segments, or none. In a URL, write `#` as `%23`.",
        examples=["order.*"],
        extra_json_schema={"pattern": rf"^{_SEGMENT}(\.{_SEGMENT})*$", "maxLength": 256},
    ),
]
After = Annotated[
    int, Meta(ge=0, le=BIGGEST_ID, description="End of the page before: follow its Link.")
]
Limit = Annotated[int, Meta(ge=1, le=LIMITS.listed, description="Maximum number of results.")]


class EventPath(Struct, forbid_unknown_fields=True):
    """A routing key."""

    routing_key: RoutingKey


class PatternPath(Struct, forbid_unknown_fields=True):
    """A pattern."""

    pattern: Pattern


class SubscriptionPath(Struct, forbid_unknown_fields=True):
    """A subscription to a pattern."""

    pattern: Pattern
    id: Annotated[str, Meta(description="The id of the subscription, a UUID.")]


class SubscriptionQuery(Struct, forbid_unknown_fields=True):
    """A page of subscriptions."""

    limit: Limit = LIMITS.listed
    after: After = 0


class NewEvent(Struct, forbid_unknown_fields=True):
    """An event to publish. The limit of message and headers together is 256 KiB."""

    message: JsonMessage
    headers: Headers | None = None
    delay: (
        Annotated[
            Delay, Meta(description="Seconds until queues show it. Web hooks get it at once.")
        ]
        | None
    ) = None


@schema_name("Copy")
class QueueCopy(Struct):
    """The copy of the event in a queue."""

    queue: str
    id: MessageId


class PublishedEvent(Struct):
    """The targets of the event, without filtered subscriptions and deleted queues."""

    queues_matched: Annotated[int, Meta(ge=0, description="Copies in queues.")]
    messages: list[QueueCopy]
    deliveries: Annotated[int, Meta(ge=0, description="Deliveries to web hooks.")]
    message_id: Annotated[str, Meta(description="The id in envelopes and web hook headers.")]


@schema_name("NewSubscription")
class NewEventSubscription(
    Struct, forbid_unknown_fields=True, rename={"wants_envelope": "envelope"}
):
    """A subscription of a queue (`queue_name`), a log (`log_name`) or a web hook (`endpoint`)."""

    queue_name: QueueName | UnsetType = UNSET
    log_name: LogName | UnsetType = UNSET
    protocol: Literal["http", "https"] | UnsetType = UNSET
    endpoint: (
        Annotated[
            str,
            Meta(
                max_length=LIMITS.endpoint_length,
                description="A URL, which needs no confirmation.",
                examples=["https://example.com/hook"],
                extra_json_schema={"format": "uri", "pattern": "^https?://"},
            ),
        ]
        | UnsetType
    ) = UNSET
    wants_envelope: Annotated[
        bool, Meta(description="True: send the signed envelope of SNS, not the message alone.")
    ] = False
    delivery_policy: (
        Annotated[
            Raw,
            Meta(
                description="Delivery policy of SNS for web hooks. Without a `healthyRetryPolicy`, "
                "failed deliveries are retried after 10, 30, 60 and 300 seconds, then retained.",
                examples=[{"healthyRetryPolicy": {"numRetries": 2, "minDelayTarget": 5}}],
                extra_json_schema=_OBJECT,
            ),
        ]
        | UnsetType
    ) = UNSET
    filter_policy: (
        Annotated[
            Raw,
            Meta(
                description="Filter policy of SNS: only matching events are delivered.",
                examples=[{"color": ["red"]}],
                extra_json_schema=_OBJECT,
            ),
        ]
        | UnsetType
    ) = UNSET
    filter_policy_scope: (
        Annotated[
            Literal["MessageAttributes", "MessageBody"],
            Meta(description="The filtered part: headers or the message. Default: headers."),
        ]
        | UnsetType
    ) = UNSET
    dead_letter_queue: (
        Annotated[
            QueueName,
            Meta(description="A queue for failed deliveries. Absent: they are retained."),
        ]
        | UnsetType
    ) = UNSET


SubscriptionBody = Annotated[
    NewEventSubscription,
    Meta(
        extra_json_schema={
            "oneOf": [
                {"required": ["queue_name"]},
                {"required": ["log_name"]},
                {"required": ["endpoint"]},
            ],
            "dependentRequired": {"protocol": ["endpoint"], "delivery_policy": ["endpoint"]},
        }
    ),
]


class SubscriptionShown(Struct):
    """A subscription. Passwords in URLs are not shown."""

    id: str
    pattern: str
    protocol: str
    endpoint: Annotated[str, Meta(description="A URL, or the ARN of a queue or a log.")]
    queue_name: Annotated[str | None, Meta(description="Null: the endpoint is no queue.")]
    envelope: bool
    raw: Annotated[bool, Meta(description="The opposite of `envelope`.")]
    is_confirmed: Annotated[
        bool, Meta(description="False: a subscription of SNS awaits confirmation.")
    ]
    subscription_arn: Annotated[str, Meta(description="The ARN in SNS.")]
    created_at: datetime
    delivery_policy: Annotated[Raw, Meta(extra_json_schema=_OBJECT)] | UnsetType = UNSET
    filter_policy: Annotated[Raw, Meta(extra_json_schema=_OBJECT)] | UnsetType = UNSET
    filter_policy_scope: str | UnsetType = UNSET
    dead_letter_queue: str | UnsetType = UNSET
    log_name: Annotated[str, Meta(description="Present for a log.")] | UnsetType = UNSET
    paused_at: PausedAt = UNSET


def _shown(one: TopicSubscription) -> SubscriptionShown:
    settings = SubscriptionSettings.of(one.attributes)
    shown = SubscriptionShown(
        str(one.subscription_id),
        one.topic_arn.rpartition(":")[2],
        one.protocol,
        without_password(one.endpoint),
        _queue_name(one.endpoint) if one.protocol == "sqs" else None,
        not settings.is_raw,
        settings.is_raw,
        one.is_confirmed,
        one.arn,
        one.created_at,
    )
    if settings.delivery_policy is not None:
        shown.delivery_policy = Raw(settings.delivery_policy.encode())
    if settings.filter_policy is not None:
        shown.filter_policy = Raw(settings.filter_policy.encode())
        shown.filter_policy_scope = settings.filter_scope or "MessageAttributes"
    if settings.dead_letter_arn is not None:
        shown.dead_letter_queue = _queue_name(settings.dead_letter_arn) or settings.dead_letter_arn
    if one.protocol == "log":
        shown.log_name = arns.parse_log(one.endpoint).resource
    if one.paused_at is not None:
        shown.paused_at = one.paused_at
    return shown


def _queue_name(arn: str) -> str | None:
    try:
        return arns.parse_queue(arn).resource
    except Malformed:
        return None


async def _publish(call: Call) -> Answer:
    new: NewEvent = call.body
    headers = new.headers
    raw = {name: bytes(value) for name, value in headers.items()} if headers else None
    event = EventToPublish(call.path.routing_key, bytes(new.message), raw, new.delay)
    request = call.request
    publisher = Publisher(call.caller, request.links_url, request.headers.get("x-amzn-trace-id"))
    await call.engine.rates.take(call.caller)
    published = await events.publish_event(call.engine, publisher, event)
    copies = [QueueCopy(queue.name, sequence) for queue, sequence in published.places]
    return Answer(
        201, PublishedEvent(len(copies), copies, published.delivery_count, published.message_id)
    )


async def _subscribe(call: Call) -> Answer:
    new: NewEventSubscription = call.body
    request = SubscribeToEvents(
        call.path.pattern,
        _text(new.queue_name),
        _text(new.log_name),
        _text(new.protocol),
        _text(new.endpoint),
        SubscriptionSettings(
            not new.wants_envelope,
            _text(new.delivery_policy),
            _text(new.filter_policy),
            _text(new.filter_policy_scope),
        ),
        _text(new.dead_letter_queue),
    )
    subscription = await events.subscribe(call.engine, call.caller, request)
    place = f"{_place(call.path.pattern)}/{subscription.subscription_id}"
    return Answer(201, _shown(subscription), {"location": place})


def _text(value: str | Raw | UnsetType) -> str | None:
    """Return a given field as text."""
    if isinstance(value, UnsetType):
        return None
    return value if isinstance(value, str) else bytes(value).decode()


def _place(pattern: str) -> str:
    return f"/v1/events/{quote(pattern, safe='*')}/subscriptions"


async def _list(call: Call) -> Answer:
    query: SubscriptionQuery = call.query
    page = await events.list_of_pattern(
        call.engine,
        call.caller,
        call.path.pattern,
        after_position=query.after,
        limit=query.limit,
    )
    return _listed(page, _place(call.path.pattern), query.limit)


async def _list_of_queue(call: Call) -> Answer:
    query: SubscriptionQuery = call.query
    queue = await queue_of(call)
    page = await topic_subscriptions.list_of_queue(
        call.engine, queue, after_position=query.after, limit=query.limit
    )
    return _listed(page, f"/v1/queues/{queue.name}/subscriptions", query.limit)


def _listed(page: SubscriptionPage, place: str, limit: int) -> Answer:
    headers = {}
    if page.next_position is not None:
        headers = next_page(place, limit=limit, after=page.next_position)
    return Answer(200, [_shown(one) for one in page.subscriptions], headers)


async def _unsubscribe(call: Call) -> Answer:
    await events.unsubscribe(call.engine, call.caller, call.path.pattern, call.path.id)
    return Answer(204)


async def _set_paused(call: Call, is_paused: bool) -> None:
    engine, caller, path = call.engine, call.caller, call.path
    await events.set_paused(engine, caller, path.pattern, path.id, is_paused=is_paused)


_ID = "8f14e45f-ceea-467f-a9d5-1b2c3d4e5f60"
_SUBSCRIPTION = {
    "id": _ID,
    "pattern": "order.*",
    "protocol": "sqs",
    "endpoint": "arn:aws:sqs:us-east-1:000000000000:jobs",
    "queue_name": "jobs",
    "envelope": False,
    "raw": True,
    "is_confirmed": True,
    "subscription_arn": f"arn:aws:sns:us-east-1:000000000000:order.*:{_ID}",
    "created_at": "2030-01-31T09:00:00Z",
}
_PUBLISHED = {
    "queues_matched": 1,
    "messages": [{"queue": "jobs", "id": 42}],
    "deliveries": 1,
    "message_id": "0b9e1c7a-2f5d-4c3e-8a6b-7d8e9f0a1b2c",
}
_PATTERN = {"pattern": "$request.path.pattern"}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/events/{routing_key}",
        "publishEvent",
        "Publish an event",
        "Sends the event to every queue, log and web hook with a matching pattern, and to the SNS "
        "topic of that name: once for each subscription, but once to each log. One transaction "
        "writes all copies and deliveries. Without subscriptions, the event is dropped.",
        _TAG,
        _publish,
        (Answered(201, PublishedEvent, "The targets of the event.", _PUBLISHED),),
        path_params=EventPath,
        carries_messages=True,
        body=NewEvent,
        example={"message": {"order": 17}, "headers": {"color": "red"}},
        refusals=(429,),
        right="sns:Publish",
    ),
    Endpoint(
        "POST",
        "/v1/events/{pattern}/subscriptions",
        "subscribeToEvents",
        "Subscribe to events",
        "Subscribes a queue, a log or a web hook to later events, without confirmation. A pattern "
        "that is a valid name of an SNS topic is that topic, which is created if it does not "
        "exist. A subscription that exists with the same settings is a success. 409: it exists "
        "with other settings.",
        _TAG,
        _subscribe,
        (
            Answered(
                201,
                SubscriptionShown,
                "The subscription.",
                _SUBSCRIPTION,
                headers={"Location": "Path of the subscription."},
                links={
                    "unsubscribeFromEvents": {**_PATTERN, "id": "$response.body#/id"},
                    "listEventSubscriptions": _PATTERN,
                },
            ),
        ),
        refusals=(404, 409, 429),
        path_params=PatternPath,
        body=SubscriptionBody,
        example={
            "examples": {
                "queue": {"queue_name": "jobs"},
                "log": {"log_name": "orders"},
                "web hook": {"endpoint": "https://example.com/hook", "envelope": True},
            }
        },
        right="sns:Subscribe",
        resource="{pattern}",
    ),
    Endpoint(
        "GET",
        "/v1/events/{pattern}/subscriptions",
        "listEventSubscriptions",
        "List the subscriptions to a pattern",
        "Lists subscriptions to exactly this pattern, the oldest first, including those that SNS "
        "created for a topic.",
        _TAG,
        _list,
        (Answered(200, list[SubscriptionShown], "Subscriptions.", [_SUBSCRIPTION], headers=PAGED),),
        path_params=PatternPath,
        query=SubscriptionQuery,
        refusals=(),
        right="sns:ListSubscriptionsByTopic",
        resource="{pattern}",
    ),
    Endpoint(
        "DELETE",
        "/v1/events/{pattern}/subscriptions/{id}",
        "unsubscribeFromEvents",
        "Delete a subscription",
        "Earlier events are still delivered to queues, but not to web hooks.",
        _TAG,
        _unsubscribe,
        (Answered(204, None, "The subscription is deleted."),),
        path_params=SubscriptionPath,
        right="sns:Unsubscribe",
        resource="{pattern}",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{name}/subscriptions",
        "listQueueSubscriptions",
        "List the subscriptions of a queue",
        "Lists subscriptions to patterns and SNS topics, the oldest first.",
        _TAG,
        _list_of_queue,
        (Answered(200, list[SubscriptionShown], "Subscriptions.", [_SUBSCRIPTION], headers=PAGED),),
        path_params=QueuePath,
        query=SubscriptionQuery,
        right="sqs:GetQueueAttributes",
    ),
    *pause_endpoints(
        "subscription",
        _set_paused,
        "Deliveries to its web hook are retained until it is resumed. A subscription without a "
        "web hook is refused: pause its queue instead.",
        tag=_TAG,
        place="/v1/events/{pattern}/subscriptions/{id}",
        path_params=SubscriptionPath,
        right="sns:SetSubscriptionAttributes",
        resource="{pattern}",
    ),
)
