"""Channels: queues that are created at first use. Their settings, counts, messages and dead
letters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.authorization import (
    SEND,
    check_found,
    check_right,
    find_queue,
    known_own_queue,
)
from queuegate.gateway.operations.queues.dead_letter_moves import (
    RequeuedMessages,
    requeue,
    requeue_all,
)
from queuegate.gateway.operations.queues.json_messages import attributes_of, body_of
from queuegate.gateway.operations.queues.queues import (
    CreateQueue,
    MeasuredQueue,
    create_queue,
    dead_letter_queue,
    locked_queue,
    metrics,
)
from queuegate.gateway.operations.queues.sends import SendRequest, checked, queue_for, send
from queuegate.gateway.operations.queues.stored_messages import Browse, BrowseResult, browse
from queuegate.gateway.operations.runtime.background_tasks import yield_to_loop
from queuegate.gateway.operations.runtime.replies import answered
from queuegate.gateway.operations.telemetry.series import ChannelRates, ChannelTotals
from queuegate.protocol import arns, names
from queuegate.storage.queue_model import NewMessage, Queue, SentMessage
from queuegate.storage.queues import stored_queues
from queuegate.storage.queues.depths import priority_depths
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    QueueDoesNotExist,
    QueueFull,
    QueueNameExists,
    QueueNameInvalid,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.lanes import Reply


CREATE = "sqs:CreateQueue"
"""The additional right to create a channel at first use."""


async def find_channel(
    engine: Engine, caller: Caller, right: str, name: str, *, most_messages: int | None = None
) -> Queue:
    """Return the caller's queue of that name. If there is none, create a standard queue with
    priorities, with the gateway's defaults and at most ``most_messages`` messages. Raises
    QueueNameInvalid, AccessDenied, QueueNameExists if the queue was created concurrently with
    another size, and QueueDoesNotExist for the name of a FIFO queue, which is not created."""
    try:
        return await find_existing_channel(engine, caller, right, name)
    except QueueDoesNotExist:
        if not names.is_standard_queue_name(name):
            raise
    check_right(engine, caller, CREATE, arns.queue_arn(caller.region, caller.account_id, name))
    rules = engine.rules
    request = CreateQueue(
        name,
        {"VisibilityTimeout": str(rules.channel_ack_window_seconds)},
        has_priorities=True,
        max_deliveries=rules.channel_max_deliveries or None,
        most_messages=most_messages,
    )
    return (await create_queue(engine, caller, request)).queue


async def find_existing_channel(engine: Engine, caller: Caller, right: str, name: str) -> Queue:
    """Return the caller's queue of exactly that name. Raises QueueNameInvalid, AccessDenied and
    QueueDoesNotExist."""
    known = known_own_queue(engine, caller, right, name)
    if known is not None:
        return known
    if not (names.is_standard_queue_name(name) or names.is_fifo_queue_name(name)):
        raise QueueNameInvalid(name, is_fifo=False)
    try:
        return await find_queue(engine, caller, right, caller.account_id, caller.region, name)
    except QueueDoesNotExist:
        raise QueueDoesNotExist(name) from None


class ChannelSettings(NamedTuple):
    """The settings of a channel."""

    ack_window_seconds: int
    """Time to acknowledge a message: the visibility timeout of the queue."""
    max_deliveries: int | None
    """None: messages are never dead-lettered."""
    most_messages: int | None
    """Maximum number of messages; None: no limit. Fixed at creation."""


def settings_of(channel: Queue) -> ChannelSettings:
    deliveries = channel.max_deliveries
    if channel.dead_letter_arn is not None:
        deliveries = channel.max_receive_count
    return ChannelSettings(channel.visibility_timeout_seconds, deliveries, channel.most_messages)


Change = Callable[[ChannelSettings], ChannelSettings]


async def set_up(
    engine: Engine, caller: Caller, right: str, name: str, change: Change
) -> tuple[Queue, bool]:
    """Return the channel with these settings, and True if it was created. Raises errors of
    ``find_channel``, and QueueNameExists if the channel has another size."""
    try:
        channel = await find_existing_channel(engine, caller, right, name)
        is_new = False
    except QueueDoesNotExist:
        size = change(ChannelSettings(0, None, None)).most_messages
        channel = await find_channel(engine, caller, right, name, most_messages=size)
        is_new = True
    return await _changed(engine, channel, change), is_new


async def _changed(engine: Engine, channel: Queue, change: Change) -> Queue:
    now = engine.clock.of(channel.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await locked_queue(tx, channel)
        before = settings_of(queue)
        wanted = change(before)
        _check(engine, wanted)
        if wanted.most_messages != before.most_messages:
            raise QueueNameExists("size")
        changed = stored_queues.with_attributes(queue, _attributes(queue, wanted))
        await stored_queues.set_max_deliveries(tx, queue.queue_id, wanted.max_deliveries)
        await stored_queues.set_attributes(tx, now, changed)
        found = await stored_queues.find_by_id(tx, queue.queue_id)
    engine.wakeups.queue_changed(queue.queue_id)
    if found is None:
        raise QueueDoesNotExist(channel.name)
    return found


def _check(engine: Engine, wanted: ChannelSettings) -> None:
    limits = engine.limits
    most = limits.visibility_timeout_seconds
    if not 0 <= wanted.ack_window_seconds <= most:
        raise InvalidParameterValue(f"The acknowledgement window is 0 to {most} seconds.")
    if wanted.max_deliveries is not None and not 0 < wanted.max_deliveries <= limits.deliveries:
        raise InvalidParameterValue(f"A message has 1 to {limits.deliveries} deliveries.")


def _attributes(queue: Queue, wanted: ChannelSettings) -> dict[str, str]:
    """Return queue attributes. An existing redrive policy also has the maximum of deliveries."""
    attributes = {**queue.attributes, "VisibilityTimeout": str(wanted.ack_window_seconds)}
    if queue.dead_letter_arn is not None:
        policy = ""
        if wanted.max_deliveries is not None:
            policy = json.dumps(
                {
                    "deadLetterTargetArn": queue.dead_letter_arn,
                    "maxReceiveCount": wanted.max_deliveries,
                },
                separators=(",", ":"),
            )
        attributes["RedrivePolicy"] = policy
    return attributes


COUNTED = 10_000
"""Maximum number of messages that are counted for each priority."""


class PriorityNumbers(NamedTuple):
    """Counts of the visible messages with one priority."""

    priority: int
    visible: int
    oldest_age_seconds: int


class ChannelNumbers(NamedTuple):
    """Counts and rates of a channel."""

    metrics: MeasuredQueue
    priorities: list[PriorityNumbers]
    """Priorities with visible messages, the most urgent first."""
    dead_letters: int
    """Messages in the dead-letter queue, from all its sources; ``dead_total`` is the number of all
    so far."""
    totals: ChannelTotals
    rates: ChannelRates


async def numbers(engine: Engine, caller: Caller, channel: Queue) -> ChannelNumbers:
    """Return counts of a channel, in a time that does not depend on its depth. Raises
    QueueDoesNotExist."""
    found = await metrics(engine, caller, channel)
    waiting = await _priorities(engine, found)
    held, dead = 0, 0
    target = await dead_letter_queue(engine, found.queue)
    if target is not None:
        letters = await metrics(engine, caller, target)
        held, dead = _held(letters), letters.total
    totals = ChannelTotals(found.looked_at, found.total, max(found.total - _held(found), 0), dead)
    rates = engine.throughput.rates(channel.queue_id, channel.created_at, totals)
    return ChannelNumbers(found, waiting, held, totals, rates)


def _held(found: MeasuredQueue) -> int:
    return found.counts.visible + found.counts.in_flight + found.counts.delayed


async def _priorities(engine: Engine, found: MeasuredQueue) -> list[PriorityNumbers]:
    queue = found.queue
    if not queue.has_priorities:
        visible = found.counts.visible
        return [PriorityNumbers(0, visible, found.oldest_age_seconds or 0)] if visible else []
    async with engine.database.transaction() as tx:
        now = engine.clock.of(queue.account_id).now()
        depths = await priority_depths(tx, now, queue.queue_id, most=COUNTED)
    return [
        PriorityNumbers(
            one.priority,
            min(one.visible, COUNTED),
            max(int((one.now - one.oldest_at).total_seconds()), 0),
        )
        for one in depths
        if one.oldest_at is not None
    ]


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
    Raises the error of an invalid message."""
    message, size_bytes = _checked(engine, channel, publication)
    send(engine, caller, queue_for(channel, message), [message], size_bytes, reply, _HOW)


