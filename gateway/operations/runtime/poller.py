"""The poll of queues with parked receives, and the effects of notifications on caches."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from queuegate.gateway.operations.logs.log_records import notify_dead_lettered
from queuegate.gateway.operations.runtime.background_tasks import spawn
from queuegate.storage import stored_clocks as settings
from queuegate.storage.notifications import Notice
from queuegate.storage.queue_model import WatchedQueue
from queuegate.storage.queues.kinds import KINDS
from queuegate.storage.storage_errors import Unavailable

if TYPE_CHECKING:
    from datetime import datetime

    from queuegate.gateway.operations.runtime.engine import Engine
    from queuegate.storage.database import Transaction
    from queuegate.storage.logs.log_deliveries import Fetch, Fetched


_LONGEST_RETENTION = 1_209_600

_log = logging.getLogger("queuegate.poller")


def connect(engine: Engine) -> None:
    """Subscribe to the notifications of this process's wakeups and lanes."""

    def queue_changed(queue_id: int | None) -> None:
        if queue_id is None:
            # Notifications may have been lost: everything may have changed, also the clock.
            engine.queues.clear()
            engine.standard.forget_marks()
            spawn(_read_clock(engine))
        else:
            engine.queues.forget(queue_id)
            engine.in_flight.forget(queue_id)
            engine.standard.forget_marks_of(queue_id)

    def queue_gone(queue_id: int) -> None:
        engine.fairness.forget(queue_id)
        # The cache may be outdated: a new queue may have taken the name.
        engine.queues.forget(queue_id)

    def clock_moved(moves: int) -> None:
        if moves == 0:
            spawn(engine.keeper.asked_for_time())
        if moves > engine.clock.moves:
            spawn(_read_clock(engine))
        else:
            engine.wakeups.applied(Notice.CLOCK_MOVED, moves)

    def faults_changed() -> None:
        spawn(_read_faults(engine))

    def delivered(fetch: Fetch, fetched: Fetched) -> None:
        series = engine.series.groups.of(fetch.log, fetch.group)
        series.delivered += len(fetched.records)
        series.redelivered += fetched.again

    for lanes in (engine.standard, engine.fifo, engine.publish):
        lanes.on_gone = queue_gone
    engine.wakeups.look = partial(_poll, engine)
    engine.standard.waiting = engine.wakeups
    engine.append.on_appended = engine.wakeups.appended
    engine.deliver.on_due = engine.readers.due
    engine.deliver.on_buried = partial(notify_dead_lettered, engine)
    engine.deliver.on_delivered = delivered
    engine.keys.on_read = engine.consumers.check_keys
    engine.wakeups.on |= {
        "queue_changed": queue_changed,
        "clock_moved": clock_moved,
        "faults_changed": faults_changed,
        "log_changed": engine.logs.changed,
        "resumed": engine.consumers.resume,
        "finished": lambda number: engine.consumers.finished([number]),
        "arrival_elsewhere": lambda queue_id: engine.standard.look_near((queue_id,)),
    }


def move_clocks(engine: Engine, stored: settings.StoredClock) -> None:
    """Use these clocks from now on, and wake everybody that waits for a time."""
    if engine.clock.move(stored):
        engine.standard.forget_marks()
        engine.wakeups.on["schedules"]()
        engine.wakeups.on["deliveries"]()
        engine.wakeups.wake_all()
        engine.consumers.go_on()


async def _read_clock(engine: Engine) -> None:
    try:
        async with engine.database.transaction() as tx:
            stored = await settings.read_clock(tx)
    except Unavailable as error:
        _log.log(error.log_level, "cannot read the clocks: %s", error)
        return
    move_clocks(engine, stored)
    engine.wakeups.applied(Notice.CLOCK_MOVED, stored.moves)


async def _read_faults(engine: Engine) -> None:
    # Imported late: without rules, a start does not need it.
    from queuegate.gateway.operations.runtime import faults

    try:
        change = await faults.reload(engine)
    except Unavailable as error:
        _log.log(error.log_level, "cannot read the faults: %s", error)
        return
    engine.wakeups.applied(Notice.FAULTS_CHANGED, change)


async def _poll(engine: Engine, queue_ids: list[int]) -> list[tuple[int, bool, int]]:
    """Return (queue_id, receivable now, milliseconds to the next) of queues with parked
    receives."""
    found: list[tuple[int, bool, int]] = []
    async with engine.database.transaction() as tx:
        for clock, some in engine.queues.by_clock(engine.clock, queue_ids).items():
            visible = await _next_visible(engine, tx, clock.now(), some)
            # A frozen clock never reaches the next instant.
            found += [one for one in visible if one[1] or not clock.is_frozen]
    return found


async def _next_visible(
    engine: Engine, tx: Transaction, now: datetime | None, queue_ids: list[int]
) -> list[tuple[int, bool, int]]:
    found: list[tuple[int, bool, int]] = []
    queues = [(queue_id, engine.queues.by_id(queue_id)) for queue_id in queue_ids]
    for kind in KINDS:
        # The kind of a queue that is no longer cached is unknown.
        asked = [
            WatchedQueue(
                queue_id,
                engine.standard.mark_of(queue_id),
                _LONGEST_RETENTION if queue is None else queue.retention_seconds,
            )
            for queue_id, queue in queues
            if queue is None or queue.kind is kind
        ]
        if asked:
            found += await kind.next_visible(tx, now, asked)
    return found
