"""Endpoints of channels: settings, metrics and dead letters; names and refusals of the face."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

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
    QUEUE_NAME_PATTERN,
    JsonMessage,
    ListQuery,
    MessageId,
    Priority,
    instant_of,
    page_of_queues,
)
from queuegate.gateway.operations.access.authorization import check_right, known_own_queue, own_arn
from queuegate.gateway.operations.channels.channels import (
    COUNTED,
    MOST_REQUEUED,
    ChannelNumbers,
    ChannelSettings,
    find_channel,
    find_existing_channel,
    list_dead_letters,
    numbers,
    requeue_dead_letters,
    set_up,
    settings_of,
)
from queuegate.gateway.operations.queues.dead_letter_moves import came_from
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.queues.stored_messages import PLACE_PATTERN, Browse
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import arns
from queuegate.storage.queue_model import Browsed, Queue
from queuegate.storage.storage_errors import (
    QueueDoesNotExist,
    QueueNameInvalid,
    ReceiptHandleIsInvalid,
    Rejected,
)

ChannelName = Annotated[
    str,
    Meta(
        description="Name of a channel, which is a queue of the account: letters, digits, hyphens "
        "and underscores. A missing channel is created.",
        examples=["alerts"],
        extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80},
    ),
]
"""Documented, not validated: the operation validates it."""

Window = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.visibility_timeout_seconds,
        description="Acknowledgement window in seconds. Afterwards the message is redelivered.",
    ),
]


class ChannelQuery(Struct, forbid_unknown_fields=True):
    """A channel."""

    channel: ChannelName


async def channel_of(call: Call, name: str) -> Queue:
    """Return the channel of that name. The caller needs the permission of the endpoint."""
    return await find_channel(call.engine, call.caller, call.right, name)


def known_channel_of(call: Call, name: str) -> Queue | None:
    """Return the channel if it is cached."""
    return known_own_queue(call.engine, call.caller, call.right, name)


async def existing_channel_of(call: Call, name: str) -> Queue:
    """Return the channel of that name. Refuses a missing channel."""
    return await find_existing_channel(call.engine, call.caller, call.right, name)


_MOST_SHOWN = 60


def text_of(refusal: Rejected) -> str:
    """Return the text of a refusal, with "channel" for "queue"."""
    if isinstance(refusal, QueueDoesNotExist):
        name = refusal.queue_name
        return "The channel does not exist." if name is None else f"Channel '{name}' does not exist"
    if isinstance(refusal, QueueNameInvalid):
        return (
            "The name of a channel is invalid. Allowed are 1 to 80 letters, digits, hyphens and "
            "underscores."
        )
    if isinstance(refusal, ReceiptHandleIsInvalid):
        return (
            f"'{refusal.receipt_handle[:_MOST_SHOWN]}' is no `ack` of a message of this channel: "
            "send the `ack` of a polled message."
        )
    return str(refusal)


_CHANNELS = "channels"

Deliveries = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.deliveries,
        description="Deliveries after which an unacknowledged message is dead-lettered. Null: no "
        "limit.",
    ),
]
Size = Annotated[
    int,
    Meta(
        ge=1,
        le=LIMITS.queue_size,
        description="Maximum number of messages. More are refused with 429. Cannot be changed. "
        "Null: no limit.",
    ),
]


class ChannelPath(Struct, forbid_unknown_fields=True):
    """A channel."""

    name: ChannelName


@schema_name("Settings")
class ChannelSettingsBody(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    ack_window: Window | UnsetType = UNSET
    max_deliveries: Deliveries | UnsetType | None = UNSET
    size: Size | UnsetType | None = UNSET


class Channel(Struct):
    """A channel."""

    name: str
    ack_window: Annotated[int, Meta(ge=0, description="Seconds to acknowledge a message in.")]
    max_deliveries: Deliveries | None
    size: Size | None
    dead_letter_queue: Annotated[
        str | None, Meta(description="Null: no message was dead-lettered.")
    ]
    fifo: Annotated[bool, Meta(description="Ordered within groups, without priorities.")]


class Channels(Struct):
    """Channels, by name in byte order."""

    channels: list[Channel]


def _channel(queue: Queue) -> Channel:
    settings = settings_of(queue)
    arn = queue.dead_letter_arn
    return Channel(
        queue.name,
        settings.ack_window_seconds,
        settings.max_deliveries,
        settings.most_messages,
        None if arn is None else arns.parse_queue(arn).resource,
        queue.kind.has_groups,
    )


async def _list_channels(call: Call) -> Answer:
    found, headers = await page_of_queues(call, "/v1/channels")
    return Answer(200, Channels([_channel(queue) for queue in found]), headers)


async def _get_channel(call: Call) -> Answer:
    return Answer(200, _channel(await existing_channel_of(call, call.path.name)))


async def _set_up_channel(call: Call) -> Answer:
    given: ChannelSettingsBody = call.body

    def change(before: ChannelSettings) -> ChannelSettings:
        window, deliveries, size = given.ack_window, given.max_deliveries, given.size
        return ChannelSettings(
            before.ack_window_seconds if window is UNSET else window,
            before.max_deliveries if deliveries is UNSET else deliveries,
            before.most_messages if size is UNSET else size,
        )

    queue, is_new = await set_up(call.engine, call.caller, call.right, call.path.name, change)
    return Answer(201 if is_new else 200, _channel(queue))


_CHANNEL = {
    "name": "alerts",
    "ack_window": 30,
    "max_deliveries": 5,
    "size": None,
    "dead_letter_queue": "alerts-dead-letters",
    "fifo": False,
}


_MOST_CHANNELS = 100

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(description="Messages per second.")]


class MetricsQuery(ListQuery, forbid_unknown_fields=True):
    """One channel, or a page of all channels."""

    channel: Annotated[
        ChannelName | None, Meta(description="Absent: all channels of the account.")
    ] = None
    limit: Annotated[
        int, Meta(ge=1, le=_MOST_CHANNELS, description="Maximum number of results.")
    ] = _MOST_CHANNELS


class OfPriority(Struct):
    """Available messages of one priority."""

    priority: Priority
    depth: Annotated[int, Meta(ge=0, description=f"Number of messages, counted up to {COUNTED}.")]
    oldest_age_seconds: Annotated[int, Meta(ge=0, description="Age of the next message.")]


class RatesShown(Struct):
    """Rates over all gateways."""

    over_seconds: Annotated[
        float,
        Meta(
            description="Period of the rates: up to a minute since an earlier request to this "
            "gateway, else since the creation of the channel."
        ),
    ]
    published: Rate
    finished: Annotated[
        Rate, Meta(description="Acknowledged, expired, purged or dead-lettered messages.")
    ]
    dead_letters: Rate


@schema_name("Numbers")
class ChannelMetrics(Struct):
    """Metrics of a channel, without expired messages."""

    channel: str
    depth: Annotated[int, Meta(ge=0, description="Messages that can be delivered now.")]
    in_flight: Annotated[int, Meta(ge=0, description="Delivered and unacknowledged messages.")]
    delayed: Count
    oldest_age_seconds: Count | None
    priorities: Annotated[
        list[OfPriority], Meta(description="Priorities with available messages, the highest first.")
    ]
    published_total: Count
    finished_total: Count
    dead_letters: Annotated[int, Meta(ge=0, description="Messages in its dead-letter queue.")]
    dead_letters_total: Count
    rates: RatesShown
    error_rate: Annotated[
        float | None,
        Meta(description="Share of dead letters in finished messages. Null: none finished."),
    ]
    looked_at: datetime


@schema_name("Metrics")
class ChannelsMetrics(Struct):
    """Metrics of channels, by name in byte order."""

    channels: list[ChannelMetrics]


def _channel_metrics(found: ChannelNumbers) -> ChannelMetrics:
    metrics, rates = found.metrics, found.rates
    return ChannelMetrics(
        metrics.queue.name,
        metrics.counts.visible,
        metrics.counts.in_flight,
        metrics.counts.delayed,
        metrics.oldest_age_seconds,
        [OfPriority(*one) for one in found.priorities],
        found.totals.published,
        found.totals.finished,
        found.dead_letters,
        found.totals.dead,
        RatesShown(
            round(rates.over_seconds, 3),
            round(rates.published, 3),
            round(rates.finished, 3),
            round(rates.dead, 3),
        ),
        min(round(rates.dead / rates.finished, 4), 1.0) if rates.finished > 0 else None,
        metrics.looked_at,
    )


async def _get_metrics(call: Call) -> Answer:
    query: MetricsQuery = call.query
    if query.channel is not None:
        channel = await existing_channel_of(call, query.channel)
        return Answer(
            200,
            ChannelsMetrics([_channel_metrics(await numbers(call.engine, call.caller, channel))]),
        )
    check_right(call.engine, call.caller, call.right, own_arn(call.caller, call.right, "*"))
    found, headers = await page_of_queues(call, "/v1/metrics")
    shown = []
    for channel in found:
        try:
            shown.append(_channel_metrics(await numbers(call.engine, call.caller, channel)))
        except QueueDoesNotExist:
            # The channel was deleted after the listing.
            continue
    return Answer(200, ChannelsMetrics(shown), headers)


_METRICS = {
    "channel": "alerts",
    "depth": 12,
    "in_flight": 2,
    "delayed": 0,
    "oldest_age_seconds": 41,
    "priorities": [
        {"priority": 10, "depth": 2, "oldest_age_seconds": 0},
        {"priority": 0, "depth": 10, "oldest_age_seconds": 41},
    ],
    "published_total": 2000,
    "finished_total": 1986,
    "dead_letters": 3,
    "dead_letters_total": 8,
    "rates": {"over_seconds": 60.0, "published": 12.5, "finished": 12.25, "dead_letters": 0.0},
    "error_rate": 0.0,
    "looked_at": "2030-01-31T09:00:00Z",
}


_DEAD_LETTERS = "dead letters"
_SHOWN_AT_ONCE = 16


class DeadLetterQuery(Struct, forbid_unknown_fields=True):
    """A page of dead letters of a channel."""

    channel: ChannelName
    limit: Annotated[
        int, Meta(ge=1, le=LIMITS.browsed_messages, description="Maximum number of results.")
    ] = 100
    after: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        Meta(description="Only later messages: `next` of the page before."),
    ] = None


@schema_name("DeadLetter")
class ChannelDeadLetter(Struct):
    """A message that is not delivered any more."""

    id: MessageId
    message_id: Annotated[str, Meta(description="The id of the message in SQS.")]
    channel: Annotated[
        str | None, Meta(description="The source channel. Null: sent to this queue directly.")
    ]
    payload: JsonMessage
    headers: Annotated[Raw, Meta(description="An object.", extra_json_schema={"type": "object"})]
    priority: Priority
    deliveries: Annotated[int, Meta(ge=0, description="Number of deliveries.")]
    published_at: datetime


@schema_name("DeadLetters")
class ChannelDeadLetters(Struct):
    """Dead letters, by id."""

    messages: list[ChannelDeadLetter]
    next: Annotated[
        str | None, Meta(description="`after` for the next page. Null: this is the last page.")
    ]


class ToRequeue(Struct, forbid_unknown_fields=True):
    """Dead letters to requeue."""

    channel: ChannelName
    ids: Annotated[
        Annotated[list[MessageId], Meta(min_length=1, max_length=LIMITS.received_messages)]
        | Literal["all"],
        Meta(description='Ids of dead letters, or "all" from this channel.'),
    ]


class RequeuedShown(Struct):
    """The number of requeued messages."""

    requeued: Annotated[int, Meta(ge=0)]
    has_more: Annotated[
        bool, Meta(description="True: the limit of one request was reached. Repeat the request.")
    ]


def _dead_letter(message: Browsed) -> ChannelDeadLetter:
    arn = came_from(message)
    return ChannelDeadLetter(
        message.sequence,
        str(message.message_id),
        None if arn is None else arns.parse_queue(arn).resource,
        Raw(message_of(message.body)),
        Raw(headers_of(message.attributes)),
        message.priority or 0,
        message.receive_count,
        instant_of(message.sent_at_ms),
    )


async def _list_dead_letters(call: Call) -> Answer:
    query: DeadLetterQuery = call.query
    channel = await existing_channel_of(call, query.channel)
    request = Browse(query.limit, query.after)
    page = await list_dead_letters(call.engine, call.caller, call.right, channel, request)
    shown = []
    for number, message in enumerate(page.messages, 1):
        shown.append(_dead_letter(message))
        if number % _SHOWN_AT_ONCE == 0:
            # Large messages are scanned to their end: yield to other requests.
            await yield_to_loop()
    headers = {}
    if page.next is not None:
        headers = next_page(
            "/v1/dead-letter", channel=query.channel, limit=query.limit, after=page.next
        )
    return Answer(200, ChannelDeadLetters(shown, page.next), headers)


async def _requeue_dead_letters(call: Call) -> Answer:
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
        "/v1/channels",
        "listChannels",
        "List channels",
        "Every queue is a channel. The header Link leads to the next page.",
        _CHANNELS,
        _list_channels,
        (Answered(200, Channels, "Channels.", {"channels": [_CHANNEL]}, headers=PAGED),),
        query=ListQuery,
        refusals=(),
        right="sqs:ListQueues",
        resource="*",
    ),
    Endpoint(
        "GET",
        "/v1/channels/{name}",
        "getChannel",
        "Get a channel",
        "Returns the settings. `GET /v1/metrics` has the metrics.",
        _CHANNELS,
        _get_channel,
        (Answered(200, Channel, "The channel.", _CHANNEL),),
        path_params=ChannelPath,
        right="sqs:GetQueueAttributes",
    ),
    Endpoint(
        "PUT",
        "/v1/channels/{name}",
        "setUpChannel",
        "Create a channel, or change its settings",
        "A new window applies to later deliveries. 409: the channel exists with another size. "
        "`DELETE /v1/queues/{name}` deletes a channel.",
        _CHANNELS,
        _set_up_channel,
        (
            Answered(200, Channel, "The changed channel.", _CHANNEL),
            Answered(201, Channel, "The new channel.", _CHANNEL),
        ),
        refusals=(404, 409),
        path_params=ChannelPath,
        body=ChannelSettingsBody,
        example={"ack_window": 30, "max_deliveries": 5},
        right="sqs:SetQueueAttributes",
    ),
    Endpoint(
        "GET",
        "/v1/metrics",
        "getMetrics",
        "Get metrics of channels",
        "Returns depth and age by priority, rates and errors. Prometheus reads `/metrics`. The "
        "header Link leads to the next page.",
        _CHANNELS,
        _get_metrics,
        (Answered(200, ChannelsMetrics, "The metrics.", {"channels": [_METRICS]}, headers=PAGED),),
        query=MetricsQuery,
        right="sqs:GetQueueAttributes",
    ),
    Endpoint(
        "GET",
        "/v1/dead-letter",
        "listDeadLetters",
        "List dead letters",
        "Lists the dead-letter queue of a channel: messages that reached `max_deliveries` without "
        "an acknowledgement. Messages stay unchanged. The dead-letter queue is a channel, too: "
        "`GET /v1/channels/{name}` names it, and `POST /v1/queues/{name}/purge` empties it.",
        _DEAD_LETTERS,
        _list_dead_letters,
        (
            Answered(
                200,
                ChannelDeadLetters,
                "Dead letters. May be empty.",
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
        "Moves messages to their source channel, with a delivery count of 0. Named messages keep "
        "their ids, and move even if they are in flight. With `all`, a request moves about "
        f"{MOST_REQUEUED} messages as new messages, and messages in flight stay.",
        _DEAD_LETTERS,
        _requeue_dead_letters,
        (Answered(200, RequeuedShown, "The result.", {"requeued": 2, "has_more": False}),),
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
