"""Queues as a whole: create, find, list, look at, change, purge, delete."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.queues.dead_letters import check_dead_letter_queue
from queuegate.gateway.operations.queues.live_queues import current, locked
from queuegate.protocol import names
from queuegate.protocol.arns import queue_arn
from queuegate.storage.errors import (
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
    QueueNameInvalid,
    Unavailable,
)
from queuegate.storage.model import Counts, Queue
from queuegate.storage.queues import queues, waiting
from queuegate.storage.queues.kinds import kind_of

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.database import Transaction

_CREATE_ATTEMPTS = 5
_PURGED_PER_BATCH = 2_000


Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""From what is there to what is to be; it may refuse."""


@dataclass(frozen=True, slots=True)
class Archiving:
    """Whether messages that receivers delete are kept, and for how many days; None: for good."""

    is_archiving: bool
    archive_days: int | None


@dataclass(frozen=True, slots=True)
class CreateQueue:
    """A queue to create: a FIFO queue if its name says so. ``attributes`` as they are stored."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    dead_letter_arn: str | None = None
    """The queue that the attributes name for dead letters."""
    archiving: Archiving | None = None
    """None: off for a new queue, and not compared with what an existing one does."""
    most_messages: int | None = None
    """How many messages it may hold: it stays with that. None: any number, and not compared with
    that of an existing one."""
    is_serial: bool = False
    """As in ``Queue``. An existing queue must be so, too; one that is so is as good as a standard
    queue."""
    blocked_seconds: int = 0
    """How long the name of a deleted queue cannot be used again."""
    title: str | None = None
    """As its owner calls it; None: by its name."""
    max_deliveries: int | None = None
    has_priorities: bool = False
    """These as in ``Queue``; an existing one is not compared with them."""


class Created(NamedTuple):
    """``is_new`` False: the queue was there, with attributes and tags of its own."""

    queue: Queue
    is_new: bool


def is_fifo_name(name: str) -> bool:
    """Whether a queue of that name is a FIFO queue. Raises QueueNameInvalid."""
    is_fifo = name.endswith(names.FIFO_SUFFIX)
    fits = names.is_fifo_queue_name if is_fifo else names.is_standard_queue_name
    if not fits(name):
        raise QueueNameInvalid(name, is_fifo=is_fifo)
    return is_fifo


async def create_queue(engine: Engine, caller: Caller, request: CreateQueue) -> Created:
    """The new queue, or the one that has the name.

    Any number of creators of one name get the same queue. Raises QueueNameInvalid,
    QueueDeletedRecently, QuotaReached, DeadLetterQueueUnfit, and QueueNameExists when the
    existing one archives otherwise than asked, is of another size, or is not serial as asked.
    """
    archiving = request.archiving or Archiving(False, None)
    new = queues.NewQueue(
        caller.account_id,
        caller.region,
        request.name,
        is_fifo_name(request.name),
        request.attributes,
        request.tags,
        archiving.is_archiving,
        archiving.archive_days,
        engine.rules.default_visibility_timeout_seconds,
        request.title,
        most_messages=request.most_messages,
        has_priorities=request.has_priorities,
        max_deliveries=request.max_deliveries,
        is_serial=request.is_serial,
    )
    if new.is_fifo and new.is_serial:
        raise QueueNameInvalid(request.name, is_fifo=False)
    # A queue that is deleted between a refused insert and the look at it is created after all.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            queue = await queues.find(tx, new.account_id, new.region, new.name)
            if queue is not None:
                _check_archiving(queue, request.archiving)
                if request.most_messages not in (None, queue.most_messages):
                    raise QueueNameExists("max_messages")
                if request.is_serial and not queue.is_serial:
                    raise QueueNameExists("serial")
                return Created(queue, False)
            queue = await _create(engine, tx, new, request)
        if queue is not None:
            engine.wakeups.queue_changed(queue.queue_id)
            return Created(queue, True)
    raise Unavailable("The queue is being created and deleted by others.")


def _check_archiving(queue: Queue, wanted: Archiving | None) -> None:
    if wanted is None:
        return
    if queue.is_archiving != wanted.is_archiving:
        raise QueueNameExists("archive")
    if queue.archive_days != wanted.archive_days:
        raise QueueNameExists("archive_days")


async def _create(
    engine: Engine, tx: Transaction, new: queues.NewQueue, request: CreateQueue
) -> Queue | None:
    """The created queue, or None when another creator was faster."""
    now = engine.clock.of(new.account_id).now()
    seconds = request.blocked_seconds
    if seconds and await queues.was_deleted_recently(
        tx, now, account_id=new.account_id, region=new.region, name=new.name, seconds=seconds
    ):
        raise QueueDeletedRecently(seconds)
    await engine.quotas.check_room(tx, new.account_id, "queues")
    if request.dead_letter_arn is not None:
        arn = queue_arn(new.region, new.account_id, new.name)
        order = kind_of(is_fifo=new.is_fifo, is_serial=new.is_serial).order
        await check_dead_letter_queue(tx, request.dead_letter_arn, arn, order=order)
    return await queues.create(tx, now, new)


async def list_names(
    engine: Engine, caller: Caller, *, prefix: str, after: str, limit: int
) -> tuple[list[str], bool]:
    """Names of the caller's live queues in the caller's region, behind ``after`` in byte order, and
    whether there are more."""
    async with engine.database.transaction() as tx:
        found = await queues.list_names(
            tx, caller.account_id, caller.region, prefix=prefix, after_name=after, limit=limit + 1
        )
    return found[:limit], len(found) > limit


async def list_queues(
    engine: Engine, caller: Caller, *, prefix: str, after: str, limit: int
) -> tuple[list[Queue], bool]:
    """The queues of ``list_names``, and whether there are more."""
    found, has_more = await list_names(engine, caller, prefix=prefix, after=after, limit=limit)
    keys = [(caller.account_id, caller.region, name) for name in found]
    known = await engine.queues.find_many(keys)
    # One that was deleted meanwhile is left out.
    return [queue for key in keys if (queue := known[key]) is not None], has_more


async def list_dead_letter_sources(
    engine: Engine, caller: Caller, queue: Queue, *, after_queue_id: int, limit: int
) -> tuple[list[queues.SourceQueue], bool]:
    """The queues whose dead-letter queue this one is, oldest first, and whether there are more."""
    async with engine.database.transaction() as tx:
        queue = await current(tx, queue)
        found = await queues.dead_letter_sources(
            tx, queue.arn, after_queue_id=after_queue_id, limit=limit + 1
        )
    return found[:limit], len(found) > limit


async def look(engine: Engine, caller: Caller, queue: Queue) -> Queue:
    """The queue as it is now. Raises QueueDoesNotExist."""
    async with engine.database.transaction() as tx:
        return await current(tx, queue)


async def count(engine: Engine, caller: Caller, queue: Queue) -> tuple[Queue, Counts]:
    """The queue as it is now, and how many messages it holds, in a time that does not depend on how
    many these are."""
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await current(tx, queue)
        return queue, await queue.kind.count(tx, now, queue.queue_id)


class Metrics(NamedTuple):
    """What a queue holds. Ages are whole seconds, None of an empty queue."""

    queue: Queue
    counts: Counts
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
        counts = await queue.kind.count(tx, now, queue.queue_id)
        ages = await queue.kind.ages(tx, now, queue.queue_id)
        total = await queues.total_arrived(tx, queue.queue_id)
    newest, oldest = _seconds(ages.newest_at, ages.now), _seconds(ages.oldest_at, ages.now)
    return Metrics(queue, counts, newest, oldest, total, ages.now)


def _seconds(sent_at: datetime | None, now: datetime) -> int | None:
    return None if sent_at is None else max(int((now - sent_at).total_seconds()), 0)


async def change_attributes(
    engine: Engine,
    caller: Caller,
    queue: Queue,
    change: Change,
    *,
    dead_letter_arn: str | None = None,
) -> None:
    """Replace the attributes by what ``change`` makes of them, while nobody else changes the queue;
    "" unsets one. ``dead_letter_arn``: the queue that it names for dead letters.

    Raises what ``change`` raises, DeadLetterQueueUnfit, QueueDoesNotExist.
    """
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await locked(tx, queue)
        if dead_letter_arn is not None:
            await check_dead_letter_queue(tx, dead_letter_arn, queue.arn, order=queue.kind.order)
        changed = queues.with_attributes(queue, change(queue.attributes))
        await queues.set_attributes(tx, now, changed)
        delayed = 0
        if changed.delay_seconds != queue.delay_seconds:
            delayed = await queue.kind.set_delay(tx, now, queue.queue_id, changed.delay_seconds)
    engine.wakeups.queue_changed(queue.queue_id)
    if delayed:
        engine.wakeups.arrived(queue.queue_id, delayed)


async def change_tags(engine: Engine, caller: Caller, queue: Queue, change: Change) -> None:
    """The same of the tags: names with values that mean nothing to us."""
    async with engine.database.transaction() as tx:
        queue = await locked(tx, queue)
        await queues.set_tags(tx, queue.queue_id, change(queue.tags))
    engine.wakeups.queue_changed(queue.queue_id)


async def set_paused(engine: Engine, queue: Queue, *, is_paused: bool) -> None:
    """Pause or resume the queue: until it is resumed, receives find nothing. Sends, deletes and
    changes of visibility go on. Raises QueueDoesNotExist."""
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        await locked(tx, queue)
        await queues.set_paused(tx, now, queue.queue_id, is_paused=is_paused)
    engine.wakeups.queue_changed(queue.queue_id)


async def purge_queue(
    engine: Engine, caller: Caller, queue: Queue, *, interval_seconds: int | None = None
) -> int:
    """Delete every message that the queue holds now, in flight and delayed ones too, and forget its
    deduplication ids; how many they were. What is sent while this runs stays. What waits for room
    in the queue goes, too, uncounted.

    ``interval_seconds``: refuse with PurgeQueueInProgress when the last such purge began less than
    that ago. Raises QueueDoesNotExist.
    """
    async with engine.database.transaction() as tx:
        await locked(tx, queue)
        if interval_seconds is not None:
            now = engine.clock.of(queue.account_id).now()
            if not await queues.mark_purged(
                tx, now, queue.queue_id, interval_seconds=interval_seconds
            ):
                raise PurgeQueueInProgress(queue.name, interval_seconds)
        last_sequence = await queue.kind.last_number(tx)
        last_waiting = await waiting.last(tx, queue.queue_id) if queue.most_messages else 0
    # First, or they would go in where others are deleted.
    while last_waiting:
        async with engine.database.transaction() as tx:
            gone = await waiting.drop(tx, queue.queue_id, _PURGED_PER_BATCH, up_to=last_waiting)
        last_waiting = last_waiting if gone else 0
    if engine.refuses_sends:
        # A purge makes room, and needs some until it has.
        engine.database.availability.on_disk_full()
    deleted = 0
    after: int | None = 0
    # In short transactions, for there may be millions.
    while after is not None:
        async with engine.database.transaction() as tx:
            step = await queue.kind.purge(
                tx, queue.queue_id, up_to=last_sequence, after=after, limit=_PURGED_PER_BATCH
            )
        deleted += step.messages
        after = step.after
    return deleted


async def delete_queue(engine: Engine, caller: Caller, queue: Queue) -> None:
    """Delete the queue and all that it holds, with the dead-letter queue that was made for it.

    From the commit on nothing is sent to it or received from it; a worker removes the messages.
    """
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        deleted = await queues.delete(tx, now, queue.queue_id)
    for queue_id in {queue.queue_id, *deleted}:
        engine.wakeups.queue_changed(queue_id)
    if not deleted:
        raise QueueDoesNotExist
    for queue_id in deleted:
        # A receive that waits there finds out now, not at the end of its wait.
        engine.wakeups.arrived(queue_id, 1 << 30)
