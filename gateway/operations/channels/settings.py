"""The settings of a channel: its acknowledgement window, and after how many deliveries a message is
a dead letter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.channels.channels import find_channel, find_existing_channel
from queuegate.gateway.operations.queues.live_queues import locked
from queuegate.storage.errors import InvalidParameterValue, QueueDoesNotExist, QueueNameExists
from queuegate.storage.queues import queues

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Queue


class ChannelSettings(NamedTuple):
    """What the owner of a channel decides."""

    ack_window_seconds: int
    """In which a message has to be acknowledged: the visibility timeout of the queue."""
    max_deliveries: int | None
    """None: a message is never a dead letter."""
    most_messages: int | None
    """How many messages it may hold; None: any number. It stays with that."""


def settings_of(channel: Queue) -> ChannelSettings:
    """Those of a channel, whoever set them."""
    deliveries = channel.max_deliveries
    if channel.dead_letter_arn is not None:
        deliveries = channel.max_receive_count
    return ChannelSettings(channel.visibility_timeout_seconds, deliveries, channel.most_messages)


Change = Callable[[ChannelSettings], ChannelSettings]
"""From what is there to what is to be."""


async def set_up(
    engine: Engine, caller: Caller, right: str, name: str, change: Change
) -> tuple[Queue, bool]:
    """The channel with these settings, and whether it was made for this.

    Raises what ``find_channel`` raises, and QueueNameExists when it is there in another size.
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
        queue = await locked(tx, channel)
        before = settings_of(queue)
        wanted = change(before)
        _check(engine, wanted)
        if wanted.most_messages != before.most_messages:
            raise QueueNameExists("size")
        changed = queues.with_attributes(queue, _attributes(queue, wanted))
        await queues.set_max_deliveries(tx, queue.queue_id, wanted.max_deliveries)
        await queues.set_attributes(tx, now, changed)
        found = await queues.find_by_id(tx, queue.queue_id)
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
    """With the redrive policy, where there is one: it says how many deliveries there are, too."""
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
