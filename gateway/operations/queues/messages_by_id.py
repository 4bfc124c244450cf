"""Delete and change visibility by the id of a message: the native API has no receipt handles."""

from __future__ import annotations

from datetime import datetime, timedelta
from time import perf_counter
from typing import TYPE_CHECKING

from gateway.operations.queues.messages import answered, check_visibility
from storage.model import Queue
from storage.queues import message_ids
from storage.queues.deletes import ArchivingDelete
from storage.queues.fifo_entries import ArchivingFifoDelete, FifoChangeVisibility
from storage.queues.message_ids import InFlight

if TYPE_CHECKING:
    from gateway.operations.caller import Caller
    from gateway.operations.engine import Engine

# Who looks a message up and then acts on it does so again when it was received anew meanwhile.
_LOOKS = 3


async def delete_by_ids(engine: Engine, caller: Caller, queue: Queue, ids: list[int]) -> list[int]:
    """Delete messages by their ids, whoever has them: those, in the order given, that were there
    and that this call deleted.

    Of several deletes of one message one has it, and a repeated delete finds nothing. On a FIFO
    queue only what is in flight can be deleted: any other message counts as not there, for its
    group would lose its order. A queue that archives keeps them in its archive.
    """
    started = perf_counter()
    wanted = [one for one in dict.fromkeys(ids) if 0 < one <= message_ids.LAST]
    deleted: list[int] = []
    if queue.is_fifo and wanted:
        deleted = await _delete_in_flight(engine, queue, wanted)
    elif wanted:
        keys = [(queue.queue_id, sequence) for sequence in wanted]
        deleted = await answered(
            lambda reply: engine.standard.delete.submit(ArchivingDelete(keys, reply))
        )
    if deleted:
        engine.series.deleted(queue, len(deleted), started)
    return deleted


async def _delete_in_flight(engine: Engine, queue: Queue, wanted: list[int]) -> list[int]:
    deleted: set[int] = set()
    left = wanted
    for _ in range(_LOOKS):
        found = await _in_flight(engine, queue, left)
        if not found:
            break
        rows = [_row(queue, message) for message in found]
        states = await answered(
            lambda reply, rows=rows: engine.fifo.delete.submit(ArchivingFifoDelete(rows, reply))
        )
        outcomes = [*zip(found, states, strict=True)]
        deleted.update(message.sequence for message, state in outcomes if state == "ok")
        # It timed out since we looked, and maybe somebody has received it anew.
        left = [message.sequence for message, state in outcomes if state == "expired"]
        if not left:
            break
    if deleted:
        # What waited behind them in their groups may be receivable now.
        engine.wakeups.arrived(queue.queue_id, len(deleted))
    return [sequence for sequence in wanted if sequence in deleted]


def _row(queue: Queue, message: InFlight) -> tuple[int, str, int, int]:
    return queue.queue_id, message.group_id, message.sequence, message.receive_count


async def _in_flight(engine: Engine, queue: Queue, ids: list[int]) -> list[InFlight]:
    async with engine.database.transaction() as tx:
        return await message_ids.find_in_flight(
            tx, engine.clock.of(queue.account_id).now(), queue.queue_id, ids
        )


async def change_visibility_by_id(
    engine: Engine, caller: Caller, queue: Queue, sequence: int, seconds: int
) -> datetime | None:
    """Hide a message for so many seconds from now, 0 to show it: the instant from which it is
    visible, or None when there is no such message.

    Any message of a standard queue, whoever has it. On a FIFO queue only one that is in flight, as
    for ``delete_by_ids``; its instant is exact to the time that two statements take. Raises
    InvalidParameterValue for seconds beyond the limit.
    """
    check_visibility(seconds, engine.limits.visibility_timeout_seconds)
    if not 0 < sequence <= message_ids.LAST:
        return None
    if queue.is_fifo:
        return await _change_in_flight(engine, queue, sequence, seconds)
    async with engine.database.transaction() as tx:
        visible_at = await message_ids.set_visible_at(
            tx, engine.clock.of(queue.account_id).now(), queue.queue_id, sequence, seconds
        )
    if visible_at is not None and seconds == 0:
        engine.wakeups.arrived(queue.queue_id, 1)
    return visible_at


async def _change_in_flight(
    engine: Engine, queue: Queue, sequence: int, seconds: int
) -> datetime | None:
    for _ in range(_LOOKS):
        found = await _in_flight(engine, queue, [sequence])
        if not found:
            break
        row = (*_row(queue, found[0]), seconds * 1000)
        [state] = await answered(
            lambda reply, row=row: engine.fifo.visibility.submit(FifoChangeVisibility([row], reply))
        )
        if state == "ok":
            if seconds == 0:
                engine.wakeups.arrived(queue.queue_id, 1)
            return found[0].looked_at + timedelta(seconds=seconds)
    return None