async def publish(
    engine: Engine, caller: Caller, publications: Sequence[ChannelMessage]
) -> list[PublishOutcome]:
    """Publish messages; return an outcome for each, in their order. Raises before anything is
    published if a channel's name is invalid or the caller may not publish to it. Invalid messages
    are left out. All others for one channel are sent together or not at all. Raises
    TooManyRequests; each message counts."""
    await engine.rates.take(caller, len(publications))
    names = dict.fromkeys([one.channel for one in publications])
    parts = {name: _ChannelPart(await find_channel(engine, caller, SEND, name)) for name in names}
    outcomes: dict[int, PublishOutcome] = {}
    for place, publication in enumerate(publications):
        part = parts[publication.channel]
        try:
            message, size_bytes = _checked(engine, part.channel, publication)
        except Rejected as refusal:
            outcomes[place] = refusal
        else:
            part.channel = queue_for(part.channel, message)
            part.messages.append(message)
            part.places.append(place)
            part.size_bytes += size_bytes
        if place % _MESSAGES_AT_ONCE == _MESSAGES_AT_ONCE - 1:
            await yield_to_loop()
    sent = [_send(engine, caller, part) for part in parts.values() if part.places]
    for some in await asyncio.gather(*sent):
        outcomes.update(some)
    return [outcomes[place] for place in range(len(publications))]


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
        sent: list[SentMessage] = await answered(
            partial(send, how=_HOW), engine, caller, part.channel, part.messages, part.size_bytes
        )
    except (Rejected, Unavailable) as error:
        return [(place, error) for place in part.places]
    return [(place, published(one)) for place, one in zip(part.places, sent, strict=True)]


def published(sent: SentMessage) -> PublishedToChannel:
    return PublishedToChannel(sent.sequence or 0, sent.message_id)


MOST_REQUEUED = 10_000
"""Approximate maximum of one request for all dead letters."""


async def list_dead_letters(
    engine: Engine, caller: Caller, right: str, channel: Queue, request: Browse
) -> BrowseResult:
    """Return a page of the channel's dead-letter queue, which other queues may share. Changes
    nothing. Raises AccessDenied, and errors of ``browse``."""
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
