"""Endpoints of messages in channels: publish, poll, acknowledge and return."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.channels.channel_endpoints import (
    ChannelName,
    Window,
    channel_of,
    existing_channel_of,
    known_channel_of,
    text_of,
)
from queuegate.gateway.faces.json.json_endpoints import (
    Answer,
    Call,
    Endpoints,
    PreparedCall,
    status_of,
)
from queuegate.gateway.faces.json.json_fields import (
    Delay,
    FifoId,
    Headers,
    JsonMessage,
    MessageId,
    Priority,
    SqsId,
    Ttl,
    about,
    example,
    instant_of,
    schema_name,
)
from queuegate.gateway.operations.access.authorization import SEND
from queuegate.gateway.operations.channels import channels
from queuegate.gateway.operations.channels.channel_consumers import (
    acknowledge,
    nack,
    start_acknowledging,
    token_of,
)
from queuegate.gateway.operations.channels.channels import (
    ChannelMessage,
    PublishedToChannel,
    PublishOutcome,
)
from queuegate.gateway.operations.queues import receives
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.queues.receives import MESSAGES_AT_ONCE, Leasing, ReceiveMany
from queuegate.gateway.operations.runtime.background_tasks import run_at_once
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.queue_model import Queue, ReceiptOutcome, Received
from queuegate.storage.storage_errors import Rejected

Payload = Annotated[
    Raw,
    about(
        "Any JSON value. SQS receivers get its text unchanged. Messages of SQS senders "
        "arrive unchanged if they are JSON, else as a string."
    ),
]


@schema_name("NewMessage")
class NewChannelMessage(Struct, forbid_unknown_fields=True):
    """A message to publish. FIFO channels require `group_id`, accept `deduplication_id` and refuse
    `priority`. Other channels refuse both ids."""

    channel: ChannelName
    payload: Annotated[Payload, example({"disk": "full", "host": "db-1"})]
    priority: Annotated[Priority, example(10)] = 0
    ttl: Annotated[Ttl | None, example(300)] = None
    headers: Headers | None = None
    delay: Delay | None = None
    group_id: FifoId | None = None
    deduplication_id: FifoId | None = None


class PublishedMessage(Struct):
    """A published message."""

    channel: Annotated[str, example("alerts")]
    id: MessageId
    message_id: SqsId


class Result(Struct):
    """The result for one message: its ids, or the text and status of its refusal."""

    channel: Annotated[str, example("alerts")]
    id: Annotated[MessageId | UnsetType, example(1042)] = UNSET
    message_id: Annotated[str | UnsetType, example("0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b")] = UNSET
    error: str | UnsetType = UNSET
    status: Annotated[int, Meta(ge=400, le=599)] | UnsetType = UNSET


class Results(Struct):
    """The result for each message, in order."""

    results: list[Result]


def _publication(new: NewChannelMessage) -> ChannelMessage:
    headers = new.headers
    return ChannelMessage(
        new.channel,
        bytes(new.payload),
        {name: bytes(value) for name, value in headers.items()} if headers else None,
        new.priority,
        new.ttl,
        new.delay,
        new.group_id,
        new.deduplication_id,
    )


publishing = Endpoints("publish")
consuming = Endpoints("consume")
_PAYLOAD = {"disk": "full", "host": "db-1"}
_NEW = {"channel": "alerts", "payload": _PAYLOAD, "priority": 10, "ttl": 300}
_PUBLISHED = {"channel": "alerts", "id": 1042, "message_id": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b"}
_REFUSED = {"channel": "alerts", "error": "the message is too large.", "status": 400}
_ACK = "QGS2AAAAAQAAAAAAAAQSAAAAAXOsS4Dd2vxLJ8a1tQ0q"


def _prepare_publishing(call: Call) -> PreparedCall | None:
    channel = known_channel_of(call, call.body.channel)
    if channel is None or not call.engine.rates.take_at_once(call.caller):
        return None
    return PreparedCall(
        partial(
            channels.start_publishing,
            call.engine,
            call.caller,
            channel,
            _publication(call.body),
        ),
        lambda sent: _published(call, channels.published(sent[0])),
    )


@publishing(
    "POST /v1/messages",
    SEND,
    refusals=(404, 429),
    prepare=_prepare_publishing,
    carries_messages=True,
)
async def publish_message(call: Call, body: NewChannelMessage) -> Answer[PublishedMessage]:
    """Publish a message. The message is durable when the answer arrives. Creates the channel if it
    does not exist. Returns 201: The message."""
    return _published(
        call, await channels.publish_one(call.engine, call.caller, _publication(body))
    )


def _published(call: Call, message: PublishedToChannel) -> Answer[PublishedMessage]:
    number, message_id = message
    return Answer(201, PublishedMessage(call.body.channel, number, message_id))


@publishing(
    "POST /v1/messages/bulk",
    SEND,
    refusals=(404, 429),
    carries_messages=True,
    example=[_NEW, {"channel": "analytics", "payload": "page seen"}],
    shows={207: {"results": [_PUBLISHED, _REFUSED]}},
)
async def publish_messages(
    call: Call,
    body: Annotated[
        list[NewChannelMessage], Meta(min_length=1, max_length=LIMITS.published_at_once)
    ],
) -> Answer[Results]:
    """Publish up to {limits.published_at_once} messages. Messages may be for different channels.
    Each message has its own result, so that refused messages can be sent again alone. The valid
    messages of one channel are published together or not at all. A channel with an invalid name, or
    without permission, refuses the whole request. Returns 201: All messages are published. Returns
    207: Some messages failed."""
    publications = [_publication(new) for new in body]
    outcomes = await channels.publish(call.engine, call.caller, publications)
    results = [
        _result(publication.channel, outcome)
        for publication, outcome in zip(publications, outcomes, strict=True)
    ]
    is_all = all(isinstance(one, PublishedToChannel) for one in outcomes)
    return Answer(201 if is_all else 207, Results(results))


def _result(channel: str, outcome: PublishOutcome) -> Result:
    if isinstance(outcome, PublishedToChannel):
        return Result(channel, outcome.number, outcome.message_id)
    if isinstance(outcome, Rejected):
        return Result(channel, error=text_of(outcome), status=status_of(outcome))
    return Result(channel, error=str(outcome), status=503)


Token = Annotated[str, about("The `ack` of a delivered message.", max_length=300)]
Tokens = Annotated[list[Token], Meta(min_length=1, max_length=LIMITS.received_messages)]
AckOutcome = Literal["acknowledged", "returned", "gone", "received_again"]
_FAILURES: dict[ReceiptOutcome, AckOutcome] = {"gone": "gone", "expired": "received_again"}


class PollQuery(Struct, forbid_unknown_fields=True):
    """A channel to poll."""

    channel: ChannelName
    max: Annotated[int, about("Maximum number of messages.", ge=1, le=LIMITS.received_messages)] = 1
    wait: Annotated[
        int, about("Seconds to wait for a message.", ge=0, le=LIMITS.receive_wait_seconds)
    ] = LIMITS.receive_wait_seconds
    window: Annotated[
        Window | None, about("Window of these messages. Absent: that of the channel.")
    ] = None


class PolledMessage(Struct):
    """A delivered message, hidden from other clients until `ack_by`."""

    id: MessageId
    message_id: SqsId
    payload: Annotated[JsonMessage, example({"disk": "full", "host": "db-1"})]
    headers: Annotated[Raw, about("An object.", {}, extra_json_schema={"type": "object"})]
    priority: Annotated[Priority, example(10)]
    deliveries: Annotated[int, about("Number of deliveries.", 1, ge=1)]
    published_at: datetime
    expires_at: Annotated[
        datetime | None,
        about(
            "When the message expires. Null: it has no `ttl`, or the channel is FIFO.",
            "2030-01-31T09:05:00Z",
        ),
    ]
    ack_by: Annotated[datetime, about("When the message is redelivered.", "2030-01-31T09:00:30Z")]
    ack: Annotated[
        str,
        about(
            "Token of this delivery, for acknowledgements.",
            "QGS2AAAAAQAAAAAAAAQSAAAAAXOsS4Dd2vxLJ8a1tQ0q",
        ),
    ]


class Polled(Struct):
    """Messages, the highest priority first."""

    messages: list[PolledMessage]


class Acks(Struct, forbid_unknown_fields=True):
    """Messages to acknowledge."""

    channel: ChannelName
    acks: Annotated[Token | Tokens, example(["QGS2AAAAAQAAAAAAAAQSAAAAAXOsS4Dd2vxLJ8a1tQ0q"])]


class Nacks(Struct, forbid_unknown_fields=True):
    """Messages to return to the channel."""

    channel: ChannelName
    acks: Annotated[Token | Tokens, example("QGS2AAAAAQAAAAAAAAQSAAAAAXOsS4Dd2vxLJ8a1tQ0q")]
    delay: Annotated[
        int,
        about("Seconds until redelivery. The messages stay hidden until then."),
        Meta(ge=0, le=LIMITS.visibility_timeout_seconds),
        example(60),
    ] = 0


class AckResult(Struct):
    """The result for one message."""

    ack: Annotated[str, example("QGS2AAAAAQAAAAAAAAQSAAAAAXOsS4Dd2vxLJ8a1tQ0q")]
    result: Annotated[
        AckOutcome,
        about(
            "`gone`: the message was acknowledged before, has expired or was "
            "dead-lettered. `received_again`: the window ended and the message was delivered "
            "again, so nothing was done."
        ),
    ]


class AckResults(Struct):
    """The result for each message, in order."""

    results: list[AckResult]


def _prepare_polling(call: Call) -> PreparedCall | None:
    engine, request = call.engine, _receive_request(call)
    channel = known_channel_of(call, call.query.channel)
    if channel is None or request.max_messages > MESSAGES_AT_ONCE:
        return None
    show = _shown_by(call, channel)

    def answer(received: list[Received]) -> Answer[Polled] | Awaitable[Answer[Polled]]:
        if receives.is_short(received):
            steps = receives.shown_in_steps(engine, channel, request, received, show)
            return Answer(200, Polled(run_at_once(steps)))
        return later(received)

    async def later(received: list[Received]) -> Answer[Polled]:
        return Answer(
            200, Polled(await receives.show_received(engine, channel, request, received, show))
        )

    return PreparedCall(partial(receives.start_receiving, engine, channel, request), answer)


@consuming(
    "GET /v1/messages/poll",
    "sqs:ReceiveMessage",
    refusals=(404, 429),
    is_safe=False,
    prepare=_prepare_polling,
    may_wait=True,
)
async def poll_messages(call: Call, query: PollQuery) -> Answer[Polled]:
    """Poll a channel. Answers as soon as a message is available. Higher priorities come first, then
    older messages. A message that is not acknowledged by `ack_by` is redelivered, and dead-lettered
    after `max_deliveries`. HEAD is not allowed, because a request hides messages. Returns 200:
    Messages. May be empty after the wait."""
    channel = await channel_of(call, query.channel)
    show = _shown_by(call, channel)
    shown = await receives.receive_shown(
        call.engine, call.caller, channel, _receive_request(call), show
    )
    return Answer(200, Polled(shown))


def _receive_request(call: Call) -> ReceiveMany:
    query: PollQuery = call.query
    return ReceiveMany(query.max, query.window, query.wait, kind=Leasing)


def _shown_by(call: Call, channel: Queue) -> Callable[[Received, datetime], PolledMessage]:
    return lambda message, ack_by: polled(message, ack_by, token_of(call.engine, channel, message))


def polled(message: Received, ack_by: datetime, token: str) -> PolledMessage:
    """Show a message to its receiver."""
    return PolledMessage(
        message.sequence,
        str(message.message_id),
        Raw(message_of(message.body)),
        Raw(headers_of(message.attributes)),
        message.priority or 0,
        message.receive_count,
        instant_of(message.sent_at_ms),
        None if message.expires_at_ms is None else instant_of(message.expires_at_ms),
        ack_by,
        token,
    )


def _prepare_acknowledging(call: Call) -> PreparedCall | None:
    channel, tokens = known_channel_of(call, call.body.channel), _tokens(call.body)
    if channel is None:
        return None
    return PreparedCall(
        partial(start_acknowledging, call.engine, channel, tokens),
        lambda outcomes: Answer(200, results_of(tokens, outcomes, "acknowledged")),
    )


@consuming("POST /v1/messages/ack", "sqs:DeleteMessage", prepare=_prepare_acknowledging)
async def acknowledge_messages(call: Call, body: Acks) -> Answer[AckResults]:
    """Acknowledge messages. Requires the `ack` of the last delivery. An acknowledgement after the
    window succeeds unless the message was delivered again. Repeated requests change nothing.
    Returns 200: The result for each message."""
    channel, tokens = await existing_channel_of(call, body.channel), _tokens(body)
    outcomes = await acknowledge(call.engine, call.caller, channel, tokens)
    return Answer(200, results_of(tokens, outcomes, "acknowledged"))


@consuming(
    "POST /v1/messages/nack",
    "sqs:ChangeMessageVisibility",
    shows={200: {"results": [{"ack": _ACK, "result": "returned"}]}},
)
async def return_messages(call: Call, body: Nacks) -> Answer[AckResults]:
    """Return messages. Redelivers messages at once or after `delay` seconds. A longer `delay` also
    extends the window. The delivery still counts. Requires the `ack` of the last delivery. Returns
    200: The result for each message."""
    channel, tokens = await existing_channel_of(call, body.channel), _tokens(body)
    outcomes = await nack(call.engine, call.caller, channel, tokens, body.delay)
    return Answer(200, results_of(tokens, outcomes, "returned"))


def _tokens(body: Acks | Nacks) -> list[str]:
    return [body.acks] if isinstance(body.acks, str) else body.acks


def results_of(tokens: list[str], outcomes: list[ReceiptOutcome], done: AckOutcome) -> AckResults:
    """Return the results for messages. ``done`` is the result of a success."""
    results = [
        AckResult(token, _FAILURES.get(outcome, done))
        for token, outcome in zip(tokens, outcomes, strict=True)
    ]
    return AckResults(results)
