"""Messages of channels: publish one, or many to several channels; list and requeue dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.authorization import SEND, check_found
from queuegate.gateway.operations.channels.channels import find_channel
from queuegate.gateway.operations.queues.dead_letter_moves import (
    RequeuedMessages,
    requeue,
    requeue_all,
)
from queuegate.gateway.operations.queues.json_messages import attributes_of, body_of
from queuegate.gateway.operations.queues.priorities import queue_for
from queuegate.gateway.operations.queues.queues import dead_letter_queue
from queuegate.gateway.operations.queues.sends import SendRequest, checked, send
from queuegate.gateway.operations.queues.stored_messages import Browse, BrowseResult, browse
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage.queue_model import NewMessage
from queuegate.storage.storage_errors import QueueFull, Rejected, Unavailable

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.queue_model import Queue, SentMessage


_HOW = SendRequest(wants_sequences=True)
_MESSAGES_AT_ONCE = 16


class ChannelMessage(NamedTuple):
    """A message for a channel. ``payload`` and headers are JSON texts."""

    channel: str
    payload: bytes
    headers: Mapping[str, bytes] | None = None
    priority: int = 0
    ttl_seconds: int | None = None
    delay_seconds: int | None = None
    group_id: str | None = None
    deduplication_id: str | None = None


class PublishedToChannel(NamedTuple):
    """A stored message. Its number is unique in its channel."""

    number: int
    message_id: str


PublishOutcome = PublishedToChannel | Rejected | Unavailable


class _ChannelPart:
    """The messages for one channel."""

    def __init__(self, channel: Queue) -> None:
        self.channel = channel
        self.places: list[int] = []
        self.messages: list[NewMessage] = []
        self.size_bytes = 0


async def publish_one(
    engine: Engine, caller: Caller, publication: ChannelMessage
) -> PublishedToChannel:
    """Publish a message. Raises the error of an invalid message."""
    await engine.rates.take(caller, 1)
    channel = await find_channel(engine, caller, SEND, publication.channel)
    [sent] = await answered(start_publishing, engine, caller, channel, publication)
    return published(sent)


def start_publishing(
    engine: Engine,
    caller: Caller,
    channel: Queue,
    publication: ChannelMessage,
    reply: Reply[list[SentMessage]],
) -> None:
    """Publish a message, whose permit was taken, to its channel. Pass the reply to ``published``.

    Raises the error of an invalid message.
    """
    message, size_bytes = _checked(engine, channel, publication)
    send(engine, caller, queue_for(channel, message), [message], size_bytes, reply, _HOW)


async def publish(
    engine: Engine, caller: Caller, publications: Sequence[ChannelMessage]
) -> list[PublishOutcome]:
    """Publish messages; return an outcome for each, in their order.

    Raises before anything is published if a channel's name is invalid or the caller may not publish
    to it. Invalid messages are left out. All others for one channel are sent together or not at
    all. Raises TooManyRequests; each message counts.
    """
    await engine.rates.take(caller, len(publications))
    names = dict.fromkeys([one.channel for one in publications])
    parts = {name: _ChannelPart(await find_channel(engine, caller, SEND, name)) for name in names}
    outcomes: dict[int, PublishOutcome] = {}
    for place, publication in enumerate(publications):
        try:
            _add(engine, parts[publication.channel], place, publication)
        except Rejected as refusal:
            outcomes[place] = refusal
        if place % _MESSAGES_AT_ONCE == _MESSAGES_AT_ONCE - 1:
            await yield_to_loop()
    sent = [_send(engine, caller, part) for part in parts.values() if part.places]
    for some in await asyncio.gather(*sent):
        outcomes.update(some)
    return [outcomes[place] for place in range(len(publications))]


def _add(engine: Engine, part: _ChannelPart, place: int, new: ChannelMessage) -> None:
    """Check a message, and add it to those for its channel."""
    message, size_bytes = _checked(engine, part.channel, new)
    part.channel = queue_for(part.channel, message)
    part.messages.append(message)
    part.places.append(place)
    part.size_bytes += size_bytes


def _checked(engine: Engine, channel: Queue, new: ChannelMessage) -> tuple[NewMessage, int]:
    """Return the message to send, and its size in bytes."""
    attributes, attribute_bytes = attributes_of(new.headers)
    message = NewMessage(
        body_of(new.payload),
        attributes,
        delay_seconds=new.delay_seconds,
        group_id=new.group_id,
        deduplication_id=new.deduplication_id,
        priority=new.priority or None,
        ttl_seconds=new.ttl_seconds,
    )
    return message, len(checked(engine, channel, message, attribute_bytes)) + attribute_bytes


async def _send(
    engine: Engine, caller: Caller, part: _ChannelPart
) -> list[tuple[int, PublishOutcome]]:
    try:
        sent: list[SentMessage] = await answered(_submit, engine, caller, part)
    except (Rejected, Unavailable) as error:
        return [(place, error) for place in part.places]
    return [(place, published(one)) for place, one in zip(part.places, sent, strict=True)]


def published(sent: SentMessage) -> PublishedToChannel:
    """Return the outcome of a sent message."""
    return PublishedToChannel(sent.sequence or 0, sent.message_id)


def _submit(
    engine: Engine, caller: Caller, part: _ChannelPart, reply: Reply[list[SentMessage]]
) -> None:
    send(engine, caller, part.channel, part.messages, part.size_bytes, reply, _HOW)


MOST_REQUEUED = 10_000
"""Approximate maximum of one request for all dead letters."""


async def list_dead_letters(
    engine: Engine, caller: Caller, right: str, channel: Queue, request: Browse
) -> BrowseResult:
    """Return a page of the channel's dead-letter queue, which other queues may share. Changes
    nothing.

    Raises AccessDenied, and errors of ``browse``.
    """
    target = await _target(engine, caller, right, channel)
    if target is None:
        return BrowseResult([], None, "0")
    return await browse(engine, caller, target, request)


async def requeue_dead_letters(
    engine: Engine, caller: Caller, right: str, channel: Queue, numbers: Sequence[int] | None
) -> RequeuedMessages:
    """Requeue dead letters to their source channels: those with these numbers, which they keep; or,
    with None, all dead letters of this channel, as new messages. Raises AccessDenied, and errors of
    ``requeue`` for the first."""
    check_found(engine, caller, SEND, channel)
    target = await _target(engine, caller, right, channel)
    if target is None:
        return RequeuedMessages(0, False)
    if numbers is None:
        return await requeue_all(engine, caller, target, channel, most=MOST_REQUEUED)
    count = 0
    for number in dict.fromkeys(numbers):
        try:
            count += await requeue(engine, caller, target, number) is not None
        except QueueFull:
            if count == 0:
                raise
            return RequeuedMessages(count, True)
    return RequeuedMessages(count, False)


async def _target(engine: Engine, caller: Caller, right: str, channel: Queue) -> Queue | None:
    target = await dead_letter_queue(engine, channel)
    if target is not None:
        check_found(engine, caller, right, target)
    return target
