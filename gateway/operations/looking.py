"""What long polls look at between notifications, and what notifications do to the caches."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from gateway.operations import receiving
from storage import fifo, messages, settings
from storage.errors import Unavailable

_log = logging.getLogger("queuegate.looking")

if TYPE_CHECKING:
    from gateway.operations.engine import Engine


def connect(engine: Engine) -> None:
    """Give the wakeups of this process their ears and eyes."""

    async def look(queue_ids: list[int]) -> list[tuple[int, bool, int]]:
        return await _look(engine, queue_ids)

    def queue_changed(queue_id: int | None) -> None:
        if queue_id is None:
            # Nobody told us for a while: what may have changed is everything, the clock too.
            engine.queues.clear()
            engine.standard.forget_marks()
            receiving.spawn(_read_clock(engine))
        else:
            engine.queues.forget(queue_id)
            engine.in_flight.forget(queue_id)

    def clock_moved(ahead_seconds: float, moves: int) -> None:
        _move_clock(engine, ahead_seconds, moves)

    engine.wakeups.look = look
    engine.wakeups.on_queue_changed = queue_changed
    engine.wakeups.on_clock_moved = clock_moved
    engine.wakeups.on_arrival_elsewhere = lambda queue_id: engine.standard.look_near((queue_id,))


def _move_clock(engine: Engine, ahead_seconds: float, moves: int) -> None:
    if engine.clock.move(ahead_seconds, moves):
        engine.standard.forget_marks()
        engine.wakeups.on_schedules()
        engine.wakeups.on_deliveries()
        engine.wakeups.wake_all()


async def _read_clock(engine: Engine) -> None:
    try:
        async with engine.database.transaction() as tx:
            stored = await settings.clock(tx)
        _move_clock(engine, stored.ahead_seconds, stored.moves)
    except Unavailable as error:
        _log.warning("where the clock stands is not known: %s", error)


async def _look(engine: Engine, queue_ids: list[int]) -> list[tuple[int, bool, int]]:
    """(queue_id, receivable now, milliseconds to the next) of queues that somebody waits on."""
    standard = []
    ordered = []
    for queue_id in queue_ids:
        queue = engine.queues.by_id(queue_id)
        if queue is None or queue.is_fifo:
            ordered.append(queue_id)
        if queue is None or not queue.is_fifo:
            retention = queue.retention_seconds if queue else 1_209_600
            standard.append((queue_id, engine.standard.mark_of(queue_id), retention))
    found: list[tuple[int, bool, int]] = []
    now = engine.clock.now()
    async with engine.database.transaction() as tx:
        if standard:
            found += await messages.next_visible(tx, now, standard)
        if ordered:
            found += [
                (queue_id, ready, in_ms or 0)
                for queue_id, ready, in_ms in await fifo.next_ready(tx, now, ordered)
                if ready or in_ms is not None
            ]
    return found
