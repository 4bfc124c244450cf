"""Deletes and visibility changes of messages, by receipt handle or by number."""

from __future__ import annotations

from datetime import datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING

from queuegate.gateway.operations.runtime.replies import answered
from queuegate.storage.queue_model import LAST
from queuegate.storage.queues import messages, standard_queues
from queuegate.storage.queues.messages import ChangeVisibility, Delete, DeleteLast
from queuegate.storage.storage_errors import VisibilityTimeoutOutOfRange

if TYPE_CHECKING:
    from queuegate.gateway.operations.access.caller import Caller
    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.lanes import Reply
    from queuegate.storage.queue_model import Handle, Queue, ReceiptOutcome

# Retries of lookups whose message is received again meanwhile.
_LOOKS = 3


def finish(
    engine: Engine, queue: Queue, handles: list[Handle], reply: Reply[list[ReceiptOutcome]]
) -> None:
    """Delete messages by their receipts; the reply has an outcome for each. On a standard queue
    every receipt is valid, and absent messages count as deleted. On a FIFO queue only the receipt
    of the last receive is valid, until its timeout (docs/contract/sqs.md 2.6). A queue with an
    archive keeps the messages there, in the same transaction."""
    if engine.faults is not None and engine.faults.duplicates(queue):
        change(engine, queue, [(handle, 0) for handle in handles], reply)
        return
    finished = _Finished(engine, queue, reply, not queue.kind.has_groups)
    entry = Delete(handles, finished, queue.kind.order, archives=queue.is_archiving)
    engine.lanes_of[queue.kind].delete.submit(entry)


def finish_last(
    engine: Engine, queue: Queue, handles: list[Handle], reply: Reply[list[ReceiptOutcome]]
) -> None:
    """Delete messages of which the caller is the last receiver. The outcome is "expired" for a
    message that was received again, which stays, and "gone" for an absent message. A delete after
    the timeout is valid if nobody has received the message since. On a FIFO queue this equals
    ``finish``."""
    if queue.kind.has_groups or (engine.faults is not None and engine.faults.duplicates(queue)):
        finish(engine, queue, handles, reply)
        return
    entry = DeleteLast(handles, _Finished(engine, queue, reply, False))
    engine.lanes_of[queue.kind].delete.submit(entry)


