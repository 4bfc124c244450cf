"""Groups that feed queues: each part of their records is moved in one transaction.

The transaction reads records, inserts messages and advances the group's positions. An interruption
loses and duplicates nothing. Lock order: positions, capacity of queues, groups of FIFO queues, then
partitions of logs for dead letters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from queuegate.storage.logs import log_groups, record_dead_letters
from queuegate.storage.logs.log_deliveries import store
from queuegate.storage.logs.log_groups import group_of
from queuegate.storage.logs.positions import Position
from queuegate.storage.logs.record_dead_letters import FailedRecord
from queuegate.storage.logs.stored_logs import log_of
from queuegate.storage.model import (
    Feed,
    StoredRecord,
)
from queuegate.storage.queries import load
from queuegate.storage.queues.capacity import capacity_of

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction
    from queuegate.storage.queue_model import Queue, Row

_SQL = load("logs/feeds")

_MOST_PARTITIONS = 500_000
_MOST_RECORDS = 500
"""Records of a part. Each may take its group's lock, in shared memory."""
_MOST_BYTES = 4 << 20


class QueueGone(Exception):
    """The queue is deleted: nothing was moved, and the transaction must roll back."""


class Moving(NamedTuple):
    """A record to move."""

    feed: Feed
    number: int
    """The number of the partition."""
    key: str
    record: StoredRecord


MakeRow = Callable[[Moving, "Queue"], "Row | str"]
"""Returns the queue's message for a record, or the reason why there is none."""


@dataclass(slots=True)
class _Claimed:
    """A partition with a locked position."""

    partition_id: int
    number: int
    key: str | None
    end: int
    version: int
    position: Position
    records: list[StoredRecord] = field(default_factory=list)
    is_whole: bool = True
    """All available records were read."""

    def cut(self, count: int) -> None:
        """Leave all but the first records for later."""
        if count < len(self.records):
            del self.records[count:]
            self.is_whole = False

    @property
    def passed_to(self) -> int:
        """Return the last offset that the group has moved or skipped."""
        if self.is_whole:
            return self.end - 1
        return self.records[-1].offset if self.records else self.position.watermark


@dataclass(slots=True)
class Moved:
    """The result of a part."""

    count: int = 0
    """Messages sent."""
    sent_at: datetime | None = None
    """The send time, on a queue without groups."""
    left: list[int] = field(default_factory=list)
    """Partitions that have more."""
    held: list[int] = field(default_factory=list)
    """Partitions with records, locked by another worker."""
    is_full: bool = False
    """The queue is full for the remaining records."""
    now_ms: int = 0
    dead: list[FailedRecord] = field(default_factory=list)
    """Records that the queue cannot accept."""
    buried: dict[int, int] = field(default_factory=dict)
    """Partitions that got dead letters, and their logs."""


async def find_all(tx: Transaction) -> list[Feed]:
    """Return every group that feeds a queue."""
    rows = map(tuple, await _SQL["find_feeds"].rows(tx))
    return [Feed(log_of(row[:9]), group_of(row[9:])) for row in rows]


class FeedPosition(NamedTuple):
    """A partition of a feed."""

    partition_id: int
    number: int
    is_behind: bool
    """The group has records to move there."""


async def find_positions(tx: Transaction, feed: Feed, first: int) -> list[FeedPosition]:
    """Return partitions from that number on, and create the group's missing positions."""
    group_id = feed.group.group_id
    if await _SQL["lacks_positions"].value(tx, group_id):
        await log_groups.lock(tx, group_id)
    return await _SQL["find_places"].all(tx, FeedPosition._make, group_id, first, _MOST_PARTITIONS)


async def move(
    tx: Transaction,
    now: datetime | None,
    feed: Feed,
    queue: Queue,
    partition_ids: Sequence[int],
    make_row: MakeRow,
) -> Moved:
    """Move some records of these partitions into the queue. Raises QueueGone."""
    moved = Moved()
    claimed = await _claim(tx, now, feed, partition_ids, moved)
    if not claimed:
        return moved
    await _read(tx, feed, claimed)
    room = None
    if queue.most_messages is not None:
        room = (await capacity_of(tx, (queue.queue_id,), now)).get(queue.queue_id)
    rows, moved.dead = _messages(feed, queue, claimed, make_row, room)
    if rows:
        sent = await queue.kind.send(tx, now, rows)
        if sent.gone:
            raise QueueGone
        moved.count, moved.sent_at = len(rows), sent.sent_at.get(queue.queue_id)
    if moved.dead:
        moved.buried = await record_dead_letters.write(tx, now, moved.now_ms, moved.dead)
    await _pass_over(tx, feed, claimed)
    moved.left = [one.partition_id for one in claimed if not one.is_whole]
    moved.is_full = room is not None and len(rows) >= room
    return moved


async def _claim(
    tx: Transaction, now: datetime | None, feed: Feed, partition_ids: Sequence[int], moved: Moved
) -> list[_Claimed]:
    claimed = []
    group = feed.group
    rows = await _SQL["claim"].rows(tx, now, group.group_id, partition_ids, group.settings.queue)
    for row in rows:
        moved.now_ms, partition_id, number, key, start, end, version, *columns = row
        if version is None:
            moved.held.append(partition_id)
            continue
        position = Position(*columns)
        position.pass_over(start)
        claimed.append(_Claimed(partition_id, number, key, end, version, position))
    return claimed


async def _read(tx: Transaction, feed: Feed, claimed: Sequence[_Claimed]) -> None:
    most = -(-_MOST_RECORDS // len(claimed))
    rows = await _SQL["read_feed"].rows(
        tx,
        feed.group.group_id,
        [one.partition_id for one in claimed],
        [one.position.watermark + 1 for one in claimed],
        [one.end for one in claimed],
        most,
        _MOST_BYTES,
    )
    size = 0
    for place, *columns in rows:
        record = StoredRecord(*columns)
        claimed[place].records.append(record)
        size += len(record.payload) + len((record.metadata or "").encode()) + 64
    for one in claimed:
        one.is_whole = len(one.records) < most
    if size >= _MOST_BYTES:
        for one in claimed[rows[-1][0] :]:
            one.is_whole = False


def _messages(
    feed: Feed, queue: Queue, claimed: Sequence[_Claimed], make_row: MakeRow, room: int | None
) -> tuple[list[Row], list[FailedRecord]]:
    """Return messages that fit into the queue, and records that it cannot accept."""
    rows: list[Row] = []
    dead: list[FailedRecord] = []
    for one in claimed:
        for place, record in enumerate(one.records):
            if one.position.is_done(record.offset):
                continue
            key = one.key if record.key is None else record.key
            made = make_row(Moving(feed, one.number, key or "", record), queue)
            if isinstance(made, str):
                dead.append(
                    FailedRecord(
                        feed.log, feed.group, one.partition_id, one.number, record.offset, 1, made
                    )
                )
            elif room is not None and len(rows) >= room:
                one.cut(place)
                break
            else:
                rows.append(made)
    return rows, dead


async def _pass_over(tx: Transaction, feed: Feed, claimed: Sequence[_Claimed]) -> None:
    for one in claimed:
        one.position.pass_over(one.passed_to + 1)
    group_id = feed.group.group_id
    is_stored = await store(
        tx, [(group_id, one.partition_id, one.version, one.position) for one in claimed]
    )
    assert is_stored, "locked positions do not change"
