"""All dead letters back to the queue that they came from, while somebody waits.

A move task does the same of a whole queue, over as many hours as it takes; this answers when it is
done, and so does not take more than a request can. ``moves.requeue`` is for one message.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from gateway.operations.queues.browsing import Browse, browse
from storage.errors import QueueFull
from storage.queues import queues
from storage.queues.message_ids import LAST
from storage.queues.moves import ClaimedTask
from storage.queues.rooms import rooms

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine
    from storage.model import Browsed, Queue

_NOBODYS_TASK = UUID(int=0)
_AT_ONCE = 500


class Requeued(NamedTuple):
    """``has_more``: it went on for as long as a request may."""

    moved_count: int
    has_more: bool


async def requeue_all(
    engine: Engine, caller: Caller, dead_letters: Queue, home: Queue, *, most: int
) -> Requeued:
    """Move all that came from that queue back, up to about ``most``, as new messages that nobody
    has received; what somebody has at the moment stays. Of a queue whose messages are in order all
    that is there goes where it came from. Raises QueueFull when there is no room for any."""
    count = 0
    after: str | None = None
    while True:
        stretches = [(0, LAST)]
        if not dead_letters.kind.has_groups:
            page = await browse(engine, caller, dead_letters, Browse(_AT_ONCE, after))
            stretches, after = _stretches(page.messages, home.arn), page.next
        moved = await _move(engine, dead_letters, home, stretches, is_first=count == 0)
        count += moved
        is_end = moved == 0 if dead_letters.kind.has_groups else after is None
        if is_end or count >= most:
            return Requeued(count, not is_end)


def came_from(message: Browsed) -> str | None:
    """The ARN of the queue that the message was moved from."""
    members: dict[str, str] = json.loads(message.system) if message.system else {}
    return members.get("DeadLetterQueueSourceArn")


def _stretches(messages: Iterable[Browsed], home_arn: str) -> list[tuple[int, int]]:
    """The numbers of messages that came from there, those without another in between together:
    behind the first of each, up to the second."""
    found: list[tuple[int, int]] = []
    is_open = False
    for message in messages:
        mine = came_from(message) == home_arn
        if mine and is_open:
            found[-1] = (found[-1][0], message.sequence)
        elif mine:
            found.append((message.sequence - 1, message.sequence))
        is_open = mine
    return found


async def _move(
    engine: Engine,
    source: Queue,
    home: Queue,
    stretches: Sequence[tuple[int, int]],
    *,
    is_first: bool = True,
) -> int:
    """How many moved, all in one transaction. What the first finds no room for is refused."""
    now = engine.clock.of(source.account_id).now()
    arrived: Counter[int] = Counter()
    async with engine.database.transaction() as tx:
        room = (await rooms(tx, [home.queue_id], now)).get(home.queue_id, _AT_ONCE)
        if room == 0 and stretches and is_first:
            raise QueueFull(home)
        for after, end in stretches:
            limit = min(end - after, _AT_ONCE, room - arrived.total())
            if limit > 0:
                batch = await source.kind.move_batch(
                    tx,
                    now,
                    _stretch_of(source, after, end),
                    source=source,
                    target=None,
                    find=queues.find_by_arn,
                    limit=limit,
                )
                arrived.update(dict(batch.arrived))
    for queue_id, count in arrived.items():
        engine.wakeups.arrived(queue_id, count)
    return arrived.total()


def _stretch_of(source: Queue, after: int, end: int) -> ClaimedTask:
    """What moves a batch takes its bounds from a task."""
    return ClaimedTask(
        _NOBODYS_TASK, source.queue_id, source.arn, None, None, after, end, timedelta()
    )
