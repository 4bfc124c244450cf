"""Dead letters back to where they came from, or to another queue: all of them, or those that match,
a page at a time, while somebody waits.

A move task does the same of a whole queue, over as many hours as it takes; this answers when it is
done, and so does not take more than a request can. ``moves.requeue`` is for one message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from queuegate.gateway.operations.access import SEND, check_found, check_right
from queuegate.gateway.operations.queues.browsing import Browse, browse, place_of, text_of
from queuegate.gateway.operations.queues.moves import TAKE, check_homes
from queuegate.storage.errors import MoveRefused, QueueFull
from queuegate.storage.queues import queues
from queuegate.storage.queues.moves import ClaimedTask, MovedBatch

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.model import Browsed, Queue

_NOBODYS_TASK = UUID(int=0)
_AT_ONCE = 500


class Requeued(NamedTuple):
    """``has_more``: it went on for as long as a request may."""

    moved_count: int
    has_more: bool


class Matching(NamedTuple):
    """What a page is looked through for. None, or nothing: any; all that is given must hold.

    ``source`` is the name or the ARN of the queue that gave the message up, ``text`` is somewhere
    in the body. An attribute of the message has that text, or begins with it where a ``*`` ends it.
    """

    source: str | None = None
    group_ids: Sequence[str] = ()
    attributes: Mapping[str, str] = {}
    text: str | None = None

    def holds(self, message: Browsed) -> bool:
        """Whether the message is one of them."""
        return (
            (self.source is None or self.source in _names_of(came_from(message)))
            and (not self.group_ids or _group_of(message) in self.group_ids)
            and (self.text is None or self.text in message.body)
            and (not self.attributes or self._has_attributes(message))
        )

    def _has_attributes(self, message: Browsed) -> bool:
        there = json.loads(message.attributes or "{}")
        return all(
            _is_like(there.get(name, {}).get("StringValue"), wanted)
            for name, wanted in self.attributes.items()
        )


class Redrive(NamedTuple):
    """A page of dead letters to move. ``browse`` says where it begins and what it is of;
    ``target`` None: each goes to the queue that gave it up."""

    browse: Browse
    matching: Matching = Matching()
    most: int = _AT_ONCE
    target: Queue | None = None
    is_dry_run: bool = False


class Redriven(NamedTuple):
    """What became of the page: how many matched, how many of these moved, and how many stayed
    because nobody knows where they came from, or that queue is gone. Others stayed because somebody
    has them, or there is no room. ``next``: go on behind it, with ``as_of``; None: that was all."""

    matched: int
    moved: int
    homeless: int
    next: str | None
    as_of: str


async def redrive(
    engine: Engine, caller: Caller, dead_letters: Queue, request: Redrive
) -> Redriven:
    """Move those of a page that match, all in one transaction, as new messages that nobody has
    received; what somebody has at the moment stays. In a queue whose messages are in order one that
    stays keeps what is behind it in its group.

    Raises AccessDenied, MoveRefused for a target that cannot take them, and what ``browse`` raises.
    """
    target = request.target
    if target is not None:
        if target.queue_id == dead_letters.queue_id:
            raise MoveRefused("same queue")
        if target.kind.order != dead_letters.kind.order:
            raise MoveRefused("other kind")
    for right in TAKE:
        check_found(engine, caller, right, dead_letters)
    page = await browse(engine, caller, dead_letters, request.browse)
    chosen = [one for one in page.messages if request.matching.holds(one)]
    following = page.next
    if len(chosen) > request.most:
        chosen = chosen[: request.most]
        following = text_of(place_of(chosen[-1]))
    if target is None and engine.authority is not None:
        homes = {arn for one in chosen if (arn := came_from(one))}
        for arn in homes:
            check_right(engine, caller, SEND, arn)
        async with engine.database.transaction() as tx:
            await check_homes(engine, tx, caller, {arn.rpartition(":")[2] for arn in homes})
    moved = homeless = 0
    if not request.is_dry_run:
        batch = await _move(engine, dead_letters, chosen, target)
        moved, homeless = batch.moved_count, batch.without_source + batch.without_queue
    elif target is None:
        homeless = sum(came_from(one) is None for one in chosen)
    return Redriven(len(chosen), moved, homeless, following, page.as_of)


async def requeue_all(
    engine: Engine, caller: Caller, dead_letters: Queue, home: Queue, *, most: int
) -> Requeued:
    """Move all that came from that queue back, up to about ``most``, as new messages that nobody
    has received; what somebody has at the moment stays. Of a queue whose messages are in order all
    that is there goes where it came from. Raises QueueFull when there is no room for any."""
    matching = Matching(source=None if dead_letters.kind.has_groups else home.arn)
    count = 0
    asked = Browse(_AT_ONCE)
    while True:
        page = await browse(engine, caller, dead_letters, asked)
        chosen = [one for one in page.messages if matching.holds(one)]
        batch = await _move(engine, dead_letters, chosen, None)
        count += batch.moved_count
        if batch.is_short and not count:
            raise QueueFull(home)
        if page.next is None or count >= most:
            return Requeued(count, page.next is not None)
        asked = asked._replace(after=page.next, as_of=page.as_of)


def came_from(message: Browsed) -> str | None:
    """The ARN of the queue that the message was moved from."""
    return _system(message).get("DeadLetterQueueSourceArn")


def _system(message: Browsed) -> dict[str, str]:
    return json.loads(message.system) if message.system else {}


def _names_of(arn: str | None) -> tuple[str, ...]:
    return () if arn is None else (arn, arn.rpartition(":")[2])


def _group_of(message: Browsed) -> str | None:
    return message.group_id or _system(message).get("MessageGroupId")


def _is_like(found: str | None, wanted: str) -> bool:
    if found is None:
        return False
    return found.startswith(wanted[:-1]) if wanted.endswith("*") else found == wanted


async def _move(
    engine: Engine, source: Queue, chosen: Sequence[Browsed], target: Queue | None
) -> MovedBatch:
    """Move these to where there is room for them, all in one transaction."""
    if not chosen:
        return MovedBatch(0, None, [], 0, 0)
    numbers = [one.sequence for one in chosen]
    # What moves a batch takes its bounds from a task.
    task = ClaimedTask(
        _NOBODYS_TASK,
        source.queue_id,
        source.arn,
        None,
        None,
        min(numbers) - 1,
        max(numbers),
        timedelta(),
        [place_of(one) for one in chosen],
    )
    async with engine.database.transaction() as tx:
        batch = await source.kind.move_batch(
            tx,
            engine.clock.of(source.account_id).now(),
            task,
            source=source,
            target=target,
            find=queues.find_by_arn,
            limit=len(chosen),
        )
    for queue_id, count in batch.arrived:
        engine.wakeups.arrived(queue_id, count)
    return batch
