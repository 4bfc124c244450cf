"""Events: publish under a routing key, subscribe to patterns of keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.json.endpoints import (
    PAGED,
    Answer,
    Answered,
    Call,
    Endpoint,
    next_page,
)
from queuegate.gateway.faces.json.message_members import (
    BIGGEST_ID,
    Delay,
    Headers,
    JsonMessage,
    MessageId,
)
from queuegate.gateway.faces.logs.words import LogName
from queuegate.gateway.faces.rest.queues import QueuePath, queue_of
from queuegate.gateway.faces.rest.words import PausedAt, QueueName
from queuegate.gateway.operations.events import event_publishing, event_subscriptions
from queuegate.gateway.operations.events.event_publishing import EventToPublish
from queuegate.gateway.operations.events.event_subscriptions import SubscribeToEvents
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics import topic_subscriptions
from queuegate.gateway.operations.topics.prepared_copies import Publisher
from queuegate.gateway.operations.topics.subscription_settings import SubscriptionSettings
from queuegate.gateway.operations.topics.topic_subscriptions import SubscriptionPage
from queuegate.protocol import arns
from queuegate.protocol.endpoint_urls import without_password
from queuegate.protocol.malformed import Malformed
from queuegate.storage.model import Subscription

_TAG = "events"
_KEY = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_SEGMENT = r"([A-Za-z0-9_-]+|\*|#)"
_OBJECT = {"type": "object"}

RoutingKey = Annotated[
    str,
    Meta(
        description="Segments of letters, digits, hyphens and underscores, with dots between: at "
        "most 256 characters.",
        examples=["order.created"],
        extra_json_schema={"pattern": _KEY, "maxLength": 256},
    ),
]
Pattern = Annotated[
    str,
    Meta(
        description="Like a routing key; a segment may also be `*`, which stands for exactly one "
        "segment, or `#`, which stands for any number of them, none included. In a URL, `#` is "
        "written `%23`.",
        examples=["order.*"],
        extra_json_schema={"pattern": rf"^{_SEGMENT}(\.{_SEGMENT})*$", "maxLength": 256},
    ),
]
After = Annotated[
    int, Meta(ge=0, le=BIGGEST_ID, description="Where the page before ended: follow its Link.")
]
Limit = Annotated[int, Meta(ge=1, le=LIMITS.listed, description="At most so many.")]


class EventPath(Struct, forbid_unknown_fields=True):
    """Under which key."""

    routing_key: RoutingKey


class PatternPath(Struct, forbid_unknown_fields=True):
    """Which pattern."""

    pattern: Pattern


class SubscriptionPath(Struct, forbid_unknown_fields=True):
    """Which subscription."""

    pattern: Pattern
    id: Annotated[str, Meta(description="The id that it was created with, a UUID.")]


class SubscriptionQuery(Struct, forbid_unknown_fields=True):
    """Which page."""

    limit: Limit = LIMITS.listed
    after: After = 0


class NewEvent(Struct, forbid_unknown_fields=True):
    """An event to publish. Message and headers together have at most 256 KiB."""

    message: JsonMessage
    headers: Headers | None = None
    delay: (
        Annotated[
            Delay, Meta(description="Seconds until queues show it; web hooks get it at once.")
        ]
        | None
    ) = None


class Copy(Struct):
    """The message that the event became in a queue."""

    queue: str
    id: MessageId


class PublishedEvent(Struct):
    """Where the event went. What filters kept away, or a queue that is gone, is not counted."""

    queues_matched: Annotated[int, Meta(ge=0, description="Copies in queues.")]
    messages: list[Copy]
    deliveries: Annotated[int, Meta(ge=0, description="Deliveries to web hooks.")]
    message_id: Annotated[str, Meta(description="In envelopes, and in the headers of web hooks.")]


class NewSubscription(Struct, forbid_unknown_fields=True, rename={"wants_envelope": "envelope"}):
    """A queue, a log, or a web hook, that wants events. Queues are named by `queue_name`, logs by
    `log_name`, web hooks by `endpoint`."""

    queue_name: QueueName | UnsetType = UNSET
    log_name: LogName | UnsetType = UNSET
    protocol: Literal["http", "https"] | UnsetType = UNSET
    endpoint: (
        Annotated[
            str,
            Meta(
                max_length=LIMITS.endpoint_length,
                description="A URL. Nobody is asked to confirm it.",
                examples=["https://example.com/hook"],
                extra_json_schema={"format": "uri", "pattern": "^https?://"},
            ),
        ]
        | UnsetType
    ) = UNSET
    wants_envelope: Annotated[
        bool, Meta(description="The signed envelope of SNS instead of the message alone.")
    ] = False
    delivery_policy: (
        Annotated[
            Raw,
            Meta(
                description="In the form of SNS, for web hooks. Without a `healthyRetryPolicy` "
                "what fails is tried again after 10, 30, 60 and 300 seconds, and then kept.",
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
                description="In the form of SNS: only events that it matches.",
                examples=[{"color": ["red"]}],
                extra_json_schema=_OBJECT,
            ),
        ]
        | UnsetType
    ) = UNSET
    filter_policy_scope: (
        Annotated[
            Literal["MessageAttributes", "MessageBody"],
            Meta(description="What the filter looks at: headers, or the message. Headers."),
        ]
        | UnsetType
    ) = UNSET
    dead_letter_queue: (
        Annotated[
            QueueName,
            Meta(description="A queue for what cannot be delivered; without one it is kept aside."),
        ]
        | UnsetType
    ) = UNSET


SubscriptionBody = Annotated[
    NewSubscription,
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
    queue_name: Annotated[str | None, Meta(description="Null of what is no queue.")]
    envelope: bool
    raw: Annotated[bool, Meta(description="The opposite of `envelope`.")]
    is_confirmed: Annotated[
        bool, Meta(description="False: SNS made it and waits for its endpoint.")
    ]
    subscription_arn: Annotated[str, Meta(description="As SNS calls it.")]
    created_at: datetime
    delivery_policy: Annotated[Raw, Meta(extra_json_schema=_OBJECT)] | UnsetType = UNSET
    filter_policy: Annotated[Raw, Meta(extra_json_schema=_OBJECT)] | UnsetType = UNSET
    filter_policy_scope: str | UnsetType = UNSET
    dead_letter_queue: str | UnsetType = UNSET
    log_name: Annotated[str, Meta(description="Only of what is a log.")] | UnsetType = UNSET
    paused_at: PausedAt = UNSET


def _shown(one: Subscription) -> SubscriptionShown:
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
    published = await event_publishing.publish_event(call.engine, publisher, event)
    copies = [Copy(queue.name, sequence) for queue, sequence in published.places]
    return Answer(
        201, PublishedEvent(len(copies), copies, published.delivery_count, published.message_id)
    )


async def _subscribe(call: Call) -> Answer:
    new: NewSubscription = call.body
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
    subscription = await event_subscriptions.subscribe(call.engine, call.caller, request)
    place = f"{_place(call.path.pattern)}/{subscription.subscription_id}"
    return Answer(201, _shown(subscription), {"location": place})


def _text(value: str | Raw | UnsetType) -> str | None:
    """A field that was given, JSON as its text."""
    if isinstance(value, UnsetType):
        return None
    return value if isinstance(value, str) else bytes(value).decode()


def _place(pattern: str) -> str:
    return f"/v1/events/{quote(pattern, safe='*')}/subscriptions"


async def _list(call: Call) -> Answer:
    query: SubscriptionQuery = call.query
    page = await event_subscriptions.list_of_pattern(
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
    await event_subscriptions.unsubscribe(call.engine, call.caller, call.path.pattern, call.path.id)
    return Answer(204)


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
        "To every queue, log and web hook that subscribes to a pattern which the key matches, and "
        "to the SNS topic of that name: once for each subscription, but once in each log. All "
        "copies and deliveries are written in one transaction. When nobody subscribes, nothing "
        "happens.",
        _TAG,
        _publish,
        (Answered(201, PublishedEvent, "Where the event went.", _PUBLISHED),),
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
        "A queue, a log or a web hook, which gets events from now on; nobody has to confirm it. A "
        "pattern that can be the name of an SNS topic is that topic, which is created when there "
        "is none. To subscribe again with the same settings changes nothing and answers the same; "
        "409 with others.",
        _TAG,
        _subscribe,
        (
            Answered(
                201,
                SubscriptionShown,
                "The subscription.",
                _SUBSCRIPTION,
                headers={"Location": "Where it can be deleted."},
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
        "To exactly this pattern, the oldest first. Of a topic also those that SNS made.",
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
        "What was published before is still delivered to queues, to web hooks no longer.",
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
        "List what a queue subscribes to",
        "Patterns and SNS topics, the oldest subscription first.",
        _TAG,
        _list_of_queue,
        (Answered(200, list[SubscriptionShown], "Subscriptions.", [_SUBSCRIPTION], headers=PAGED),),
        path_params=QueuePath,
        query=SubscriptionQuery,
        right="sqs:GetQueueAttributes",
    ),
)
