"""Finishing messages, and changing for how long they are hidden: by receipt, or by number."""

from __future__ import annotations

from datetime import datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING

from queuegate.gateway.operations.replies import answered
from queuegate.storage.errors import VisibilityTimeoutOutOfRange
from queuegate.storage.queues import message_ids, standard
from queuegate.storage.queues.message_entries import ChangeVisibility, Delete, DeleteLast

if TYPE_CHECKING:
    from queuegate.gateway.operations.caller import Caller
    from queuegate.gateway.operations.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.model import Handle, Outcome, Queue
    from queuegate.storage.queues.message_ids import InFlight

# Who looks a message up and then acts on it does so again when it was received anew meanwhile.
_LOOKS = 3


def finish(
    engine: Engine, queue: Queue, handles: list[Handle], reply: Reply[list[Outcome]]
) -> None:
    """Delete messages by what their receipts say; the reply has an outcome for each.

    On a standard queue every receipt will do, and what is gone already counts as deleted; on a FIFO
    queue only that of the last receive, while it lasts (docs/contract/sqs.md 2.6). A queue that
    archives keeps the messages in its archive, in the same transaction.
    """
    entry = Delete(handles, _Finished(engine, queue, reply), archives=queue.is_archiving)
    engine.lanes_of[queue.kind].delete.submit(entry)


def finish_last(
    engine: Engine, queue: Queue, handles: list[Handle], reply: Reply[list[Outcome]]
) -> None:
    """The same for receivers who have a message only while nobody else has received it: of one that
    somebody has, the outcome is "expired", and it stays; "gone" of one that is not there any more,
    whoever deleted it. A late delete counts as long as nobody has received the message since.

    On a FIFO queue it is what ``finish`` does.
    """
    if queue.kind.has_groups:
        finish(engine, queue, handles, reply)
        return
    entry = DeleteLast(handles, _FinishedLast(engine, queue, reply))
    engine.lanes_of[queue.kind].delete.submit(entry)


class _Finished:
    """Waits for a delete: counts, and wakes who waited behind the messages in their groups."""

    __slots__ = ("_engine", "_queue", "_reply", "_started", "failed")

    def __init__(self, engine: Engine, queue: Queue, reply: Reply[list[Outcome]]) -> None:
        self._engine = engine
        self._queue = queue
        self._reply = reply
        self._started = perf_counter()
        self.failed = reply.failed

    def done(self, outcomes: list[Outcome]) -> None:
        # Who asks a standard queue is not told what was gone: it is deleted, as it was asked.
        has_groups = self._queue.kind.has_groups
        self._tell(outcomes, outcomes.count("ok") if has_groups else len(outcomes))

    def _tell(self, outcomes: list[Outcome], deleted: int) -> None:
        queue = self._queue
        if deleted:
            self._engine.series.deleted(queue, deleted, self._started)
            if queue.kind.has_groups:
                self._engine.wakeups.arrived(queue.queue_id, deleted)
        self._reply.done(outcomes)


class _FinishedLast(_Finished):
    """The same for those who are told."""

    __slots__ = ()

    def done(self, outcomes: list[Outcome]) -> None:
        self._tell(outcomes, outcomes.count("ok"))


def check_visibility(seconds: int, most: int) -> None:
    """Refuse seconds for which nothing can be hidden."""
    if not 0 <= seconds <= most:
        raise VisibilityTimeoutOutOfRange(seconds, most)


def change(
    engine: Engine,
    queue: Queue,
    changes: list[tuple[Handle, int]],
    reply: Reply[list[Outcome]],
) -> None:
    """Hide messages for so many seconds from now, 0 to show them; an outcome for each."""
    rows = [(*handle, seconds * 1000) for handle, seconds in changes]
    entry = ChangeVisibility(rows, _Changed(engine, queue, changes, reply))
    engine.lanes_of[queue.kind].visibility.submit(entry)


class _Changed:
    """Waits for a change: wakes receivers for what is shown."""

    __slots__ = ("_changes", "_engine", "_queue", "_reply", "failed")

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        changes: list[tuple[Handle, int]],
        reply: Reply[list[Outcome]],
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._changes = changes
        self._reply = reply
        self.failed = reply.failed

    def done(self, outcomes: list[Outcome]) -> None:
        pairs = zip(self._changes, outcomes, strict=True)
        shown = sum([1 for (_, seconds), one in pairs if one == "ok" and seconds == 0])
        if shown:
            self._engine.wakeups.arrived(self._queue.queue_id, shown)
        self._reply.done(outcomes)


