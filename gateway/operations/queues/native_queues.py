"""Queues as the native API sees them: found by short names, created twice without complaint, looked
at, listed, emptied at any time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from gateway.operations.queues import queue_contents, queues
from gateway.operations.queues.live_queues import current, locked
from gateway.operations.queues.queues import Archiving, CreateQueue
from protocol import names
from storage.errors import InvalidParameterValue, QueueDoesNotExist
from storage.model import Queue
from storage.queues import queue_ages
from storage.queues import queues as stored_queues

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine

_SUFFIX = ".fifo"


async def find(engine: Engine, caller: Caller, name: str) -> Queue:
    """The queue of that name, else the FIFO queue of that name without its suffix.

    Raises QueueDoesNotExist with the name.
    """
    key = (caller.account_id, caller.region, name)
    known = engine.queues.cached(*key)
    if known is not None:
        return known
    keys = []
    if names.is_standard_queue_name(name):
        keys = [key, (caller.account_id, caller.region, name + _SUFFIX)]
    elif names.is_fifo_queue_name(name):
        keys = [key]
    found = await engine.queues.find_many(keys)
    for key in keys:
        queue = found[key]
        if queue is not None:
            return queue
    raise QueueDoesNotExist(name)


async def create(
    engine: Engine, caller: Caller, name: str, *, is_fifo: bool, archiving: Archiving | None
) -> Queue:
    """The new queue, or the one that is there already; ``name`` may lack the suffix of FIFO queues.

    Raises InvalidParameterValue, and QueueNameExists when the existing one archives otherwise than
    asked. A name can be used again as soon as its queue is deleted, unlike over SQS.
    """
    if name.endswith(_SUFFIX):
        is_fifo = True
    elif is_fifo:
        name += _SUFFIX
    if not (names.is_fifo_queue_name(name) if is_fifo else names.is_standard_queue_name(name)):
        raise InvalidParameterValue(
            f"A queue cannot be called '{name[:100]}'. Allowed are letters, digits, hyphens and "
            f"underscores, at most {75 if is_fifo else 80} of them, and {_SUFFIX} at the end of "
            "the name of a FIFO queue."
        )
    attributes = {"FifoQueue": "true"} if is_fifo else {}
    request = CreateQueue(name, attributes, {}, archiving, may_follow_deletion=True)
    return await queues.create_queue(engine, caller, request)


async def list_page(
    engine: Engine, caller: Caller, *, prefix: str, after: str, limit: int
) -> tuple[list[Queue], bool]:
    """Live queues by name in byte order, behind ``after``, and whether there are more."""
    async with engine.database.transaction() as tx:
        found = await stored_queues.list_names(
            tx, caller.account_id, caller.region, prefix=prefix, after_name=after, limit=limit + 1
        )
    keys = [(caller.account_id, caller.region, name) for name in found[:limit]]
    known = await engine.queues.find_many(keys)
    # One that was deleted meanwhile is left out.
    return [queue for key in keys if (queue := known[key]) is not None], len(found) > limit


@dataclass(frozen=True, slots=True)
class Metrics:
    """What a queue holds. Ages are whole seconds, None of an empty queue."""

    queue: Queue
    visible: int
    in_flight: int
    delayed: int
    newest_age_seconds: int | None
    oldest_age_seconds: int | None
    total: int
    """Messages that ever came in."""
    looked_at: datetime


async def metrics(engine: Engine, caller: Caller, queue: Queue) -> Metrics:
    """The numbers of one queue, in a time that does not depend on its depth.

    Raises QueueDoesNotExist.
    """
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await current(tx, queue)
        counts = await queue_contents.count(tx, now, queue)
        ages = await queue_ages.ages(tx, now, queue)
        total = await stored_queues.total_arrived(tx, queue.queue_id)
    return Metrics(
        queue,
        counts.visible,
        counts.in_flight,
        counts.delayed,
        _seconds(ages.newest_at, ages.now),
        _seconds(ages.oldest_at, ages.now),
        total,
        ages.now,
    )


def _seconds(sent_at: datetime | None, now: datetime) -> int | None:
    return None if sent_at is None else max(int((now - sent_at).total_seconds()), 0)


async def purge(engine: Engine, caller: Caller, queue: Queue) -> int:
    """Delete every message that the queue holds now, in flight and delayed ones too; how many.

    What is sent meanwhile stays. May be called at any time, unlike SQS's PurgeQueue. Raises
    QueueDoesNotExist.
    """
    async with engine.database.transaction() as tx:
        await locked(tx, queue)
        last_sequence = await queue_contents.last_sequence(tx, queue)
    return await queue_contents.empty(engine, queue, last_sequence)
