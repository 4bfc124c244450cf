"""Endpoints of channels: settings, metrics and dead letters; names and refusals of the face."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, structs

from queuegate.gateway.faces.json.json_endpoints import PAGED, Answer, Call, Endpoints, next_page
from queuegate.gateway.faces.json.json_fields import (
    QUEUE_NAME_PATTERN,
    JsonMessage,
    ListQuery,
    MessageId,
    Priority,
    SqsId,
    about,
    example,
    instant_of,
    page_of_queues,
    schema_name,
)
from queuegate.gateway.operations.access.authorization import check_right, known_own_queue, own_arn
from queuegate.gateway.operations.channels import channels as account_channels
from queuegate.gateway.operations.channels.channel_consumers import CONNECTIONS
from queuegate.gateway.operations.channels.channels import (
    COUNTED,
    ChannelNumbers,
    ChannelSettings,
    find_channel,
    find_existing_channel,
    numbers,
    set_up,
    settings_of,
)
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.queues.stored_messages import PLACE_PATTERN, Browse, came_from
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.protocol import arns
from queuegate.storage import storage_errors
from queuegate.storage.queue_model import Queue, Received

ChannelName = Annotated[
    str,
    about(
        "Name of a channel, which is a queue of the account: letters, digits, hyphens "
        "and underscores. A missing channel is created."
    ),
    Meta(examples=["alerts"], extra_json_schema={"pattern": QUEUE_NAME_PATTERN, "maxLength": 80}),
]
"""Documented, not validated: the operation validates it."""

Window = Annotated[
    int,
    about("Acknowledgement window in seconds. Afterwards the message is redelivered."),
    Meta(ge=1, le=LIMITS.visibility_timeout_seconds),
]


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


def text_of(refusal: storage_errors.Rejected) -> str:
    """Return the text of a refusal, with "channel" for "queue"."""
    if isinstance(refusal, storage_errors.QueueDoesNotExist):
        name = refusal.queue_name
        return "The channel does not exist." if name is None else f"Channel '{name}' does not exist"
    if isinstance(refusal, storage_errors.QueueNameInvalid):
        return (
            "The name of a channel is invalid. Allowed are 1 to 80 letters, digits, hyphens and "
            "underscores."
        )
    if isinstance(refusal, storage_errors.ReceiptHandleIsInvalid):
        return (
            f"'{refusal.receipt_handle[:_MOST_SHOWN]}' is no `ack` of a message of this channel: "
            "send the `ack` of a polled message."
        )
    return str(refusal)


Deliveries = Annotated[
    int,
    about("Deliveries after which an unacknowledged message is dead-lettered. Null: no limit."),
    Meta(ge=1, le=LIMITS.deliveries),
]
Size = Annotated[
    int,
    about(
        "Maximum number of messages. More are refused with 429. Cannot be changed. Null: no limit."
    ),
    Meta(ge=1, le=LIMITS.queue_size),
]


@schema_name("Settings")
class ChannelSettingsBody(Struct, forbid_unknown_fields=True):
    """Settings to change. Absent members stay unchanged."""

    ack_window: Annotated[Window | UnsetType, example(30)] = UNSET
    max_deliveries: Annotated[Deliveries | UnsetType | None, example(5)] = UNSET
    size: Size | UnsetType | None = UNSET


class Channel(Struct):
    """A channel."""

    name: Annotated[str, example("alerts")]
    ack_window: Annotated[int, about("Seconds to acknowledge a message in.", 30, ge=0)]
    max_deliveries: Annotated[Deliveries | None, example(5)]
    size: Size | None
    dead_letter_queue: Annotated[
        str | None, about("Null: no message was dead-lettered.", "alerts-dead-letters")
    ]
    fifo: Annotated[bool, about("Ordered within groups, without priorities.")]


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


channels = Endpoints("channels", name=ChannelName)
dead_letters = Endpoints("dead letters")


@channels("GET /v1/channels", "sqs:ListQueues", resource="*", refusals=(), headers=PAGED)
async def list_channels(call: Call, query: ListQuery) -> Answer[Channels]:
    """List channels. Every queue is a channel. The header Link leads to the next page. Returns 200:
    Channels."""
    found, headers = await page_of_queues(call, "/v1/channels")
    return Answer(200, Channels([_channel(queue) for queue in found]), headers)


@channels("GET /v1/channels/{name}", "sqs:GetQueueAttributes")
async def get_channel(call: Call) -> Answer[Channel]:
    """Get a channel. Returns the settings. `GET /v1/metrics` has the metrics. Returns 200: The
    channel."""
    return Answer(200, _channel(await existing_channel_of(call, call.path.name)))


@channels("PUT /v1/channels/{name}", "sqs:SetQueueAttributes", refusals=(404, 409))
async def set_up_channel(call: Call, body: ChannelSettingsBody) -> Answer[Channel]:
    """Create a channel, or change its settings. A new window applies to later deliveries. 409: the
    channel exists with another size. `DELETE /v1/queues/{name}` deletes a channel. Returns 200: The
    changed channel. Returns 201: The new channel."""

    def change(before: ChannelSettings) -> ChannelSettings:
        given: dict[str, Any] = {
            "ack_window_seconds": body.ack_window,
            "max_deliveries": body.max_deliveries,
            "most_messages": body.size,
        }
        return before._replace(**{name: v for name, v in given.items() if v is not UNSET})

    queue, is_new = await set_up(call.engine, call.caller, call.right, call.path.name, change)
    return Answer(201 if is_new else 200, _channel(queue))


_MOST_CHANNELS = 100

Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, about("Messages per second.")]


class MetricsQuery(ListQuery, forbid_unknown_fields=True):
    """One channel, or a page of all channels."""

    channel: Annotated[ChannelName | None, about("Absent: all channels of the account.")] = None
    limit: Annotated[int, about("Maximum number of results.", ge=1, le=_MOST_CHANNELS)] = (
        _MOST_CHANNELS
    )


class OfPriority(Struct):
    """Available messages of one priority."""

    priority: Priority
    depth: Annotated[int, about(f"Number of messages, counted up to {COUNTED}.", ge=0)]
    oldest_age_seconds: Annotated[int, about("Age of the next message.", ge=0)]


class RatesShown(Struct):
    """Rates over all gateways."""

    over_seconds: Annotated[
        float,
        about(
            "Period of the rates: up to a minute since an earlier request to this "
            "gateway, else since the creation of the channel.",
            60.0,
        ),
    ]
    published: Annotated[Rate, example(12.5)]
    finished: Annotated[
        Rate, about("Acknowledged, expired, purged or dead-lettered messages.", 12.25)
    ]
    dead_letters: Annotated[Rate, example(0.0)]


@schema_name("Numbers")
class ChannelMetrics(Struct):
    """Metrics of a channel, without expired messages."""

    channel: Annotated[str, example("alerts")]
    depth: Annotated[int, about("Messages that can be delivered now.", 12, ge=0)]
    in_flight: Annotated[int, about("Delivered and unacknowledged messages.", 2, ge=0)]
    delayed: Count
    oldest_age_seconds: Annotated[Count | None, example(41)]
    priorities: Annotated[
        list[OfPriority],
        about(
            "Priorities with available messages, the highest first.",
            [
                {"priority": 10, "depth": 2, "oldest_age_seconds": 0},
                {"priority": 0, "depth": 10, "oldest_age_seconds": 41},
            ],
        ),
    ]
    published_total: Annotated[Count, example(2000)]
    finished_total: Annotated[Count, example(1986)]
    dead_letters: Annotated[int, about("Messages in its dead-letter queue.", 3, ge=0)]
    dead_letters_total: Annotated[Count, example(8)]
    rates: RatesShown
    error_rate: Annotated[
        float | None, about("Share of dead letters in finished messages. Null: none finished.", 0.0)
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


@channels("GET /v1/metrics", "sqs:GetQueueAttributes", headers=PAGED)
async def get_metrics(call: Call, query: MetricsQuery) -> Answer[ChannelsMetrics]:
    """Get metrics of channels. Returns depth and age by priority, rates and errors. Prometheus
    reads `/metrics`. The header Link leads to the next page. Returns 200: The metrics."""
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
        except storage_errors.QueueDoesNotExist:
            # The channel was deleted after the listing.
            continue
    return Answer(200, ChannelsMetrics(shown), headers)


class PushConnection(Struct):
    """A connection that messages are pushed to."""

    process: Annotated[str, about("Identity of its process.", "1f.3a")]
    kind: Annotated[str, about("`sse` or `websocket`.", "sse")]
    key: Annotated[str, about("Name of the key, or else the access key or the account.", "web")]
    address: Annotated[str, about("Address of the client. Empty: unknown.", "203.0.113.7")]
    credit: Annotated[int, about("Maximum of unacknowledged messages.", 10, ge=0)]
    unacknowledged: Annotated[Count, example(2)]
    is_paused: Annotated[bool, about("True: the client reads slower than it is sent.")]


class PushConnections(Struct):
    """The push connections of a channel to the gateway."""

    processes: Annotated[int, about("Processes of the gateway that have answered.", 2, ge=1)]
    connections: list[PushConnection]


@channels("GET /v1/channels/{name}/connections", "sqs:GetQueueAttributes")
async def list_connections(call: Call) -> Answer[PushConnections]:
    """List push connections. Lists the consumers that are connected to the processes of this
    gateway, at most {limits.listed} of each. Other gateways of the database are not asked. Returns
    200: Push connections."""
    channel = await existing_channel_of(call, call.path.name)
    answers = await call.engine.siblings.all(CONNECTIONS, channel.queue_id)
    shown = [PushConnection(**one) for answer in answers for one in answer]
    return Answer(200, PushConnections(len(answers), shown))


_SHOWN_AT_ONCE = 16


class DeadLetterQuery(Struct, forbid_unknown_fields=True):
    """A page of dead letters of a channel."""

    channel: ChannelName
    limit: Annotated[int, about("Maximum number of results.", ge=1, le=LIMITS.browsed_messages)] = (
        100
    )
    after: Annotated[
        Annotated[str, Meta(pattern=PLACE_PATTERN, max_length=148)] | None,
        about("Only later messages: `next` of the page before."),
    ] = None


@schema_name("DeadLetter")
class ChannelDeadLetter(Struct):
    """A message that is not delivered any more."""

    id: MessageId
    message_id: SqsId
    channel: Annotated[
        str | None, about("The source channel. Null: sent to this queue directly.", "alerts")
    ]
    payload: Annotated[JsonMessage, example({"disk": "full", "host": "db-1"})]
    headers: Annotated[Raw, about("An object.", {}, extra_json_schema={"type": "object"})]
    priority: Annotated[Priority, example(10)]
    deliveries: Annotated[int, about("Number of deliveries.", 5, ge=0)]
    published_at: datetime


@schema_name("DeadLetters")
class ChannelDeadLetters(Struct):
    """Dead letters, by id."""

    messages: list[ChannelDeadLetter]
    next: Annotated[str | None, about("`after` for the next page. Null: this is the last page.")]


class ToRequeue(Struct, forbid_unknown_fields=True):
    """Dead letters to requeue."""

    channel: ChannelName
    ids: Annotated[
        Annotated[list[MessageId], Meta(min_length=1, max_length=LIMITS.received_messages)]
        | Literal["all"],
        about('Ids of dead letters, or "all" from this channel.'),
    ]


class RequeuedShown(Struct):
    """The number of requeued messages."""

    requeued: Annotated[int, Meta(ge=0), example(2)]
    has_more: Annotated[
        bool, about("True: the limit of one request was reached. Repeat the request.")
    ]


def _dead_letter(message: Received) -> ChannelDeadLetter:
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


@dead_letters("GET /v1/dead-letter", "sqs:ReceiveMessage", headers=PAGED)
async def list_dead_letters(call: Call, query: DeadLetterQuery) -> Answer[ChannelDeadLetters]:
    """List dead letters. Lists the dead-letter queue of a channel: messages that reached
    `max_deliveries` without an acknowledgement. Messages stay unchanged. The dead-letter queue is a
    channel, too: `GET /v1/channels/{name}` names it, and `POST /v1/queues/{name}/purge` empties it.
    Returns 200: Dead letters. May be empty."""
    channel = await existing_channel_of(call, query.channel)
    request = Browse(query.limit, query.after)
    page = await account_channels.list_dead_letters(
        call.engine, call.caller, call.right, channel, request
    )
    shown = []
    for number, one in enumerate(page.messages, 1):
        shown.append(_dead_letter(one.message))
        if number % _SHOWN_AT_ONCE == 0:
            # Large messages are scanned to their end: yield to other requests.
            await yield_to_loop()
    asked = structs.asdict(query) | {"after": page.next}
    headers = next_page("/v1/dead-letter", **asked)
    return Answer(200, ChannelDeadLetters(shown, page.next), headers)


@dead_letters(
    "POST /v1/dead-letter/requeue",
    "sqs:StartMessageMoveTask",
    refusals=(404, 429),
    example={
        "examples": {
            "all": {"channel": "alerts", "ids": "all"},
            "some": {"channel": "alerts", "ids": [1042, 1043]},
        }
    },
)
async def requeue_dead_letters(call: Call, body: ToRequeue) -> Answer[RequeuedShown]:
    """Publish dead letters again. Moves messages to their source channel, with a delivery count of
    0. Named messages keep their ids, and move even if they are in flight. With `all`, a request
    moves about 10000 messages as new messages, and messages in flight stay. Returns 200: The
    result."""
    channel = await existing_channel_of(call, body.channel)
    numbers = None if isinstance(body.ids, str) else body.ids
    done = await account_channels.requeue_dead_letters(
        call.engine, call.caller, call.right, channel, numbers
    )
    return Answer(200, RequeuedShown(*done))