async def change_last(
    engine: Engine, queue: Queue, handles: list[Handle], seconds: int
) -> list[Outcome]:
    """Hide messages for so many seconds from now, 0 to show them, for whoever received them last;
    outcomes as of ``finish_last``. Raises VisibilityTimeoutOutOfRange."""
    check_visibility(seconds, engine.limits.visibility_timeout_seconds)
    if queue.kind.has_groups:
        changes = [(handle, seconds) for handle in handles]
        outcomes: list[Outcome] = await answered(change, engine, queue, changes)
        return outcomes
    async with engine.database.transaction() as tx:
        now = engine.clock.of(queue.account_id).now()
        outcomes = await standard.hide_last(tx, now, handles, seconds)
    if seconds == 0 and "ok" in outcomes:
        engine.wakeups.arrived(queue.queue_id, outcomes.count("ok"))
    return outcomes


async def finish_by_number(
    engine: Engine, caller: Caller, queue: Queue, numbers: list[int]
) -> list[int]:
    """Delete messages by their numbers, whoever has them: those, in the order given, that were
    there and that this call deleted.

    Of several deletes of one message one has it, and a repeated delete finds nothing. On a FIFO
    queue only what is in flight can be deleted: any other message counts as not there, for its
    group would lose its order. A queue that archives keeps them in its archive.
    """
    started = perf_counter()
    left = [one for one in dict.fromkeys(numbers) if 0 < one <= message_ids.LAST]
    deleted: set[int] = set()
    for _ in range(_LOOKS):
        handles = await _handles(engine, queue, left)
        if not handles:
            break
        outcomes = await answered(_delete, engine, queue, handles)
        found = [*zip(handles, outcomes, strict=True)]
        deleted.update([handle[2] for handle, outcome in found if outcome == "ok"])
        # It timed out since we looked, and maybe somebody has received it anew.
        left = [handle[2] for handle, outcome in found if outcome == "expired"]
        if not left:
            break
    if deleted:
        engine.series.deleted(queue, len(deleted), started)
        if queue.kind.has_groups:
            # What waited behind them in their groups may be receivable now.
            engine.wakeups.arrived(queue.queue_id, len(deleted))
    return [number for number in dict.fromkeys(numbers) if number in deleted]


def _delete(
    engine: Engine, queue: Queue, handles: list[Handle], reply: Reply[list[Outcome]]
) -> None:
    engine.lanes_of[queue.kind].delete.submit(Delete(handles, reply, archives=True))


async def _handles(engine: Engine, queue: Queue, numbers: list[int]) -> list[Handle]:
    """What their receipts would say; on a FIFO queue of those that are in flight."""
    if not queue.kind.has_groups:
        return [(queue.queue_id, None, number, 0) for number in numbers]
    found = await _in_flight(engine, queue, numbers) if numbers else []
    return [_handle(queue, message) for message in found]


def _handle(queue: Queue, message: InFlight) -> Handle:
    return queue.queue_id, message.group_id, message.sequence, message.receive_count


async def _in_flight(engine: Engine, queue: Queue, numbers: list[int]) -> list[InFlight]:
    async with engine.database.transaction() as tx:
        return await message_ids.find_in_flight(
            tx, engine.clock.of(queue.account_id).now(), queue.queue_id, numbers
        )


async def change_by_number(
    engine: Engine, caller: Caller, queue: Queue, number: int, seconds: int
) -> datetime | None:
    """Hide a message for so many seconds from now, 0 to show it: the instant from which it is
    visible, or None when there is no such message.

    Any message of a standard queue, whoever has it. On a FIFO queue only one that is in flight, as
    for ``finish_by_number``; its instant is exact to the time that two statements take. Raises
    VisibilityTimeoutOutOfRange.
    """
    check_visibility(seconds, engine.limits.visibility_timeout_seconds)
    if not 0 < number <= message_ids.LAST:
        return None
    if queue.kind.has_groups:
        return await _change_in_flight(engine, queue, number, seconds)
    async with engine.database.transaction() as tx:
        visible_at = await message_ids.set_visible_at(
            tx, engine.clock.of(queue.account_id).now(), queue.queue_id, number, seconds
        )
    if visible_at is not None and seconds == 0:
        engine.wakeups.arrived(queue.queue_id, 1)
    return visible_at


async def _change_in_flight(
    engine: Engine, queue: Queue, number: int, seconds: int
) -> datetime | None:
    for _ in range(_LOOKS):
        found = await _in_flight(engine, queue, [number])
        if not found:
            break
        [outcome] = await answered(change, engine, queue, [(_handle(queue, found[0]), seconds)])
        if outcome == "ok":
            return found[0].looked_at + timedelta(seconds=seconds)
    return None
