"""Sends archives of FIFO topics again to subscriptions that ask for it (docs/contract/sns.md 3.6).

A subscription goes on getting what is published while its replay runs. So a message comes to it
either by the publish itself or by the replay, and the two have to agree on which. A replay sends
what was archived from its start to its end and

- has a number from before the replay was asked for: delivered already or not, it comes again; or
- was offered to an audience that did not know the subscription yet. With each message the archive
  keeps the newest subscription that its publisher knew (``known_live``), so this is no guess.

Whatever else is published goes to the subscription at once, and is none of the replay's business.
What a gateway publishes before it hears of a new subscription is therefore replayed, once; messages
whose gateway heard of it are not. No message is missed or doubled, but those that are published
during a replay overtake it: the order of a group is that of publishing among what is replayed, and
among what is not.

Publishers of one topic draw their numbers in one order and commit in another. A replay only goes up
to a number, a line, of which it is known that nobody who has drawn a lower one is still at it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.scheduler.clocks import ClockNow, WhoseNow
from queuegate.scheduler.delivery.dead_letters import target_of
from queuegate.storage.clocks.whose import Whose
from queuegate.storage.database import Database
from queuegate.storage.queues.queues import find_by_arn
from queuegate.storage.queues.rooms import rooms
from queuegate.storage.queues.rows import QUEUE_ID, Row
from queuegate.storage.topics import replays, topics
from queuegate.storage.topics.replays import Kept, Replay

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Queue, Topic

OnMoved = Callable[[int, int], None]
Copier = Callable[[Replay, "Topic", "Queue", "Queue | None"], Callable[[Kept], "Copy | None"]]
"""How the copies of a replay are made, for its queue and the one for dead letters, if there is
one."""
Copy = tuple["Queue", Row]

_NO_QUEUE = "The queue of the subscription does not exist."
_BATCH_ROWS = 200
"""Each message takes the lock of its group in the queue, and those live in shared memory."""
_BATCH_BYTES = 4 << 20
_ROOM_SECONDS = 1.0
"""Between looks whether there is room in the queue."""


class Needs(NamedTuple):
    """What replays need of the gateway."""

    copier: Copier
    has_room: Callable[[], bool] = lambda: True
    """Whether the disk has room for what they send."""


@dataclass
class ReplayArchives:
    """Sends one batch after the other, of whichever replay is most overdue.

    A batch is one transaction: messages arrive in the queue and the replay's row, which is held
    meanwhile, says how far it is. So a crash repeats nothing and loses nothing, and several workers
    are never at one replay at once.

    A replay is Completed once it has sent everything up to a line that was drawn after its end; one
    without an end, up to one that was drawn after it was asked for. For a minute after that it
    looks for messages of gateways that had not heard of a new subscription. Without its queue a
    replay is Failed.
    """

    database: Database
    now: ClockNow
    on_moved: OnMoved
    needs: Needs
    whose: WhoseNow = Whose
    name = "replay"
    pause_seconds = 1.0

    async def run_round(self, rows: int) -> int:
        """Go through about ``rows`` archived messages; fewer: no replay is due any more, or there
        is no room on the disk for what they send."""
        handled = 0
        if not self.needs.has_room():
            return handled
        while handled < rows:
            looked_at = await self._run_batch(min(rows - handled, _BATCH_ROWS))
            if looked_at is None:
                break
            handled += looked_at
        return handled

    async def _run_batch(self, limit: int) -> int | None:
        """One batch of the replay that is most overdue; how many messages it looked at. None: no
        replay is due."""
        now = self.now()
        async with self.database.transaction() as tx:
            replay = await replays.claim(tx, now, self.whose())
            if replay is None:
                return None
            batch = None
            if replay.last_sequence < replay.upto_sequence:
                batch = await self._send(tx, now, replay, limit)
        if batch is None:
            batch = await self._go_further(replay, limit)
        if batch is None:
            return 0
        for queue_id, count in batch.arrived.items():
            self.on_moved(queue_id, count)
        return batch.looked_at

    async def _go_further(self, replay: Replay, limit: int) -> _Batch | None:
        """Draw a new line and send a batch up to it; None when somebody else was faster."""
        now = self.now()
        async with self.database.transaction() as tx:
            line = await replays.draw_line(tx, now, replay.topic_id)
        async with self.database.transaction() as tx:
            extended = await replays.extend(tx, replay, line)
            return None if extended is None else await self._send(tx, now, extended, limit)

    async def _send(
        self, tx: Transaction, now: datetime | None, replay: Replay, limit: int
    ) -> _Batch:
        """Send the next messages and note how far the replay is. The replay's row is held."""
        queue = await find_by_arn(tx, replay.endpoint)
        topic = await topics.find_by_id(tx, replay.topic_id)
        if queue is None or topic is None:
            await replays.end(tx, now, replay, _NO_QUEUE)
            return _Batch(0, {})
        letters = await find_by_arn(tx, target_of(replay.attributes.get("RedrivePolicy")) or "")
        limit = await _within_room(tx, now, limit, queue, letters)
        if not limit:
            await replays.pause(tx, now, replay, _ROOM_SECONDS)
            return _Batch(0, {})
        page = await replays.read(tx, replay, limit=limit, most_bytes=_BATCH_BYTES)
        copy = self.needs.copier(replay, topic, queue, letters)
        copies = [made for kept in page.messages if (made := copy(kept)) is not None]
        arrived = await _write(tx, now, copies)
        if queue.queue_id not in arrived and any(taker is queue for taker, _ in copies):
            # It was deleted since we looked.
            await replays.end(tx, now, replay, _NO_QUEUE)
        else:
            count = arrived.get(queue.queue_id, 0)
            await replays.advance(tx, now, replay, page, replayed_count=count)
        return _Batch(page.looked_at, arrived)


class _Batch(NamedTuple):
    """What one batch did."""

    looked_at: int
    arrived: Mapping[int, int]


async def _within_room(
    tx: Transaction, now: datetime | None, limit: int, *takers: Queue | None
) -> int:
    """As many messages as each of these queues has room for, at most ``limit``."""
    bounded = {one.queue_id for one in takers if one is not None and one.most_messages is not None}
    return min([limit, *(await rooms(tx, bounded, now)).values()]) if bounded else limit


async def _write(tx: Transaction, now: datetime | None, copies: list[Copy]) -> Counter[int]:
    """Write the copies in their order; how many each queue got. Queues that are gone are absent."""
    arrived: Counter[int] = Counter()
    for kind in {queue.kind for queue, _ in copies}:
        rows = [row for queue, row in copies if queue.kind is kind]
        sent = await kind.send(tx, now, rows)
        arrived.update([row[QUEUE_ID] for row in rows if row[QUEUE_ID] not in sent.gone])
    return arrived
