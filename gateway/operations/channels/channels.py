"""Channels: a channel is a queue of that name, created at first use. Settings and counts of
channels."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.authorization import (
    check_right,
    find_queue,
    known_own_queue,
)
from queuegate.gateway.operations.queues.queues import (
    CreateQueue,
    create_queue,
    dead_letter_queue,
    locked_queue,
    metrics,
)
from queuegate.gateway.operations.telemetry.throughput import ChannelRates, ChannelTotals
from queuegate.protocol import arns, names
from queuegate.storage.queues import stored_queues
from queuegate.storage.queues.priority_lanes import priority_depths
from queuegate.storage.storage_errors import (
    InvalidParameterValue,
    QueueDoesNotExist,
    QueueNameExists,
    QueueNameInvalid,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.queues.queues import MeasuredQueue
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.queue_model import Queue


CREATE = "sqs:CreateQueue"
"""The additional right to create a channel at first use."""


async def find_channel(
    engine: Engine, caller: Caller, right: str, name: str, *, most_messages: int | None = None
) -> Queue:
    """Return the caller's queue of that name. If there is none, create a standard queue with
    priorities, with the gateway's defaults and at most ``most_messages`` messages.

    Raises QueueNameInvalid, AccessDenied, QueueNameExists if the queue was created concurrently
    with another size, and QueueDoesNotExist for the name of a FIFO queue, which is not created.
    """
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
    """Return the settings of a channel."""
    deliveries = channel.max_deliveries
    if channel.dead_letter_arn is not None:
        deliveries = channel.max_receive_count
    return ChannelSettings(channel.visibility_timeout_seconds, deliveries, channel.most_messages)


Change = Callable[[ChannelSettings], ChannelSettings]
"""Returns the new settings from the present ones."""


async def set_up(
    engine: Engine, caller: Caller, right: str, name: str, change: Change
) -> tuple[Queue, bool]:
    """Return the channel with these settings, and True if it was created.

    Raises errors of ``find_channel``, and QueueNameExists if the channel has another size.
    """
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
    """Age of the next message since it was published."""


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
    return ChannelNumbers(
        found, waiting, held, totals, engine.throughput.rates(found.queue, totals)
    )


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
