"""Publishing to channels."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from queuegate.gateway.faces.channels.refusals import status_of, text_of
from queuegate.gateway.faces.channels.words import ChannelName, known_channel_of
from queuegate.gateway.faces.json.endpoints import Answer, Answered, Begun, Call, Endpoint
from queuegate.gateway.faces.json.message_members import (
    Delay,
    FifoId,
    Headers,
    MessageId,
    Priority,
    Ttl,
)
from queuegate.gateway.operations.access.authorization import SEND
from queuegate.gateway.operations.channels.channel_messages import (
    ChannelMessage,
    PublishedToChannel,
    PublishOutcome,
    publish,
    publish_one,
    published,
    start_publishing,
)
from queuegate.gateway.operations.runtime.limits import LIMITS
from queuegate.storage.errors import Rejected

_TAG = "publish"

Payload = Annotated[
    Raw,
    Meta(
        description="Any JSON value. Receivers over SQS get its text, as you wrote it; what they "
        "send comes here as it is if it is JSON, else as a string."
    ),
]


class NewMessage(Struct, forbid_unknown_fields=True):
    """A message to publish. Only channels that are FIFO queues take `group_id` (they need it) and
    `deduplication_id`; they take no `priority`."""

    channel: ChannelName
    payload: Payload
    priority: Priority = 0
    ttl: Ttl | None = None
    headers: Headers | None = None
    delay: Delay | None = None
    group_id: FifoId | None = None
    deduplication_id: FifoId | None = None


class PublishedMessage(Struct):
    """A message that was published."""

    channel: str
    id: MessageId
    message_id: Annotated[str, Meta(description="As SQS calls it.")]


class Result(Struct):
    """What became of one message: its ids, or why it was refused and with which status."""

    channel: str
    id: MessageId | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    status: Annotated[int, Meta(ge=400, le=599)] | UnsetType = UNSET


class Results(Struct):
    """What became of each message, in their order."""

    results: list[Result]


def _publication(new: NewMessage) -> ChannelMessage:
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


async def _publish(call: Call) -> Answer:
    return _done(call, await publish_one(call.engine, call.caller, _publication(call.body)))


def _begin_publishing(call: Call) -> Begun | None:
    channel = known_channel_of(call, call.body.channel)
    if channel is None or not call.engine.rates.take_at_once(call.caller):
        return None
    return Begun(
        partial(start_publishing, call.engine, call.caller, channel, _publication(call.body)),
        lambda sent: _done(call, published(sent[0])),
    )


def _done(call: Call, message: PublishedToChannel) -> Answer:
    number, message_id = message
    return Answer(201, PublishedMessage(call.body.channel, number, message_id))


async def _publish_many(call: Call) -> Answer:
    publications = [_publication(new) for new in call.body]
    outcomes = await publish(call.engine, call.caller, publications)
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


_NEW = {
    "channel": "alerts",
    "payload": {"disk": "full", "host": "db-1"},
    "priority": 10,
    "ttl": 300,
}
_PUBLISHED = {
    "channel": "alerts",
    "id": 1042,
    "message_id": "0f1a2b3c-5d6e-4f70-8a9b-0c1d2e3f4a5b",
}
_REFUSED = {"channel": "alerts", "error": "the message is too large.", "status": 400}

ENDPOINTS: tuple[Endpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/messages",
        "publishMessage",
        "Publish a message",
        "It is on disk when this is answered. The channel is made if it is not there.",
        _TAG,
        _publish,
        (Answered(201, PublishedMessage, "The message.", _PUBLISHED),),
        begin=_begin_publishing,
        refusals=(404, 429),
        carries_messages=True,
        body=NewMessage,
        example=_NEW,
        right=SEND,
    ),
    Endpoint(
        "POST",
        "/v1/messages/bulk",
        "publishMessages",
        f"Publish up to {LIMITS.published_at_once} messages",
        "To any channels. Each message has an outcome of its own, so that what was refused can be "
        "repeated alone; those for one channel that are not wrong in themselves are published "
        "together or not at all. Nothing is published when one channel cannot be called so, or may "
        "not be published to.",
        _TAG,
        _publish_many,
        (
            Answered(201, Results, "All were published.", {"results": [_PUBLISHED]}),
            Answered(207, Results, "Some were not published.", {"results": [_PUBLISHED, _REFUSED]}),
        ),
        refusals=(404, 429),
        carries_messages=True,
        body=Annotated[list[NewMessage], Meta(min_length=1, max_length=LIMITS.published_at_once)],
        example=[_NEW, {"channel": "analytics", "payload": "page seen"}],
        right=SEND,
    ),
)
