"""Endpoints of events and SNS topics: publish, try, subscribe, list, pause, redrive."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, to_builtins

from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Call, Endpoints, next_page
from queuegate.gateway.faces.json.json_fields import (
    BIGGEST_ID,
    Delay,
    FifoId,
    Headers,
    JsonMessage,
    Limit,
    MessageId,
    PausedAt,
    QueueName,
    about,
    example,
    schema_name,
)
from queuegate.gateway.faces.logs.log_endpoints import LogName
from queuegate.gateway.faces.rest.queue_endpoints import pausing, queue_of
from queuegate.gateway.operations.access.authorization import (
    Effect,
    GrantedTopic,
    find_audience,
    granted_topic,
    own_arn,
    own_topic,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.gateway.operations.topics import (
    events,
    filter_trials,
    topic_subscriptions,
    topics,
)
from queuegate.gateway.operations.topics.events import (
    EventToPublish,
    SubscribeToEvents,
    TopicMessage,
)
from queuegate.gateway.operations.topics.fan_out import Publisher
from queuegate.gateway.operations.topics.topic_cache import SubscriptionSettings
from queuegate.gateway.operations.topics.topic_subscriptions import SubscriptionPage
from queuegate.protocol import arns, names
from queuegate.protocol.malformed import Malformed
from queuegate.protocol.urls import without_password
from queuegate.storage.model import TopicSubscription

_KEY = r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$"
_SEGMENT = r"([A-Za-z0-9_-]+|\*|#)"
_OBJECT = {"type": "object"}

RoutingKey = Annotated[
    str,
    about(
        "Segments of letters, digits, hyphens and underscores, separated by dots. At "
        "most 256 characters."
    ),
    Meta(examples=["order.created"], extra_json_schema={"pattern": _KEY, "maxLength": 256}),
]
Pattern = Annotated[
    str,
    about(
        "A routing key in which `*` matches exactly one segment and `#` matches any "
        "number of segments, or none. In a URL, write `#` as `%23`.",
        examples=["order.*"],
        extra_json_schema={"pattern": rf"^{_SEGMENT}(\.{_SEGMENT})*$", "maxLength": 256},
    ),
]
After = Annotated[int, about("End of the page before: follow its Link.", ge=0, le=BIGGEST_ID)]


class SubscriptionQuery(Struct, forbid_unknown_fields=True):
    """A page of subscriptions."""

    limit: Limit = LIMITS.listed
    after: After = 0


class NewEvent(Struct, forbid_unknown_fields=True):
    """An event to publish. The limit of message and headers together is 256 KiB."""

    message: Annotated[JsonMessage, example({"order": 17})]
    headers: Annotated[Headers | None, example({"color": "red"})] = None
    delay: (
        Annotated[Delay, about("Seconds until queues show it. Web hooks get it at once.")] | None
    ) = None


@schema_name("Copy")
class QueueCopy(Struct):
    """The copy of the event in a queue."""

    queue: Annotated[str, example("jobs")]
    id: Annotated[MessageId, example(42)]


class PublishedEvent(Struct):
    """The targets of the event, without filtered subscriptions and deleted queues."""

    queues_matched: Annotated[int, about("Copies in queues.", 1, ge=0)]
    messages: list[QueueCopy]
    deliveries: Annotated[int, about("Deliveries to web hooks.", 1, ge=0)]
    message_id: Annotated[
        str,
        about("The id in envelopes and web hook headers.", "0b9e1c7a-2f5d-4c3e-8a6b-7d8e9f0a1b2c"),
    ]


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
            about(
                "A URL, which needs no confirmation.",
                max_length=LIMITS.endpoint_length,
                examples=["https://example.com/hook"],
                extra_json_schema={"format": "uri", "pattern": "^https?://"},
            ),
        ]
        | UnsetType
    ) = UNSET
    wants_envelope: Annotated[
        bool, about("True: send the signed envelope of SNS, not the message alone.")
    ] = False
    delivery_policy: (
        Annotated[
            Raw,
            about(
                "Delivery policy of SNS for web hooks. Without a `healthyRetryPolicy`, "
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
            about("Filter policy of SNS: only matching events are delivered."),
            Meta(examples=[{"color": ["red"]}], extra_json_schema=_OBJECT),
        ]
        | UnsetType
    ) = UNSET
    filter_policy_scope: (
        Annotated[
            Literal["MessageAttributes", "MessageBody"],
            about("The filtered part: headers or the message. Default: headers."),
        ]
        | UnsetType
    ) = UNSET
    dead_letter_queue: (
        Annotated[QueueName, about("A queue for failed deliveries. Absent: they are retained.")]
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

    id: Annotated[str, example("8f14e45f-ceea-467f-a9d5-1b2c3d4e5f60")]
    pattern: Annotated[str, example("order.*")]
    protocol: Annotated[str, example("sqs")]
    endpoint: Annotated[
        str,
        about("A URL, or the ARN of a queue or a log.", "arn:aws:sqs:us-east-1:000000000000:jobs"),
    ]
    queue_name: Annotated[str | None, about("Null: the endpoint is no queue.", "jobs")]
    envelope: bool
    raw: Annotated[bool, about("The opposite of `envelope`.", True)]
    is_confirmed: Annotated[bool, about("False: a subscription of SNS awaits confirmation.", True)]
    subscription_arn: Annotated[
        str,
        about(
            "The ARN in SNS.",
            "arn:aws:sns:us-east-1:000000000000:order.*:8f14e45f-ceea-467f-a9d5-1b2c3d4e5f60",
        ),
    ]
    created_at: datetime
    delivery_policy: Annotated[Raw, Meta(extra_json_schema=_OBJECT)] | UnsetType = UNSET
    filter_policy: Annotated[Raw, Meta(extra_json_schema=_OBJECT)] | UnsetType = UNSET
    filter_policy_scope: str | UnsetType = UNSET
    dead_letter_queue: str | UnsetType = UNSET
    log_name: Annotated[str, about("Present for a log.")] | UnsetType = UNSET
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


endpoint = Endpoints(
    "events",
    routing_key=RoutingKey,
    pattern=Pattern,
    id=Annotated[str, about("The id of the subscription, a UUID.")],
    name=QueueName,
)
_PATTERN = {"pattern": "$request.path.pattern"}


@endpoint("POST /v1/events/{routing_key}", "sns:Publish", refusals=(429,), carries_messages=True)
async def publish_event(call: Call, body: NewEvent) -> Answer[PublishedEvent]:
    """Publish an event. Sends the event to every queue, log and web hook with a matching pattern,
    and to the SNS topic of that name: once for each subscription, but once to each log. One
    transaction writes all copies and deliveries. Without subscriptions, the event is dropped.
    Returns 201: The targets of the event."""
    headers = body.headers
    raw = {name: bytes(value) for name, value in headers.items()} if headers else None
    event = EventToPublish(call.path.routing_key, bytes(body.message), raw, body.delay)
    request = call.request
    publisher = Publisher(call.caller, request.links_url, request.headers.get("x-amzn-trace-id"))
    await call.engine.rates.take(call.caller)
    published = await events.publish_event(call.engine, publisher, event)
    copies = [QueueCopy(queue.name, sequence) for queue, sequence in published.places]
    return Answer(
        201, PublishedEvent(len(copies), copies, published.delivery_count, published.message_id)
    )


@endpoint(
    "POST /v1/events/{pattern}/subscriptions",
    "sns:Subscribe",
    resource="{pattern}",
    refusals=(404, 409, 429),
    example={
        "examples": {
            "queue": {"queue_name": "jobs"},
            "log": {"log_name": "orders"},
            "web hook": {"endpoint": "https://example.com/hook", "envelope": True},
        }
    },
    headers={"Location": "Path of the subscription."},
    links={
        "unsubscribeFromEvents": {**_PATTERN, "id": "$response.body#/id"},
        "listEventSubscriptions": _PATTERN,
    },
)
async def subscribe_to_events(call: Call, body: SubscriptionBody) -> Answer[SubscriptionShown]:
    """Subscribe to events. Subscribes a queue, a log or a web hook to later events, without
    confirmation. A pattern that is a valid name of an SNS topic is that topic, which is created if
    it does not exist. A subscription that exists with the same settings is a success. 409: it
    exists with other settings. Returns 201: The subscription."""
    request = SubscribeToEvents(
        call.path.pattern,
        _text(body.queue_name),
        _text(body.log_name),
        _text(body.protocol),
        _text(body.endpoint),
        SubscriptionSettings(
            not body.wants_envelope,
            _text(body.delivery_policy),
            _text(body.filter_policy),
            _text(body.filter_policy_scope),
        ),
        _text(body.dead_letter_queue),
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


@endpoint(
    "GET /v1/events/{pattern}/subscriptions",
    "sns:ListSubscriptionsByTopic",
    resource="{pattern}",
    refusals=(),
    headers=PAGED,
)
async def list_event_subscriptions(
    call: Call, query: SubscriptionQuery
) -> Answer[list[SubscriptionShown]]:
    """List the subscriptions to a pattern. Lists subscriptions to exactly this pattern, the oldest
    first, including those that SNS created for a topic. Returns 200: Subscriptions."""
    page = await events.list_of_pattern(
        call.engine, call.caller, call.path.pattern, after_position=query.after, limit=query.limit
    )
    return _listed(page, _place(call.path.pattern), query.limit)


@endpoint("GET /v1/queues/{name}/subscriptions", "sqs:GetQueueAttributes", headers=PAGED)
async def list_queue_subscriptions(
    call: Call, query: SubscriptionQuery
) -> Answer[list[SubscriptionShown]]:
    """List the subscriptions of a queue. Lists subscriptions to patterns and SNS topics, the oldest
    first. Returns 200: Subscriptions."""
    queue = await queue_of(call)
    page = await topic_subscriptions.list_of_queue(
        call.engine, queue, after_position=query.after, limit=query.limit
    )
    return _listed(page, f"/v1/queues/{queue.name}/subscriptions", query.limit)


def _listed(page: SubscriptionPage, place: str, limit: int) -> Answer[list[SubscriptionShown]]:
    headers = next_page(place, limit=limit, after=page.next_position)
    return Answer(200, [_shown(one) for one in page.subscriptions], headers)


@endpoint("DELETE /v1/events/{pattern}/subscriptions/{id}", "sns:Unsubscribe", resource="{pattern}")
async def unsubscribe_from_events(call: Call) -> Answer[None]:
    """Delete a subscription. Earlier events are still delivered to queues, but not to web hooks.
    Returns 204: The subscription is deleted."""
    await events.unsubscribe(call.engine, call.caller, call.path.pattern, call.path.id)
    return Answer(204)


@pausing(
    endpoint,
    "subscription",
    "/v1/events/{pattern}/subscriptions/{id}",
    right="sns:SetSubscriptionAttributes",
    resource="{pattern}",
)
async def _set_paused(call: Call, is_paused: bool) -> None:
    """Deliveries to its web hook are retained until it is resumed. A subscription without a web
    hook is refused: pause its queue instead."""
    engine, caller, path = call.engine, call.caller, call.path
    await events.set_paused(engine, caller, path.pattern, path.id, is_paused=is_paused)


_TOPIC_NAME = r"^([A-Za-z0-9_-]{1,256}|[A-Za-z0-9_-]{1,251}\.fifo)$"
_SUBJECT = r"^[^\u0000-\u001f\u007f\ufffe\uffff]{1,100}$(?!\n)"

TopicName = Annotated[
    str,
    about("Name of a topic of the account. The name of a FIFO topic ends in `.fifo`."),
    Meta(examples=["orders"], extra_json_schema={"pattern": _TOPIC_NAME, "maxLength": 256}),
]


class TopicsQuery(Struct, forbid_unknown_fields=True):
    """A page of topics."""

    limit: Limit = LIMITS.listed
    after: Annotated[
        str, about("Only later names: the last name of the page before.", max_length=256)
    ] = ""


class TopicShown(Struct):
    """A topic in a list."""

    name: Annotated[str, example("orders")]
    arn: Annotated[str, example("arn:aws:sns:us-east-1:000000000000:orders")]
    fifo: bool


class TopicDescribed(TopicShown):
    """A topic with its settings and the number of its subscriptions."""

    created_at: datetime
    display_name: Annotated[str, example("")]
    content_based_deduplication: bool
    max_message_bytes: Annotated[int, about("Limit of message and headers together.", 262144, ge=1)]
    archive_days: Annotated[int, about("Retention of the archive in days. 0: no archive.", ge=0)]
    subscriptions_confirmed: Annotated[int, Meta(ge=0), example(2)]
    subscriptions_pending: Annotated[int, about("Unconfirmed subscriptions.", ge=0)]
    subscriptions_deleted: Annotated[int, Meta(ge=0)]
    paused_at: PausedAt = UNSET


class NewTopicMessage(Struct, forbid_unknown_fields=True):
    """A message to publish. FIFO topics require a `group_id`."""

    message: Annotated[JsonMessage, example({"order": 17})]
    subject: (
        Annotated[
            str, about("One line of at most 100 characters.", pattern=_SUBJECT), example("An order")
        ]
        | None
    ) = None
    headers: Annotated[Headers | None, example({"color": "red"})] = None
    group_id: FifoId | None = None
    deduplication_id: FifoId | None = None


class PublishedToTopic(Struct):
    """The ids of the message in SNS."""

    message_id: Annotated[str, example("0b9e1c7a-2f5d-4c3e-8a6b-7d8e9f0a1b2c")]
    sequence_number: Annotated[str, about("Only for FIFO topics.")] | UnsetType = UNSET


async def topic_of(call: Call) -> GrantedTopic:
    """Return the topic in the path. The caller needs the permission of the endpoint."""
    arn = own_topic(call.caller, call.path.name)
    return await granted_topic(call.engine, call.caller, call.right, arn)


topic_endpoint = Endpoints("topics", name=TopicName)


@topic_endpoint("GET /v1/topics", "sns:ListTopics", resource="*", refusals=(), headers=PAGED)
async def list_topics(call: Call, query: TopicsQuery) -> Answer[list[TopicShown]]:
    """List topics. Lists topics by name in byte order. The header Link leads to the next page.
    Returns 200: Topics."""
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


@topic_endpoint("GET /v1/topics/{name}", "sns:GetTopicAttributes")
async def get_topic(call: Call) -> Answer[TopicDescribed]:
    """Get a topic. Returns the settings and the numbers of subscriptions. Returns 200: The
    topic."""
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


@topic_endpoint(
    "POST /v1/topics/{name}/messages", "sns:Publish", refusals=(404, 429), carries_messages=True
)
async def publish_to_topic(call: Call, body: NewTopicMessage) -> Answer[PublishedToTopic]:
    """Publish to a topic. Publishes as Publish of SNS does, in one transaction, to all
    subscriptions of the topic and of patterns that match its name. A duplicate on a FIFO topic gets
    the answer of the first message, and is dropped. Returns 201: The message is published."""
    headers = body.headers
    raw = {name: bytes(value) for name, value in headers.items()} if headers else None
    request = call.request
    publisher = Publisher(call.caller, request.links_url, request.headers.get("x-amzn-trace-id"))
    message = TopicMessage(
        call.path.name, bytes(body.message), raw, body.subject, body.group_id, body.deduplication_id
    )
    await call.engine.rates.take(call.caller)
    published = await events.publish_to_topic(call.engine, publisher, message)
    shown = PublishedToTopic(published.message_id, published.sequence_number or UNSET)
    return Answer(201, shown)


@pausing(topic_endpoint, "topic", "/v1/topics/{name}", right="sns:SetTopicAttributes")
async def _set_topic_paused(call: Call, is_paused: bool) -> None:
    """Deliveries to the web hooks of all subscriptions are retained until the topic is resumed.
    Publishes continue, and so do copies to queues and logs."""
    await topics.set_paused(call.engine, await topic_of(call), is_paused=is_paused)


class TrialAttribute(
    Struct, forbid_unknown_fields=True, rename={"data_type": "DataType", "value": "StringValue"}
):
    """A message attribute of SNS."""

    data_type: Annotated[str, example("String.Array")]
    value: Annotated[str, example('["red", "blue"]')]


class NewTrial(Struct, forbid_unknown_fields=True):
    """A message to test."""

    message: Annotated[JsonMessage, example({"order": 17})]
    headers: Annotated[Headers | None, example({"color": "red"})] = None
    attributes: Annotated[
        dict[str, TrialAttribute], about("Message attributes of SNS, beside the headers.")
    ] = {}


class TrialOutcome(Struct):
    """A confirmed subscription."""

    subscription_id: Annotated[str, example("8f14e45f-ceea-467f-a9d5-1b2c3d4e5f60")]
    protocol: Annotated[str, example("sqs")]
    endpoint: Annotated[str, example("arn:aws:sqs:us-east-1:000000000000:jobs")]
    reasons: Annotated[
        list[str],
        about("Why the message would not reach it. Empty: it would.", ["the queue does not exist"]),
    ]


class TrialShown(Struct):
    """The subscriptions that the message would reach, and the others."""

    reached: Annotated[int, about("Number of subscriptions that the message would reach.", 3)]
    tried: Annotated[int, about("Number of confirmed subscriptions.", 7)]
    subscriptions: Annotated[
        list[TrialOutcome], about(f"The first {LIMITS.listed}, in the order of subscribing.")
    ]


@topic_endpoint(
    "POST /v1/topics/{name}/trials",
    "sns:ListSubscriptionsByTopic",
    effect=Effect.READING,
    carries_messages=True,
)
async def try_message(call: Call, body: NewTrial) -> Answer[TrialShown]:
    """Test a message against filter policies. Returns the subscriptions of the topic, and of
    patterns that match its name, that a publish of the message would reach, and the reasons why it
    would not reach the others. Sends nothing. Returns 200: The result."""
    raw = {name: bytes(value) for name, value in (body.headers or {}).items()}
    sample = TopicMessage(call.path.name, bytes(body.message), raw)
    tried = await filter_trials.try_message(
        call.engine, call.caller, call.right, sample, to_builtins(body.attributes)
    )
    shown = [
        TrialOutcome(one.subscription_id, one.protocol, without_password(one.endpoint), reasons)
        for one, reasons in tried[: LIMITS.listed]
    ]
    reached = sum(not one.reasons for one in tried)
    return Answer(200, TrialShown(reached, len(tried), shown))


@topic_endpoint(
    "GET /v1/topics/{name}/subscriptions", "sns:ListSubscriptionsByTopic", headers=PAGED
)
async def list_topic_subscriptions(
    call: Call, query: SubscriptionQuery
) -> Answer[list[SubscriptionShown]]:
    """List the subscriptions of a topic. Lists those of both APIs, the oldest first, also those
    that await confirmation. The header Link leads to the next page. Returns 200: Subscriptions."""
    topic = await topics.find_topic(call.engine, await topic_of(call))
    page = await topic_subscriptions.list_of_topic(
        call.engine, topic, after_position=query.after, limit=query.limit
    )
    return _listed(page, f"/v1/topics/{call.path.name}/subscriptions", query.limit)


class DeliveriesQuery(Struct, forbid_unknown_fields=True):
    """A page of the list."""

    limit: Annotated[int, about("Maximum of each state.", ge=1, le=LIMITS.listed)] = LIMITS.listed
    after: Annotated[
        Annotated[str, Meta(pattern=topics.DELIVERY_PLACE, max_length=54)] | None,
        about("The place in the Link to the page, which is opaque."),
    ] = None


class WebHookDelivery(Struct):
    """A message for a web hook."""

    id: Annotated[int, example(4711)]
    kind: Annotated[str, example("Notification")]
    state: Annotated[str, about("`pending`, `in_flight` or `exhausted`.", "pending")]
    endpoint: Annotated[str, example("https://example.com/hook")]
    message_id: Annotated[str, example("0b9e1c7a-2f5d-4c3e-8a6b-7d8e9f0a1b2c")]
    created_at: datetime
    attempts: Annotated[int, Meta(ge=0), example(3)]
    attempted_at: datetime | None
    due_at: Annotated[
        datetime | None, about("Time of the next attempt. Null: there is none, or it is under way.")
    ]
    last_status: Annotated[int | None, about("HTTP status of the last attempt.", 503)]
    last_error: Annotated[str | None, example("HTTP 503")]


@topic_endpoint("GET /v1/topics/{name}/deliveries", "sns:ListSubscriptionsByTopic", headers=PAGED)
async def list_topic_deliveries(
    call: Call, query: DeliveriesQuery
) -> Answer[list[WebHookDelivery]]:
    """List deliveries to web hooks. Lists messages of the topic that web hooks have not accepted
    yet: pending ones by the time of the next attempt, then exhausted ones. A page may be short
    although more deliveries follow. The header Link leads to the next page. Returns 200:
    Deliveries."""
    arn = own_topic(call.caller, call.path.name)
    audience = await find_audience(call.engine, call.caller, call.right, arn)
    found, following = await topics.list_deliveries(
        call.engine, audience, query.after, limit=query.limit
    )
    place = f"/v1/topics/{call.path.name}/deliveries"
    return Answer(
        200,
        [
            WebHookDelivery(
                one.delivery_id,
                one.kind,
                "in_flight" if one.is_leased else one.state,
                without_password(one.endpoint),
                str(one.message_id),
                one.created_at,
                one.attempt_count,
                one.attempted_at,
                None if one.is_leased or one.state == "exhausted" else one.due_at,
                one.last_status,
                one.last_error,
            )
            for one in found
        ],
        next_page(place, limit=query.limit, after=following),
    )


_Id = Annotated[int, about("Id of a delivery.", ge=1, le=BIGGEST_ID, examples=[4711])]
_Ids = Annotated[list[_Id], Meta(min_length=1, max_length=LIMITS.listed)]


class DeliveriesToRedrive(Struct, forbid_unknown_fields=True):
    """Exhausted deliveries."""

    ids: Annotated[_Ids | Literal["all"], about('Ids of deliveries, or "all" of the topic.')]


class RedrivenDeliveries(Struct):
    """The number of redriven deliveries."""

    redriven: Annotated[int, Meta(ge=0), example(2)]
    has_more: Annotated[bool, about("True: repeat the request for the rest.")]


@topic_endpoint("POST /v1/topics/{name}/deliveries/redrive", "sns:SetTopicAttributes")
async def redrive_topic_deliveries(
    call: Call, body: DeliveriesToRedrive
) -> Answer[RedrivenDeliveries]:
    """Redrive exhausted deliveries. They start at once, with their first attempt. At most
    {limits.listed} in one request. Other deliveries stay unchanged. Returns 200: The number."""
    ids = None if body.ids == "all" else body.ids
    most = LIMITS.listed
    count = await topics.redrive_deliveries(call.engine, await topic_of(call), ids, limit=most)
    return Answer(200, RedrivenDeliveries(count, ids is None and count == most))
