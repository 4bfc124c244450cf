"""Replays archives of FIFO topics to subscriptions that ask for it (docs/contract/sns.md 3.6).

A subscription still receives new messages while its replay runs. So either the publish or the
replay delivers a message, and both must agree on which. A replay sends a message that was archived
between the replay's start and end and

- has a sequence number from before the replay request: delivered before or not, it is sent; or
- was published without knowledge of the subscription. The archive stores with each message the
  newest subscription that its publisher knew (``known_live``), so the replay does not guess.

The publish delivers all other messages at once, and the replay skips them. A message that a gateway
publishes before it knows a new subscription is therefore replayed, once; later messages are not. No
message is missed or doubled, but messages published during a replay overtake replayed ones. Within
a group, replayed messages keep their order, and so do the others.

Publishers of one topic draw sequence numbers in one order and commit in another. So a replay only
reads up to a line: a number below which all publishers have finished.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.scheduler.webhook_outcomes import target_of
from queuegate.scheduler.worker import ClockNow, FilterNow
from queuegate.storage.database import Database
from queuegate.storage.queries import AccountFilter
from queuegate.storage.queue_model import QUEUE_ID, Row
from queuegate.storage.queues.capacity import capacity_of
from queuegate.storage.queues.stored_queues import find_by_arn
from queuegate.storage.topics import replays, stored_topics
from queuegate.storage.topics.replays import Kept, TopicReplay

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.model import Topic
    from queuegate.storage.queue_model import Queue

OnMoved = Callable[[int, int], None]
Copier = Callable[[TopicReplay, "Topic", "Queue", "Queue | None"], Callable[[Kept], "Copy | None"]]
"""Returns the function that copies a message of a replay, to its queue or its dead-letter queue."""
Copy = tuple["Queue", Row]

_NO_QUEUE = "The queue of the subscription does not exist."
_BATCH_ROWS = 200
"""Each message locks its group in the queue, and locks use shared memory."""
_BATCH_BYTES = 4 << 20
_ROOM_SECONDS = 1.0
"""Pause while the queue has no capacity."""


class ReplayCallbacks(NamedTuple):
    """Functions of the gateway that replays use."""

    copier: Copier
    has_capacity: Callable[[], bool] = lambda: True
    """Returns False while the disk is full."""


@dataclass
class ReplayArchives:
    """Sends batches of the replay that is most overdue.

    A batch is one transaction that holds the replay's row: messages arrive in the queue, and the
    row records the progress. So a crash repeats and loses nothing, and one worker at a time runs a
    replay.

    A replay is Completed once it has sent everything up to a line drawn after its end. Without an
    end, the line is drawn after the replay request. For one more minute the replay then looks for
    messages of gateways that did not know the new subscription. Without its queue a replay is
    Failed.
    """

    database: Database
    now: ClockNow
    on_moved: OnMoved
    needs: ReplayCallbacks
    whose: FilterNow = AccountFilter
    name = "replay"
    pause_seconds = 1.0

    async def run_round(self, rows: int) -> int:
        """Read about ``rows`` archived messages. Fewer: no more replays are due, or the disk is
        full."""
        handled = 0
        if not self.needs.has_capacity():
            return handled
        while handled < rows:
            looked_at = await self._run_batch(min(rows - handled, _BATCH_ROWS))
            if looked_at is None:
                break
            handled += looked_at
        return handled

    async def _run_batch(self, limit: int) -> int | None:
        """Run one batch of the most overdue replay and return the messages read; None: no replay is
        due."""
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

    async def _go_further(self, replay: TopicReplay, limit: int) -> _Batch | None:
        """Draw a new line and send a batch up to it; None: another worker was faster."""
        now = self.now()
        async with self.database.transaction() as tx:
            line = await replays.draw_line(tx, now, replay.topic_id)
        async with self.database.transaction() as tx:
            extended = await replays.extend(tx, replay, line)
            return None if extended is None else await self._send(tx, now, extended, limit)

    async def _send(
        self, tx: Transaction, now: datetime | None, replay: TopicReplay, limit: int
    ) -> _Batch:
        """Send the next messages and record the progress. The caller holds the replay's row."""
        queue = await find_by_arn(tx, replay.endpoint)
        topic = await stored_topics.find_by_id(tx, replay.topic_id)
        if queue is None or topic is None:
            await replays.end(tx, now, replay, _NO_QUEUE)
            return _Batch(0, {})
        letters = await find_by_arn(tx, target_of(replay.attributes.get("RedrivePolicy")) or "")
        limit = await _within_capacity(tx, now, limit, queue, letters)
        if not limit:
            await replays.pause(tx, now, replay, _ROOM_SECONDS)
            return _Batch(0, {})
        page = await replays.read(tx, replay, limit=limit, most_bytes=_BATCH_BYTES)
        copy = self.needs.copier(replay, topic, queue, letters)
        copies = [made for kept in page.messages if (made := copy(kept)) is not None]
        arrived = await _write(tx, now, copies)
        if queue.queue_id not in arrived and any(target is queue for target, _ in copies):
            # The queue was deleted after the look-up.
            await replays.end(tx, now, replay, _NO_QUEUE)
        else:
            count = arrived.get(queue.queue_id, 0)
            await replays.advance(tx, now, replay, page, replayed_count=count)
        return _Batch(page.looked_at, arrived)


class _Batch(NamedTuple):
    """The result of one batch."""

    looked_at: int
    arrived: Mapping[int, int]


async def _within_capacity(
    tx: Transaction, now: datetime | None, limit: int, *targets: Queue | None
) -> int:
    """Return how many messages all of these queues have capacity for, at most ``limit``."""
    bounded = {one.queue_id for one in targets if one is not None and one.most_messages is not None}
    return min([limit, *(await capacity_of(tx, bounded, now)).values()]) if bounded else limit


async def _write(tx: Transaction, now: datetime | None, copies: list[Copy]) -> Counter[int]:
    """Write the copies in order and return the count of each queue. Deleted queues are absent."""
    arrived: Counter[int] = Counter()
    for kind in {queue.kind for queue, _ in copies}:
        rows = [row for queue, row in copies if queue.kind is kind]
        sent = await kind.send(tx, now, rows)
        arrived.update([row[QUEUE_ID] for row in rows if row[QUEUE_ID] not in sent.gone])
    return arrived
