"""Polling a channel, and acknowledging what came of it or giving it back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Raw, Struct

from queuegate.gateway.faces.channels.words import (
    ChannelName,
    Window,
    channel_of,
    existing_channel_of,
    known_channel_of,
)
from queuegate.gateway.faces.json.endpoints import Answer, Answered, Begun, Call, Endpoint
from queuegate.gateway.faces.json.message_members import (
    JsonMessage,
    MessageId,
    Priority,
    instant_of,
)
from queuegate.gateway.operations.channels.channel_consumers import (
    acknowledge,
    give_back,
    start_acknowledging,
    token_of,
)
from queuegate.gateway.operations.queues.json_messages import headers_of, message_of
from queuegate.gateway.operations.queues.receives import (
    MESSAGES_AT_ONCE,
    Leasing,
    ReceiveMany,
    is_short,
    receive_shown,
    show_received,
    shown_in_steps,
    start_receiving,
)
from queuegate.gateway.operations.runtime.background_tasks import run_at_once
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.model import Outcome, Queue, Received

_TAG = "consume"

Token = Annotated[str, Meta(max_length=300, description="The `ack` of a message that you got.")]
Tokens = Annotated[list[Token], Meta(min_length=1, max_length=LIMITS.received_messages)]
Became = Literal["acknowledged", "returned", "gone", "received_again"]
_BECAME: dict[Outcome, Became] = {"gone": "gone", "expired": "received_again"}


class PollQuery(Struct, forbid_unknown_fields=True):
    """What to poll."""

    channel: ChannelName
    max: Annotated[
        int, Meta(ge=1, le=LIMITS.received_messages, description="At most so many messages.")
    ] = 1
    wait: Annotated[
        int,
        Meta(
            ge=0, le=LIMITS.receive_wait_seconds, description="Seconds to wait until there is one."
        ),
    ] = LIMITS.receive_wait_seconds
    window: Annotated[
        Window | None, Meta(description="Of these messages. Absent: the channel's.")
    ] = None


class PolledMessage(Struct):
    """A message as you got it: it is yours until `ack_by`."""

    id: MessageId
    message_id: Annotated[str, Meta(description="As SQS calls it.")]
    payload: JsonMessage
    headers: Annotated[Raw, Meta(description="An object.", extra_json_schema={"type": "object"})]
    priority: Priority
    deliveries: Annotated[int, Meta(ge=1, description="How many times it was handed out.")]
    published_at: datetime
    expires_at: Annotated[
        datetime | None,
        Meta(
            description="From then on nobody gets it. Null: it has no `ttl`, or comes in order, "
            "where it is not told."
        ),
    ]
    ack_by: Annotated[datetime, Meta(description="When somebody else may get it.")]
    ack: Annotated[str, Meta(description="Of this delivery: give it back to acknowledge.")]


class Polled(Struct):
    """What there was, the most urgent first."""

    messages: list[PolledMessage]


class Acks(Struct, forbid_unknown_fields=True):
    """Messages that you have dealt with."""

    channel: ChannelName
    acks: Token | Tokens


class Nacks(Struct, forbid_unknown_fields=True):
    """Messages that you cannot deal with."""

    channel: ChannelName
    acks: Token | Tokens
    delay: Annotated[
        int,
        Meta(
            ge=0,
            le=LIMITS.visibility_timeout_seconds,
            description="Seconds until somebody may get them. Until then they are still yours.",
        ),
    ] = 0


class AckResult(Struct):
    """What became of one message."""

    ack: str
    result: Annotated[
        Became,
        Meta(
            description="`gone`: it is not there any more; it was acknowledged before, has expired "
            "or is a dead letter. `received_again`: you were too late, somebody else has got it, "
            "and nothing was done."
        ),
    ]


class AckResults(Struct):
    """What became of each message, in their order."""

    results: list[AckResult]


async def _poll(call: Call) -> Answer:
    channel = await channel_of(call, call.query.channel)
    show = _showing(call, channel)
    shown = await receive_shown(call.engine, call.caller, channel, _asked(call), show)
    return Answer(200, Polled(shown))


def _begin_polling(call: Call) -> Begun | None:
    engine, request = call.engine, _asked(call)
    channel = known_channel_of(call, call.query.channel)
    if channel is None or request.max_messages > MESSAGES_AT_ONCE:
        return None
    show = _showing(call, channel)

    def answer(received: list[Received]) -> Answer | Awaitable[Answer]:
        if is_short(received):
            steps = shown_in_steps(engine, channel, request, received, show)
            return Answer(200, Polled(run_at_once(steps)))
        return later(received)

    async def later(received: list[Received]) -> Answer:
        return Answer(200, Polled(await show_received(engine, channel, request, received, show)))

    return Begun(partial(start_receiving, engine, channel, request), answer)


def _asked(call: Call) -> ReceiveMany:
    query: PollQuery = call.query
    return ReceiveMany(query.max, query.window, query.wait, kind=Leasing)


def _showing(call: Call, channel: Queue) -> Callable[[Received, datetime], PolledMessage]:
    return lambda message, ack_by: polled(message, ack_by, token_of(call.engine, channel, message))


def polled(message: Received, ack_by: datetime, token: str) -> PolledMessage:
    """A message as its receiver sees it."""
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


async def _acknowledge(call: Call) -> Answer:
    channel, tokens = await existing_channel_of(call, call.body.channel), _tokens(call.body)
    outcomes = await acknowledge(call.engine, call.caller, channel, tokens)
    return Answer(200, results_of(tokens, outcomes, "acknowledged"))


def _begin_acknowledging(call: Call) -> Begun | None:
    channel, tokens = known_channel_of(call, call.body.channel), _tokens(call.body)
    if channel is None:
        return None
    return Begun(
        partial(start_acknowledging, call.engine, channel, tokens),
        lambda outcomes: Answer(200, results_of(tokens, outcomes, "acknowledged")),
    )


async def _give_back(call: Call) -> Answer:
    channel, tokens = await existing_channel_of(call, call.body.channel), _tokens(call.body)
    outcomes = await give_back(call.engine, call.caller, channel, tokens, call.body.delay)
    return Answer(200, results_of(tokens, outcomes, "returned"))


def _tokens(asked: Acks | Nacks) -> list[str]:
    return [asked.acks] if isinstance(asked.acks, str) else asked.acks


def results_of(tokens: list[str], outcomes: list[Outcome], done: Became) -> AckResults:
    """What became of messages; ``done``: what was to be done."""
    results = [
        AckResult(token, _BECAME.get(outcome, done))
        for token, outcome in zip(tokens, outcomes, strict=True)
    ]
    return AckResults(results)


_ACK = "QGS2AAAAAQAAAAAAAAQSAAAAAXOsS4Dd2vxLJ8a1tQ0q"
_POLLED = {
    "id": 1042,
    "message_id": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
    "payload": {"disk": "full", "host": "db-1"},
    "headers": {},
    "priority": 10,
    "deliveries": 1,
    "published_at": "2030-01-31T09:00:00Z",
    "expires_at": "2030-01-31T09:05:00Z",
    "ack_by": "2030-01-31T09:00:30Z",
    "ack": _ACK,
}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "GET",
        "/v1/messages/poll",
        "pollMessages",
        "Poll a channel",
        "Answers as soon as there is a message, with those that are there: the most urgent "
        "first, among equals the oldest. Each is yours until `ack_by`; unless you acknowledge it, "
        "it comes again, and after as many deliveries as the channel allows it is a dead letter. "
        "HEAD is not possible: asking hides messages.",
        _TAG,
        _poll,
        (
            Answered(
                200, Polled, "Messages; none when the wait was in vain.", {"messages": [_POLLED]}
            ),
        ),
        refusals=(404, 429),
        query=PollQuery,
        is_safe=False,
        begin=_begin_polling,
        may_wait=True,
        right="sqs:ReceiveMessage",
    ),
    Endpoint(
        "POST",
        "/v1/messages/ack",
        "acknowledgeMessages",
        "Acknowledge messages",
        "Only whoever got a message last can. Too late is not too late as long as nobody else has "
        "got it. To repeat this changes nothing.",
        _TAG,
        _acknowledge,
        (
            Answered(
                200,
                AckResults,
                "What became of each.",
                {"results": [{"ack": _ACK, "result": "acknowledged"}]},
            ),
        ),
        begin=_begin_acknowledging,
        body=Acks,
        example={"channel": "alerts", "acks": [_ACK]},
        right="sqs:DeleteMessage",
    ),
    Endpoint(
        "POST",
        "/v1/messages/nack",
        "returnMessages",
        "Give messages back",
        "Others get them at once, or `delay` seconds from now, which gives you more time, too. "
        "Each delivery counts all the same. Only whoever got a message last can.",
        _TAG,
        _give_back,
        (
            Answered(
                200,
                AckResults,
                "What became of each.",
                {"results": [{"ack": _ACK, "result": "returned"}]},
            ),
        ),
        body=Nacks,
        example={"channel": "alerts", "acks": _ACK, "delay": 60},
        right="sqs:ChangeMessageVisibility",
    ),
)