class _Finished:
    """The reply to a delete: counts it, and wakes receivers for later messages of the groups.
    ``counts_all``: absent messages count as deleted."""

    __slots__ = ("_counts_all", "_engine", "_queue", "_reply", "_started", "failed")

    def __init__(
        self, engine: Engine, queue: Queue, reply: Reply[list[ReceiptOutcome]], counts_all: bool
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._reply = reply
        self._counts_all = counts_all
        self._started = perf_counter()
        self.failed = reply.failed

    def done(self, outcomes: list[ReceiptOutcome]) -> None:
        queue = self._queue
        deleted = len(outcomes) if self._counts_all else outcomes.count("ok")
        if deleted:
            self._engine.series.deleted(queue, deleted, self._started)
            if queue.kind.has_groups:
                self._engine.wakeups.arrived(queue.queue_id, deleted)
        self._reply.done(outcomes)


def check_visibility(seconds: int, most: int) -> None:
    if not 0 <= seconds <= most:
        raise VisibilityTimeoutOutOfRange(seconds, most)


def change(
    engine: Engine,
    queue: Queue,
    changes: list[tuple[Handle, int]],
    reply: Reply[list[ReceiptOutcome]],
) -> None:
    """Hide messages for so many seconds from now, 0 to show them; the reply has an outcome for
    each."""
    rows = [(*handle, seconds * 1000) for handle, seconds in changes]
    entry = ChangeVisibility(rows, _Changed(engine, queue, changes, reply), queue.kind.order)
    engine.lanes_of[queue.kind].visibility.submit(entry)


class _Changed:
    """The reply to a change: wakes receivers of visible messages."""

    __slots__ = ("_changes", "_engine", "_queue", "_reply", "failed")

    def __init__(
        self,
        engine: Engine,
        queue: Queue,
        changes: list[tuple[Handle, int]],
        reply: Reply[list[ReceiptOutcome]],
    ) -> None:
        self._engine = engine
        self._queue = queue
        self._changes = changes
        self._reply = reply
        self.failed = reply.failed

    def done(self, outcomes: list[ReceiptOutcome]) -> None:
        pairs = zip(self._changes, outcomes, strict=True)
        shown = sum([1 for (_, seconds), one in pairs if one == "ok" and seconds == 0])
        if shown:
            self._engine.wakeups.arrived(self._queue.queue_id, shown)
        self._reply.done(outcomes)


async def change_last(
    engine: Engine, queue: Queue, handles: list[Handle], seconds: int
) -> list[ReceiptOutcome]:
    """Hide messages of which the caller is the last receiver for so many seconds from now, 0 to
    show them. Outcomes are as of ``finish_last``. Raises VisibilityTimeoutOutOfRange."""
    check_visibility(seconds, engine.limits.visibility_timeout_seconds)
    if queue.kind.has_groups:
        changes = [(handle, seconds) for handle in handles]
        outcomes: list[ReceiptOutcome] = await answered(change, engine, queue, changes)
        return outcomes
    async with engine.database.transaction() as tx:
        now = engine.clock.of(queue.account_id).now()
        outcomes = await standard_queues.hide_last(tx, now, handles, seconds)
    if seconds == 0 and "ok" in outcomes:
        engine.wakeups.arrived(queue.queue_id, outcomes.count("ok"))
    return outcomes


async def finish_by_number(
    engine: Engine, caller: Caller, queue: Queue, numbers: list[int]
) -> list[int]:
    """Delete messages by number, even in flight. Return the numbers that this call deleted, in the
    given order. Of concurrent deletes of one message, one succeeds; a repeated delete finds
    nothing. On a FIFO queue only messages in flight are deleted, others count as absent, because
    their group would lose its order. A queue with an archive keeps the messages there."""
    started = perf_counter()
    left = [one for one in dict.fromkeys(numbers) if 0 < one <= LAST]
    deleted: set[int] = set()
    for _ in range(_LOOKS):
        handles: list[Handle] = [(queue.queue_id, None, number, 0) for number in left]
        if queue.kind.has_groups:
            handles = [handle for handle, _ in await _in_flight(engine, queue, left)]
        if not handles:
            break
        outcomes = await answered(_delete, engine, queue, handles)
        found = [*zip(handles, outcomes, strict=True)]
        deleted.update([handle[2] for handle, outcome in found if outcome == "ok"])
        # The timeout has passed since the lookup, and the message may have been received again.
        left = [handle[2] for handle, outcome in found if outcome == "expired"]
        if not left:
            break
    if deleted:
        engine.series.deleted(queue, len(deleted), started)
        if queue.kind.has_groups:
            # Later messages of their groups may be receivable now.
            engine.wakeups.arrived(queue.queue_id, len(deleted))
    return [number for number in dict.fromkeys(numbers) if number in deleted]


def _delete(
    engine: Engine, queue: Queue, handles: list[Handle], reply: Reply[list[ReceiptOutcome]]
) -> None:
    entry = Delete(handles, reply, queue.kind.order, archives=True)
    engine.lanes_of[queue.kind].delete.submit(entry)


async def _in_flight(
    engine: Engine, queue: Queue, numbers: list[int]
) -> list[tuple[Handle, datetime]]:
    """Return the handles of the messages in flight, each with the time of the lookup."""
    if not numbers:
        return []
    async with engine.database.transaction() as tx:
        found = await messages.find_in_flight(
            tx, engine.clock.of(queue.account_id).now(), queue.queue_id, numbers
        )
    return [
        ((queue.queue_id, one.group_id, one.sequence, one.receive_count), one.looked_at)
        for one in found
    ]


async def change_by_number(
    engine: Engine, caller: Caller, queue: Queue, number: int, seconds: int
) -> datetime | None:
    """Hide a message for so many seconds from now, 0 to show it. Return the instant at which it
    becomes visible; None: there is no such message. On a standard queue any message, even in
    flight. On a FIFO queue only messages in flight; the instant is exact to the duration of two
    statements. Raises VisibilityTimeoutOutOfRange."""
    check_visibility(seconds, engine.limits.visibility_timeout_seconds)
    if not 0 < number <= LAST:
        return None
    if queue.kind.has_groups:
        return await _change_in_flight(engine, queue, number, seconds)
    async with engine.database.transaction() as tx:
        visible_at = await messages.set_visible_at(
            tx, engine.clock.of(queue.account_id).now_of_sends(), queue.queue_id, number, seconds
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
        [(handle, looked_at)] = found
        [outcome] = await answered(change, engine, queue, [(handle, seconds)])
        if outcome == "ok":
            return looked_at + timedelta(seconds=seconds)
    return None
