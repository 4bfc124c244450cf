"""Channels: a channel is a queue of that name, made when somebody first uses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.gateway.operations.access import check_right, find_queue, known_own_queue
from queuegate.gateway.operations.queues.queues import CreateQueue, create_queue
from queuegate.protocol import arns, names
from queuegate.storage.errors import QueueDoesNotExist, QueueNameInvalid

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Queue

CREATE = "sqs:CreateQueue"
"""What whoever uses a channel first needs beside the right to use it."""


async def find_channel(
    engine: Engine, caller: Caller, right: str, name: str, *, most_messages: int | None = None
) -> Queue:
    """The caller's queue of that name; if there is none, a standard queue with priorities is made,
    as the gateway is set to make them, for so many messages at most.

    Raises QueueNameInvalid, AccessDenied, QueueNameExists when somebody made one of another size
    meanwhile, and QueueDoesNotExist for the name of a FIFO queue: these are not made so.
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
    """The caller's queue of exactly that name. Raises QueueNameInvalid, AccessDenied,
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
