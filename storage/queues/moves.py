"""Message move tasks and the batches that they move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID, uuid4

from queuegate.storage.database import probe_by_key
from queuegate.storage.queries import ALL_ACCOUNTS, AccountFilter, load
from queuegate.storage.queue_model import (
    ClaimedTask,
    FindQueue,
    MovedBatch,
    MoveFailure,
    MoveTask,
    Queue,
)
from queuegate.storage.queues import fifo_queues
from queuegate.storage.queues.capacity import capacity_of

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction


_SQL = load("queues/moves")

# Longer than the pause that any batch earns: at least one message a second is moved.
_LONGEST_PAUSE_SECONDS = 10.0
_MOST_ARREARS_SECONDS = 0.5


_NO_ROOM = MovedBatch(0, None, [], 0, 0, is_short=True)


async def start(
    tx: Transaction,
    now: datetime | None,
    task_id: UUID,
    *,
    source: Queue,
    destination_arn: str | None,
    max_per_second: int | None,
    to_move_count: int,
) -> MoveTask | None:
    """Create a task; return None if the source has a running one."""
    return await _SQL["start"].first(
        tx,
        MoveTask._make,
        now,
        task_id,
        source.queue_id,
        source.arn,
        destination_arn,
        max_per_second,
        to_move_count,
        source.is_fifo,
    )


async def count_running(tx: Transaction, account_id: str, region: str) -> int:
    """Count the running tasks of an account and region."""
    return await _SQL["count_running"].value(tx, account_id, region)


async def forget_finished(tx: Transaction, source_queue_id: int, *, keep: int) -> None:
    """Delete finished tasks of a source except among its ``keep`` newest."""
    await _SQL["forget_finished"].run(tx, source_queue_id, keep)


async def lock_task(tx: Transaction, source_queue_id: int, task_id: UUID) -> MoveTask | None:
    """Lock and return a task; no batch advances it until the transaction ends."""
    return await _SQL["lock_task"].first(tx, MoveTask._make, source_queue_id, task_id)


async def list_newest(tx: Transaction, source_queue_id: int, *, limit: int) -> list[MoveTask]:
    """Return tasks of a source, newest first."""
    return await _SQL["list_newest"].all(tx, MoveTask._make, source_queue_id, limit)


async def claim(
    tx: Transaction, now: datetime | None, whose: AccountFilter = ALL_ACCOUNTS
) -> ClaimedTask | None:
    """Lock the running task with the most overdue batch; None if none is due."""
    return await _SQL["claim"].first(
        tx, lambda row: ClaimedTask(*row), now, _LONGEST_PAUSE_SECONDS, *whose
    )


async def move_standard_batch(
    tx: Transaction,
    now: datetime | None,
    task: ClaimedTask,
    *,
    source: Queue,
    target: Queue | None,
    find: FindQueue,
    limit: int,
) -> MovedBatch:
    """Move the next messages of a standard queue that are not in flight. Without a target the
    statement finds their source queues."""
    await probe_by_key(tx)
    part = (task.source_queue_id, task.last_sequence, task.end_sequence)
    only = None if task.only is None else [one.sequence for one in task.only]
    if target is not None:
        bounded = _bounded([target])
    else:
        homes = await _SQL["find_bounded_homes"].rows(tx, now, *part, limit, only)
        bounded = {row["queue_id"] for row in homes}
    room = await capacity_of(tx, bounded, now) if bounded else {}
    if target is not None and bounded:
        limit = min(limit, room.get(target.queue_id, limit))
        if not limit:
            return _NO_ROOM
    row = await _SQL["move_standard_batch"].row(
        tx,
        now,
        *part,
        limit,
        None if target is None else target.queue_id,
        list(room),
        list(room.values()),
        only,
    )
    assert row is not None
    looked_at, last_sequence, queue_ids, moved_counts, without_source, without_queue, _ = row
    arrived = list(zip(queue_ids, moved_counts, strict=True))
    stayed = looked_at - sum(moved_counts) - without_source - without_queue
    return MovedBatch(
        looked_at, last_sequence, arrived, without_source, without_queue, is_short=stayed > 0
    )


def _bounded(some: Iterable[Queue | None]) -> set[int]:
    """Return the ids of the bounded ones of these queues."""
    return {one.queue_id for one in some if one is not None and one.most_messages is not None}


async def move_fifo_batch(
    tx: Transaction,
    now: datetime | None,
    task: ClaimedTask,
    *,
    source: Queue,
    target: Queue | None,
    find: FindQueue,
    limit: int,
) -> MovedBatch:
    """Move the next messages of a FIFO queue in the order of their groups.

    Without a target each returns to its source queue. A message whose queue is unknown, deleted or
    full stays, and blocks those behind it in its group.
    """
    bounded = _bounded([target])
    while True:
        # Reserve capacity before locking groups: if more is needed, unlock the groups.
        room = await capacity_of(tx, bounded, now) if bounded else {}
        if target is not None and not room.get(target.queue_id, limit):
            return _NO_ROOM
        try:
            async with tx.transaction():
                movable = await fifo_queues.take_for_move(
                    tx,
                    now,
                    source.queue_id,
                    retention_seconds=source.retention_seconds,
                    limit=limit,
                    only=task.only,
                )
                movable = [one for one in movable if one.sequence <= task.end_sequence]
                homes: dict[str | None, Queue | None] = {}
                for arn in (
                    {one.dead_letter_source_arn for one in movable} if target is None else ()
                ):
                    homes[arn] = None if arn is None else await find(tx, arn)
                if not _bounded(homes.values()) <= bounded:
                    raise _MoreRooms
                return await _move_groups(tx, now, source, target, movable, homes, room)
        except _MoreRooms:
            bounded |= _bounded(homes.values())


class _MoreRooms(Exception):
    """At least one target queue is bounded: reserve capacity first."""


async def _move_groups(
    tx: Transaction,
    now: datetime | None,
    source: Queue,
    target: Queue | None,
    movable: list[fifo_queues.Movable],
    homes: Mapping[str | None, Queue | None],
    room: dict[int, int],
) -> MovedBatch:
    """Move these messages, whose groups are locked."""
    stuck: set[str] = set()
    without_source = without_queue = 0
    is_short = False
    rows: list[tuple[str, int, int, str]] = []
    for message in sorted(movable, key=lambda one: one.sequence):
        arn = message.dead_letter_source_arn
        home = homes.get(arn) if target is None else target
        is_full = home is not None and not room.get(home.queue_id, 1)
        if home is None or is_full or message.group_id in stuck:
            stuck.add(message.group_id)
            is_short = is_short or is_full
            without_source += home is None and arn is None
            without_queue += home is None and arn is not None
            continue
        if home.queue_id in room:
            room[home.queue_id] -= 1
        rows.append((message.group_id, message.sequence, home.queue_id, str(uuid4())))
    moved = await fifo_queues.move(tx, now, source.queue_id, rows) if rows else 0
    arrived = Counter(queue_id for _, _, queue_id, _ in rows)
    if moved < len(rows):
        # A queue was deleted meanwhile: the next batch handles the rest.
        arrived = Counter({rows[0][2]: moved})
    last_sequence = max((message.sequence for message in movable), default=None)
    return MovedBatch(
        len(movable), last_sequence, list(arrived.items()), without_source, without_queue, is_short
    )


class Home(NamedTuple):
    """The source of a dead letter, and the parent of its dead-letter queue; None: not recorded."""

    arn: str | None
    parent_id: int | None


async def find_home(tx: Transaction, queue_id: int, sequence: int) -> Home | None:
    """Find the source of a message of a standard queue; None: no such message."""
    return await _SQL["find_home"].first(tx, Home._make, queue_id, sequence)


async def requeue(
    tx: Transaction, now: datetime | None, *, source_id: int, sequence: int, target_id: int
) -> bool:
    """Move one standard message as if sent now; False: the message or target is deleted."""
    return bool(await _SQL["requeue"].by_key.value(tx, now, source_id, sequence, target_id))


async def advance(
    tx: Transaction,
    now: datetime | None,
    task: ClaimedTask,
    *,
    moved_count: int,
    last_sequence: int,
    pause_seconds: float = 0.0,
) -> None:
    """Count a batch; the next one begins behind ``last_sequence``, as pause and rate allow."""
    await _SQL["advance"].run(
        tx,
        now,
        task.source_queue_id,
        task.task_id,
        moved_count,
        last_sequence,
        _MOST_ARREARS_SECONDS,
        pause_seconds,
    )


async def finish(
    tx: Transaction,
    now: datetime | None,
    task: ClaimedTask | MoveTask,
    *,
    status: str,
    failure_reason: MoveFailure | None = None,
) -> None:
    """End a running task."""
    await _SQL["finish"].run(tx, now, task.source_queue_id, task.task_id, status, failure_reason)
