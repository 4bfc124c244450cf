"""Archives of consumed messages: turned on and off, read, replayed, emptied."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import orjson

from queuegate.gateway.operations.limits import LIMITS
from queuegate.gateway.operations.queues.live_queues import locked
from queuegate.gateway.operations.topics.envelope_signatures import signed
from queuegate.storage.errors import (
    InvalidParameterValue,
    QueueDoesNotExist,
    QueueFull,
    ResourceNotFound,
)
from queuegate.storage.model import Archived, Queue
from queuegate.storage.queues import archives, queues
from queuegate.storage.queues.archives import Found, Wanted
from queuegate.storage.queues.message_ids import LAST
from queuegate.storage.queues.rooms import rooms

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine

_LISTED_BYTES = 4 << 20
_REPLAYED_BYTES = 8 << 20
# Each group of a send takes an advisory lock, and those live in shared memory.
_GROUPS_PER_REPLAY = 500
_REMOVED_PER_BATCH = 5_000
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_.-]*").fullmatch
_HEADER = "_schedule"


class ArchivingChange(NamedTuple):
    """What to change. ``is_archiving`` None: nothing; ``archive_days`` counts with ``has_days``."""

    is_archiving: bool | None = None
    archive_days: int | None = None
    has_days: bool = False


async def change_archiving(
    engine: Engine, caller: Caller, queue: Queue, change: ArchivingChange
) -> Queue:
    """The queue as it is then. Raises QueueDoesNotExist.

    Off: nothing is archived that is deleted after the commit, in any process; what is there stays.
    On: this process archives when this returns, the others as soon as they hear of the commit, in
    milliseconds; one that has lost its connection for notifications, when it has it again.
    """
    async with engine.database.transaction() as tx:
        queue = await locked(tx, queue)
        if change.is_archiving is not None:
            queue = replace(queue, is_archiving=change.is_archiving)
        if change.has_days:
            queue = replace(queue, archive_days=change.archive_days)
        await queues.set_archiving(tx, queue.queue_id, queue.is_archiving, queue.archive_days)
    engine.wakeups.queue_changed(queue.queue_id)
    return queue


class ListArchive(NamedTuple):
    """Messages behind that id, archived from ``since`` to ``until``, fired by ``schedule``."""

    limit: int = 100
    after_id: int = 0
    since: datetime | None = None
    until: datetime | None = None
    schedule: str | None = None


class ArchivePage(NamedTuple):
    """Messages by id. ``next_id``: behind it there may be more; None: there are not."""

    messages: list[Archived]
    next_id: int | None


async def list_archive(
    engine: Engine, caller: Caller, queue: Queue, request: ListArchive
) -> ArchivePage:
    """The next messages of the archive, fewer when they are larger than 4 MB.

    Costs a look at 20,000 archived messages at most, however many there are: with a filter a page
    may be short, or empty, and not the last.
    """
    word = request.schedule
    if word is not None and not _PLAIN_WORD(word):
        # JSON can write it in several ways.
        word = ""
    bounds = _utc(request.since), _utc(request.until)
    wanted = Wanted(min(request.after_id, LAST), *bounds, word)
    async with engine.database.transaction() as tx:
        found = await archives.find(
            tx, queue.queue_id, wanted, limit=request.limit, most_bytes=_LISTED_BYTES
        )
        kept = await archives.read(tx, queue.queue_id, found.sequences)
    if request.schedule is not None:
        kept = [one for one in kept if _fired_by(one.attributes) == request.schedule]
    return ArchivePage(await signed(engine, kept), None if found.is_last else found.last_sequence)


def _utc(instant: datetime | None) -> datetime | None:
    try:
        return None if instant is None else instant.astimezone(UTC)
    except OverflowError:
        raise InvalidParameterValue(
            f"{instant} is not an instant of the years 1 to 9999."
        ) from None


def _fired_by(attributes: str | None) -> object:
    """The schedule that a message says it was fired by; anybody may write that header."""
    try:
        members = orjson.loads(orjson.loads(attributes or "{}")[_HEADER]["StringValue"])
    except (KeyError, orjson.JSONDecodeError):
        return None
    return members.get("name") if isinstance(members, dict) else None


async def find_archived(engine: Engine, caller: Caller, queue: Queue, sequence: int) -> Archived:
    """The archived message of that id. Raises ResourceNotFound."""
    kept: list[Archived] = []
    if 0 < sequence <= LAST:
        async with engine.database.transaction() as tx:
            kept = await archives.read(tx, queue.queue_id, [sequence])
    if not kept:
        raise ResourceNotFound(f"The archive of queue '{queue.name}' has no message {sequence}.")
    [found] = await signed(engine, kept)
    return found


class Replay(NamedTuple):
    """What to send again: messages by their ids, or those that ``ListArchive`` would find."""

    ids: list[int] | None = None
    limit: int = LIMITS.replayed_messages
    after_id: int = 0
    since: datetime | None = None
    until: datetime | None = None


class Replayed(NamedTuple):
    """Ids of the copies, in the order of what they copy. ``last_id``: behind it there may be more
    to replay; None: there is not."""

    ids: list[int]
    last_id: int | None


async def replay(
    engine: Engine, caller: Caller, queue: Queue, target: Queue, request: Replay
) -> Replayed:
    """Send copies of archived messages to a queue as new messages: all of one call, or none.

    They keep body, attributes, sender and group; ids, sending time and deduplication ids are new.
    A call copies up to the limit, and fewer when they are larger than 8 MB or of more than 500
    groups, or when the target has room for fewer. Ids that the archive does not have are passed
    over. Raises InvalidParameterValue when the queues are not of the same kind, QueueDoesNotExist
    when the target is gone, QueueFull when it has no room at all.
    """
    orders = {target.kind.order, queue.kind.order}
    if len(orders) > 1:
        one, other = sorted(orders)
        raise InvalidParameterValue(
            f"Messages of queue '{queue.name}' cannot be replayed to queue '{target.name}': one of "
            f"them is a {one} queue, the other is a {other} queue."
        )
    engine.check_room()
    now = engine.clock.of(target.account_id).now()
    async with engine.database.transaction() as tx:
        limit = request.limit
        if target.most_messages is not None:
            limit = min([limit, *(await rooms(tx, [target.queue_id], now)).values()])
            if not limit:
                raise QueueFull(target)
        if request.ids is not None:
            ids = [one for one in request.ids if 0 < one <= LAST]
            found = await archives.find_ids(
                tx, queue.queue_id, ids, limit=limit, most_bytes=_REPLAYED_BYTES
            )
        else:
            wanted = Wanted(min(request.after_id, LAST), _utc(request.since), _utc(request.until))
            found = await archives.find(
                tx, queue.queue_id, wanted, limit=limit, most_bytes=_REPLAYED_BYTES
            )
        kept = await archives.read(tx, queue.queue_id, found.sequences)
        kept, found = _within_groups(kept, found)
        sent = await archives.send_again(tx, now, target, kept) if kept else []
        if kept and not sent:
            engine.queues.forget(target.queue_id)
            raise QueueDoesNotExist(target.name)
    if sent:
        # They were sent when the transaction began, so to speak: left of what receives saw since.
        engine.standard.look_near([target.queue_id])
        engine.wakeups.arrived(target.queue_id, len(sent))
        engine.series.copied(target, len(sent))
    return Replayed(sent, None if found.is_last else found.last_sequence)


def _within_groups(kept: list[Archived], found: Found) -> tuple[list[Archived], Found]:
    groups: set[str | None] = set()
    for place, one in enumerate(kept):
        groups.add(one.group_id)
        if len(groups) > _GROUPS_PER_REPLAY:
            return kept[:place], Found([], kept[place - 1].sequence, False)
    return kept, found


async def clear_archive(
    engine: Engine, caller: Caller, queue: Queue, before: datetime | None
) -> int:
    """Delete what was archived before that instant, None: all of it, in short transactions.

    Returns how many messages went.
    """
    bound = _utc(before)
    total = 0
    gone = _REMOVED_PER_BATCH
    while gone == _REMOVED_PER_BATCH:
        async with engine.database.transaction() as tx:
            gone = await archives.remove_before(tx, queue.queue_id, bound, limit=_REMOVED_PER_BATCH)
        total += gone
    return total
