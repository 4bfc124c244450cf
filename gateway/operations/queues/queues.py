"""Queues: create, find, list, count, change, purge and delete them; their dead-letter queues.

Also the queues of two faces: those of the text face, created at first use, and those of the simple
face, which have titles.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from secrets import token_hex
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from queuegate.gateway.operations.access.authorization import check_right, find_own_queue, own_arn
from queuegate.protocol import arns, names
from queuegate.protocol.arns import queue_arn
from queuegate.protocol.malformed import Malformed
from queuegate.storage.queue_model import Counts, Order, Queue
from queuegate.storage.queues import capacity, stored_queues
from queuegate.storage.queues.kinds import kind_of
from queuegate.storage.storage_errors import (
    DeadLetterQueueUnfit,
    PurgeQueueInProgress,
    QueueDeletedRecently,
    QueueDoesNotExist,
    QueueNameExists,
    QueueNameInvalid,
    Rejected,
    Unavailable,
)

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction


async def current_queue(tx: Transaction, queue: Queue) -> Queue:
    """Return the queue as it is now. Raises QueueDoesNotExist, also if another queue has taken its
    name."""
    found = await stored_queues.find(tx, queue.account_id, queue.region, queue.name)
    if found is None or found.queue_id != queue.queue_id:
        raise QueueDoesNotExist
    return found


async def locked_queue(tx: Transaction, queue: Queue) -> Queue:
    """Return the queue as it is now. Nobody can change it until the transaction ends. Raises
    QueueDoesNotExist."""
    found = await stored_queues.lock(tx, queue.queue_id)
    if found is None:
        raise QueueDoesNotExist
    return found


async def check_dead_letter_queue(
    tx: Transaction, arn: str, source_arn: str, *, order: Order
) -> None:
    """Raise DeadLetterQueueUnfit for a queue that cannot store the dead letters of the source. It
    must exist, be in the same account and region and of the same kind, and allow the source. Later
    changes of it are not checked."""
    target, source = arns.parse_queue(arn), arns.parse_queue(source_arn)
    if target.account_id != source.account_id:
        raise DeadLetterQueueUnfit("account")
    if target.region != source.region:
        raise DeadLetterQueueUnfit("region")
    queue = await stored_queues.find(tx, target.account_id, target.region, target.resource)
    if queue is None:
        raise DeadLetterQueueUnfit("absent")
    if queue.kind.order != order:
        raise DeadLetterQueueUnfit("kind")
    if not stored_queues.takes_dead_letters_of(queue, source_arn):
        raise DeadLetterQueueUnfit("forbidden")


async def dead_letter_queue(engine: Engine, queue: Queue) -> Queue | None:
    """Return the target of the queue's redrive policy; None: it does not exist."""
    try:
        arn = arns.parse_queue(queue.dead_letter_arn or "")
        return await engine.queues.find(arn.account_id, arn.region, arn.resource)
    except (Malformed, QueueDoesNotExist):
        return None


