"""Runs message move tasks (docs/contract/sqs.md 2.10)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from queuegate.scheduler.worker import ClockNow, FilterNow
from queuegate.storage.database import Database
from queuegate.storage.queries import AccountFilter
from queuegate.storage.queue_model import ClaimedTask, MovedBatch, MoveFailure
from queuegate.storage.queues import moves, stored_queues

if TYPE_CHECKING:
    from queuegate.storage.database import Transaction

OnMoved = Callable[[int, int], None]

_LONGEST = timedelta(hours=36)
_IDLE_SECONDS = 1.0
_ROOM_SECONDS = 1.0
"""Pause while the destination has no capacity."""
_PACED_SECONDS = 0.1
_BATCHES_PER_SECOND = 10


@dataclass
class MoveMessages:
    """Moves batches of the tasks that are due.

    A batch is one transaction that holds the task's row: messages leave the source and arrive, and
    the task's count rises. So a crash repeats and loses nothing, one worker at a time moves for a
    task, and a cancelled task reports its exact count.
    """

    database: Database
    now: ClockNow
    on_moved: OnMoved
    whose: FilterNow = AccountFilter
    pause_seconds: float = _IDLE_SECONDS
    name = "move"

    async def run_round(self, rows: int) -> int:
        """Move batches of due tasks and return the number of messages moved."""
        handled = 0
        worked = False
        while handled < rows:
            moved = await self._run_batch(rows - handled)
            if moved is None:
                break
            worked = True
            handled += moved
        self.pause_seconds = (
            _PACED_SECONDS if worked else min(self.pause_seconds * 1.5, _IDLE_SECONDS)
        )
        return handled

    async def _run_batch(self, rows: int) -> int | None:
        """Move one batch of the most overdue task and return its messages; None: no task is due."""
        now = self.now()
        async with self.database.transaction() as tx:
            task = await moves.claim(tx, now, self.whose())
            if task is None:
                return None
            batch = await self._advance(tx, now, task, rows)
        if batch is None:
            return 0
        for queue_id, count in batch.arrived:
            self.on_moved(queue_id, count)
        return batch.moved_count

    async def _advance(
        self, tx: Transaction, now: datetime | None, task: ClaimedTask, rows: int
    ) -> MovedBatch | None:
        """Move a batch or end the task; None: the task ended."""
        source = await stored_queues.find_by_id(tx, task.source_queue_id)
        target = None
        reason = None
        if source is None:
            reason = MoveFailure.QUEUE_GONE
        elif task.age > _LONGEST:
            reason = MoveFailure.TOO_LONG
        elif task.destination_arn is not None:
            target = await stored_queues.find_by_arn(tx, task.destination_arn)
            reason = MoveFailure.QUEUE_GONE if target is None else None
        if reason is not None or source is None:
            await moves.finish(tx, now, task, status="FAILED", failure_reason=reason)
            return None
        limit = rows
        if task.max_per_second is not None:
            limit = min(rows, max(1, task.max_per_second // _BATCHES_PER_SECOND))
        batch = await source.kind.move_batch(
            tx, now, task, source=source, target=target, find=stored_queues.find_by_arn, limit=limit
        )
        await _record_progress(tx, now, task, batch, limit)
        return batch


async def _record_progress(
    tx: Transaction, now: datetime | None, task: ClaimedTask, batch: MovedBatch, limit: int
) -> None:
    """Record the task's progress. A task is complete when a pass from the beginning finds nothing.
    Without capacity in the destination the task pauses."""
    is_end_of_pass = batch.looked_at < limit
    last_sequence = 0 if is_end_of_pass else batch.last_sequence or 0
    moved_count = batch.moved_count
    waits = batch.is_short and not moved_count
    await moves.advance(
        tx,
        now,
        task,
        moved_count=moved_count,
        last_sequence=last_sequence,
        pause_seconds=_ROOM_SECONDS if waits else 0.0,
    )
    failure = None
    if batch.without_queue:
        failure = MoveFailure.QUEUE_GONE
    elif batch.without_source:
        failure = MoveFailure.SOURCE_UNKNOWN
    if failure is not None:
        await moves.finish(tx, now, task, status="FAILED", failure_reason=failure)
    elif batch.looked_at == 0 and task.last_sequence == 0 and not batch.is_short:
        await moves.finish(tx, now, task, status="COMPLETED")
