"""Queues by name for clients who create none: a text queue is made when it is first sent to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuegate.gateway.operations.access import check_right, find_own_queue, own_arn
from queuegate.gateway.operations.queues.queues import CreateQueue, create_queue
from queuegate.protocol import names
from queuegate.storage.errors import QueueDoesNotExist

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Queue

DEFAULT_QUEUE = "default"
"""Of who names none."""
_CREATE = "sqs:CreateQueue"


async def find_or_make(engine: Engine, caller: Caller, right: str, name: str) -> Queue:
    """The caller's queue of that name, of whatever kind; where there is none, a new serial queue,
    for whoever may create it. Raises QueueDoesNotExist where no serial queue can be called so, and
    AccessDenied."""
    try:
        return await find_own_queue(engine, caller, right, name)
    except QueueDoesNotExist:
        if not names.is_standard_queue_name(name):
            raise
    check_right(engine, caller, _CREATE, own_arn(caller, _CREATE, name))
    return (await create_queue(engine, caller, CreateQueue(name, is_serial=True))).queue


async def find(engine: Engine, caller: Caller, right: str, name: str) -> Queue | None:
    """The caller's queue of that name; None: nobody has sent anything to the default queue yet.
    Raises QueueDoesNotExist for other names, and AccessDenied."""
    try:
        return await find_own_queue(engine, caller, right, name)
    except QueueDoesNotExist:
        if name != DEFAULT_QUEUE:
            raise
        return None