_CREATE_ATTEMPTS = 5
_PURGED_PER_BATCH = 2_000
_PURGE_HOLD_SECONDS = 10
Change = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Returns the new settings from the present ones; may raise."""


@dataclass(frozen=True, slots=True)
class Archiving:
    """Archiving of deleted messages, and the retention in days; None: no limit."""

    is_archiving: bool
    archive_days: int | None


@dataclass(frozen=True, slots=True)
class CreateQueue:
    """A request for a queue: a FIFO queue if its name says so. ``attributes`` are in stored
    form."""

    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    dead_letter_arn: str | None = None
    archiving: Archiving | None = None
    """None: off for a new queue, and not compared with an existing one."""
    most_messages: int | None = None
    """Maximum number of messages, fixed at creation. None: no limit, and not compared with an
    existing queue."""
    is_serial: bool = False
    """As in ``Queue``: strict FIFO. An existing queue must be strict, too; a strict queue also
    satisfies a request for a standard queue."""
    blocked_seconds: int = 0
    """Seconds for which the name of a deleted queue stays blocked."""
    title: str | None = None
    max_deliveries: int | None = None
    has_priorities: bool = False
    """These as in ``Queue``, and not compared with an existing queue."""


class CreatedQueue(NamedTuple):
    """``is_new`` False: the queue existed, with its own attributes and tags."""

    queue: Queue
    is_new: bool


def is_fifo_name(name: str) -> bool:
    """Return True if a queue of that name is a FIFO queue. Raises QueueNameInvalid."""
    is_fifo = name.endswith(names.FIFO_SUFFIX)
    fits = names.is_fifo_queue_name if is_fifo else names.is_standard_queue_name
    if not fits(name):
        raise QueueNameInvalid(name, is_fifo=is_fifo)
    return is_fifo


async def create_queue(engine: Engine, caller: Caller, request: CreateQueue) -> CreatedQueue:
    """Return the new queue, or the existing one of that name. Concurrent creators of one name get
    the same queue. Raises QueueNameInvalid, QueueDeletedRecently, QuotaReached,
    DeadLetterQueueUnfit, and QueueNameExists if the existing queue differs in archiving, size, or
    strict FIFO order."""
    archiving = request.archiving or Archiving(False, None)
    new = stored_queues.NewQueue(
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
    # Retry if the existing queue is deleted before it is read.
    for _ in range(_CREATE_ATTEMPTS):
        async with engine.database.transaction() as tx:
            queue = await stored_queues.find(tx, new.account_id, new.region, new.name)
            if queue is not None:
                if request.archiving is not None:
                    if queue.is_archiving != request.archiving.is_archiving:
                        raise QueueNameExists("archive")
                    if queue.archive_days != request.archiving.archive_days:
                        raise QueueNameExists("archive_days")
                if request.most_messages not in (None, queue.most_messages):
                    raise QueueNameExists("max_messages")
                if request.is_serial and not queue.is_serial:
                    raise QueueNameExists("serial")
                return CreatedQueue(queue, False)
            queue = await _create(engine, tx, new, request)
        if queue is not None:
            engine.wakeups.queue_changed(queue.queue_id)
            return CreatedQueue(queue, True)
    raise Unavailable("The queue is being created and deleted by others.")


async def _create(
    engine: Engine, tx: Transaction, new: stored_queues.NewQueue, request: CreateQueue
) -> Queue | None:
    """Return the created queue; None: another creator was faster."""
    now = engine.clock.of(new.account_id).now()
    seconds = request.blocked_seconds
    if seconds and await stored_queues.was_deleted_recently(
        tx, now, account_id=new.account_id, region=new.region, name=new.name, seconds=seconds
    ):
        raise QueueDeletedRecently(seconds)
    await engine.quotas.check_room(tx, new.account_id, "queues")
    if request.dead_letter_arn is not None:
        arn = queue_arn(new.region, new.account_id, new.name)
        order = kind_of(is_fifo=new.is_fifo, is_serial=new.is_serial).order
        await check_dead_letter_queue(tx, request.dead_letter_arn, arn, order=order)
    return await stored_queues.create(tx, now, new)


async def list_names(
    engine: Engine, caller: Caller, *, prefix: str, after: str, limit: int
) -> tuple[list[str], bool]:
    """Return names of the caller's queues in the caller's region, after ``after`` in byte order,
    and True if there are more."""
    async with engine.database.transaction() as tx:
        found = await stored_queues.list_names(
            tx, caller.account_id, caller.region, prefix=prefix, after_name=after, limit=limit + 1
        )
    return found[:limit], len(found) > limit


async def list_queues(
    engine: Engine, caller: Caller, *, prefix: str, after: str, limit: int
) -> tuple[list[Queue], bool]:
    """Return the queues of ``list_names``, and True if there are more."""
    found, has_more = await list_names(engine, caller, prefix=prefix, after=after, limit=limit)
    keys = [(caller.account_id, caller.region, name) for name in found]
    known = await engine.queues.find_many(keys)
    # Leave out queues that were deleted meanwhile.
    return [queue for key in keys if (queue := known[key]) is not None], has_more


async def list_dead_letter_sources(
    engine: Engine, caller: Caller, queue: Queue, *, after_queue_id: int, limit: int
) -> tuple[list[stored_queues.SourceQueue], bool]:
    """Return the queues that have this dead-letter queue, oldest first, and True if there are
    more."""
    async with engine.database.transaction() as tx:
        queue = await current_queue(tx, queue)
        found = await stored_queues.dead_letter_sources(
            tx, queue.arn, after_queue_id=after_queue_id, limit=limit + 1
        )
    return found[:limit], len(found) > limit


async def look(engine: Engine, caller: Caller, queue: Queue) -> Queue:
    """Return the queue as it is now. Raises QueueDoesNotExist."""
    async with engine.database.transaction() as tx:
        return await current_queue(tx, queue)


async def count(engine: Engine, caller: Caller, queue: Queue) -> tuple[Queue, Counts]:
    """Return the queue as it is now and its message counts, in a time that does not depend on the
    counts."""
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await current_queue(tx, queue)
        return queue, await queue.kind.count(tx, now, queue.queue_id)


class MeasuredQueue(NamedTuple):
    """The metrics of a queue. Ages are whole seconds; None: the queue is empty."""

    queue: Queue
    counts: Counts
    newest_age_seconds: int | None
    oldest_age_seconds: int | None
    total: int
    """Messages that were ever sent to the queue."""
    looked_at: datetime


async def metrics(engine: Engine, caller: Caller, queue: Queue) -> MeasuredQueue:
    """Return the metrics of a queue, in a time that does not depend on its depth. Raises
    QueueDoesNotExist."""
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await current_queue(tx, queue)
        counts = await queue.kind.count(tx, now, queue.queue_id)
        ages = await queue.kind.ages(tx, now, queue.queue_id)
        total = await stored_queues.total_arrived(tx, queue.queue_id)
    newest, oldest = _seconds(ages.newest_at, ages.now), _seconds(ages.oldest_at, ages.now)
    return MeasuredQueue(queue, counts, newest, oldest, total, ages.now)


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
    """Replace the attributes by the result of ``change``, while nobody else changes the queue; ""
    removes one. ``dead_letter_arn`` is the dead-letter queue in the new attributes. Raises errors
    of ``change``, DeadLetterQueueUnfit and QueueDoesNotExist."""
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        queue = await locked_queue(tx, queue)
        if dead_letter_arn is not None:
            await check_dead_letter_queue(tx, dead_letter_arn, queue.arn, order=queue.kind.order)
        changed = stored_queues.with_attributes(queue, change(queue.attributes))
        await stored_queues.set_attributes(tx, now, changed)
        delayed = 0
        if changed.delay_seconds != queue.delay_seconds:
            delayed = await queue.kind.set_delay(tx, now, queue.queue_id, changed.delay_seconds)
    engine.wakeups.queue_changed(queue.queue_id)
    if delayed:
        engine.wakeups.arrived(queue.queue_id, delayed)


async def change_tags(engine: Engine, caller: Caller, queue: Queue, change: Change) -> None:
    """Replace the tags by the result of ``change``, while nobody else changes the queue."""
    async with engine.database.transaction() as tx:
        queue = await locked_queue(tx, queue)
        await stored_queues.set_tags(tx, queue.queue_id, change(queue.tags))
    engine.wakeups.queue_changed(queue.queue_id)


async def set_paused(engine: Engine, queue: Queue, *, is_paused: bool) -> None:
    """Pause or resume the queue. Receives from a paused queue return nothing; sends, deletes and
    visibility changes continue. Raises QueueDoesNotExist."""
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        await locked_queue(tx, queue)
        await stored_queues.set_paused(tx, now, queue.queue_id, is_paused=is_paused)
    engine.wakeups.queue_changed(queue.queue_id)


async def purge_queue(
    engine: Engine, caller: Caller, queue: Queue, *, interval_seconds: int | None = None
) -> int:
    """Delete all messages of the queue, also delayed ones and those in flight, and forget its
    deduplication ids. Return their number. Messages that are sent meanwhile stay. Messages that
    wait for capacity are deleted, too, and not counted.

    ``interval_seconds``: raise PurgeQueueInProgress if the last such purge started less than that
    ago. One that broke off refuses the next for 10 s at most. Raises QueueDoesNotExist.
    """
    now = engine.clock.of(queue.account_id).now
    began = marked = monotonic()
    # A running purge has an age at which it refuses others for _PURGE_HOLD_SECONDS, and renews it.
    held_seconds = min(_PURGE_HOLD_SECONDS, interval_seconds or 0)
    running = (interval_seconds or 0) - held_seconds
    async with engine.database.transaction() as tx:
        await locked_queue(tx, queue)
        if interval_seconds is not None:
            if await stored_queues.purged_recently(
                tx, now(), queue.queue_id, seconds=interval_seconds
            ):
                raise PurgeQueueInProgress(queue.name, interval_seconds)
            await stored_queues.set_purged(tx, now(), queue.queue_id, seconds_ago=running)
        last_sequence = await queue.kind.last_number(tx)
        last_waiting = await capacity.last_waiting(tx, queue.queue_id) if queue.most_messages else 0
    # First: otherwise these move in while others are deleted.
    while last_waiting:
        async with engine.database.transaction() as tx:
            gone = await capacity.drop_waiting(
                tx, queue.queue_id, _PURGED_PER_BATCH, up_to=last_waiting
            )
        last_waiting = last_waiting if gone else 0
    if engine.refuses_sends:
        # A purge makes room, and needs some until it has.
        engine.database.availability.on_disk_full()
    deleted = 0
    after: int | None = 0
    # In short transactions, because there may be millions.
    while after is not None:
        async with engine.database.transaction() as tx:
            step = await queue.kind.purge(
                tx, queue.queue_id, up_to=last_sequence, after=after, limit=_PURGED_PER_BATCH
            )
        deleted += step.messages
        after = step.after
        is_last = after is None
        if interval_seconds is not None and (is_last or monotonic() - marked > held_seconds / 2):
            marked = monotonic()
            age = int(marked - began) if is_last else running
            async with engine.database.transaction() as tx:
                await stored_queues.set_purged(tx, now(), queue.queue_id, seconds_ago=age)
    return deleted


async def delete_queue(engine: Engine, caller: Caller, queue: Queue) -> None:
    """Delete the queue with its messages, and with the dead-letter queue that was created for it.
    From the commit on, nothing can be sent or received; a worker deletes the messages."""
    now = engine.clock.of(queue.account_id).now()
    async with engine.database.transaction() as tx:
        deleted = await stored_queues.delete(tx, now, queue.queue_id)
    for queue_id in {queue.queue_id, *deleted}:
        engine.wakeups.queue_changed(queue_id)
    if not deleted:
        raise QueueDoesNotExist
    for queue_id in deleted:
        # End parked receives now, not at their deadlines.
        engine.wakeups.arrived(queue_id, 1 << 30)


DEFAULT_QUEUE = "default"
"""For requests that name none."""
_CREATE = "sqs:CreateQueue"


async def find_or_make(engine: Engine, caller: Caller, right: str, name: str) -> Queue:
    """Return the caller's queue of that name, of any kind. If there is none, create a strict FIFO
    queue for callers with the right to. Raises QueueDoesNotExist if the name is invalid for it, and
    AccessDenied."""
    try:
        return await find_own_queue(engine, caller, right, name)
    except QueueDoesNotExist:
        if not names.is_standard_queue_name(name):
            raise
    check_right(engine, caller, _CREATE, own_arn(caller, _CREATE, name))
    return (await create_queue(engine, caller, CreateQueue(name, is_serial=True))).queue


async def find(engine: Engine, caller: Caller, right: str, name: str) -> Queue | None:
    """Return the caller's queue of that name; None: the default queue does not exist yet. Raises
    QueueDoesNotExist for other names, and AccessDenied."""
    try:
        return await find_own_queue(engine, caller, right, name)
    except QueueDoesNotExist:
        if name != DEFAULT_QUEUE:
            raise
        return None


KEPT_SECONDS = 10 * 365 * 24 * 3600
"""Retention of titled queues: until messages are acknowledged. Queues of SQS retain messages for at
most two weeks."""
_SUFFIXED = 4
_SUFFIX_BYTES = 4
_NAME_LENGTH = 80
_NOT_IN_A_NAME = re.compile("[^A-Za-z0-9_-]+")


class QueueTitleInvalid(Rejected):
    """An invalid title."""

    def __init__(self, most: int) -> None:
        super().__init__(f"The name of a queue is 1 to {most} printable characters.")


class TitledQueue(NamedTuple):
    """A request for a queue with a title. None: no limit."""

    title: str
    visibility_timeout_seconds: int
    most_messages: int | None
    max_deliveries: int | None


async def create_titled(engine: Engine, caller: Caller, request: TitledQueue) -> Queue:
    """Create a queue, whether or not its title is used. Its name is the title if this is a valid
    and free name, and similar otherwise. Raises QueueTitleInvalid and QuotaReached."""
    title = request.title
    if not title.isprintable() or not title.strip() or len(title) > engine.limits.title_length:
        raise QueueTitleInvalid(engine.limits.title_length)
    attributes = {
        "VisibilityTimeout": str(request.visibility_timeout_seconds),
        "MessageRetentionPeriod": str(KEPT_SECONDS),
    }
    for name in _titled_names(title):
        new = CreateQueue(
            name,
            attributes,
            title=title,
            most_messages=request.most_messages,
            max_deliveries=request.max_deliveries,
        )
        created = await create_queue(engine, caller, new)
        if created.is_new:
            return created.queue
    raise Unavailable("Every name like this one is being taken by others.")


def _titled_names(title: str) -> Iterator[str]:
    """Yield the title if it is a valid name, then similar names that are most likely free."""
    if names.is_standard_queue_name(title):
        yield title
    for _ in range(_SUFFIXED):
        suffix = token_hex(_SUFFIX_BYTES)
        beginning = _NOT_IN_A_NAME.sub("-", title).strip("-")[: _NAME_LENGTH - len(suffix) - 1]
        yield f"{beginning}-{suffix}" if beginning else suffix
